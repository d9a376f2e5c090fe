/* Test with pictures that were kept apart, and take the model away. */

import { takesDrops } from "./drops.js";
import { attempt, bar, between, button, counted, el, notice, percent, picture, redraw } from "./dom.js";
import { fileInput, fromTransfer, sendAll } from "./pictures.js";
import { known, labelOf, labelText, on, over, runJob } from "./store.js";

let box;
let exports;

export function testView() {
  box = el("div", { class: "result" });
  exports = el("div", {});
  const zone = el(
    "div",
    { class: "zone" },
    el("p", {}, "Drop a folder with one sub-folder per class, of pictures that were not taught."),
    el("div", { class: "row" }, fileInput({ label: "Choose a folder", folder: true, took: test })),
  );
  takesDrops(zone, testTransfer);
  on("jobs", (job) => {
    if (!job || over(job)) draw();
  });
  draw();
  return [
    el("h2", { tabindex: "-1" }, "Test and export"),
    el("h3", {}, "How good is it really?"),
    zone,
    box,
    el("h3", {}, "Export"),
    exporting(),
    exports,
  ];
}

export const testTransfer = async (transfer) => test(await fromTransfer(transfer));

async function test(items) {
  const labelled = items.filter((each) => each.folder);
  if (!labelled.length) {
    notice("A test needs to know what is right: give a folder with one sub-folder per class.", { error: true });
    return;
  }
  await attempt(async () => {
    const sent = await sendAll(labelled, `${counted(labelled.length, "picture")} for the test`);
    if (!sent.length) return;
    const result = await runJob("test", {
      pictures: sent.map(({ picture: each, item }) => ({ id: each.id, label: labelOf(item.folder) })),
    });
    notice(`Tested: ${percent(result.accuracy.value, 1)} of ${result.accuracy.n} right.`);
  });
}

/** The newest job of that kind that is done: a reload shows its result again. */
const newest = (kind) =>
  [...known.jobs.values()]
    .filter((job) => job.kind === kind && job.state === "done" && job.result)
    .sort((a, b) => (a.created < b.created ? 1 : -1));

function draw() {
  const [last] = newest("test");
  redraw(box, last ? result(last.result, last.created) : null);
  redraw(
    exports,
    newest("export").length
      ? el(
          "ul",
          {},
          newest("export")
            .slice(0, 5)
            .map(({ result: made }) =>
              el(
                "li",
                {},
                el("a", { href: made.url.replace(/^\//, ""), download: made.name }, made.name),
                el("span", { class: "quiet" }, ` ${size(made.bytes)}`),
              ),
            ),
        )
      : null,
  );
}

const size = (bytes) => (bytes < 1e6 ? `${Math.ceil(bytes / 1e3)} KB` : `${(bytes / 1e6).toFixed(1)} MB`);
const share = (each) =>
  each?.n ? `${percent(each.value, 1)} (${each.count} of ${each.n}; ${between(each.interval)})` : "–";

function result(found, created) {
  return el(
    "section",
    { class: "card", "aria-label": "Result of the test" },
    el(
      "p",
      {},
      el("strong", { class: "big" }, percent(found.accuracy.value, 1)),
      ` of ${counted(found.accuracy.n, "picture")} right, 95 % interval ${between(found.accuracy.interval)}.`,
    ),
    el(
      "p",
      { class: "quiet" },
      new Date(created).toLocaleString(),
      ` · called unknown: ${share(found.called_unknown)}`,
      found.caught ? ` · strangers called unknown: ${share(found.caught)}` : "",
      found.n_taught
        ? ` · ${counted(found.n_taught, "picture was", "pictures were")} taught before, so this is too good`
        : "",
    ),
    found.classes.length
      ? el(
          "div",
          { class: "scroll", tabindex: "0", role: "region", "aria-label": "Each class in the test" },
          el(
            "table",
            {},
            el(
              "thead",
              {},
              el(
                "tr",
                {},
                ["Class", "Right", "", "Unknown"].map((text) =>
                  text ? el("th", { scope: "col" }, text) : el("td", {}),
                ),
              ),
            ),
            el(
              "tbody",
              {},
              found.classes.map((each) =>
                el(
                  "tr",
                  {},
                  el("th", { scope: "row" }, el("bdi", {}, labelText(each.label))),
                  el("td", { class: "number" }, `${each.right.count} of ${each.right.n}`),
                  el("td", {}, bar(each.right.value, { interval: each.right.interval })),
                  el("td", { class: "number" }, percent(each.unknown.value)),
                ),
              ),
            ),
          ),
        )
      : null,
    found.confusions.length
      ? el(
          "p",
          {},
          "Most confused: ",
          found.confusions
            .slice(0, 5)
            .map((each) => `${labelText(each.label)} taken for ${labelText(each.answer ?? "unknown")} (${each.n})`)
            .join("; "),
        )
      : null,
    found.mistakes.length
      ? el(
          "details",
          {},
          el("summary", {}, `Mistakes, the surest first (${found.mistakes.length})`),
          el(
            "ul",
            { class: "thumbs big" },
            found.mistakes.map((each) =>
              el(
                "li",
                {},
                el(
                  "figure",
                  {},
                  picture(`api/v1/pictures/${each.id}`, each.name || "picture without a name"),
                  el(
                    "figcaption",
                    {},
                    el("bdi", {}, labelText(each.label)),
                    " → ",
                    el("bdi", {}, each.unknown ? "unknown" : labelText(each.answer)),
                    ` ${percent(each.probability)}`,
                  ),
                ),
              ),
            ),
          ),
        )
      : null,
    found.left_out?.length ? el("p", { class: "quiet" }, `Left out: ${found.left_out.slice(0, 3).join("; ")}`) : null,
  );
}

function exporting() {
  const run = (format) =>
    attempt(async () => {
      const made = await runJob("export", { format });
      notice(`${made.name} is ready.`);
      const link = el("a", { href: made.url.replace(/^\//, ""), download: made.name });
      link.click(); // what was asked for; the list keeps the link
    });
  return el(
    "div",
    { class: "row" },
    button("The whole model (.zip)", () => run("model")),
    button("ONNX, for other programs (.zip)", () => run("onnx")),
  );
}
