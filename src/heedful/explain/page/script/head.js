/* One head: its map, the weight under the pointer, and a table of weights. */

function drawHead() {
  const { map, view, m } = current();
  $("head-title").textContent = viewName(map, view);
  const isBest = DATA.best !== null && DATA.best.tap === map.tap && DATA.best.head === view.head;
  $("head-kind").textContent = `${kindName(map)}${isBest ? "; best known alignment" : ""}`;
  $("units").hidden = ![map.queries, map.keys].some((name) => hasWords(DATA.sides[name]));
  drawMap();
  drawLegend(full(m.greatest));
  $("map-note").hidden = m.given === null && !m.near;
  $("map-note").textContent =
    "Only the largest weights of each row are stored in this page; the others are drawn as uniform." +
    ` To store all: heedful explain … --exact ${map.layer + 1}${view.head === null ? "" : `.${view.head + 1}`}`;
  drawTable();
}

function drawLegend(greatest) {
  $("legend").replaceChildren(...colourBar(greatest));
}

const pen = document.createElement("canvas").getContext("2d");

/** Return the width of the longest label in pixels, at the maximum font size. */
function widest(labels) {
  pen.font = `600 13px ${getComputedStyle(document.body).fontFamily}`;
  return Math.max(...labels.slice(0, 400).map((label) => pen.measureText(shown(label)).width));
}

/** Return the cell size, and whether rows and columns have labels. */
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

/** Return the row and column under the pointer. */
function cellAt(event, field) {
  const box = field.getBoundingClientRect();
  const { m } = current();
  return [
    limited(Math.floor(((event.clientY - box.top) / box.height) * m.rows), 0, m.rows - 1),
    limited(Math.floor(((event.clientX - box.left) / box.width) * m.columns), 0, m.columns - 1),
  ];
}

/** Mark a cell and show its weight. */
function point(i, j) {
  const { m, queries, keys } = current();
  for (const band of document.querySelectorAll(".band")) {
    band.style.setProperty("--i", i);
    band.style.setProperty("--j", j);
  }
  const on = (box, at) => [...document.querySelectorAll(`.map .${box} span`)].forEach((label, n) => label.classList.toggle("on", n === at));
  on("rows", i);
  on("columns", j);
  $("readout").replaceChildren(named(queries.labels[i]), " attends to ", named(keys.labels[j]), " ", element("b", {}, weightText(m, i, j)));
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

/** Draw all weights of a small head, or those of the selected row, if the table is open. */
function drawTable() {
  if (!$("numbers").open) return $("numbers-body").replaceChildren();
  const { m, queries, keys } = current();
  $("numbers-body").replaceChildren(m.rows * m.columns <= TABLE ? wholeTable(m, queries, keys) : rowTable(m, queries, keys));
}

function wholeTable(m, queries, keys) {
  const top = element("tr", {}, element("td"), ...keys.labels.map((label) => element("th", { scope: "col" }, named(label))));
  const rows = queries.labels.map((label, i) =>
    element("tr", {}, element("th", { scope: "row" }, named(label)), ...keys.labels.map((_, j) => element("td", {}, weightText(m, i, j)))),
  );
  return element("table", { class: "plain" }, element("thead", {}, top), element("tbody", {}, ...rows));
}

function rowTable(m, queries, keys) {
  const order = strongestPlaces(m.w.subarray(state.query * m.columns, (state.query + 1) * m.columns), LIST);
  const rows = order.map((j) => element("tr", {}, element("th", { scope: "row" }, `${j + 1} `, named(keys.labels[j])), element("td", {}, weightText(m, state.query, j))));
  const caption = element("caption", {}, "Largest weights of ", named(queries.labels[state.query]));
  return element("table", { class: "plain" }, caption, element("tbody", {}, ...rows));
}

/** Return the indices of the largest values, in descending order. */
function strongestPlaces(values, n) {
  return Array.from(values.keys()).sort((a, b) => values[b] - values[a] || a - b).slice(0, n);
}
