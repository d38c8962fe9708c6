"use strict";
/* Draws one explanation.

   DATA    what build.py wrote: sides, maps with their views (heads and their mean), written, more
   state   what is chosen; only `change` writes it, and it draws what hangs on what changed
   a unit  is what one row or column stands for: a token, or a word (the sum over the pieces of a key,
           the mean over the pieces of a query)

   Every canvas of weights has one pixel for each of its cells; CSS makes it large. */

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

/* ---- Numbers ----------------------------------------------------------------------------------------- */

function bytes(text) {
  const raw = atob(text);
  const found = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) found[i] = raw.charCodeAt(i);
  return found;
}

/** Numbers of 16 bits, the low byte first, as they lie in the memory of every machine with a browser. */
const sixteen = (text) => new Uint16Array(bytes(text).buffer);

/** The weights of a view: `w` row by row; `given`: whether a weight is stored (null: all are); `bound`: what
    the others of a row are at most. Those others are drawn as if the rest of the row lay evenly on them. */
function matrixOf(map, view) {
  const [rows, columns] = map.size;
  if (view.levels !== undefined) {
    return { rows, columns, w: new Float32Array(sixteen(view.levels)).map((level) => level / LEVELS), given: null, bound: null };
  }
  const places = sixteen(view.places);
  const kept = sixteen(view.kept);
  const k = places.length / rows;
  const m = { rows, columns, w: new Float32Array(rows * columns), given: new Uint8Array(rows * columns), bound: new Float32Array(rows) };
  for (let i = 0; i < rows; i++) {
    const seen = map.kind === "causal" && rows === columns ? i + 1 : columns;
    let sum = 0;
    let others = seen;
    for (let n = i * k; n < (i + 1) * k; n++) {
      const at = i * columns + places[n];
      m.w[at] = kept[n] / LEVELS;
      m.given[at] = 1;
      sum += m.w[at];
      if (places[n] < seen) others -= 1;
    }
    m.bound[i] = kept[(i + 1) * k - 1] / LEVELS;
    const even = others > 0 ? Math.min(Math.max(0, 1 - sum) / others, m.bound[i]) : 0;
    for (let j = 0; j < seen; j++) if (!m.given[i * columns + j]) m.w[i * columns + j] = even;
  }
  return m;
}

/** Rows and columns of pieces merged into words. Where not all weights are given, the sums are near ones. */
function merged(m, queries, keys) {
  const rows = queries.labels.length;
  const columns = keys.labels.length;
  const w = new Float32Array(rows * columns);
  for (let i = 0; i < m.rows; i++) {
    const start = queries.of[i] * columns;
    const share = 1 / queries.pieces[queries.of[i]];
    for (let j = 0; j < m.columns; j++) w[start + keys.of[j]] += share * m.w[i * m.columns + j];
  }
  return { rows, columns, w, given: null, bound: null, near: m.given !== null };
}

function greatestOf(values) {
  let most = 0;
  for (let n = 0; n < values.length; n++) if (values[n] > most) most = values[n];
  return most;
}

/** A weight in words: as it is stored, or what is known of one that is not. */
function told(m, i, j) {
  const at = i * m.columns + j;
  if (m.near) return `about ${number(m.w[at])}`;
  if (m.given !== null && !m.given[at]) return `at most ${number(m.bound[i])}`;
  return number(m.w[at]);
}

/* ---- Units ------------------------------------------------------------------------------------------- */

const hasWords = (side) => side.words.length > 0 && new Set(side.words).size < side.words.length;

/** What stands along an axis: `labels`, for each token the unit it is `of`, for each unit how many `pieces`. */
function unitsOf(name, unit) {
  const side = DATA.sides[name];
  if (unit === "tokens" || side.words.length === 0) {
    return { labels: side.tokens, of: side.tokens.map((_, i) => i), pieces: side.tokens.map(() => 1) };
  }
  const found = { labels: [], of: [], pieces: [] };
  const places = new Map();
  side.tokens.forEach((token, i) => {
    const word = side.words[i];
    const key = word < 0 ? `token ${i}` : word;
    if (!places.has(key)) {
      places.set(key, found.labels.length);
      found.labels.push(word < 0 ? token : side.surface[word] ?? token);
      found.pieces.push(0);
    }
    found.of.push(places.get(key));
    found.pieces[places.get(key)] += 1;
  });
  return found;
}

const cache = new Map();

/** A view's matrix in the units that are chosen. A few dozen are kept. */
function unpacked(mapNumber, viewNumber) {
  const name = `${mapNumber} ${viewNumber} ${state.unit}`;
  if (!cache.has(name)) {
    const map = DATA.maps[mapNumber];
    let m = matrixOf(map, map.views[viewNumber]);
    if (state.unit === "words") m = merged(m, unitsOf(map.queries, "words"), unitsOf(map.keys, "words"));
    m.greatest = greatestOf(m.w);
    if (cache.size >= 48) cache.delete(cache.keys().next().value);
    cache.set(name, m);
  }
  return cache.get(name);
}

/** What is open now. */
function current() {
  const map = DATA.maps[state.map];
  return {
    map,
    view: map.views[state.view],
    m: unpacked(state.map, state.view),
    queries: unitsOf(map.queries, state.unit),
    keys: unitsOf(map.keys, state.unit),
  };
}

/** What the weights of the chosen token are, along the other side. */
function weightsOf(m) {
  if (state.direction === "out") return m.w.subarray(state.query * m.columns, (state.query + 1) * m.columns);
  return Float32Array.from({ length: m.rows }, (_, i) => m.w[i * m.columns + state.key]);
}

/* ---- Colours ----------------------------------------------------------------------------------------- */

const colours = {};

