/* How good it is by its own estimate, what would help most, and stored pictures that deserve a look. */

import { get } from "./api.js";
import { exampleControls } from "./class_dialog.js";
import { attempt, bar, between, button, counted, el, percent, picture, redraw } from "./dom.js";
import { change, known, labelText, memory, on } from "./store.js";

let box;
let doubts = null;
let shown = false;

export function checkView() {
  box = el("div", {});
  on("classes", () => {
    doubts = null;
    if (shown) load();
  });
  return [el("h2", { tabindex: "-1" }, "Check"), box];
}

/** Doubts are looked for only while the part is on the screen. */
export function checkShown(now) {
  shown = now;
  if (now) load();
}

async function load() {
  draw();
  if (doubts?.state === known.classes?.state) return;
  const found = await attempt(() => get("doubts"));
  if (found) {
    doubts = found;
    draw();
  }
}

function draw() {
  const classes = known.classes;
  if (!classes?.classes.length) {
    redraw(box, el("p", { class: "empty" }, "Nothing is taught yet, so there is nothing to check."));
    return;
  }
  redraw(
    box,
    estimate(classes),
    advice(classes),
    doubts ? [suspects(doubts), duplicates(doubts)] : el("p", { class: "quiet" }, "Looking for doubtful labels …"),
  );
}

function estimate(classes) {
  const sorted = [...classes.classes].sort((a, b) => (a.accuracy ?? 2) - (b.accuracy ?? 2));
  const total =
    classes.accuracy === null
      ? "It is not known yet: give some class a second picture."
      : `${percent(classes.accuracy, 1)}${classes.interval ? ` (${between(classes.interval)})` : ""}, by ` +
        `${counted(classes.n_left_out, "left-out picture")}.`;
  return el(
    "section",
    {},
    el("h3", {}, "Estimated accuracy"),
    el(
      "p",
      {},
      total,
      el(
        "span",
        { class: "quiet" },
        " Stored pictures are left out in turn and asked for. ",
        "The test with pictures of your own, kept apart, says more.",
      ),
    ),
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Accuracy of each class" },
      el(
        "table",
        {},
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            ["Class", "Pictures", "Accuracy", "95 % interval"].map((text) => el("th", { scope: "col" }, text)),
          ),
        ),
        el(
          "tbody",
          {},
          sorted.map((each) =>
            el(
              "tr",
              {},
              el("th", { scope: "row" }, el("bdi", {}, labelText(each.label))),
              el("td", { class: "number" }, each.examples),
              el("td", { class: "number" }, percent(each.accuracy)),
              el(
                "td",
                {},
                el(
                  "span",
                  { class: "measure" },
                  bar(each.accuracy, { interval: each.interval }),
                  el("span", { class: "quiet" }, between(each.interval)),
                ),
              ),
            ),
          ),
        ),
      ),
    ),
  );
}

function advice(classes) {
  if (!classes.advice?.length) return null;
  return el(
    "section",
    {},
    el("h3", {}, "What would help most"),
    el(
      "ol",
      { class: "advice" },
      classes.advice.map((each) => el("li", {}, each.message)),
    ),
  );
}

const accepted = () => memory.read("accepted", []);
const accept = (key) => {
  memory.write("accepted", [...accepted(), key].slice(-1000));
  draw();
};

function suspects(found) {
  const done = new Set(accepted());
  const open = found.wrong_labels.filter((each) => !done.has(each.key));
  return el(
    "section",
    {},
    el("h3", {}, "Labels that may be wrong"),
    open.length
      ? el(
          "ul",
          { class: "doubts" },
          open.map((each) => suspect(each, found.state)),
        )
      : el("p", { class: "quiet" }, "None."),
  );
}

function suspect(each, state) {
  const name = each.source || `picture ${each.number}`;
  const likelier = labelText(each.likelier);
  return el(
    "li",
    { class: "card" },
    picture(each.url, name),
    el(
      "div",
      {},
      el(
        "p",
        {},
        el("bdi", {}, name),
        " is called ",
        el("strong", {}, el("bdi", {}, labelText(each.label))),
        " and looks like ",
        el("strong", {}, el("bdi", {}, likelier)),
        ` (${percent(each.probability)}).`,
      ),
      known.model?.read_only
        ? null
        : el(
            "div",
            { class: "row" },
            button(
              `Move to ${likelier}`,
              () => attempt(() => change("move", { example: each.number, state, label: each.likelier })),
              { focus: `move-${each.key}` },
            ),
            button("Remove", () => attempt(() => change("remove", { example: each.number, state })), {
              focus: `remove-${each.key}`,
            }),
            button("It is right", () => accept(each.key), { class: "plain", focus: `right-${each.key}` }),
          ),
    ),
  );
}

function duplicates(found) {
  const done = new Set(accepted());
  const open = found.duplicates.filter((each) => !done.has(`d-${each.examples[0].key}`));
  return el(
    "section",
    {},
    el("h3", {}, "Pictures that repeat"),
    open.length
      ? el(
          "ul",
          { class: "doubts" },
          open.map((each) => repeat(each, found.state)),
        )
      : el("p", { class: "quiet" }, "None."),
  );
}

function repeat(each, state) {
  return el(
    "li",
    { class: "card" },
    el(
      "p",
      {},
      each.same_label
        ? `${each.examples.length} show the same; the estimate counts them once.`
        : "These show the same and have different labels: at least one is wrong.",
    ),
    el(
      "ul",
      { class: "thumbs big" },
      each.examples.map((one) =>
        el(
          "li",
          {},
          el(
            "figure",
            {},
            picture(one.url, one.source || `picture ${one.number}`),
            el(
              "figcaption",
              {},
              el("bdi", {}, labelText(one.label)),
              known.model?.read_only ? null : exampleControls(one, state, async () => undefined),
            ),
          ),
        ),
      ),
    ),
    el(
      "div",
      { class: "row" },
      button("Leave them", () => accept(`d-${each.examples[0].key}`), {
        class: "plain",
        focus: `leave-${each.examples[0].key}`,
      }),
    ),
  );
}
