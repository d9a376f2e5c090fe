/* Ask about pictures: ranked answers, the nearest stored examples, "unknown"; one click corrects. */

import { address, post, putPicture } from "./api.js";
import { announce, attempt, bar, button, counted, el, percent, picture, redraw, remembersTyping } from "./dom.js";
import { takesDrops } from "./drops.js";
import { copyOf, fileInput, fromTransfer, keepCopy, sendAll, trayUrl } from "./pictures.js";
import { change, known, labelKey, labelOf, labelText, leftTray, loadInbox, memory, newId, on } from "./store.js";

const MOST = 60; // pictures that stay on the page

let list;
let hint;
let answers = []; // newest first: what the service said, with `taught` once it was corrected

const ids = () => memory.read("asked", []);

export function askView() {
  list = el("ol", { class: "answers", "aria-label": "Answers, newest first" });
  hint = el("p", { class: "quiet" });
  const zone = el(
    "div",
    { class: "zone" },
    el("p", {}, "Drop pictures here, paste one, or choose files."),
    el(
      "div",
      { class: "row" },
      fileInput({ label: "Choose pictures", took: askFiles }),
      fileInput({ label: "Choose a folder", folder: true, took: askFiles }),
      button("Clear the list", clear, { class: "plain" }),
    ),
  );
  takesDrops(zone, askTransfer);
  on("classes", again);
  on("model", draw);
  on("change", (made) => made?.kind === "undo" && attempt(takeBack));
  draw();
  return [el("h2", { tabindex: "-1" }, "Ask"), zone, hint, list];
}

export async function askFiles(items) {
  const sent = await attempt(() => sendAll(items, counted(items.length, "picture")));
  if (sent?.length) await askPicture(sent.map((each) => each.picture));
}

export const askTransfer = async (transfer) => askFiles(await fromTransfer(transfer));

/** Ask about pictures of the tray; unknown and uncertain ones are put in the inbox by the service. */
export async function askPicture(pictures) {
  const fresh = pictures.map((each) => each.id);
  memory.write("asked", [...fresh, ...ids().filter((id) => !fresh.includes(id))].slice(0, MOST));
  const found = await attempt(() => ask(fresh, true));
  if (!found) return;
  await merge(found);
  const [first] = found;
  announce(found.length === 1 ? sentence(first) : `${counted(found.length, "answer")}, the first: ${sentence(first)}`);
  await attempt(loadInbox);
}

async function ask(pictures, keep) {
  const found = [];
  for (let i = 0; i < pictures.length; i += 100) {
    const part = pictures.slice(i, i + 100);
    found.push(...(await post("predict", { pictures: part, keep, top: 5, nearest: 3 })).answers);
  }
  return found;
}

async function merge(found) {
  await Promise.all(found.map((each) => fetchCopy(each.picture)));
  const now = new Map(found.map((each) => [each.picture, each]));
  const listed = ids();
  const rest = answers.filter((each) => !listed.includes(each.picture)); // taught: they left the tray
  const before = new Map(answers.map((each) => [each.picture, each]));
  answers = [...listed.map((id) => now.get(id) ?? before.get(id)).filter(Boolean), ...rest].slice(0, MOST);
  draw();
}

/** A copy that stays with the page: a picture that was taught leaves the tray, and its card stays. */
async function fetchCopy(id) {
  if (copyOf(id)) return;
  const answer = await fetch(address(`pictures/${id}?size=512`));
  if (answer.ok) keepCopy(id, await answer.blob());
}

/** After a lesson the same pictures are asked again: people see what it changed. */
let asking = false;
async function again() {
  draw();
  if (asking || !ids().length || !known.classes?.classes.length) return;
  asking = true;
  try {
    await merge(await ask(ids(), false));
  } catch (error) {
    if (error.status === 404) await dropMissing();
  } finally {
    asking = false;
  }
}

/** The tray is bounded: a picture that it no longer has leaves the list, and the others are asked again. */
async function dropMissing() {
  for (const id of ids()) {
    const answer = await fetch(address(`pictures/${id}?size=16`)).catch(() => null);
    if (answer?.status === 404) leftTray([id]);
  }
  if (ids().length) await merge(await ask(ids(), false).catch(() => []));
}

