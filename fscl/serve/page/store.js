/* What the page knows of the service, kept fresh by server-sent events. Views listen for the part that they show. */

import { address, get, isAway, post, ServiceError } from "./api.js";

/** `model`, `classes`, `history`, `inbox`, `jobs`, `change`: what was loaded last. */
export const known = {
  model: null,
  classes: null,
  history: null,
  inbox: null,
  jobs: new Map(),
  change: null,
  live: false,
};

const events = new EventTarget();
export const on = (name, run) => events.addEventListener(name, (event) => run(event.detail));
export const tell = (name, detail = null) => events.dispatchEvent(new CustomEvent(name, { detail }));

export const labelKey = (label) => JSON.stringify(label);
export const labelText = (label) => String(label);

/** The label that a person means by a text: that of a known class if it reads so, else one of the model's kind. */
export function labelOf(text) {
  const wanted = text.trim().normalize("NFC");
  const classes = known.classes?.classes ?? [];
  const same = classes.find((each) => labelText(each.label).normalize("NFC") === wanted);
  if (same) return same.label;
  const kind = classes.length ? typeof classes[0].label : "string";
  if (kind === "number" && wanted !== "" && Number.isFinite(Number(wanted))) return Number(wanted);
  return kind === "boolean" && /^(true|false)$/i.test(wanted) ? wanted.toLowerCase() === "true" : wanted;
}

const loads = new Map();

/** Load a part; while it is under way a second wish for it becomes one more load after it, and not many. */
function loader(name, path) {
  return () => {
    const running = loads.get(name);
    if (running) {
      running.again = true;
      return running.promise;
    }
    const entry = { again: false };
    entry.promise = (async () => {
      try {
        do {
          entry.again = false;
          known[name] = await get(path);
        } while (entry.again);
        tell(name, known[name]);
      } finally {
        loads.delete(name);
      }
    })();
    loads.set(name, entry);
    return entry.promise;
  };
}

export const loadModel = loader("model", "model");
export const loadClasses = loader("classes", "classes");
export const loadHistory = loader("history", "history");
export const loadInbox = loader("inbox", "inbox");

const quietly = (promise) => promise.catch(() => undefined); // the banner says that the service is away

export function refresh() {
  if (!known.model?.exists) return quietly(loadModel());
  return quietly(Promise.all([loadModel(), loadClasses(), loadHistory(), loadInbox()]));
}

/** Jobs of this and of other tabs, as they change. */
export function tookJob(job) {
  const before = known.jobs.get(job.id);
  if (before && over(before)) return; // the answer to a call may come after the event that it is done
  known.jobs.set(job.id, job);
  tell("jobs", job);
  if (changed(job)) tookChange(job.result, job.kind);
}

export const over = (job) => ["done", "failed", "stopped"].includes(job.state);
const CHANGES = ["learn", "correct", "move", "remove", "rename", "merge", "forget", "undo", "redo"];
const changed = (job) => job.state === "done" && CHANGES.includes(job.kind) && job.result && !job.result.dry_run;

function tookChange(result, kind) {
  if (known.change?.state === result.state) return;
  known.change = { ...result, kind };
  tell("change", known.change);
}

/** The jobs of before this page was opened: work under way goes on, and the last lesson's change is shown again. */
export async function loadJobs() {
  const { jobs } = await get("jobs");
  for (const job of jobs) known.jobs.set(job.id, job);
  const last = jobs.find(changed);
  if (last?.result.state === known.model?.state) known.change = { ...last.result, kind: last.kind };
  tell("jobs");
  tell("change", known.change);
}

/** Run a call as a job and wait for its result; the work bar shows it, and any tab may stop it. */
export async function runJob(path, body, started = () => undefined) {
  const { job } = await post(path, { ...body, wait: false });
  started(job);
  tookJob(job);
  return finished(job.id);
}

function finished(id) {
  return new Promise((resolve, reject) => {
    let timer = 0;
    const settle = () => {
      const job = known.jobs.get(id);
      if (!over(job)) return;
      clearTimeout(timer);
      events.removeEventListener("jobs", settle);
      if (job.state === "done") resolve(job.result);
      else reject(new ServiceError(409, job.error ?? { kind: "stopped", message: "Stopped; nothing was changed." }));
    };
    const poll = async () => {
      // events are quicker; this is for when they do not come
      try {
        tookJob((await get(`jobs/${id}`)).job);
      } catch (error) {
        if (error.status === 404) known.jobs.set(id, lostJob(id));
      }
      settle();
      if (!over(known.jobs.get(id))) timer = setTimeout(poll, 1500);
    };
    events.addEventListener("jobs", settle);
    timer = setTimeout(poll, 1500);
    settle();
  });
}

const lostJob = (id) => ({
  ...known.jobs.get(id),
  state: "failed",
  error: {
    kind: "lost",
    message: "The service was started again. Look at the history: a lesson that it had taken is there.",
  },
});

/** One call that changes the model; what it changed is shown with undo beside it. */
export async function change(path, body, started) {
  const result = await runJob(path, body, started);
  if (!result.dry_run) await refresh();
  return result;
}

/** An id for a lesson, so that one whose answer was lost is not taught twice when it is sent again. */
export const newId = () =>
  [...crypto.getRandomValues(new Uint8Array(16))].map((each) => each.toString(16).padStart(2, "0")).join("");

let source = null;

function listen() {
  source?.close();
  source = new EventSource(address("events"));
  const take = (name, run) => source.addEventListener(name, (event) => run(JSON.parse(event.data)));
  take("hello", (hello) => {
    known.live = true;
    isAway(false);
    const running = new Set(hello.jobs.map((job) => job.id));
    hello.jobs.forEach(tookJob);
    for (const job of known.jobs.values()) {
      if (!over(job) && !running.has(job.id)) quietly(get(`jobs/${job.id}`).then((answer) => tookJob(answer.job)));
    }
    if (hello.state !== known.classes?.state) refresh();
  });
  take("state", (event) => {
    if (event.state !== known.classes?.state) {
      tell("moved", event);
      refresh();
    }
  });
  take("job", tookJob);
  take("inbox", () => quietly(loadInbox()));
  source.onerror = () => {
    if (known.live) isAway(true);
    known.live = false;
  };
}

/** A hidden tab gives its connection back: a browser has six for one service, however many tabs there are. */
export function startListening() {
  listen();
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      source?.close();
      source = null;
      known.live = false;
    } else if (!source) {
      listen();
      refresh();
    }
  });
  setInterval(() => {
    if (!document.hidden && (!source || source.readyState === EventSource.CLOSED)) listen();
  }, 3000);
}

/** Pictures that were taught leave the tray, so the list of what was asked lets go of them. */
export function leftTray(ids) {
  const asked = memory.read("asked", []);
  memory.write(
    "asked",
    asked.filter((id) => !ids.includes(id)),
  );
}

/** A small value that a reload does not lose. Where the browser keeps nothing, it lasts as long as the page. */
const fallback = new Map();
export const memory = {
  read(name, otherwise) {
    try {
      const text = localStorage.getItem(memory.key(name)) ?? fallback.get(memory.key(name));
      return text ? JSON.parse(text) : otherwise;
    } catch {
      return otherwise;
    }
  },
  write(name, value) {
    const text = JSON.stringify(value);
    fallback.set(memory.key(name), text);
    try {
      localStorage.setItem(memory.key(name), text);
    } catch {
      /* the page's own copy serves */
    }
  },
  key: (name) => `fscl:${known.model?.name ?? ""}:${name}`,
};
