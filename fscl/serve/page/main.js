/* The page: what is shown first, its parts, drops and pastes on the open page, and the line to the service. */

import { get, line } from "./api.js";
import { askTransfer, askView } from "./ask_view.js";
import { cameraPanel, stopLooking } from "./camera_panel.js";
import { changeCard } from "./change_card.js";
import { checkShown, checkView } from "./check_view.js";
import { attempt, counted, el, notice, percent, redraw } from "./dom.js";
import { firstRun, tokenForm } from "./first_run.js";
import { historyView } from "./history_view.js";
import { inboxView } from "./inbox_view.js";
import { checkLesson, gatherTransfer, startLesson } from "./lesson.js";
import { known, labelText, loadJobs, loadModel, on, refresh, startListening } from "./store.js";
import { labelUnder, teachView } from "./teach_view.js";
import { testTransfer, testView } from "./test_view.js";
import { startWorkBar } from "./work.js";

const PARTS = { teach: "Teach", ask: "Ask", inbox: "Inbox", history: "History", check: "Check", test: "Test" };
const DROPS = {
  teach: (transfer, target) => gatherTransfer(transfer, labelUnder(target) ?? undefined),
  ask: askTransfer,
  test: testTransfer,
};
const views = {};
const main = document.getElementById("main");
const tabs = document.getElementById("tabs");
let built = false;

const present = () => (location.hash.slice(1) in PARTS ? location.hash.slice(1) : "teach");

function show(focus) {
  const part = present();
  for (const [name, view] of Object.entries(views)) view.hidden = name !== part;
  document.getElementById("workspace").dataset.part = part;
  document.getElementById("camera").hidden = part !== "teach" && part !== "ask";
  if (document.getElementById("camera").hidden) stopLooking();
  checkShown(part === "check");
  drawTabs();
  if (focus) {
    window.scrollTo(0, 0);
    views[part].querySelector("h2").focus({ preventScroll: true });
  }
}

function drawTabs() {
  const total = known.inbox?.total ?? 0;
  redraw(
    tabs,
    Object.entries(PARTS).map(([name, text]) =>
      el(
        "a",
        {
          href: `#${name}`,
          "aria-current": name === present() ? "page" : null,
          "data-focus": name,
        },
        text,
        name === "inbox" && total ? el("span", { class: "badge" }, String(total)) : null,
        name === "inbox" && total ? el("span", { class: "unseen" }, " waiting") : null,
      ),
    ),
  );
}

function drawTop() {
  const { model, classes } = known;
  document.getElementById("title").textContent = model?.name ?? "fscl";
  document.title = model?.name ? `${model.name} · fscl` : "fscl";
  const parts = !model?.exists
    ? []
    : [
        counted(model.n_classes, "class", "classes"),
        counted(model.n_examples, "picture"),
        model.accuracy === null ? "" : `estimated accuracy ${percent(model.accuracy)}`,
        model.read_only ? "read-only" : "",
        model.waiting ? "a lesson that was cut short waits; the next change completes it" : "",
      ];
  document.getElementById("summary").textContent = parts.filter(Boolean).join(" · ");
  const list = document.getElementById("known-classes");
  list?.replaceChildren(...(classes?.classes ?? []).map((each) => el("option", { value: labelText(each.label) })));
}

/** All parts are made once and stay; what is typed in one is there when it is shown again. */
function build() {
  built = true;
  const makers = {
    teach: teachView,
    ask: askView,
    inbox: inboxView,
    history: historyView,
    check: checkView,
    test: testView,
  };
  const stage = el("div", { class: "stage" }, changeCard());
  const workspace = el("div", { id: "workspace", class: "workspace" }, stage, cameraPanel());
  for (const [name, make] of Object.entries(makers)) {
    views[name] = el("section", { class: `view ${name}`, "aria-label": PARTS[name] }, make());
    stage.append(views[name]);
  }
  main.replaceChildren(el("datalist", { id: "known-classes" }), workspace);
  tabs.hidden = false;
  on("inbox", drawTabs);
  window.addEventListener("hashchange", () => {
    if (location.hash.slice(1) in PARTS) show(true);
  });
  wholePage();
  show(false);
}

/** Drops beside the zones, and pastes: what they mean depends on the part that is shown. */
function wholePage() {
  window.addEventListener("dragover", (event) => {
    if (event.dataTransfer?.types.includes("Files")) event.preventDefault();
  });
  window.addEventListener("drop", (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault(); // a browser would open the file and leave the page
    const take = DROPS[present()];
    if (take) take(event.dataTransfer, event.target);
    else notice("Drop pictures on Teach, Ask or Test.", { error: true });
  });
  window.addEventListener("paste", (event) => {
    if (![...(event.clipboardData?.items ?? [])].some((item) => item.kind === "file")) return; // text goes where it is typed
    event.preventDefault();
    const take = DROPS[present()];
    if (take) take(event.clipboardData, document.activeElement);
    else notice("Paste pictures on Teach, Ask or Test.", { error: true });
  });
}

async function openModel() {
  if (built) return;
  build();
  await refresh();
  await attempt(loadJobs);
  startLesson();
  checkLesson();
}

async function start() {
  const session = await get("session");
  if (session.token_needed && !session.open) {
    askToken();
    return;
  }
  await loadModel();
  if (known.model.exists) {
    await openModel();
  } else {
    main.replaceChildren(...firstRun(openModel).filter(Boolean));
    on("model", (model) => {
      if (model.exists && !built) openModel();
    }); // made in another tab, or by the command line
  }
  if (!listening) {
    listening = true;
    startListening();
  }
}

let listening = false;
let asked = false;

function askToken() {
  if (asked) return;
  asked = true;
  const form = tokenForm(() => location.reload());
  main.prepend(form);
  document.getElementById("loading")?.remove();
  form.querySelector("input").focus();
}

line.addEventListener("token", askToken);
line.addEventListener("away", () => {
  document.getElementById("offline").textContent =
    "The service does not answer. Nothing is lost; the page goes on when it is back.";
});
line.addEventListener("there", () => {
  document.getElementById("offline").textContent = "";
  if (known.model?.exists) refresh();
});
for (const name of ["model", "classes"]) on(name, drawTop);
startWorkBar();

async function tryToStart() {
  try {
    await start();
  } catch (error) {
    document.getElementById("loading")?.replaceChildren(error.message);
    if (error.kind === "away" || error.status === 503) setTimeout(tryToStart, 1500);
    else notice(error.message, { error: true });
  }
}

tryToStart();