/** What was taught and undone may be corrected otherwise: it is put in the tray again, and asked about again. */
async function takeBack() {
  const taught = answers.filter((each) => each.taught !== undefined && copyOf(each.picture));
  for (const each of taught) {
    const { id } = await putPicture(copyOf(each.picture).blob, each.name);
    keepCopy(id, copyOf(each.picture).blob);
    answers = answers.map((one) => (one === each ? { ...each, picture: id, taught: undefined } : one));
    memory.write("asked", [...ids().filter((one) => one !== id), id]);
  }
  if (taught.length) await again();
}

function clear() {
  memory.write("asked", []);
  answers = [];
  draw();
}

const sentence = (answer) =>
  answer.unknown
    ? `unknown; of the known classes ${labelText(answer.ranked[0]?.label ?? "none")} is the likeliest`
    : `${labelText(answer.label)}, ${percent(answer.probability)}${answer.uncertain ? ", uncertain" : ""}`;

function draw() {
  if (!list) return;
  hint.textContent = known.classes?.classes.length ? "" : "Nothing is taught yet. Teach two classes first, then ask.";
  redraw(list, answers.map(card));
}

function card(answer) {
  const open = answer.taught === undefined && !known.model?.read_only;
  const name = answer.name || "picture without a name";
  const verdict = answer.unknown
    ? el("h3", { class: "unknown" }, "unknown")
    : el(
        "h3",
        {},
        el("bdi", {}, labelText(answer.label)),
        el("span", { class: "quiet" }, ` ${percent(answer.probability)}`),
      );
  const why = answer.unknown ? "It is like no class that is known." : answer.uncertain ? "Uncertain." : "";
  const state =
    answer.taught !== undefined
      ? el("p", { class: "done" }, "Taught as ", el("bdi", {}, labelText(answer.taught)), ".")
      : why || answer.kept
        ? el("p", { class: "quiet" }, why, answer.kept ? " It is in the inbox." : "")
        : null;
  return el(
    "li",
    { class: "answer card", "aria-label": `${name}: ${sentence(answer)}` },
    el("img", { src: trayUrl(answer.picture), alt: name }),
    el(
      "div",
      { class: "said" },
      verdict,
      state,
      el(
        "ul",
        { class: "ranked" },
        answer.ranked.map((each) => ranked(answer, each, open)),
      ),
      open ? other(answer) : null,
      nearest(answer),
    ),
  );
}

function ranked(answer, each, open) {
  const text = labelText(each.label);
  return el(
    "li",
    {},
    el("bdi", { class: "name", title: text }, text),
    bar(each.probability),
    el("span", { class: "number" }, percent(each.probability)),
    !open
      ? null
      : button("It is this", () => correct(answer, each.label, false), {
          class: "small",
          focus: `is-${answer.picture}-${labelKey(each.label)}`,
          "aria-label": `It is ${text}: teach this picture`,
        }),
  );
}

/** Any other class, known or new. */
function other(answer) {
  const id = `other-${answer.picture}`;
  const input = remembersTyping(
    el("input", {
      id,
      type: "text",
      list: "known-classes",
      autocomplete: "off",
      maxlength: 200,
      "data-focus": id,
      placeholder: "another class",
    }),
  );
  const form = el(
    "form",
    { class: "row" },
    el("label", { for: id, class: "unseen" }, "It is another class, known or new"),
    input,
    el("button", { type: "submit", class: "small", "data-focus": `${id}-go` }, "Teach"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!input.value.trim()) {
      input.focus();
      return;
    }
    const label = labelOf(input.value);
    const isKnown = known.classes?.classes.some((each) => labelKey(each.label) === labelKey(label));
    delete input.dataset.typed;
    correct(answer, label, !isKnown);
  });
  return form;
}

function nearest(answer) {
  if (!answer.nearest.length) return null;
  return el(
    "div",
    { class: "nearest" },
    el("h4", {}, "Nearest stored pictures"),
    el(
      "ul",
      { class: "thumbs" },
      answer.nearest.map((each) =>
        el(
          "li",
          {},
          el(
            "figure",
            {},
            picture(each.url, each.source || "picture without a name"),
            el("figcaption", {}, el("bdi", {}, labelText(each.label))),
          ),
        ),
      ),
    ),
  );
}

async function correct(answer, label, isNew) {
  const id = answer.picture;
  const before = ids();
  leftTray([id]); // before the service lets go of it
  const made = await attempt(() => change("correct", { picture: id, label, new: isNew, lesson: newId() }));
  if (made) answers = answers.map((each) => (each.picture === id ? { ...each, taught: label } : each));
  else memory.write("asked", before);
  draw();
}
