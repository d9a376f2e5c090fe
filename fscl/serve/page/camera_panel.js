/* The camera panel: a live answer that stands still, and bursts of pictures for a class while a button is held. */

import { askFrame, putPicture } from "./api.js";
import { askPicture } from "./ask_view.js";
import { camera, askedFrame, framePrint, keptFrame, ready, startCamera, stopCamera } from "./camera.js";
import { announce, attempt, bar, button, counted, el, percent, redraw, remembersTyping } from "./dom.js";
import { gather } from "./lesson.js";
import { keepCopy } from "./pictures.js";
import { nearEqual, Steady } from "./steady.js";
import { known, labelOf, labelText, on } from "./store.js";

const BURST_EVERY = 120; // milliseconds
const AT_ONCE = 2; // questions under way: one is looked at while the next is on its way
const FASTEST = 160; // milliseconds between two questions of one of them
const MOST_FRAMES = 100; // of one burst

const parts = {};
const steady = new Steady();
let running = false;
let rates = [];

export function cameraPanel() {
  parts.video = el("video", { playsinline: true, muted: true, "aria-label": "What the camera sees" });
  parts.video.muted = true;
  parts.answer = el("p", { class: "steady", id: "steady-answer" });
  parts.others = el("ul", { class: "ranked" });
  parts.rate = el("p", { class: "quiet rate" });
  parts.target = remembersTyping(
    el("input", {
      id: "camera-class",
      type: "text",
      list: "known-classes",
      autocomplete: "off",
      maxlength: 200,
      placeholder: "name of the class",
    }),
  );
  parts.hold = button("Hold to take pictures", null, { class: "main hold", "aria-describedby": "burst-note" });
  parts.note = el("p", { class: "quiet", id: "burst-note" }, "Near-equal pictures count once. A click takes one.");
  parts.start = button("Start the camera", () => attempt(toggle));
  parts.turn = button("Other camera", () => attempt(turn), { class: "plain", hidden: true });
  parts.keep = button("Ask about this picture", () => attempt(keepFrame), { hidden: true });
  parts.teaching = el(
    "div",
    { class: "burst", hidden: true },
    el("label", { for: "camera-class" }, "Take pictures of"),
    parts.target,
    parts.hold,
    parts.note,
  );
  parts.view = el("div", { class: "viewfinder", hidden: true }, parts.video);
  holdable(parts.hold);
  on("model", drawControls);
  return el(
    "aside",
    { class: "camera off", id: "camera", "aria-labelledby": "camera-title" },
    el("h2", { id: "camera-title" }, "Camera"),
    parts.view,
    parts.answer,
    el("div", { class: "row" }, parts.start, parts.keep, parts.turn),
    parts.teaching,
    parts.others,
    parts.rate,
  );
}

/** Start the camera for a class; null leaves the name to be typed. */
export async function openCamera(label) {
  if (label !== null && label !== undefined) parts.target.value = labelText(label);
  if (!running) await attempt(toggle);
  document.getElementById("camera").scrollIntoView({ block: "nearest" });
  (parts.target.value ? parts.hold : parts.target).focus();
}

async function toggle() {
  if (running) {
    stop();
    return;
  }
  await startCamera(parts.video);
  running = true;
  steady.reset();
  rates = [];
  drawControls();
  for (let i = 0; i < AT_ONCE; i += 1) look();
  const cameras = (await navigator.mediaDevices.enumerateDevices()).filter((each) => each.kind === "videoinput");
  parts.turn.hidden = cameras.length < 2;
}

function stop() {
  running = false;
  stopCamera();
  drawControls();
}

export const stopLooking = () => {
  if (running) stop();
};

async function turn() {
  camera.facing = camera.facing === "environment" ? "user" : "environment";
  await startCamera(parts.video);
}

function drawControls() {
  parts.start.textContent = running ? "Stop the camera" : "Start the camera";
  parts.view.hidden = !running;
  parts.keep.hidden = !running;
  parts.turn.hidden ||= !running;
  parts.teaching.hidden = !running || Boolean(known.model?.read_only);
  document.getElementById("camera")?.classList.toggle("off", !running);
  if (running) return;
  parts.answer.classList.remove("unknown");
  redraw(parts.answer, "Off. Start it for a live answer, and to teach from it.");
  redraw(parts.others);
  parts.rate.textContent = "";
}

