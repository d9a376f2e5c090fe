/* Before there is a model, and before a token was given. */

import { post } from "./api.js";
import { attempt, button, el } from "./dom.js";
import { known, loadModel } from "./store.js";

const WHAT = {
  photos: ["Photographs", "Things, animals, places, parts: anything a camera sees."],
  drawings: ["Drawings", "Characters, symbols, sketches: lines on a plain ground."],
};

/** The one choice of the first run: what kind of pictures. `made` is called when the model is there. */
export function firstRun(made) {
  const invert = el("input", { type: "checkbox", id: "invert", checked: true });
  const cards = known.model.choices.map((choice) => {
    const [name, what] = WHAT[choice.for] ?? [choice.for, ""];
    const drawings = choice.for === "drawings";
    const id = `choice-${choice.for}`;
    return el(
      "article",
      { class: "card choice", "aria-labelledby": id },
      el("h3", { id }, name),
      el("p", {}, what),
      choice.installed ? null : el("p", { class: "warning" }, choice.message),
      drawings ? el("p", {}, el("label", { for: "invert" }, invert, " dark ink on light paper")) : null,
      el("p", { class: "quiet" }, `base: ${choice.base}`),
      button(
        `Begin with ${name.toLowerCase()}`,
        async (event) => {
          event.target.disabled = true;
          const body = drawings ? { for: choice.for, invert: invert.checked } : { for: choice.for };
          const done = await attempt(async () => {
            await post("model", body);
            await loadModel();
            return true;
          });
          event.target.disabled = false;
          if (done) made();
        },
        { class: "main", disabled: !choice.installed || known.model.read_only },
      ),
    );
  });
  return [
    el("h2", { tabindex: "-1" }, "What will you teach it?"),
    el(
      "p",
      {},
      "The model ",
      el("bdi", {}, el("strong", {}, known.model.name)),
      " is not there yet. Choose once; classes can be added at any time.",
    ),
    known.model.read_only
      ? el("p", { class: "warning" }, "This service is read-only: begin with the command line.")
      : null,
    el("div", { class: "choices" }, cards),
    el("p", { class: "quiet" }, "Everything stays on this machine, in one folder."),
  ];
}

/** The token that was printed where the service was started. */
export function tokenForm(opened) {
  const input = el("input", { id: "token", type: "password", autocomplete: "off", required: true });
  const submit = el("button", { type: "submit", class: "main" }, "Open");
  const form = el(
    "form",
    { class: "card token" },
    el("h2", { tabindex: "-1" }, "A token is needed"),
    el("p", {}, "It was printed once, where the service was started."),
    el("label", { for: "token" }, "Token"),
    el("div", { class: "row" }, input, submit),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    const done = await attempt(async () => {
      await post("session", { token: input.value.trim() });
      return true;
    });
    submit.disabled = false;
    input.value = "";
    if (done) opened();
    else input.focus();
  });
  return form;
}
