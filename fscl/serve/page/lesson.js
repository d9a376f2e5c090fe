/*
 * The lesson that is being gathered: pictures in the tray with the class that each will be taught as (null: not named yet).
 * It is kept by the browser, so that a reload loses nothing, and shared by its tabs.
 */

import { address } from "./api.js";
import { attempt, counted, notice } from "./dom.js";
import { fromTransfer, sendAll } from "./pictures.js";
import { change, known, labelKey, labelOf, leftTray, memory, on, over, tell } from "./store.js";

let leaving = false; // a page that is left breaks its calls off, and the service may have taken them
window.addEventListener("pagehide", () => {
  leaving = true;
});
window.addEventListener("pageshow", () => {
  leaving = false;
});

/** [{id, name, label}] */
export const lesson = {
  all: () => {
    const taught = new Set(Object.values(memory.read("taught-by", {})).flat()); // a job has them, and may fail
    return memory.read("lesson", []).filter((each) => !taught.has(each.id));
  },
  of: (label) => lesson.all().filter((each) => labelKey(each.label) === labelKey(label)),
  labels: () => [...new Map(lesson.all().map((each) => [labelKey(each.label), each.label])).values()],
};

function rewrite(how) {
  memory.write("lesson", how(memory.read("lesson", [])));
  tell("lesson");
}

/** Add a picture of the tray; one that is there already takes the new label. */
export function gather({ id, name }, label) {
  rewrite((pictures) => [...pictures.filter((each) => each.id !== id), { id, name, label }]);
}

export function drop(ids) {
  const gone = new Set(ids);
  rewrite((pictures) => pictures.filter((each) => !gone.has(each.id)));
}

/** Give the pictures of one label another one: naming those that had none. */
export function relabel(from, to) {
  const same = (each) => labelKey(each.label) === labelKey(from);
  rewrite((pictures) => pictures.map((each) => (same(each) ? { ...each, label: to } : each)));
}

/** Files for one class, or with `label` undefined each for the class that its folder is named for. */
export async function gatherFiles(items, label) {
  if (known.model?.read_only) {
    notice("This service is read-only: it answers, and learns nothing.", { error: true });
    return;
  }
  const what = counted(items.length, "picture");
  await attempt(() =>
    sendAll(items, what, (picture, { folder }) =>
      gather(picture, label !== undefined ? label : folder ? labelOf(folder) : null),
    ),
  );
}

export const gatherTransfer = async (transfer, label) => gatherFiles(await fromTransfer(transfer), label);

/** Teach what was gathered, as one call of the history; with `dry` only say what would change. */
export async function teach({ dry = false } = {}) {
  const named = lesson.all().filter((each) => each.label !== null);
  if (!named.length) return undefined;
  const ids = named.map((each) => each.id);
  const pictures = named.map(({ id, label }) => ({ id, label }));
  if (dry) return attempt(() => change("learn", { pictures, dry_run: true }));
  const asked = `asked-${Date.now()}`; // until the service has given the job a name
  hold(asked, ids);
  leftTray(ids);
  const result = await attempt(() =>
    change("learn", { pictures }, (job) => {
      hold(job.id, ids);
      release(asked);
      dropTaught();
    }),
  );
  if (!leaving) release(asked);
  if (result?.left_out?.length) notice(`Left out: ${result.left_out.join("; ")}`, { error: true });
  return result;
}

/** While a job has pictures they are not in the lesson. */
function hold(job, pictures) {
  memory.write("taught-by", { ...memory.read("taught-by", {}), [job]: pictures });
  tell("lesson");
}

function release(job) {
  const { [job]: gone, ...others } = memory.read("taught-by", {});
  if (!gone) return;
  memory.write("taught-by", others);
  tell("lesson");
}

/** The job of a lesson whose page was loaded again before the service had answered: the first since then of its size. */
function jobOf(asked, pictures) {
  const since = Number(asked.slice("asked-".length)) - 1500; // the service tells whole seconds
  return [...known.jobs.values()]
    .filter((job) => job.kind === "learn" && Date.parse(job.created) >= since)
    .filter((job) => Number.parseInt(job.label, 10) === pictures.length && !job.result?.dry_run)
    .sort((a, b) => (a.created < b.created ? -1 : 1))[0];
}

/**
 * Pictures leave the lesson for good when the job that teaches them is done, also if the page was loaded again meanwhile;
 * if it fails they are back. With `first` all jobs of the service are known, and one that is not is no more.
 */
function dropTaught(first = false) {
  for (const [id, pictures] of Object.entries(memory.read("taught-by", {}))) {
    const job = known.jobs.get(id) ?? (first ? jobOf(id, pictures) : undefined);
    if (job && job.id !== id && !over(job)) hold(job.id, pictures);
    else if (job ? !over(job) : !first) continue;
    if (job?.state === "done") drop(pictures);
    release(id);
  }
}

/** Pictures that the tray no longer has cannot be taught: say so once, and go on with the others. */
export async function checkLesson() {
  const gone = [];
  for (const each of lesson.all()) {
    const answer = await fetch(address(`pictures/${each.id}?size=16`)).catch(() => null);
    if (answer?.status === 404) gone.push(each.id);
  }
  if (!gone.length) return;
  drop(gone);
  const left = counted(gone.length, "picture has", "pictures have");
  notice(`${left} left the next lesson: taught already, or no longer kept by the service.`);
}

export function startLesson() {
  window.addEventListener("storage", (event) => {
    if (event.key === memory.key("lesson") || event.key === memory.key("taught-by")) tell("lesson");
  });
  on("jobs", () => dropTaught());
  dropTaught(true);
}
