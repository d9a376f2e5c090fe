/* One class: all of its pictures, with move and remove; rename, merge and forget. */

import { get } from "./api.js";
import { attempt, button, confirmed, counted, dialog, el, notice, picture, redraw } from "./dom.js";
import { change, known, labelKey, labelOf, labelText } from "./store.js";

const PAGE = 100;

export function openClass(label) {
  const text = labelText(label);
  return dialog(
    text,
    (body, close) => {
      const pictures = el("div", {});
      body.append(
        ...(known.model?.read_only ? [] : [renaming(label, close), merging(label, close)]),
        pictures,
        known.model?.read_only ? "" : forgetting(label, close),
      );
      drawPictures(pictures, label, 0);
    },
    { wide: true },
  );
}

function renaming(label, close) {
  const input = el("input", {
    id: "rename",
    type: "text",
    value: labelText(label),
    maxlength: 200,
    autocomplete: "off",
  });
  const form = el(
    "form",
    { class: "row" },
    el("label", { for: "rename" }, "Rename to"),
    input,
    el("button", { type: "submit" }, "Rename"),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const to = labelOf(input.value);
    if (!input.value.trim() || labelKey(to) === labelKey(label)) {
      input.focus();
      return;
    }
    close();
    await attempt(() => change("rename", { label, to }));
  });
  return form;
}

const others = (label) => (known.classes?.classes ?? []).filter((each) => labelKey(each.label) !== labelKey(label));

function choice(id, label, { fixed = false } = {}) {
  return el(
    "select",
    { id, "data-focus": id, "data-fixed": fixed },
    others(label).map((each) => el("option", { value: labelKey(each.label) }, labelText(each.label))),
  );
}

function merging(label, close) {
  if (!others(label).length) return "";
  const select = choice("merge", label);
  const form = el(
    "form",
    { class: "row" },
    el("label", { for: "merge" }, "Merge into"),
    select,
    el("button", { type: "submit" }, "Merge"),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    close();
    await attempt(() => change("merge", { label, into: JSON.parse(select.value) }));
  });
  return form;
}

function forgetting(label, close) {
  const text = labelText(label);
  return el(
    "div",
    { class: "row last" },
    button(
      "Forget this class …",
      async () => {
        const sure = await confirmed(
          `Forget ${text}?`,
          "Its pictures are erased from this state and from every earlier one. " +
            "This cannot be undone, and nothing before it can be gone back to.",
          `Forget ${text}`,
        );
        if (!sure) return;
        close();
        await attempt(() => change("forget", { label }));
      },
      { class: "danger" },
    ),
  );
}

async function drawPictures(box, label, offset) {
  const found = await attempt(() => get("examples", { label: labelText(label), offset, limit: PAGE }));
  if (!found) return;
  const again = () => {
    if (known.classes?.classes.some((each) => labelKey(each.label) === labelKey(label)))
      drawPictures(box, label, offset);
    else box.closest("dialog")?.close();
  };
  const last = Math.min(offset + PAGE, found.total);
  redraw(
    box,
    el("h3", {}, counted(found.total, "picture"), found.total > PAGE ? `, ${offset + 1} to ${last} shown` : ""),
    el(
      "ul",
      { class: "thumbs big" },
      found.examples.map((each) => one(each, found.state, again)),
    ),
    found.total > PAGE
      ? el(
          "div",
          { class: "row" },
          button("Before", () => drawPictures(box, label, offset - PAGE), { disabled: offset === 0, focus: "before" }),
          button("After", () => drawPictures(box, label, offset + PAGE), {
            disabled: last === found.total,
            focus: "after",
          }),
        )
      : null,
  );
}

function one(example, state, again) {
  const name = example.source || `picture ${example.number}`;
  const controls = known.model?.read_only ? null : exampleControls(example, state, again);
  return el(
    "li",
    { class: example.doubtful ? "doubtful" : null },
    el(
      "figure",
      {},
      picture(example.url, name),
      el("figcaption", {}, example.doubtful ? "label in doubt" : "", controls),
    ),
  );
}

/** Move or remove one stored picture; its number is that of a state, so a model that moved on is loaded again. */
export function exampleControls(example, state, again) {
  const name = example.source || `picture ${example.number}`;
  const run = async (path, body) => {
    const made = await attempt(async () => {
      try {
        return await change(path, { example: example.number, state, ...body });
      } catch (error) {
        if (error.kind !== "stale") throw error;
        notice("The model has changed meanwhile; the pictures were loaded again.", { error: true });
        return null;
      }
    });
    if (made !== undefined) await again();
  };
  const controls = [
    button("Remove", () => run("remove", {}), {
      class: "small",
      focus: `remove-${example.key}`,
      "aria-label": `Remove ${name} from ${labelText(example.label)}`,
    }),
  ];
  if (others(example.label).length) {
    const select = choice(`to-${example.key}`, example.label, { fixed: true });
    select.prepend(el("option", { value: "" }, "Move to …"));
    select.value = "";
    select.setAttribute("aria-label", `Move ${name} to another class`);
    select.addEventListener("change", () => {
      if (select.value) run("move", { label: JSON.parse(select.value) });
    });
    controls.push(select);
  }
  return el("span", { class: "controls" }, controls);
}
