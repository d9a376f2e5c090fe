/* The columns of classes: what is known, what is gathered for the next lesson, and ways to add to both. */

import { openCamera } from "./camera_panel.js";
import { openClass } from "./class_dialog.js";
import { bar, between, button, counted, el, notice, percent, picture, redraw, remembersTyping } from "./dom.js";
import { drop, gather, gatherFiles, gatherTransfer, lesson, relabel, teach } from "./lesson.js";
import { takesDrops } from "./drops.js";
import { fileInput, trayUrl } from "./pictures.js";
import { showTrial } from "./change_card.js";
import { known, labelKey, labelOf, labelText, on } from "./store.js";

const SHOWN = 12;
const cards = new Map(); // by label key; the parts of a card that people type in are made once
let columns;
let lessonBar;
let naming;

export function teachView() {
  columns = el("ul", { class: "columns", "aria-label": "Classes" });
  naming = newClassCard();
  lessonBar = el("section", { class: "lesson", "aria-label": "Next lesson" });
  const again = () => {
    drawColumns();
    drawLesson();
  };
  for (const name of ["classes", "lesson", "model"]) on(name, again);
  again();
  return [el("h2", { tabindex: "-1", class: "unseen" }, "Teach"), lessonBar, columns];
}

function drawColumns() {
  const classes = known.classes?.classes ?? [];
  const taught = new Set(classes.map((each) => labelKey(each.label)));
  const coming = lesson
    .labels()
    .filter((label) => label !== null && !taught.has(labelKey(label)))
    .map((label) => ({ label, examples: 0, accuracy: null, interval: null, newest: [], coming: true }));
  const wanted = [...coming, ...[...classes].reverse()]; // the newest beside the card that adds one
  const keys = new Set(wanted.map((each) => labelKey(each.label)));
  for (const [key, card] of cards)
    if (!keys.has(key)) {
      card.element.remove();
      cards.delete(key);
    }
  const readOnly = known.model?.read_only;
  naming.element.hidden = Boolean(readOnly);
  const order = [naming.element];
  for (const each of wanted) {
    const key = labelKey(each.label);
    if (!cards.has(key)) cards.set(key, classCard(each.label));
    cards.get(key).draw(each);
    order.push(cards.get(key).element);
  }
  order.forEach((element, i) => {
    if (columns.children[i] !== element) columns.insertBefore(element, columns.children[i]);
  });
  naming.draw();
}

/** The class under a drop or a paste: its label, null for the card of new classes, undefined for the open page. */
export function labelUnder(target) {
  const card = target?.closest?.(".card[data-label]");
  return card ? JSON.parse(card.dataset.label) : undefined;
}

function gathered(label, where) {
  const pictures = lesson.of(label);
  if (!pictures.length) return null;
  return el(
    "ul",
    { class: "thumbs next", "aria-label": `${counted(pictures.length, "picture")} for the next lesson${where}` },
    pictures.map((each) =>
      el(
        "li",
        {},
        picture(trayUrl(each.id), each.name || "picture without a name"),
        button("×", () => drop([each.id]), {
          class: "corner",
          focus: `drop-${each.id}`,
          "aria-label": `Take ${each.name || "this picture"} out of the next lesson`,
        }),
      ),
    ),
  );
}

function classCard(label) {
  const text = labelText(label);
  const head = el("header", {});
  const stored = el("div", {});
  const next = el("div", {});
  const adding = el(
    "div",
    { class: "row adding" },
    fileInput({ label: "Files", took: (items) => gatherFiles(items, label) }),
    button("Camera", () => openCamera(label)),
  );
  adding.querySelector("button").setAttribute("aria-label", `Add files to ${text}`);
  adding.lastElementChild.setAttribute("aria-label", `Add to ${text} from the camera`);
  const element = el(
    "li",
    { class: "card", "aria-label": `Class ${text}`, "data-label": labelKey(label) },
    head,
    next,
    stored,
    adding,
  );
  takesDrops(element, (transfer) => gatherTransfer(transfer, label));
  return {
    element,
    draw(each) {
      adding.hidden = Boolean(known.model?.read_only);
      element.classList.toggle("coming", Boolean(each.coming));
      redraw(head, el("h3", {}, el("bdi", {}, text)), summary(each), each.coming ? null : accuracy(each));
      redraw(next, gathered(label, ` of ${text}`));
      redraw(stored, each.newest.length ? thumbs(each) : null);
    },
  };
}

const summary = (each) =>
  el(
    "p",
    { class: "quiet count" },
    each.coming ? "new, not taught yet" : counted(each.examples, "picture"),
    each.coming
      ? null
      : button("Details", () => openClass(each.label), {
          class: "link",
          focus: "details",
          "aria-label": `Details of ${labelText(each.label)}: all pictures, rename, merge, forget`,
        }),
  );

