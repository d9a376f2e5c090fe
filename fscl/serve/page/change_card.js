/* What a change did: who gained, who suffered, what was noticed, and undo beside it. */

import { announce, attempt, button, counted, dialog, el, percent, redraw } from "./dom.js";
import { change, known, labelText, memory, on } from "./store.js";

const VERBS = {
  learn: "Learned",
  correct: "Corrected",
  move: "Moved",
  remove: "Removed",
  rename: "Renamed",
  merge: "Merged",
  forget: "Forgotten",
  undo: "Undone",
  redo: "Done again",
  fit: "Began again",
};

/** Kept above every part of the page until it is dismissed. */
export function changeCard() {
  const card = el("section", { class: "change", "aria-label": "What the last change did" });
  const again = () => draw(card);
  on("change", (made) => {
    again();
    if (made) announce(`${title(made)}. ${(made.lines ?? []).join(". ")}`);
  });
  on("history", again);
  again();
  return card;
}

function title(made) {
  const event = made.event;
  if (!event) return VERBS[made.kind] ?? "Changed";
  const labels = [...(event.new ?? []), ...(event.known ?? [])].map(labelText).slice(0, 6).join(", ");
  if (event.call === "learn" || event.call === "correct") {
    return `${VERBS[made.kind]}: ${counted(event.n_examples, "picture")} of ${labels}`;
  }
  if (event.call === "rename" || event.call === "move" || event.call === "merge") {
    const to = event.new?.[0] ?? event.known?.[1] ?? "";
    return `${VERBS[made.kind]}: ${labelText(event.known?.[0] ?? "")} → ${labelText(to)}`;
  }
  return labels ? `${VERBS[made.kind] ?? made.kind}: ${labels}` : (VERBS[made.kind] ?? made.kind);
}

/** From one share to another; where there was none before, the new one alone. */
const course = (before, after) =>
  before === null || before === undefined ? percent(after) : `${percent(before)} → ${percent(after)}`;

function list(heading, items, kind) {
  if (!items?.length) return null;
  return el(
    "div",
    { class: kind },
    el("h4", {}, heading),
    el(
      "ul",
      {},
      items
        .slice(0, 6)
        .map((each) => el("li", {}, el("bdi", {}, labelText(each.label)), `: ${course(each.before, each.after)}`)),
      items.length > 6 ? el("li", { class: "quiet" }, `and ${items.length - 6} more`) : null,
    ),
  );
}

/** The body that a change and a trial share. */
function body(made) {
  const { before, after, interval } = made.accuracy ?? {};
  const fresh = (made.classes ?? []).filter((each) => each.new);
  const range = interval ? ` (${percent(interval[0])} to ${percent(interval[1])})` : "";
  const notes = [];
  if (made.repeats)
    notes.push(`${counted(made.repeats, "stored picture shows", "stored pictures show")} what another one shows`);
  if (made.doubtful?.length) notes.push(`${counted(made.doubtful.length, "label")} may be wrong`);
  return [
    el("p", {}, "Estimated accuracy: ", el("strong", {}, course(before, after)), range),
    el(
      "div",
      { class: "effects" },
      list("New", fresh, "fresh"),
      list("Gained", made.gains, "gains"),
      list("Suffered", made.suffers, "suffers"),
    ),
    (made.classes ?? []).some((each) => !each.new) && !made.suffers?.length
      ? el("p", { class: "quiet" }, "No known class suffers.")
      : null,
    notes.length
      ? el("p", { class: "quiet" }, `${notes.join("; ")}: `, el("a", { href: "#check" }, "look at them"))
      : null,
  ];
}

function draw(card) {
  const made = known.change;
  const seen = memory.read("dismissed", null);
  card.hidden = !made || seen === made.state;
  if (card.hidden) {
    redraw(card);
    return;
  }
  redraw(
    card,
    el(
      "header",
      {},
      el("h2", { class: "small" }, title(made)),
      el(
        "div",
        { class: "row" },
        undoButton(made),
        button(
          "Dismiss",
          () => {
            memory.write("dismissed", made.state);
            draw(card);
            document.getElementById("main").focus();
          },
          { class: "plain", focus: "dismiss" },
        ),
      ),
    ),
    body(made),
  );
}

function undoButton(made) {
  if (known.model?.read_only) return null;
  const history = known.history;
  if (!history || history.state !== made.state) return null;
  const undone = history.states.find((each) => each.undone);
  if (made.kind === "undo") {
    return undone && button("Redo", () => attempt(() => change("redo", { to: undone.state })), { focus: "redo" });
  }
  const there = history.states.some((each) => each.state === made.undo_to);
  if (!there) return el("span", { class: "quiet" }, "this is final: it cannot be undone");
  return button("Undo", () => attempt(() => change("undo", { to: made.undo_to })), { focus: "undo" });
}

/** What a lesson would do; nothing was learned. */
export function showTrial(made) {
  if (!made) return undefined;
  return dialog("If this were taught", (inside, close) =>
    inside.append(
      ...body(made).filter(Boolean),
      el("p", { class: "quiet" }, "Nothing was learned; the pictures wait in the next lesson."),
      el(
        "div",
        { class: "row" },
        button("Close", () => close(), { autofocus: true }),
      ),
    ),
  );
}
