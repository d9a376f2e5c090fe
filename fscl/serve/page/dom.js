/* Making and changing parts of the page. Text always becomes a text node: a label with markup stays a label. */

/** An element with attributes, listeners (`onclick`) and children; null children are left out. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") made[name] = value;
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** A real button; `attributes.focus` names it, so that it keeps the focus when its part of the page is drawn again. */
export function button(text, onclick, attributes = {}) {
  const { focus, ...others } = attributes;
  return el("button", { type: "button", onclick, "data-focus": focus, ...others }, text);
}

/** Draw a part again. What had the focus has it again, and what was typed and not sent stays. */
export function redraw(container, ...children) {
  const active = container.contains(document.activeElement) ? document.activeElement : null;
  const focus = active?.dataset?.focus;
  const typed = new Map();
  for (const field of container.querySelectorAll("input[data-focus], select[data-focus]")) {
    if (field.type !== "file") typed.set(field.dataset.focus, field);
  }
  const scroll = container.scrollTop;
  container.replaceChildren(...children.flat(Infinity).filter((child) => child));
  for (const field of container.querySelectorAll("input[data-focus], select[data-focus]")) {
    const before = typed.get(field.dataset.focus);
    if (!before || field.dataset.fixed) continue;
    if (field.type === "checkbox") field.checked = before.checked;
    else if (before.dataset.typed) Object.assign(field, { value: before.value }).dataset.typed = "1";
  }
  container.scrollTop = scroll;
  if (!active) return;
  const again = focus && [...container.querySelectorAll("[data-focus]")].find((each) => each.dataset.focus === focus);
  if (again && !again.disabled) again.focus({ preventScroll: true });
  else if (container.isConnected) {
    if (!container.hasAttribute("tabindex")) container.setAttribute("tabindex", "-1");
    container.focus({ preventScroll: true }); // not to the top of the page
    if (document.activeElement !== container) document.getElementById("main").focus({ preventScroll: true }); // hidden
  }
}

/** Marks a field as typed in by a person, so that `redraw` leaves its text alone. */
export function remembersTyping(field) {
  field.addEventListener("input", () => {
    field.dataset.typed = "1";
  });
  return field;
}

let politeTimer = 0;

/** Said by screen readers when they are free; shown nowhere. */
export function announce(text) {
  clearTimeout(politeTimer);
  const region = document.getElementById("polite");
  region.textContent = "";
  politeTimer = setTimeout(() => {
    region.textContent = text;
  }, 50); // an equal text is said again
}

/** A sentence for eyes and ears that goes when it is dismissed. Errors stay, others go by themselves. */
export function notice(text, { error = false, action = null } = {}) {
  const list = document.getElementById("notices");
  const same = [...list.children].find((each) => each.dataset.text === text);
  same?.remove();
  const item = el("div", { class: error ? "notice error" : "notice", "data-text": text }, el("span", {}, text));
  if (action)
    item.append(
      button(action.text, () => {
        item.remove();
        action.run();
      }),
    );
  item.append(button("×", () => item.remove(), { class: "plain", "aria-label": `Dismiss: ${text}` }));
  list.append(item);
  while (list.children.length > 4) list.firstElementChild.remove();
  if (error) document.getElementById("urgent").textContent = text;
  else {
    announce(text);
    setTimeout(() => item.remove(), 8000);
  }
}

/** Run what a person asked for; an error becomes a notice with the sentence of the service. */
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    if (error.name === "AbortError" || error.kind === "stopped") notice("Stopped; nothing was changed.");
    else notice(error.message || String(error), { error: true });
    return undefined;
  }
}

export const percent = (value, digits = 0) =>
  value === null || value === undefined ? "–" : `${(100 * value).toFixed(digits)}\u00a0%`;

export const counted = (n, one, many = `${one}s`) => `${n} ${n === 1 ? one : many}`;

export const between = (interval) =>
  interval ? `${(100 * interval[0]).toFixed(0)} to ${(100 * interval[1]).toFixed(0)}\u00a0%` : "";

/** A bar from 0 to 1 beside which the number stands as text; with an interval as a lighter stripe. */
export function bar(value, { interval = null, kind = "" } = {}) {
  const outer = el("span", { class: `bar ${kind}`, "aria-hidden": "true" });
  if (interval) {
    const stripe = el("span", { class: "stripe" });
    stripe.style.left = `${100 * interval[0]}%`;
    stripe.style.width = `${100 * (interval[1] - interval[0])}%`;
    outer.append(stripe);
  }
  const inner = el("span", { class: interval ? "tick" : "fill" });
  inner.style[interval ? "left" : "width"] = `${Math.min(100 * (value ?? 0), interval ? 98.5 : 100)}%`;
  if (value !== null && value !== undefined) outer.append(inner);
  return outer;
}

/** A picture of the service. Its name is text for people and may be empty. */
export function picture(url, alt, size = 160) {
  const src = url.startsWith("blob:") ? url : `${url.replace(/^\//, "")}?size=${size}`;
  return el("img", { src, alt, loading: "lazy", decoding: "async" });
}

/** A dialog that closes with Escape and gives the focus back. Resolves when it is closed. */
export function dialog(title, fill, { wide = false } = {}) {
  const came = document.activeElement;
  const heading = el("h2", { id: "dialog-title", tabindex: "-1" }, title);
  const box = el("dialog", { "aria-labelledby": "dialog-title", class: wide ? "wide" : null });
  const body = el("div", { class: "dialog-body" });
  box.append(
    el(
      "header",
      {},
      heading,
      button("Close", () => box.close(), { class: "plain" }),
    ),
    body,
  );
  return new Promise((resolve) => {
    let answer;
    fill(
      body,
      (value) => {
        answer = value;
        box.close();
      },
      heading,
    );
    box.addEventListener("close", () => {
      box.remove();
      if (came?.isConnected) came.focus();
      resolve(answer);
    });
    document.body.append(box);
    box.showModal();
    (body.querySelector("[autofocus]") ?? heading).focus();
  });
}

/** Ask before what cannot be taken back. */
export function confirmed(title, sentence, yes) {
  return dialog(title, (body, close) =>
    body.append(
      el("p", {}, sentence),
      el(
        "div",
        { class: "row" },
        button(yes, () => close(true), { class: "danger" }),
        button("Cancel", () => close(false), { autofocus: true }),
      ),
    ),
  );
}
