/* The inbox: pictures that were unknown or uncertain, grouped by likeness, most useful first. */

import { post } from "./api.js";
import { attempt, button, counted, el, notice, percent, picture, redraw, remembersTyping } from "./dom.js";
import { trayUrl } from "./pictures.js";
import { change, known, labelKey, labelOf, labelText, leftTray, loadInbox, memory, newId, on } from "./store.js";

let box;
const taken = new Set(); // pictures that are being taught

export function inboxView() {
  box = el("div", { class: "groups" });
  on("inbox", draw);
  on("classes", draw);
  draw();
  return [
    el("h2", { tabindex: "-1" }, "Inbox"),
    el(
      "p",
      { class: "quiet" },
      "Pictures that were unknown or uncertain when they were asked about, alike ones together. ",
      "Teaching the first ones helps most.",
    ),
    box,
  ];
}

function draw() {
  const groups = (known.inbox?.groups ?? [])
    .map((each) => ({ ...each, pictures: each.pictures.filter((one) => !taken.has(one.id)) }))
    .filter((each) => each.pictures.length);
  redraw(
    box,
    groups.length
      ? groups.map(group)
      : el("p", { class: "empty" }, "The inbox is empty. Ask about pictures: what the model is unsure of comes here."),
  );
}

function describe(each) {
  if (each.settled) return "Known and certain by now";
  if (each.unknown)
    return `Like no class that is known${each.guess !== null ? `; nearest: ${labelText(each.guess)}` : ""}`;
  return each.guess !== null ? `Perhaps ${labelText(each.guess)}` : "Uncertain";
}

function group(each, place) {
  const key = each.pictures[0].id; // groups are named anew at every load; their first picture is theirs
  const boxes = each.pictures.map((one) =>
    el("input", { type: "checkbox", checked: true, "data-focus": `pick-${each.pictures.length}-${one.id}` }),
  );
  const guess = each.guess ?? each.pictures[0].ranked[0]?.label ?? null; // of unknown ones the likeliest known class
  const chosen = () => each.pictures.filter((one, i) => boxes[i].checked).map((one) => one.id);
  const input = remembersTyping(
    el("input", {
      id: `name-${key}`,
      type: "text",
      list: "known-classes",
      autocomplete: "off",
      maxlength: 200,
      "data-focus": `name-${key}`,
      placeholder: "name of the class",
    }),
  );
  const form = el(
    "form",
    { class: "row" },
    el("label", { for: `name-${key}`, class: "unseen" }, `Class of group ${place + 1}`),
    input,
    el("button", { type: "submit", class: "main", "data-focus": `make-${key}` }, "Make this a class"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!input.value.trim()) {
      input.focus();
      return;
    }
    delete input.dataset.typed;
    learn(chosen(), labelOf(input.value));
  });
  const rename = () => {
    const isKnown = known.classes?.classes.some((one) => labelKey(one.label) === labelKey(labelOf(input.value)));
    form.querySelector("button").textContent = isKnown ? "Teach as this" : "Make this a class";
  };
  input.addEventListener("input", rename);
  return el(
    "section",
    { class: "group card", "aria-label": `Group ${place + 1}` },
    el("h3", {}, `${describe(each)} · ${counted(each.pictures.length, "picture")}`),
    el(
      "ul",
      { class: "thumbs big" },
      each.pictures.map((one, i) =>
        el(
          "li",
          {},
          el(
            "label",
            { class: "pick" },
            boxes[i],
            picture(trayUrl(one.id), one.name || "picture without a name"),
            el(
              "span",
              { class: "quiet" },
              one.ranked
                .map((rank) => `${labelText(rank.label)} ${percent(rank.probability)}`)
                .slice(0, 2)
                .join(", "),
            ),
          ),
        ),
      ),
    ),
    known.model?.read_only
      ? null
      : el(
          "div",
          { class: "row" },
          guess !== null
            ? button(`They are ${labelText(guess)}`, () => learn(chosen(), guess), { focus: `guess-${key}` })
            : null,
          form,
          button("Discard", () => discard(chosen()), { class: "plain", focus: `discard-${key}` }),
        ),
  );
}

function noneTicked(pictures) {
  if (!pictures.length) notice("No picture of the group is ticked.", { error: true });
  return !pictures.length;
}

async function learn(pictures, label) {
  if (noneTicked(pictures)) return;
  const asked = memory.read("asked", []);
  leftTray(pictures); // before the service lets go of them
  pictures.forEach((id) => taken.add(id));
  draw();
  await attempt(async () => {
    try {
      await change("learn", { pictures: pictures.map((id) => ({ id, label })), lesson: newId() });
    } catch (error) {
      memory.write("asked", asked);
      throw error;
    } finally {
      await loadInbox().catch(() => undefined);
      pictures.forEach((id) => taken.delete(id));
      draw();
    }
  });
}

async function discard(pictures) {
  if (noneTicked(pictures)) return;
  await attempt(async () => {
    await post("inbox/discard", { pictures });
    await loadInbox();
    notice(`${counted(pictures.length, "picture")} taken out of the inbox.`, {
      action: { text: "Put back", run: () => attempt(() => post("inbox", { pictures }).then(loadInbox)) },
    });
  });
}
