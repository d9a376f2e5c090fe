/*
 * The lesson that is being gathered: pictures in the tray with the class that each will be taught as (null: not named yet).
 * It is kept by the browser, so that a reload loses nothing, and shared by its tabs.
 */

import { address } from "./api.js";
import { attempt, counted, notice } from "./dom.js";
import { fromTransfer, sendAll } from "./pictures.js";
import { change, known, labelKey, labelOf, leftTray, memory, on, over, tell } from "./store.js";

/** [{id, name, label}] */
export const lesson = {
  all: () => memory.read("lesson", []),
  of: (label) => lesson.all().filter((each) => labelKey(each.label) === labelKey(label)),
  labels: () => [...new Map(lesson.all().map((each) => [labelKey(each.label), each.label])).values()],
};

function write(pictures) {
  memory.write("lesson", pictures);
  tell("lesson", pictures);
}

/** Add a picture of the tray; one that is there already takes the new label. */
export function gather(picture, label) {
  const others = lesson.all().filter((each) => each.id !== picture.id);
  write([...others, { id: picture.id, name: picture.name, label }]);
}

export function drop(ids) {
  const gone = new Set(ids);
  write(lesson.all().filter((each) => !gone.has(each.id)));
}

/** Give the pictures of one label another one: naming those that had none, or renaming a class before it is taught. */
export function relabel(from, to) {
  write(lesson.all().map((each) => (labelKey(each.label) === labelKey(from) ? { ...each, label: to } : each)));
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
  const pictures = named.map(({ id, label }) => ({ id, label }));
  const started = (job) => {
    if (dry) return;
    leftTray(named.map((each) => each.id));
    memory.write("taught-by", { ...memory.read("taught-by", {}), [job.id]: named.map((each) => each.id) });
  };
  const result = await attempt(() => change("learn", { pictures, dry_run: dry }, started));
  if (result?.left_out?.length) notice(`Left out: ${result.left_out.join("; ")}`, { error: true });
  return result;
}

/** Pictures leave the lesson when the job that teaches them is done, also if the page was loaded again meanwhile. */
function dropTaught() {
  const teaching = memory.read("taught-by", {});
  for (const [id, pictures] of Object.entries(teaching)) {
    const job = known.jobs.get(id);
    if (!job || !over(job)) continue;
    delete teaching[id];
    memory.write("taught-by", teaching);
    if (job.state !== "done") continue;
    drop(pictures);
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
  notice(`${counted(gone.length, "picture")} of the lesson are no longer in the tray of the service.`, { error: true });
}

export function startLesson() {
  window.addEventListener("storage", (event) => {
    if (event.key === memory.key("lesson")) tell("lesson", lesson.all());
  });
  on("jobs", dropTaught);
  dropTaught();
}
