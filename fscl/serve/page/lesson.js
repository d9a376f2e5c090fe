/*
 * The lesson that is being gathered: pictures in the tray with the class that each will be taught as (null: not named yet).
 * It is kept by the browser, so that a reload loses nothing, and shared by its tabs.
 */

import { address } from "./api.js";
import { attempt, counted, notice } from "./dom.js";
import { fromTransfer, sendAll } from "./pictures.js";
import { change, known, labelKey, labelOf, leftTray, memory, newId, on, over, tell } from "./store.js";

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
  const id = idFor(named);
  hold(id, ids);
  leftTray(ids);
  const result = await attempt(async () => {
    try {
      return await change("learn", { pictures, lesson: id });
    } catch (error) {
      if (leaving) return undefined; // the next page settles it
      if (error.kind === "away" || error.kind === "lost") unanswered(id, named);
      release(id);
      throw error;
    }
  });
  if (result) settle();
  if (result?.left_out?.length) notice(`Left out: ${result.left_out.join("; ")}`, { error: true });
  return result;
}

const described = (pictures) => JSON.stringify(pictures.map(({ id, label }) => [id, label]));

/** The id of a lesson: a new one, or that under which the same pictures were sent without an answer. */
function idFor(pictures) {
  const same = Object.entries(memory.read("unanswered", {})).find(([, what]) => what === described(pictures));
  return same ? same[0] : newId();
}

function unanswered(id, pictures) {
  memory.write("unanswered", { ...memory.read("unanswered", {}), [id]: described(pictures) });
}

/** While a lesson that is being learned has pictures they are not in the next one. */
function hold(id, pictures) {
  memory.write("taught-by", { ...memory.read("taught-by", {}), [id]: pictures });
  tell("lesson");
}

function release(id) {
  const { [id]: gone, ...others } = memory.read("taught-by", {});
  if (!gone) return;
  memory.write("taught-by", others);
  tell("lesson");
}

/** What became of a lesson: "done", "going", "failed", or undefined where the service does not know its id. */
function fate(id) {
  const job = [...known.jobs.values()].find((each) => each.lesson === id);
  if (job?.state === "done" || known.history?.events.some((event) => event.lesson === id)) return "done";
  return job && (over(job) ? "failed" : "going");
}

/**
 * Pictures leave the lesson for good when it is learned, also if the page was loaded again or the service was started again
 * meanwhile; if that fails they are back. With `first` all jobs of the service are known, and one that is not is no more.
 */
function settle(first = false) {
  for (const [id, pictures] of Object.entries(memory.read("taught-by", {}))) {
    const became = fate(id);
    if (became === "going" || (!became && !first)) continue;
    if (became === "done") drop(pictures);
    release(id);
  }
  for (const [id, what] of Object.entries(memory.read("unanswered", {}))) {
    if (fate(id) !== "done") continue;
    drop(JSON.parse(what).map(([picture]) => picture));
    const { [id]: gone, ...others } = memory.read("unanswered", {});
    memory.write("unanswered", others);
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
  on("jobs", () => settle());
  on("history", () => settle());
  settle(true);
}
