/* History as a time line: every state that can be gone to, what it brought, and how good it was. */

import { attempt, button, el, percent, redraw } from "./dom.js";
import { change, known, labelText, on } from "./store.js";

let box;

export function historyView() {
  box = el("div", {});
  on("history", draw);
  draw();
  return [el("h2", { tabindex: "-1" }, "History"), box];
}

const SVG = "http://www.w3.org/2000/svg";
const shape = (name, attributes) => {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
};

/** Estimated accuracy along the calls of the present state. The list below says the same in words. */
function chart(events) {
  const points = events.map((event, i) => ({ i, accuracy: event.accuracy })).filter((each) => each.accuracy !== null);
  if (points.length < 2) return null;
  const width = 600;
  const height = 120;
  const x = (i) => 30 + ((width - 45) * i) / Math.max(1, events.length - 1);
  const y = (value) => 10 + (height - 20) * (1 - value);
  const svg = shape("svg", {
    viewBox: `0 0 ${width} ${height}`,
    class: "chart",
    role: "img",
    "aria-label": `Estimated accuracy: from ${percent(points[0].accuracy)} to ${percent(points.at(-1).accuracy)}`,
  });
  for (const [value, text] of [
    [0, "0"],
    [0.5, "50"],
    [1, "100 %"],
  ]) {
    svg.append(shape("line", { x1: 30, x2: width - 10, y1: y(value), y2: y(value), class: "grid" }));
    const tick = shape("text", { x: 0, y: y(value) + 4, class: "axis" });
    tick.textContent = text.replace(" %", "");
    svg.append(tick);
  }
  svg.append(
    shape("polyline", { points: points.map((each) => `${x(each.i)},${y(each.accuracy)}`).join(" "), class: "line" }),
  );
  for (const each of points)
    svg.append(shape("circle", { cx: x(each.i), cy: y(each.accuracy), r: 3.5, class: "point" }));
  return el("figure", {}, el("figcaption", { class: "quiet" }, "Estimated accuracy in per cent, call by call"), svg);
}

const when = (text) => {
  const time = new Date(text);
  return el("time", { datetime: text }, Number.isNaN(time.getTime()) ? text : time.toLocaleString());
};

/** The command line's words without its number and time, which stand beside it. */
const words = (event) => (event?.line ?? "").replace(/^\d+\.\s+\S+\s+/, "");

function effects(state) {
  const moved = (state.changes ?? []).filter(
    (each) => each.new || (each.before !== null && each.after !== null && Math.abs(each.after - each.before) > 0.005),
  );
  if (!moved.length) return null;
  return el(
    "p",
    { class: "quiet" },
    moved
      .slice(0, 5)
      .map((each) =>
        each.new
          ? `new: ${labelText(each.label)} ${percent(each.after)}`
          : `${labelText(each.label)} ${percent(each.before)} → ${percent(each.after)}`,
      )
      .join(" · "),
  );
}

function item(state) {
  const event = state.event;
  const go = state.present
    ? el("strong", { class: "badge" }, "now")
    : known.model?.read_only
      ? null
      : button(
          state.undone ? "Go forward to here" : "Go back to here",
          () => attempt(() => change(state.undone ? "redo" : "undo", { to: state.state })),
          {
            focus: `go-${state.state}`,
            "aria-label": `Go ${state.undone ? "forward" : "back"} to state ${state.state}`,
          },
        );
  return el(
    "li",
    {
      class: state.present ? "present" : state.undone ? "undone" : "past",
      "aria-current": state.present ? "true" : null,
    },
    el(
      "div",
      { class: "row between" },
      el("span", {}, event ? words(event) : "the empty model", state.undone ? " (undone)" : ""),
      go,
    ),
    event ? el("p", { class: "quiet" }, when(event.when)) : null,
    effects(state),
  );
}

function draw() {
  const history = known.history;
  if (!history) return;
  const reachable = new Set(
    history.states.map((state) => state.event?.number).filter((number) => number !== undefined),
  );
  const gone = history.events.filter((event) => !reachable.has(event.number));
  redraw(
    box,
    chart(history.events),
    el(
      "p",
      { class: "quiet" },
      "Newest first. Going back loses nothing: undone states can be gone to again until the next change.",
    ),
    el(
      "ol",
      { class: "timeline", reversed: true, "aria-label": "States, newest first" },
      [...history.states].reverse().map(item),
    ),
    gone.length
      ? el(
          "details",
          {},
          el("summary", {}, `Earlier calls that cannot be gone back to (${gone.length})`),
          el(
            "ol",
            {},
            gone.map((event) => el("li", {}, words(event), " ", when(event.when))),
          ),
        )
      : null,
  );
}
