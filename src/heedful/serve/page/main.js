// The page of a service: a list of its runs, and for the chosen one the forms of its task.
// The address says what is shown: #/NAME or #/NAME/FORM.

import { get } from "./api.js";
import { el, short, titled } from "./dom.js";
import { formsOf } from "./forms.js";
import { panel } from "./panel.js";

const POLL = 1000;
const main = document.getElementById("main");
const nav = document.getElementById("runs");
const panels = new Map();
let runs = [];

/** Read what is served; again, while runs are starting. */
async function load() {
  let limits;
  try {
    [{ runs }, limits] = await Promise.all([get("v1/runs"), get("v1/limits")]);
  } catch (error) {
    const again = el("button", { type: "button", onclick: load }, "Try again");
    main.replaceChildren(el("p", { class: "error", role: "alert" }, error.message), again);
    return;
  }
  for (const run of runs) run.limits = limits;
  if (runs.some((run) => !run.ready)) setTimeout(load, POLL);
  show();
}

function show() {
  const [, name, chosen] = location.hash.split("/").map(decoded);
  const run = runs.find((each) => each.name === name) ?? runs[0];
  nav.replaceChildren(el("ul", {}, ...runs.map((each) => el("li", {},
    el("a", { href: address(each), "aria-current": each === run ? "page" : null },
      el("span", { class: "name" }, each.name), el("span", { class: "task" }, each.task ? titled(each.task) : "starting"))))));
  nav.querySelector("[aria-current]").scrollIntoView({ block: "nearest", inline: "center" });
  document.title = `${run.name} – heedful`;
  if (!run.task) {
    main.replaceChildren(heading(run), el("p", { class: "hint", role: "status" }, "This run is starting."));
    return;
  }
  const forms = formsOf(run);
  const form = forms.find((each) => each.name === chosen) ?? forms[0];
  const id = JSON.stringify([run.name, form.name]);
  if (!panels.has(id)) panels.set(id, panel(run, form.make(run)));
  const choice = forms.length > 1 && el("nav", { class: "forms", "aria-label": "Forms" }, ...forms.map((each) => el("a",
    { href: address(run, each), "aria-current": each === form ? "page" : null }, each.title)));
  const shown = panels.get(id);
  if (shown.parentNode !== main || main.dataset.shown !== id) {
    main.replaceChildren(heading(run), choice || "", shown);
    main.dataset.shown = id;
  }
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

const address = (run, form = null) => `#/${encodeURIComponent(run.name)}${form ? `/${form.name}` : ""}`;

function heading(run) {
  const facts = run.task ? `${titled(run.task)} · ${compact(run.parameters)} parameters` : "";
  return el("div", { class: "heading" }, el("h1", {}, run.name), el("p", { class: "hint" }, facts));
}

function compact(n) {
  return n >= 1e6 ? `${short(Number((n / 1e6).toPrecision(3)))} million` : n.toLocaleString("en");
}

addEventListener("hashchange", () => location.hash.startsWith("#/") && show());
load();
