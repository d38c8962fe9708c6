"use strict";
/* Draws one explanation.

   DATA    what build.py wrote: sides, maps with their views (heads and their mean), written, more
   state   what is chosen; only `change` writes it, and it draws what hangs on what changed
   a unit  is what one row or column stands for: a token, or a word (the sum over the pieces of a key,
           the mean over the pieces of a query)

   Every canvas of weights has one pixel for each of its cells; CSS makes it large.

   The files of this folder follow one another in one script, in the order of build.py. */

const DATA = JSON.parse(document.getElementById("data").textContent);
const LEVELS = 65535; // what weight 1 is stored as
const SHADES = 255; // what the greatest cell of a thumbnail is stored as
const LABELLED = 12; // pixels of a cell from which on its row and column have a name
const LARGEST = 44; // pixels of a cell, at most
const LIST = 32; // links of one token that are listed; of more, the strongest LISTED
const LISTED = 24;
const TABLE = 2500; // weights in a table of numbers, at most; beyond, that of one row
const NUMBERED = 120; // tokens that have their number written below them, at most
const TINT = 0.62; // how far along the scale a chip goes for weight 1, so that its text stays readable

const state = { map: 0, view: 0, unit: "tokens", query: 0, key: 0, direction: "out", scale: "greatest", cell: 0 };

/* ---- Elements ---------------------------------------------------------------------------------------- */

const $ = (id) => document.getElementById(id);

/** An element. `on…` are listeners, `style` sets properties (the page's policy allows no style attributes). */
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
/** Numbers up to `most`, all with as many digits behind the point as show three of the greatest. */
const aligned = (most) => {
  const digits = most > 0 ? limited(2 - Math.floor(Math.log10(most)), 0, 20) : 0;
  return digits > 6 ? (x) => (x === 0 ? "0" : x.toExponential(1)) : (x) => x.toFixed(digits).replace(/^-(0\.?0*)$/, "$1");
};
const percent = (x) => (x >= 0.9995 ? "1.00" : x < 0.005 && x > 0 ? "<.01" : x.toFixed(2).replace(/^0/, ""));

/** A token as it is shown: what would not be seen, or would steer the text around it, has a sign of its own. */
function shown(token) {
  if (token === "") return "\u2205";
  if (/^ +$/.test(token)) return "\u2423".repeat(token.length);
  return token
    .replace(/\r?\n/g, "\u23ce")
    .replace(/\t/g, "\u21e5")
    .replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, "\ufffd");
}

const named = (token) => element("bdi", { class: "token" }, shown(token));

/** Whether most letters of these are written from right to left. */
function isRightToLeft(labels) {
  const text = labels.join("");
  const right = (text.match(/[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/g) || []).length;
  return right > (text.match(/\p{L}/gu) || []).length / 2;
}

/* ---- Names ------------------------------------------------------------------------------------------- */

const headName = (view) => (view.head === null ? "mean of heads" : `head ${view.head + 1}`);
const viewName = (map, view) =>
  map.rollout ? "Rollout through all layers" : `Layer ${map.layer + 1}, ${headName(view)}${map.read ? ", where words are read" : ""}`;

/** What attention it is. In a row of the others the model looks for the word; in one of those that are read, it knows it. */
function kindName(map) {
  if (map.read) return `${kindName({ ...map, read: false })}, as a word is read`;
  if (map.rollout) return map.queries === map.keys ? `Rollout: where the ${map.queries} comes from` : `Rollout: what of the ${map.keys} arrives at the ${map.queries}`;
  if (map.part) return `Self-attention, ${map.queries} to ${map.keys}; rows rescaled to 1`;
  if (map.kind === "cross") return `Cross-attention: ${map.queries} looks at ${map.keys}`;
  return `${map.kind === "causal" ? "Causal self-attention" : "Self-attention"} of the ${map.queries}`;
}

function strongestOf(map, view) {
  const [i, j, level] = view.strongest;
  return { query: DATA.sides[map.queries].tokens[i], key: DATA.sides[map.keys].tokens[j], weight: level / LEVELS };
}

/* ---- Moving with the keyboard ------------------------------------------------------------------------ */

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

/** One stop for Tab in a group; `at` holds it. */
function stopAt(items, at) {
  for (const item of items) item.tabIndex = item === at ? 0 : -1;
}

/** Among items that lie in lines, the nearest one in the line above or below. */
function inNextLine(items, from, step) {
  const tops = [...new Set(items.map((item) => item.offsetTop))].sort((a, b) => a - b);
  const line = items.filter((item) => item.offsetTop === tops[tops.indexOf(from.offsetTop) + step]);
  const distance = (item) => Math.abs(item.offsetLeft + item.offsetWidth / 2 - from.offsetLeft - from.offsetWidth / 2);
  return line.sort((a, b) => distance(a) - distance(b))[0];
}

/** Arrows go through items that run like text; `go` is told the one to go to. */
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