function resolved(name) {
  const probe = document.body.appendChild(element("i", { style: { color: `var(${name})` } }));
  const found = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  probe.remove();
  return found;
}

/** 256 colours, straight lines between the eight that the style names; `packed` has them as pixels lie in memory. */
function ramp(name) {
  const stops = Array.from({ length: 8 }, (_, n) => resolved(`${name}-${n}`));
  const found = Array.from({ length: 256 }, (_, n) => {
    const at = (n / 255) * 7;
    const low = Math.min(Math.floor(at), 6);
    return [0, 1, 2].map((c) => Math.round(stops[low][c] + (at - low) * (stops[low + 1][c] - stops[low][c])));
  });
  found.packed = Uint32Array.from(found, ([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r);
  return found;
}

function readColours() {
  Object.assign(colours, { plus: ramp("--plus"), minus: ramp("--minus"), spot: resolved("--spot") });
}

const css = (colour) => `rgb(${colour.join(" ")})`;
const colourOf = (scale, share) => scale[Math.round(255 * limited(share, 0, 1))];

/** Black or white, whichever stands out more from a colour (WCAG's relative luminance). */
function legible(colour) {
  const [r, g, b] = colour.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}

/** Tint what holds text by a share from -1 to 1. */
function tint(node, share) {
  const colour = colourOf(share < 0 ? colours.minus : colours.plus, TINT * Math.abs(share));
  node.style.setProperty("background-color", css(colour));
  node.style.setProperty("color", legible(colour));
}

function untint(node) {
  node.style.removeProperty("background-color");
  node.style.removeProperty("color");
}

/** One pixel for each value; `greatest` has the full colour. */
function paint(canvas, values, rows, columns, greatest) {
  canvas.width = columns;
  canvas.height = rows;
  const image = new ImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const share = greatest > 0 ? 255 / greatest : 0;
  for (let n = 0; n < pixels.length; n++) pixels[n] = colours.plus.packed[Math.round(limited(values[n] * share, 0, 255))];
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/** One pixel for each square, the more opaque the more it is looked at. */
function veil(canvas, values, [rows, columns], greatest) {
  canvas.width = columns;
  canvas.height = rows;
  const image = new ImageData(columns, rows);
  for (let n = 0; n < rows * columns; n++) {
    const share = greatest > 0 ? limited(values[n] / greatest, 0, 1) : 0;
    image.data.set([...colours.spot, Math.round(0.85 * 255 * share)], 4 * n);
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/** What the full colour stands for. */
const full = (greatest) => (state.scale === "one" ? 1 : greatest);

/* ---- Names ------------------------------------------------------------------------------------------- */

const headName = (view) => (view.head === null ? "mean of heads" : `head ${view.head + 1}`);
const viewName = (map, view) => (map.rollout ? "Rollout through all layers" : `Layer ${map.layer + 1}, ${headName(view)}`);

function kindName(map) {
  if (map.rollout) return map.queries === map.keys ? `Rollout: where the ${map.queries} comes from` : `Rollout: what of the ${map.keys} arrives at the ${map.queries}`;
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

/* ---- All heads --------------------------------------------------------------------------------------- */

/** The maps of each kind, by their numbers. */
function groups() {
  const found = new Map();
  DATA.maps.forEach((map, n) => {
    const name = kindName(map);
    found.set(name, [...(found.get(name) || []), n]);
  });
  return found;
}

function drawGrids() {
  const grids = [...groups()].map(([name, maps]) => grid(name, maps));
  $("grids").replaceChildren(...grids);
}

/** A table of thumbnails: layers down, heads across, their mean last. */
function grid(name, maps) {
  const heads = [...new Set(maps.flatMap((n) => DATA.maps[n].views.map((view) => view.head)))];
  heads.sort((a, b) => (a === null) - (b === null) || a - b);
  const size = limited(Math.floor(460 / heads.length), 26, 92);
  const top = element("tr", {}, element("th", { scope: "col" }, element("span", { class: "unseen" }, "Layer")));
  for (const head of heads) {
    top.append(element("th", { scope: "col", class: head === null ? "mean" : null }, head === null ? "mean" : `${head + 1}`));
  }
  const body = element("tbody");
  for (const n of maps) {
    const map = DATA.maps[n];
    const row = element("tr", { title: map.tap }, element("th", { scope: "row" }, map.rollout ? "all" : `${map.layer + 1}`));
    for (const head of heads) {
      const v = map.views.findIndex((view) => view.head === head);
      row.append(element("td", { class: head === null ? "mean" : null }, ...(v < 0 ? [] : [thumb(n, v)])));
    }
    body.append(row);
  }
  const made = element("table", { class: "heads", style: { "--thumb": `${size}px` } }, element("caption", {}, name), element("thead", {}, top), body);
  made.addEventListener("keydown", amongThumbs);
  return made;
}

function thumb(mapNumber, viewNumber) {
  const map = DATA.maps[mapNumber];
  const view = map.views[viewNumber];
  const [rows, columns] = view.cells;
  const best = strongestOf(map, view);
  const label = `${viewName(map, view)}; strongest: ${shown(best.query)} looks at ${shown(best.key)}, ${number(best.weight)}`;
  const canvas = element("canvas", { style: { "aspect-ratio": limited(columns / rows, 0.5, 2) } });
  const made = element("button", { type: "button", class: "thumb", "aria-label": label, "data-map": mapNumber, "data-view": viewNumber }, canvas);
  paintThumb(canvas, map, view);
  made.addEventListener("click", () => openHead(mapNumber, viewNumber));
  for (const event of ["pointerenter", "focus"]) made.addEventListener(event, () => glance(map, view));
  return made;
}

/** Thumbnails of a kind share one scale. Broad heads are faint beside sharp ones, so shades go with the square
    root: a head that looks everywhere is pale, not empty. */
function paintThumb(canvas, map, view) {
  const most = Math.max(...DATA.maps.filter((other) => kindName(other) === kindName(map)).flatMap((other) => other.views.map((each) => each.greatest)));
  const shares = Float32Array.from(bytes(view.shades), (shade) => Math.sqrt((shade / SHADES) * (view.greatest / (most || 1))));
  paint(canvas, shares, view.cells[0], view.cells[1], 1);
}

function glance(map, view) {
  const best = strongestOf(map, view);
  $("glance").replaceChildren(
    `${viewName(map, view)}: strongest `, named(best.query), " looks at ", named(best.key), " ", element("b", {}, number(best.weight)),
  );
}

const thumbOf = (map, view) => document.querySelector(`.thumb[data-map="${map}"][data-view="${view}"]`);

function markThumb() {
  for (const table of document.querySelectorAll(".heads")) {
    const items = [...table.querySelectorAll(".thumb")];
    const chosen = items.find((item) => Number(item.dataset.map) === state.map && Number(item.dataset.view) === state.view);
    for (const item of items) item.setAttribute("aria-pressed", item === chosen);
    stopAt(items, chosen || items[0]);
  }
}

/** Arrows go to the next thumbnail there is in their direction. */
function amongThumbs(event) {
  const step = STEPS[event.key];
  const cell = event.target.closest("td");
  if (!step || !cell) return;
  event.preventDefault();
  const rows = [...cell.closest("tbody").rows];
  let i = rows.indexOf(cell.parentElement) + step[0];
  let j = cell.cellIndex + step[1];
  for (; rows[i] && rows[i].cells[j]; i += step[0], j += step[1]) {
    const next = rows[i].cells[j].querySelector(".thumb");
    if (next) {
      stopAt([...event.currentTarget.querySelectorAll(".thumb")], next);
      return next.focus();
    }
  }
}

/** Show a head and go there. */
function openHead(map, view) {
  change({ map, view });
  $("one-head").focus({ preventScroll: true });
  const top = $("one-head").getBoundingClientRect().top;
  if (top < 0 || top > innerHeight / 2) $("one-head").scrollIntoView();
}

/* ---- One head ---------------------------------------------------------------------------------------- */

function drawHead() {
  const { map, view, m } = current();
  $("head-title").textContent = viewName(map, view);
  const isBest = DATA.best !== null && DATA.best[0] === map.tap && DATA.best[1] === view.head;
  $("head-kind").textContent = `${kindName(map)}${isBest ? "; known to align best" : ""}`;
  $("units").hidden = ![map.queries, map.keys].some((name) => hasWords(DATA.sides[name]));
  drawMap();
  drawLegend(full(m.greatest));
  $("map-note").hidden = m.given === null && !m.near;
  $("map-note").textContent =
    "Of each row the strongest links are here with their numbers; the rest of the row is drawn as if it lay evenly on the others.";
  drawTable();
}

function drawLegend(greatest) {
  const canvas = element("canvas", { role: "img", "aria-label": `colours from 0 to ${number(greatest)}` });
  paint(canvas, Array.from({ length: 256 }, (_, n) => n), 1, 256, 255);
  $("legend").replaceChildren("0", canvas, state.scale === "one" ? "1" : number(greatest));
}

const pen = document.createElement("canvas").getContext("2d");

/** How wide the longest of some labels is, in pixels, at the largest size they have. */
function widest(labels) {
  pen.font = `600 13px ${getComputedStyle(document.body).fontFamily}`;
  return Math.max(...labels.slice(0, 400).map((label) => pen.measureText(shown(label)).width));
}

/** How large a cell is, and whether rows and columns have names. */
function layOut(queries, keys) {
  const width = $("map").clientWidth || 600;
  const margin = limited(widest(queries.labels), 20, 170) + 14;
  const height = Math.max(320, Math.min(innerHeight * 0.8, 760));
  const fit = (room) => Math.min(Math.floor(room / keys.labels.length), Math.floor(height / Math.min(queries.labels.length, 40)));
  const slanted = limited(widest(keys.labels), 20, 150) * 0.67 + 6;
  const withNames = fit(width - margin - slanted);
  const best = withNames >= LABELLED ? Math.min(withNames, LARGEST) : limited(Math.min(fit(width - 4), Math.floor(height / queries.labels.length)), 1, LABELLED - 1);
  const cell = state.cell || best;
  return { best, cell, hasNames: cell >= LABELLED, slanted, height: limited(widest(keys.labels), 20, 150) * 0.75 + 14 };
}

function drawMap() {
  const { m, queries, keys } = current();
  const plan = layOut(queries, keys);
  const small = `${limited(plan.cell * 0.8, 9, 13)}px`;
  const canvas = element("canvas", { role: "img", "aria-label": "heat map" });
  paint(canvas, m.w, m.rows, m.columns, full(m.greatest));
  const field = element("div", { class: "field", style: { "--across": m.columns, "--down": m.rows } }, canvas);
  if (plan.cell >= 9) field.append(element("div", { class: "lines" }));
  for (const kind of ["row", "column", "here"]) field.append(element("div", { class: `band ${kind}` }));
  field.addEventListener("pointermove", (event) => point(...cellAt(event, field)));
  field.addEventListener("pointerleave", () => point(state.query, state.key));
  field.addEventListener("click", (event) => {
    const [query, key] = cellAt(event, field);
    change({ query, key });
  });
  const labels = (of) => (plan.hasNames ? of.labels.map((label, n) => element("span", { style: { "--at": n }, title: shown(label) }, shown(label))) : []);
  const columns = element("div", { class: "columns", "aria-hidden": "true", style: { height: plan.hasNames ? `${plan.height}px` : "0" } }, ...labels(keys));
  const rows = element("div", { class: "rows", "aria-hidden": "true" }, ...labels(queries));
  if (!plan.hasNames) rows.style.setProperty("padding", "0");
  field.style.setProperty("margin-inline-end", plan.hasNames ? `${plan.slanted}px` : "1px");
  $("map").style.setProperty("--cell", `${plan.cell}px`);
  $("map").style.setProperty("--small", small);
  $("map").replaceChildren(element("div", { class: "corner" }), columns, rows, field);
  $("zoom").hidden = plan.best >= LABELLED;
  $("cell").min = plan.best;
  $("cell").value = plan.cell;
}

/** The row and column below the pointer. */
function cellAt(event, field) {
  const box = field.getBoundingClientRect();
  const { m } = current();
  return [
    limited(Math.floor(((event.clientY - box.top) / box.height) * m.rows), 0, m.rows - 1),
    limited(Math.floor(((event.clientX - box.left) / box.width) * m.columns), 0, m.columns - 1),
  ];
}

/** Mark a cell and tell its number. */
function point(i, j) {
  const { m, queries, keys } = current();
  for (const band of document.querySelectorAll(".band")) {
    band.style.setProperty("--i", i);
    band.style.setProperty("--j", j);
  }
  const on = (box, at) => [...document.querySelectorAll(`.map .${box} span`)].forEach((label, n) => label.classList.toggle("on", n === at));
  on("rows", i);
  on("columns", j);
  $("readout").replaceChildren(named(queries.labels[i]), " looks at ", named(keys.labels[j]), " ", element("b", {}, told(m, i, j)));
}

function onMapKey(event) {
  const { m } = current();
  const step = { ...STEPS, PageUp: [-10, 0], PageDown: [10, 0] }[event.key];
  if (event.key === "Enter") focusToken();
  else if (event.key === "Home") change({ key: 0 });
  else if (event.key === "End") change({ key: m.columns - 1 });
  else if (step) {
    change({ query: limited(state.query + step[0], 0, m.rows - 1), key: limited(state.key + step[1], 0, m.columns - 1) });
    document.querySelector(".band.here").scrollIntoView({ block: "nearest", inline: "nearest" });
  } else return;
  event.preventDefault();
}

/** All numbers of a small head, or those of the chosen row. Made only where somebody looks. */
function drawTable() {
  if (!$("numbers").open) return $("numbers-body").replaceChildren();
  const { m, queries, keys } = current();
  $("numbers-body").replaceChildren(m.rows * m.columns <= TABLE ? wholeTable(m, queries, keys) : rowTable(m, queries, keys));
}

function wholeTable(m, queries, keys) {
  const top = element("tr", {}, element("td"), ...keys.labels.map((label) => element("th", { scope: "col" }, named(label))));
  const rows = queries.labels.map((label, i) =>
    element("tr", {}, element("th", { scope: "row" }, named(label)), ...keys.labels.map((_, j) => element("td", {}, told(m, i, j)))),
  );
  return element("table", { class: "plain" }, element("thead", {}, top), element("tbody", {}, ...rows));
}

function rowTable(m, queries, keys) {
  const order = strongestPlaces(m.w.subarray(state.query * m.columns, (state.query + 1) * m.columns), LIST);
  const rows = order.map((j) => element("tr", {}, element("th", { scope: "row" }, `${j + 1} `, named(keys.labels[j])), element("td", {}, told(m, state.query, j))));
  const caption = element("caption", {}, "The strongest links of ", named(queries.labels[state.query]));
  return element("table", { class: "plain" }, caption, element("tbody", {}, ...rows));
}

/** The places of the greatest values, greatest first. */
function strongestPlaces(values, n) {
  return Array.from(values.keys()).sort((a, b) => values[b] - values[a] || a - b).slice(0, n);
}

/* ---- One token --------------------------------------------------------------------------------------- */

let flows = {};

/** The sides of the map as running text or picture: one where a side looks at itself. */
function drawFlows() {
  const { map, queries, keys } = current();
  const make = (name, units, role) => flow(name, units, (n) => change(role === "query" ? { direction: "out", query: n } : { direction: "in", key: n }));
  flows = {};
  if (map.queries === map.keys) {
    const both = flow(map.queries, queries, (n) => change(state.direction === "out" ? { query: n } : { key: n }));
    flows = { query: both, key: both };
  } else flows = { query: make(map.queries, queries, "query"), key: make(map.keys, keys, "key") };
  $("flows").replaceChildren(...new Set([flows.query.node, flows.key.node]));
}

const flow = (name, units, choose) => (DATA.sides[name].grid ? pictureFlow(name, choose) : textFlow(name, units, choose));

/** Chips of a text, of which one is chosen and all can be tinted. */
function textFlow(name, units, choose) {
  const rightToLeft = isRightToLeft(units.labels);
  const chips = units.labels.map((label, n) => element("button", { type: "button", class: "chip", role: "option", tabindex: -1, onclick: () => choose(n) }, shown(label)));
  const box = element("div", { class: `flow${chips.length > NUMBERED ? " long" : ""}`, role: "listbox", "aria-label": `Tokens of the ${name}`, dir: rightToLeft ? "rtl" : "ltr" }, ...chips);
  const go = (n) => {
    choose(n);
    chips[n].focus();
  };
  box.addEventListener("keydown", (event) => alongText(event, chips, rightToLeft, go));
  return { node: element("div", {}, element("p", { class: "flow-name" }, name), box), tint: (weights, most) => tintChips(chips, units.labels, weights, most), mark: (n) => { markChip(chips, n); inView(box, chips[n]); }, focus: () => chips.find((chip) => chip.tabIndex === 0)?.focus() };
}

/** A long text shows the chosen token, without moving the page. */
function inView(box, chip) {
  if (!chip || box.scrollHeight <= box.clientHeight) return;
  const above = chip.offsetTop - box.scrollTop;
  if (above < 0 || above + chip.offsetHeight > box.clientHeight) box.scrollTop = chip.offsetTop - box.clientHeight / 2;
}

function tintChips(chips, labels, weights, most) {
  chips.forEach((chip, n) => {
    if (weights === null) untint(chip);
    else tint(chip, most > 0 ? weights[n] / most : 0);
    const text = weights === null ? shown(labels[n]) : `${shown(labels[n])}, ${number(weights[n])}`;
    chip.setAttribute("aria-label", text);
    chip.title = text;
  });
}

function markChip(chips, n) {
  chips.forEach((chip, at) => chip.setAttribute("aria-selected", at === n));
  stopAt(chips, chips[n] || chips[0]);
}

/** A picture with its squares, and chips for the tokens that stand before or after them. */
function pictureFlow(name, choose) {
  const side = DATA.sides[name];
  const [rows, columns] = side.grid;
  const squares = side.before + rows * columns;
  const others = side.tokens.map((_, n) => n).filter((n) => n < side.before || n >= squares);
  const chips = others.map((n) => element("button", { type: "button", class: "chip", tabindex: -1, role: "option", onclick: () => choose(n) }, shown(side.tokens[n])));
  const box = element("div", { class: "flow", role: "listbox", "aria-label": `Tokens of the ${name} beside its squares` }, ...chips);
  box.addEventListener("keydown", (event) => alongText(event, chips, false, (n) => (choose(others[n]), chips[n].focus())));
  const { frame, canvas } = framed(side);
  const square = element("div", { class: "square", hidden: true, style: { "--across": columns, "--down": rows } });
  frame.append(square);
  frame.className = "frame big chooses";
  let chosen = null;
  for (const [key, value] of Object.entries({ tabindex: 0, role: "application", "aria-roledescription": "picture" })) frame.setAttribute(key, value);
  frame.addEventListener("click", (event) => choose(side.before + squareAt(event, frame, side.grid)));
  frame.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const at = chosen === null ? 0 : chosen;
    choose(side.before + limited(Math.floor(at / columns) + step[0], 0, rows - 1) * columns + limited((at % columns) + step[1], 0, columns - 1));
  });
  let weights = null;
  const tell = () => {
    const where = chosen === null ? "" : `, square in row ${Math.floor(chosen / columns) + 1}, column ${(chosen % columns) + 1}`;
    frame.setAttribute("aria-label", `Picture of the ${name}${where}${weights && chosen !== null ? `, ${number(weights[side.before + chosen])}` : ""}`);
  };
  frame.addEventListener("pointermove", (event) => {
    const at = squareAt(event, frame, side.grid);
    frame.title = `row ${Math.floor(at / columns) + 1}, column ${(at % columns) + 1}${weights ? `: ${number(weights[side.before + at])}` : ""}`;
  });
  return {
    node: element("div", {}, element("p", { class: "flow-name" }, name), ...(chips.length ? [box] : []), frame),
    tint(given, most) {
      weights = given;
      veil(canvas, given === null ? new Float32Array(rows * columns) : given.subarray(side.before, squares), side.grid, most);
      tintChips(chips, others.map((n) => side.tokens[n]), given === null ? null : others.map((n) => given[n]), most);
      tell();
    },
    mark(n) {
      chosen = n !== null && n >= side.before && n < squares ? n - side.before : null;
      square.hidden = chosen === null;
      if (chosen !== null) {
        square.style.setProperty("--i", Math.floor(chosen / columns));
        square.style.setProperty("--j", chosen % columns);
      }
      markChip(chips, others.indexOf(n));
      tell();
    },
    focus: () => (chosen === null && chips.length ? chips.find((chip) => chip.tabIndex === 0) : frame).focus(),
  };
}

/** A picture with a canvas over it, one pixel for each square. */
function framed(side) {
  const [rows, columns] = side.grid;
  const canvas = element("canvas", { width: columns, height: rows });
  const frame = element("div", { class: "frame", style: { "aspect-ratio": columns / rows } });
  if (side.picture) frame.append(element("img", { src: side.picture, alt: "", draggable: "false" }));
  frame.append(canvas);
  return { frame, canvas };
}

function squareAt(event, frame, [rows, columns]) {
  const box = frame.getBoundingClientRect();
  const i = limited(Math.floor(((event.clientY - box.top) / box.height) * rows), 0, rows - 1);
  return i * columns + limited(Math.floor(((event.clientX - box.left) / box.width) * columns), 0, columns - 1);
}

/** The chosen token, what it looks at (or what looks at it), in this head and in all heads of the layer. */
function drawToken() {
  const { map, view, m, queries, keys } = current();
  const out = state.direction === "out";
  const weights = weightsOf(m);
  const most = full(greatestOf(weights));
  const [mine, other] = out ? [flows.query, flows.key] : [flows.key, flows.query];
  if (mine !== other) mine.tint(null, 1);
  other.tint(weights, most);
  mine.mark(out ? state.query : state.key);
  if (mine !== other) other.mark(null);
  const label = out ? queries.labels[state.query] : keys.labels[state.key];
  $("token-title").replaceChildren(named(label), out ? " looks at" : " is looked at by");
  $("token-hint").textContent = `${viewName(map, view)} in front, all heads of the layer beside it. Click a token, or use arrows.`;
  for (const input of document.querySelectorAll("[name=direction]")) input.checked = input.value === state.direction;
  const side = DATA.sides[out ? map.keys : map.queries];
  $("fan").hidden = side.grid !== null;
  $("heads").hidden = side.grid === null;
  if (side.grid) drawHeads(side, map);
  else drawFan(weights, (out ? keys : queries).labels, label, map, m);
}

/** Lines from the chosen token to those it has to do with, and small bars for every head of the layer. */
function drawFan(weights, labels, label, map, m) {
  const places = listed(weights, m);
  const all = map.views.map((_, v) => weightsOf(unpacked(state.map, v)));
  const longest = full(greatestOf(all.flatMap((each) => places.map((n) => each[n]))));
  const rows = places.map((n) => fanRow(n, labels[n], weights, all, longest, map, m));
  const tops = map.views.map((view, v) =>
    element("th", { scope: "col" }, element("button", { type: "button", "aria-pressed": v === state.view, "aria-label": headName(view), onclick: () => reopen(v) }, view.head === null ? "mean" : `${view.head + 1}`)),
  );
  const note = labels.length > places.length ? `the ${places.length} strongest of ${labels.length}` : "";
  const caption = element("caption", { class: "hint" }, `${note}${note ? "; " : ""}a full bar is ${state.scale === "one" ? "1" : number(longest)}`);
  const top = element("tr", {}, element("th", { scope: "col" }, element("span", { class: "unseen" }, "token")), element("th", { scope: "col" }, element("span", { class: "unseen" }, "weight in this head")), ...tops);
  const table = element("table", { class: "bars" }, caption, element("thead", {}, top), element("tbody", {}, ...rows));
  $("fan").replaceChildren(element("span", { class: "from token", "aria-hidden": "true" }, shown(label)), lines(places, weights), element("div", { class: "across" }, table));
}

/** Which links of the chosen token are listed, in the order of the text: all, or the strongest that are stored. */
function listed(weights, m) {
  if (weights.length <= LIST) return Array.from(weights.keys());
  const at = (n) => (state.direction === "out" ? state.query * m.columns + n : n * m.columns + state.key);
  const isStored = (n) => m.given === null || m.given[at(n)] === 1;
  return strongestPlaces(weights, LISTED).filter(isStored).sort((a, b) => a - b);
}

/** Another head of the same layer, from its column of bars. */
function reopen(view) {
  change({ view });
  document.querySelectorAll("#fan thead button")[view].focus();
}

function fanRow(n, label, weights, all, longest, map, m) {
  const [i, j] = state.direction === "out" ? [state.query, n] : [n, state.key];
  const bars = all.map((each, v) => {
    const text = `${headName(map.views[v])}: ${told(unpacked(state.map, v), i, j)}`;
    const bar = element("i", { style: { "--w": longest > 0 ? limited(each[n] / longest, 0, 1) : 0 } });
    return element("td", { class: v === state.view ? "bar chosen" : "bar", title: text }, bar, element("span", { class: "unseen" }, text));
  });
  return element("tr", { "data-unit": n }, element("th", { scope: "row", class: "label" }, named(label)), element("td", { class: "number" }, told(m, i, j)), ...bars);
}

/** Lines as wide as their weights, from the middle of the left side to each row. */
function lines(places, weights) {
  const top = 26;
  const height = top + 26 * places.length + 20;
  const most = full(greatestOf(places.map((n) => weights[n])));
  const space = "http://www.w3.org/2000/svg";
  const drawing = document.createElementNS(space, "svg");
  const set = (node, attributes) => Object.entries(attributes).forEach(([name, value]) => node.setAttribute(name, value));
  set(drawing, { viewBox: `0 0 100 ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  places.forEach((n, row) => {
    const share = most > 0 ? limited(weights[n] / most, 0, 1) : 0;
    const y = top + 26 * (row + 0.5);
    const path = document.createElementNS(space, "path");
    set(path, { d: `M0 ${height / 2} C50 ${height / 2} 50 ${y} 100 ${y}`, "stroke-width": 7 * share, "stroke-opacity": 0.25 + 0.65 * share, "vector-effect": "non-scaling-stroke", "data-unit": n });
    if (share > 0.004) drawing.append(path);
  });
  drawing.style.setProperty("height", `${height}px`);
  return drawing;
}

/** Where every head of the layer looks in the picture. */
function drawHeads(side, map) {
  const all = map.views.map((_, v) => weightsOf(unpacked(state.map, v)));
  const most = full(Math.max(...all.map((each) => greatestOf(squaresOf(side, each)))));
  $("heads").replaceChildren(...map.views.map((view, v) => small(side, all[v], most, headName(view), v === state.view, () => change({ view: v }))));
}

const squaresOf = (side, weights) => weights.subarray(side.before, side.before + side.grid[0] * side.grid[1]);

/** A small picture that can be chosen. */
function small(side, weights, most, label, isChosen, choose) {
  const { frame, canvas } = framed(side);
  veil(canvas, squaresOf(side, weights), side.grid, most);
  const press = ({ currentTarget }) => {
    const box = currentTarget.parentElement;
    const at = [...box.children].indexOf(currentTarget);
    choose();
    box.children[at].focus(); // what was pressed has been drawn anew
  };
  return element("button", { type: "button", "aria-pressed": isChosen, onclick: press }, frame, element("span", { class: "name" }, element("bdi", {}, shown(label))));
}

/** Where each word of a text looked in the picture, in this head, all on one scale. */
function drawStrip() {
  const { map, view, m, queries } = current();
  const side = DATA.sides[map.keys];
  $("strip").hidden = side.grid === null || DATA.sides[map.queries].grid !== null;
  if ($("strip").hidden) return;
  $("strip-hint").textContent = viewName(map, view);
  const row = (i) => m.w.subarray(i * m.columns, (i + 1) * m.columns);
  const chosen = (i) => state.direction === "out" && i === state.query;
  const most = full(Math.max(...queries.labels.map((_, i) => greatestOf(squaresOf(side, row(i))))));
  $("strip-body").replaceChildren(...queries.labels.slice(0, NUMBERED).map((label, i) => small(side, row(i), most, label, chosen(i), () => change({ direction: "out", query: i }))));
}

/** The other direction; where a side looks at itself, of the same token. */
function turn(direction) {
  const { map } = current();
  if (map.queries !== map.keys) change({ direction });
  else if (direction === "in") change({ direction, key: state.query });
  else change({ direction, query: state.key });
}

function focusToken() {
  (state.direction === "out" ? flows.query : flows.key).focus();
  $("one-token").scrollIntoView({ block: "nearest" });
}

/* ---- Probabilities and further views ----------------------------------------------------------------- */

/** Tokens with a number each, tinted by it; `most` is what the full tint stands for. */
function numbered(name, values, most, label) {
  const tokens = DATA.sides[name].tokens;
  const short = tokens.length <= NUMBERED;
  const chips = tokens.map((token, n) => {
    const value = values[n] ?? null;
    const text = value === null ? "no number" : label(value);
    const chip = element("span", { class: "chip", title: `${shown(token)}: ${text}` }, shown(token));
    chip.append(short ? element("small", {}, value === null ? "\u00a0" : text) : element("span", { class: "unseen" }, ` ${text}`));
    if (value !== null) tint(chip, most > 0 ? value / most : 0);
    return chip;
  });
  return element("div", { class: `flow${short ? " numbered" : " long"}`, tabindex: short ? null : 0, dir: isRightToLeft(tokens) ? "rtl" : "ltr" }, ...chips);
}

function headed(title, hint, ...content) {
  return element("section", {}, element("div", { class: "heading" }, element("h2", {}, title), element("p", { class: "hint" }, hint)), ...content);
}

function drawWritten() {
  const found = Object.entries(DATA.written).filter(([name]) => name in DATA.sides);
  $("written").hidden = found.length === 0;
  $("written").replaceChildren(
    ...found.map(([name, values]) => headed(`How probable each token of the ${name} was`, "The stronger the colour, the more probable; below each its probability.", numbered(name, values, 1, percent))),
  );
}

const VIEWS = { tokens: tokensView, table: tableView, squares: squaresView, heat: heatView, image: imageView };

function drawMore() {
  $("more").replaceChildren(...DATA.more.map((view) => VIEWS[view.kind](view)));
}

/** A further view of one number for each token; blue above zero, red below. */
function tokensView(view) {
  const most = greatestOf(view.values.map((value) => Math.abs(value ?? 0)));
  const signed = view.values.some((value) => value < 0);
  const label = (value) => Number(value).toPrecision(3);
  return headed(view.title, signed ? "Blue is above zero, red below." : "The stronger the colour, the greater.", numbered(view.side, view.values, most, label));
}

function tableView(view) {
  const top = element("tr", {}, ...view.columns.map((name) => element("th", { scope: "col", class: "said-cell" }, named(String(name)))));
  const rows = view.rows.map((row) => element("tr", {}, ...row.map(tableCell)));
  const table = element("table", { class: "plain" }, element("thead", {}, top), element("tbody", {}, ...rows));
  return headed(view.title, "", element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": view.title }, table));
}

/** The picture once for each, all on one scale. */
function squaresView(view) {
  const side = DATA.sides[view.side];
  const most = Math.max(...view.pictures.map((each) => greatestOf(each.values)));
  const pictures = view.pictures.map((each) => {
    const { frame, canvas } = framed(side);
    veil(canvas, each.values, side.grid, most);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${each.label}: ${strongestSquares(side, each.values)}`);
    return element("figure", {}, frame, element("figcaption", {}, each.label));
  });
  return headed(view.title, `The stronger the colour, the more; the strongest is ${number(most)}.`, element("div", { class: "gallery wide" }, ...pictures));
}

/** The squares with the greatest values, in words. */
function strongestSquares(side, values) {
  return strongestPlaces(values, 3).map((n) => `row ${Math.floor(n / side.grid[1]) + 1}, column ${(n % side.grid[1]) + 1}: ${number(values[n])}`).join("; ");
}

/** Numbers from -1 to 1 as one picture: blue above zero, red below, nothing where there is none. */
function heatView(view) {
  const [rows, columns] = view.size;
  const canvas = element("canvas", { role: "img", "aria-label": `${view.title}: ${rows} by ${columns} numbers`, width: columns, height: rows });
  const image = new ImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  sixteen(view.levels).forEach((level, n) => {
    if (level === 0) return;
    const value = (2 * (level - 1)) / (LEVELS - 1) - 1;
    pixels[n] = (value < 0 ? colours.minus : colours.plus).packed[Math.round(255 * Math.abs(value))];
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
  const scale = Math.max(1, Math.floor(420 / Math.max(rows, columns)));
  canvas.style.setProperty("width", `${scale * columns}px`);
  return headed(view.title, "Blue is alike (1), red is opposite (-1).", element("div", { class: "heat" }, canvas));
}

function imageView(view) {
  const image = element("img", { src: view.picture, alt: view.text, class: "tiles" });
  image.style.setProperty("width", `${view.width}px`);
  return headed(view.title, view.text, image);
}

/** A number, a text, nothing, a text that is tinted by its probability, or a cell that says what it is: its
    text, the share that tints it, the head that it opens. */
function tableCell(value) {
  if (value === null) return element("td");
  if (typeof value === "number") return element("td", {}, Number.isInteger(value) ? `${value}` : number(value));
  if (typeof value === "object" && !Array.isArray(value)) return openingCell(value);
  if (!Array.isArray(value)) return element("td", { class: "said-cell" }, named(String(value)));
  const cell = element("td", { class: "said-cell tinted" }, named(String(value[0])), element("small", {}, percent(value[1])));
  tint(cell, value[1]);
  return cell;
}

function openingCell({ text, share, tap, head }) {
  const map = DATA.maps.findIndex((each) => each.tap === tap);
  const view = map < 0 ? -1 : DATA.maps[map].views.findIndex((each) => each.head === head);
  const label = view < 0 ? null : `${text}: open ${viewName(DATA.maps[map], DATA.maps[map].views[view])}`;
  const shownText = view < 0 ? named(text) : element("button", { type: "button", class: "opens", "aria-label": label, onclick: () => openHead(map, view) }, shown(text));
  const cell = element("td", { class: share === undefined ? null : "tinted" }, shownText);
  if (share !== undefined) tint(cell, limited(share, 0, 1));
  return cell;
}

function drawGiven() {
  const sides = Object.values(DATA.sides).filter((side) => side.picture);
  $("given").replaceChildren(...sides.map((side) => element("img", { src: side.picture, alt: "the picture that the model read" })));
}

/* ---- What changes, and what is drawn then ------------------------------------------------------------ */

/** Choose something else; draw what hangs on it. */
function change(changes) {
  const before = { ...state };
  Object.assign(state, changes);
  const differs = (...names) => names.some((name) => before[name] !== state[name]);
  if (differs("map", "unit")) keepToken(before, changes);
  if (differs("map", "view")) markThumb();
  if (differs("map", "view", "unit", "scale", "cell")) drawHead();
  if (differs("map", "unit")) drawFlows();
  if (!differs("map", "view", "unit", "scale") && differs("query") && DATA.maps[state.map].size[0] * DATA.maps[state.map].size[1] > TABLE) drawTable();
  point(state.query, state.key);
  drawToken();
  drawStrip();
}

/** The chosen tokens stay those they were, as far as their side is still there. */
function keepToken(before, changes) {
  const [old, map] = [DATA.maps[before.map], DATA.maps[state.map]];
  state.cell = 0;
  for (const [role, side] of [["query", "queries"], ["key", "keys"]]) {
    if (role in changes) continue;
    const token = unitsOf(old[side], before.unit).of.indexOf(before[role]);
    if (old[side] === map[side]) state[role] = unitsOf(map[side], state.unit).of[token];
    else chooseStrongest(role);
  }
}

/** What the chosen query looks at most; or a query that is sure: the first token of a picture, else the surest
    one that is neither the first nor the last, which are seldom words. */
function chooseStrongest(role) {
  const map = DATA.maps[state.map];
  const m = unpacked(state.map, state.view);
  const row = (i) => m.w.subarray(i * m.columns, (i + 1) * m.columns);
  if (role === "key") state.key = strongestPlaces(row(state.query), 1)[0];
  else if (DATA.sides[map.queries].before > 0 || m.rows < 3) state.query = 0;
  else {
    const surest = Array.from({ length: m.rows }, (_, i) => (i === 0 || i === m.rows - 1 ? -1 : greatestOf(row(i))));
    state.query = strongestPlaces(surest, 1)[0];
  }
}

function drawAll() {
  readColours();
  drawWritten();
  drawMore();
  if (DATA.maps.length === 0) return;
  $("desk").hidden = false;
  drawGrids();
  markThumb();
  drawHead();
  drawFlows();
  point(state.query, state.key);
  drawToken();
  drawStrip();
}

/* ---- Light and dark ---------------------------------------------------------------------------------- */

const night = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.scheme ?? (night.matches ? "dark" : "light")) === "dark";

function setScheme(scheme) {
  if (scheme === undefined) delete document.documentElement.dataset.scheme;
  else document.documentElement.dataset.scheme = scheme;
  $("scheme").textContent = isDark() ? "Light" : "Dark";
  drawAll();
}

/** A print is dark on light, whatever the screen is. */
function aroundPrinting() {
  let before;
  addEventListener("beforeprint", () => {
    before = document.documentElement.dataset.scheme;
    setScheme("light");
  });
  addEventListener("afterprint", () => setScheme(before));
}

/* ---- The beginning ----------------------------------------------------------------------------------- */

function listen() {
  $("scheme").addEventListener("click", () => setScheme(isDark() ? "light" : "dark"));
  night.addEventListener("change", () => setScheme(document.documentElement.dataset.scheme));
  for (const name of ["unit", "scale"]) {
    for (const input of document.querySelectorAll(`[name=${name}]`)) input.addEventListener("change", () => change({ [name]: input.value }));
  }
  for (const input of document.querySelectorAll("[name=direction]")) input.addEventListener("change", () => turn(input.value));
  $("cell").addEventListener("input", () => change({ cell: Number($("cell").value) }));
  $("map").addEventListener("keydown", onMapKey);
  $("numbers").addEventListener("toggle", drawTable);
  for (const id of ["one-head", "one-token", "strip"]) {
    $(id).addEventListener("keydown", (event) => {
      if (event.key === "Escape") thumbOf(state.map, state.view).focus();
    });
  }
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width || DATA.maps.length === 0) return;
    width = innerWidth;
    drawMap();
    point(state.query, state.key);
  });
}

/** The head that is known to align best; where cross-attention is, it is what people came for; else the first map. */
function firstMap() {
  const best = DATA.best ? DATA.maps.findIndex((map) => map.tap === DATA.best[0]) : -1;
  if (best >= 0) return best;
  return Math.max(0, DATA.maps.map((map) => (map.rollout ? "rollout" : map.kind)).lastIndexOf("cross"));
}

function begin() {
  drawGiven();
  listen();
  aroundPrinting();
  if (DATA.maps.length) {
    state.map = firstMap();
    const views = DATA.maps[state.map].views;
    const best = DATA.best ? views.findIndex((view) => view.head === DATA.best[1]) : -1;
    state.view = best >= 0 ? best : views.length - 1;
    chooseStrongest("query");
    chooseStrongest("key");
  }
  setScheme(undefined);
}

begin();