function accuracy(each) {
  if (each.accuracy === null) return el("p", { class: "quiet" }, "accuracy not known: one picture more");
  return el(
    "p",
    { class: "measure" },
    bar(each.accuracy, { interval: each.interval }),
    el(
      "span",
      {},
      percent(each.accuracy),
      el("span", { class: "quiet" }, each.interval ? ` (${between(each.interval)})` : ""),
    ),
  );
}

const thumbs = (each) =>
  el(
    "ul",
    { class: "thumbs", "aria-label": `Pictures of ${labelText(each.label)}` },
    each.newest.slice(0, SHOWN).map((one) => el("li", {}, picture(one.url, one.source || "picture without a name"))),
    each.examples > SHOWN ? el("li", { class: "more quiet" }, `+${each.examples - SHOWN}`) : null,
  );

function newClassCard() {
  const input = el("input", {
    id: "new-class",
    type: "text",
    autocomplete: "off",
    maxlength: 200,
    placeholder: "such as elm",
    list: "known-classes",
  });
  const next = el("div", {});
  const label = () => (input.value.trim() ? labelOf(input.value) : null);
  const form = el(
    "form",
    {},
    el("label", { for: "new-class" }, "New class"),
    el("div", { class: "row" }, remembersTyping(input), el("button", { type: "submit" }, "Name them")),
  );
  const hint = el("p", { class: "quiet hint" });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (label() === null || !lesson.of(null).length) {
      input.focus();
      return;
    }
    relabel(null, label());
    input.value = "";
  });
  const element = el(
    "li",
    { class: "card new", "aria-label": "New class", "data-label": "null" },
    form,
    hint,
    next,
    el(
      "div",
      { class: "row adding" },
      fileInput({
        label: "Files",
        took: (items) => {
          gatherFiles(items, label()).then(() => {
            input.value = "";
          });
        },
      }),
      fileInput({ label: "Folders", folder: true, took: (items) => gatherFiles(items) }),
      button("Camera", () => {
        openCamera(label());
        input.value = "";
      }),
    ),
  );
  const [files, , folders, , camera] = element.querySelector(".adding").children;
  files.setAttribute("aria-label", "Files for a new class");
  folders.setAttribute("aria-label", "Folders, each with its class as its name");
  camera.setAttribute("aria-label", "Pictures for a new class from the camera");
  takesDrops(element, async (transfer) => {
    const named = label();
    await gatherTransfer(transfer, named === null ? undefined : named);
    if (named !== null) input.value = "";
  });
  return {
    element,
    draw() {
      const waiting = lesson.of(null).length;
      form.querySelector("button").hidden = !waiting;
      hint.textContent = waiting
        ? `${counted(waiting, "picture")} without a class: give a name.`
        : "Drop pictures or folders here, paste, or use the camera. A folder's name is the name of its class.";
      redraw(next, gathered(null, ", without a class yet"));
    },
  };
}

function drawLesson() {
  const all = lesson.all();
  const named = all.filter((each) => each.label !== null);
  lessonBar.hidden = !all.length || Boolean(known.model?.read_only);
  if (lessonBar.hidden) {
    redraw(lessonBar);
    return;
  }
  const counts = lesson
    .labels()
    .filter((label) => label !== null)
    .map((label) => `${labelText(label)} ${lesson.of(label).length}`)
    .slice(0, 6);
  const unnamed = all.length - named.length;
  redraw(
    lessonBar,
    el(
      "p",
      {},
      el("strong", {}, "Next lesson: "),
      [counts.join(", "), unnamed ? `${unnamed} without a class` : ""].filter(Boolean).join("; "),
    ),
    el(
      "div",
      { class: "row" },
      button(`Teach ${counted(named.length, "picture")}`, () => busy(() => teach()), {
        class: "main",
        focus: "teach",
        disabled: !named.length,
      }),
      button("Try first", () => busy(async () => showTrial(await teach({ dry: true }))), {
        focus: "try",
        disabled: !named.length,
        title: "Say what would change; nothing is learned",
      }),
      button(
        "Clear",
        () => {
          const before = lesson.all();
          drop(before.map((each) => each.id));
          cleared(before);
        },
        { focus: "clear", class: "plain" },
      ),
    ),
  );
}

let teaching = false;

async function busy(work) {
  if (teaching) return;
  teaching = true;
  try {
    await work();
  } finally {
    teaching = false;
  }
}

function cleared(before) {
  notice(`${counted(before.length, "picture")} taken out of the next lesson.`, {
    action: { text: "Put back", run: () => before.forEach((each) => gather(each, each.label)) },
  });
}
