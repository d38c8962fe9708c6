/* ---- State and redrawing ----------------------------------------------------------------------------- */

/** Update the state, and redraw what depends on it. */
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

/** Keep the selected tokens, if their side is still shown. */
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

/** Select the key with the largest weight; or a query: the first token of an image, otherwise the query with the
    largest maximum weight, except the first and the last, which are rarely words. */
function chooseStrongest(role) {
  const map = DATA.maps[state.map];
  const m = unpacked(state.map, state.view);
  const row = (i) => m.w.subarray(i * m.columns, (i + 1) * m.columns);
  if (role === "key") state.key = strongestPlaces(row(state.query), 1)[0];
  else if (DATA.sides[map.queries].before > 0 || m.rows < 3) state.query = 0;
  else {
    const greatest = Array.from({ length: m.rows }, (_, i) => (i === 0 || i === m.rows - 1 ? -1 : greatestOf(row(i))));
    state.query = strongestPlaces(greatest, 1)[0];
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

/* ---- Light and dark mode ----------------------------------------------------------------------------- */

const night = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.scheme ?? (night.matches ? "dark" : "light")) === "dark";

function setScheme(scheme) {
  if (scheme === undefined) delete document.documentElement.dataset.scheme;
  else document.documentElement.dataset.scheme = scheme;
  $("scheme").textContent = isDark() ? "Light" : "Dark";
  drawAll();
}

/** Print in light mode. */
function aroundPrinting() {
  let before;
  addEventListener("beforeprint", () => {
    before = document.documentElement.dataset.scheme;
    setScheme("light");
  });
  addEventListener("afterprint", () => setScheme(before));
}

/* ---- Start ------------------------------------------------------------------------------------------- */

function addListeners() {
  $("scheme").addEventListener("click", () => setScheme(isDark() ? "light" : "dark"));
  night.addEventListener("change", () => setScheme(document.documentElement.dataset.scheme));
  for (const name of ["unit", "scale"]) {
    for (const input of document.querySelectorAll(`[name=${name}]`)) input.addEventListener("change", () => change({ [name]: input.value }));
  }
  for (const input of document.querySelectorAll("[name=direction]")) input.addEventListener("change", () => setDirection(input.value));
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

/** The map of the best known alignment; otherwise the last cross-attention; otherwise the first map. */
function firstMap() {
  const best = DATA.best ? DATA.maps.findIndex((map) => map.tap === DATA.best.tap) : -1;
  if (best >= 0) return best;
  return Math.max(0, DATA.maps.map((map) => (map.rollout ? "rollout" : map.kind)).lastIndexOf("cross"));
}

function start() {
  drawGiven();
  addListeners();
  aroundPrinting();
  if (DATA.maps.length) {
    state.map = firstMap();
    const views = DATA.maps[state.map].views;
    const best = DATA.best ? views.findIndex((view) => view.head === DATA.best.head) : -1;
    state.view = best >= 0 ? best : views.length - 1;
    chooseStrongest("query");
    chooseStrongest("key");
  }
  setScheme(undefined);
}

start();
