// "Why?": the views of `heedful explain`, computed again as the input or a choice changes.

import { explanationPage, isAbort } from "./api.js";
import { choiceField, debounced, details, el, newId, titled } from "./dom.js";

const PAUSE = 500;
const ALL = "all";

/** Return the part of the page, and `show`, which gives it what is to be explained. */
export function whyPart(run) {
  const status = el("p", { class: "hint", role: "status" });
  const problem = el("div", { role: "alert" });
  const place = el("div", { class: "explanation" });
  const views = viewFields(run);
  const layers = choiceField("Layers", [[ALL, "all"]], ALL);
  const heads = choiceField("Heads", [[ALL, "all"]], ALL);
  for (const field of [layers, heads]) field.node.hidden = true;
  const later = debounced(PAUSE, explain);
  const choices = el("div", { class: "choices", oninput: later }, views.node, el("div", { class: "row" }, layers.node, heads.node));
  const node = details("Why?", choices, status, problem, place);
  let body = null;
  let shownBody = null;
  let asking = null;
  let wanted = "";

  async function explain() {
    if (!node.open || body === null) return;
    const asked = { ...body, views: views.value(), layers: indices(layers), heads: indices(heads) };
    const text = JSON.stringify(asked);
    if (text === wanted) return;
    wanted = text;
    asking?.abort();
    const own = (asking = new AbortController());
    status.textContent = "Computing the explanation …";
    place.setAttribute("aria-busy", "true");
    problem.replaceChildren();
    try {
      const { page, isPart } = await fitting(run, asked, own.signal);
      if (asked.layers === undefined && asked.heads === undefined) offer(page);
      await shown(place, page, own.signal);
      shownBody = body;
      status.textContent = isPart ? "The beginning of the answer: all of it is longer than the context." : "";
    } catch (error) {
      if (isAbort(error)) return;
      wanted = "";
      status.textContent = "";
      if (shownBody !== body) place.replaceChildren();
      problem.replaceChildren(el("p", { class: "error" }, error.message), el("button", { type: "button", onclick: explain }, "Try again"));
    } finally {
      if (asking === own) place.removeAttribute("aria-busy");
    }
  }

  /** Offer the layers and heads that an explanation of all of them has. */
  function offer(page) {
    const [, data] = /<script type="application\/json" id="data">(.*?)<\/script>/s.exec(page) ?? [];
    const maps = JSON.parse(data ?? "{}").maps ?? [];
    fill(layers.input, Math.max(0, ...maps.map((map) => map.layer + 1)));
    fill(heads.input, Math.max(0, ...maps.map((map) => map.views.filter((view) => Number.isInteger(view.head)).length)));
  }

  node.addEventListener("toggle", explain);
  const show = (given) => {
    body = given;
    node.hidden = body === null;
    if (body !== null) later();
  };
  show(null);
  return { node, show };
}

/** Return the page of an explanation; of an answer that is longer than the context of its model, of the beginning. */
async function fitting(run, body, signal) {
  for (let { target } = body; ; target = target.slice(0, target.length / 2)) {
    try {
      return { page: await explanationPage(run, { ...body, target }, signal), isPart: target !== body.target };
    } catch (error) {
      if (error.status !== 422 || !/context/.test(error.message) || !(target?.length > 1)) throw error;
    }
  }
}

const indices = (field) => (field.value() === ALL ? undefined : [Number(field.value())]);

function fill(select, n) {
  const chosen = select.value;
  const values = [ALL, ...Array(n).keys()].map(String);
  select.replaceChildren(...values.map((value) => el("option", { value }, value === ALL ? ALL : String(Number(value) + 1))));
  select.value = values.includes(chosen) ? chosen : ALL;
  select.closest(".field").hidden = n < 2;
}

/** One box for each view of the run. */
function viewFields(run) {
  const first = run.generates ? "losses" : "occlusion";
  const boxes = Object.entries(run.views ?? {}).map(([name, description]) => {
    const id = newId("view");
    const input = el("input", { type: "checkbox", value: name, id, checked: name === first });
    return { input, node: el("div", { class: "check" }, input, el("label", { for: id, title: description }, titled(name))) };
  });
  const node = el("fieldset", { class: "views" }, el("legend", {}, "Views"), ...boxes.map((box) => box.node));
  return { node, value: () => boxes.filter((box) => box.input.checked).map((box) => box.input.value) };
}

/** Show a document in a frame of its own, in place of the one before once it is there. */
function shown(place, page, signal) {
  const frame = el("iframe", { src: "page/frame.html", sandbox: "allow-scripts", title: "Explanation of the answer" });
  return new Promise((resolve, reject) => {
    const listen = ({ source, data }) => {
      if (!frame.isConnected) removeEventListener("message", listen);
      if (source !== frame.contentWindow) return;
      if (data.ready) frame.contentWindow.postMessage(page, "*");
      else if (Number.isFinite(data.height)) {
        frame.style.height = `${Math.ceil(data.height) + 2}px`;
        for (const other of place.querySelectorAll("iframe")) if (other !== frame) other.remove();
        frame.classList.add("there");
        resolve();
      }
    };
    addEventListener("message", listen);
    signal.addEventListener("abort", () => {
      if (!frame.classList.contains("there")) frame.remove();
      reject(new DOMException("given up", "AbortError"));
    });
    place.append(frame);
  });
}
