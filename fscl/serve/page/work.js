/* Work under way: pictures being sent by this tab, and jobs of the service, each with progress and a way to stop it. */

import { post } from "./api.js";
import { announce, attempt, button, el, redraw } from "./dom.js";
import { known, on, over } from "./store.js";

const sending = new Set();
const PHASES = {
  waiting: "waiting",
  reading: "reading pictures",
  learning: "learning",
  asking: "asking",
  writing: "writing",
};

/** Something that this tab does: call `step` for each piece and `end` when it is over; `signal` says to stop. */
export function startWork(label, total) {
  const stopper = new AbortController();
  const work = {
    label,
    total,
    done: 0,
    signal: stopper.signal,
    step() {
      work.done += 1;
      draw();
    },
    end() {
      sending.delete(work);
      draw();
    },
    stop() {
      stopper.abort();
      draw();
    },
  };
  sending.add(work);
  draw();
  return work;
}

function row(key, label, phase, done, total, stop) {
  const text = total ? `${label}: ${phase}, ${done} of ${total}` : `${label}: ${phase}`;
  return el(
    "div",
    { class: "job" },
    el("span", {}, text),
    el("progress", total ? { max: total, value: done, "aria-label": label } : { "aria-label": label }),
    stop && button("Stop", stop, { focus: `stop-${key}`, "aria-label": `Stop: ${label}` }),
  );
}

export function draw() {
  const rows = [...sending].map((work) =>
    row(work.label, work.label, "sending", work.done, work.total, () => work.stop()),
  );
  for (const job of known.jobs.values()) {
    if (over(job)) continue;
    const stop = job.stoppable ? () => attempt(() => post(`jobs/${job.id}/stop`)) : null;
    const counts = job.phase === "reading" || job.phase === "asking"; // nobody knows how far learning is
    const phase = PHASES[job.phase] ?? job.phase ?? "";
    rows.push(row(job.id, job.label || job.kind, phase, job.done, counts ? job.total : null, stop));
  }
  const box = document.getElementById("work");
  box.hidden = !rows.length;
  redraw(box, rows);
}

export function startWorkBar() {
  let last = "";
  on("jobs", (job) => {
    draw();
    const text = job && !over(job) ? `${job.label || job.kind}: ${PHASES[job.phase] ?? ""}` : "";
    if (text && text !== last) announce(text);
    last = text;
  });
  window.addEventListener("beforeunload", (event) => {
    if (sending.size) event.preventDefault(); // files that are not sent yet would be lost
  });
  draw();
}
