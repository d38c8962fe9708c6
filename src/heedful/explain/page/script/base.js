"use strict";
/* Draws one explanation.

   DATA    data from build.py: sides, maps with their views (heads and their mean), written, more
   state   the selection; only `change` updates it, and redraws what depends on the changes
   unit    meaning of a row or column: a token, or a word (sum over the subwords of a key, mean over the
           subwords of a query)

   Canvases of weights have one pixel per cell; CSS scales them.

   build.py concatenates the files of this folder into one script, in its order. */

const DATA = JSON.parse(document.getElementById("data").textContent);
const LEVELS = 65535; // integer that stands for weight 1
const SHADES = 255; // integer that stands for the largest cell of a thumbnail
const LABELLED = 12; // minimum pixels per cell to label rows and columns
const LARGEST = 44; // maximum pixels per cell
const LIST = 32; // maximum keys listed without selection; of more, the LISTED largest weights
const LISTED = 24;
const TABLE = 2500; // maximum weights in a table; larger maps show one row
const NUMBERED = 120; // maximum tokens with their value shown below them
const UNKNOWN = "<unk>"; // token of a word that is not in the vocabulary
const TINT = 0.62; // maximum position of a chip on the colour scale, so that its text is readable

const state = { map: 0, view: 0, unit: "tokens", query: 0, key: 0, direction: "out", scale: "greatest", cell: 0 };

/* ---- Elements ---------------------------------------------------------------------------------------- */

const $ = (id) => document.getElementById(id);

/** Create an element. `on…` are listeners; `style` sets properties, because the page's policy forbids style attributes. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, what] of Object.entries(value)) made.style.setProperty(key, what);
    else if (name.startsWith("aria-")) made.setAttribute(name, value);
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

const limited = (x, low, high) => Math.min(Math.max(x, low), high);
const number = (x) => x.toFixed(4);
/** Return a formatter for numbers up to `most`, with the decimal places that show three digits of the largest. */
const aligned = (most) => {
  const digits = most > 0 ? limited(2 - Math.floor(Math.log10(most)), 0, 20) : 0;
  return digits > 6 ? (x) => (x === 0 ? "0" : x.toExponential(1)) : (x) => x.toFixed(digits).replace(/^-(0\.?0*)$/, "$1");
};
const percent = (x) => (x >= 0.9995 ? "1.00" : x < 0.005 && x > 0 ? "<.01" : x.toFixed(2).replace(/^0/, ""));

/** Return a token for display: invisible and control characters are replaced by symbols. */
function shown(token) {
  if (token === "") return "\u2205";
  if (/^ +$/.test(token)) return "\u2423".repeat(token.length);
  return token
    .replace(/\r?\n/g, "\u23ce")
    .replace(/\t/g, "\u21e5")
    .replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, "\ufffd");
}

const named = (token) => element("bdi", { class: "token" }, shown(token));

/** Whether most letters of the labels are written from right to left. */
function isRightToLeft(labels) {
  const text = labels.join("");
  const right = (text.match(/[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/g) || []).length;
  return right > (text.match(/\p{L}/gu) || []).length / 2;
}

/* ---- Names ------------------------------------------------------------------------------------------- */

const headName = (view) => (view.head === null ? "mean of heads" : `head ${view.head + 1}`);
const viewName = (map, view) =>
  map.rollout ? "Rollout through all layers" : `Layer ${map.layer + 1}, ${headName(view)}${map.read ? ", at the input step" : ""}`;

/** Return the kind of attention of a map. Rows are those of the step that predicts a word or, if `read`, that reads it. */
function kindName(map) {
  if (map.read) return `${kindName({ ...map, read: false })}, at the input step`;
  if (map.rollout) return map.queries === map.keys ? `Rollout of the ${map.queries}` : `Rollout: share of the ${map.keys} in the ${map.queries}`;
  if (map.part) return `Self-attention, ${map.queries} to ${map.keys}; rows rescaled to sum 1`;
  if (map.kind === "cross") return `Cross-attention: ${map.queries} to ${map.keys}`;
  return `${map.kind === "causal" ? "Causal self-attention" : "Self-attention"} of the ${map.queries}`;
}

function strongestOf(map, view) {
  const [i, j, level] = view.strongest;
  return { query: DATA.sides[map.queries].tokens[i], key: DATA.sides[map.keys].tokens[j], weight: level / LEVELS };
}

/* ---- Keyboard navigation ----------------------------------------------------------------------------- */

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

/** Make `at` the only tab stop of a group. */
function stopAt(items, at) {
  for (const item of items) item.tabIndex = item === at ? 0 : -1;
}

/** Return the nearest item in the line above or below. */
function inNextLine(items, from, step) {
  const tops = [...new Set(items.map((item) => item.offsetTop))].sort((a, b) => a - b);
  const line = items.filter((item) => item.offsetTop === tops[tops.indexOf(from.offsetTop) + step]);
  const distance = (item) => Math.abs(item.offsetLeft + item.offsetWidth / 2 - from.offsetLeft - from.offsetWidth / 2);
  return line.sort((a, b) => distance(a) - distance(b))[0];
}

/** Handle arrow keys for items laid out like text; `go` is called with the index of the new item. */
function alongText(event, items, rightToLeft, go) {
  const at = items.indexOf(event.target.closest(".chip"));
  const step = STEPS[event.key];
  if (at < 0 || (!step && event.key !== "Home" && event.key !== "End")) return;
  event.preventDefault();
  if (event.key === "Home") go(0);
  else if (event.key === "End") go(items.length - 1);
  else if (step[0]) {
    const next = inNextLine(items, items[at], step[0]);
    if (next) go(items.indexOf(next));
  } else go(limited(at + (rightToLeft ? -step[1] : step[1]), 0, items.length - 1));
}