/** Ask again and again, as quickly as the service answers; two of these run side by side. */
async function look() {
  while (running) {
    if (document.hidden || !ready() || !known.model?.n_classes) {
      if (ready() && !known.model?.n_classes)
        redraw(parts.answer, "Nothing is taught yet: take pictures of two classes.");
      await pause(200);
      continue;
    }
    const next = pause(FASTEST); // more answers than these help nobody, and cost power
    try {
      const { answers } = await askFrame(await askedFrame());
      if (running) showLive(answers[0]);
      await next;
    } catch (error) {
      if (error.kind !== "away" && error.kind !== "busy") redraw(parts.answer, error.message);
      await pause(1000);
    }
  }
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

function showLive(answer) {
  const now = performance.now();
  const before = steady.shown?.key;
  const ranked = steady.take(answer, now);
  const { shown } = steady;
  const name = shown.label === null ? "unknown" : labelText(shown.label);
  redraw(parts.answer, el("bdi", {}, name), " ", el("span", { class: "quiet" }, percent(shown.share)));
  parts.answer.classList.toggle("unknown", shown.label === null);
  if (shown.key !== before) announce(`The camera sees ${name}`);
  redraw(
    parts.others,
    ranked
      .slice(0, 4)
      .map((each) =>
        el(
          "li",
          {},
          el("bdi", { class: "name" }, each.label === null ? "unknown" : labelText(each.label)),
          bar(each.share),
          percent(each.share),
        ),
      ),
  );
  rates = [...rates.filter((at) => now - at < 3000), now];
  if (rates.length > 1) {
    const rate = (1000 * (rates.length - 1)) / (now - rates[0]);
    parts.rate.textContent = `${rate.toFixed(rate < 10 ? 1 : 0)} answers a second`;
    parts.rate.dataset.rate = rate.toFixed(2);
  }
}

async function keepFrame() {
  const picture = await putPicture(await keptFrame(), `camera ${new Date().toLocaleTimeString()}`);
  location.hash = "#ask";
  await askPicture([picture]);
}

/** Held by a finger, a mouse or a key it takes a burst; a click of assistive technology takes one picture. */
function holdable(target) {
  let burst = null;
  const begin = () => {
    if (!burst && running) burst = takeBurst();
  };
  const end = () => {
    burst?.end();
    burst = null;
  };
  target.addEventListener("pointerdown", (event) => {
    target.setPointerCapture(event.pointerId);
    begin();
  });
  for (const name of ["pointerup", "pointercancel", "lostpointercapture", "blur"]) target.addEventListener(name, end);
  target.addEventListener("keydown", (event) => {
    if (event.key !== " " && event.key !== "Enter") return;
    event.preventDefault();
    begin();
  });
  target.addEventListener("keyup", end);
  target.addEventListener("contextmenu", (event) => event.preventDefault()); // a long touch is a burst, not a menu
  target.addEventListener("click", (event) => {
    if (event.detail === 0 && !burst) {
      begin();
      end();
    }
  });
}

function takeBurst() {
  const label = parts.target.value.trim() ? labelOf(parts.target.value) : null;
  const state = { on: true, kept: [], near: 0, sent: 0 };
  parts.hold.classList.add("on");
  const say = () => {
    const near = state.near ? `, ${counted(state.near, "near-equal one", "near-equal ones")} left out` : "";
    const wait = state.kept.length > state.sent ? `, sending ${state.kept.length - state.sent}` : "";
    parts.note.textContent = `${counted(state.kept.length, "picture")} taken${near}${wait}`;
  };
  const one = async () => {
    const small = framePrint();
    if (state.kept.some((each) => nearEqual(each, small))) {
      state.near += 1;
      say();
      return;
    }
    state.kept.push(small);
    say();
    const name = `camera ${state.kept.length}`;
    const frame = await keptFrame();
    await attempt(async () => {
      const picture = await putPicture(frame, name);
      keepCopy(picture.id, frame);
      gather(picture, label);
    });
    state.sent += 1;
    say();
  };
  const frames = (async () => {
    do {
      if (ready()) one();
      await pause(BURST_EVERY);
    } while (state.on && running && state.kept.length < MOST_FRAMES);
  })();
  frames.then(() => announce(parts.note.textContent));
  return {
    end() {
      state.on = false;
      parts.hold.classList.remove("on");
    },
  };
}
