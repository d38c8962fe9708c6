/* All heads: a table of thumbnails per kind of attention. */

/** Return the indices of the maps by kind. */
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

/** Create a table of thumbnails: layers by heads, with the mean last. */
function grid(name, maps) {
  const heads = [...new Set(maps.flatMap((n) => DATA.maps[n].views.map((view) => view.head)))];
  heads.sort((a, b) => (a === null) - (b === null) || a - b);
  const size = limited(Math.floor(460 / heads.length), 26, 92);
  const isRollout = DATA.maps[maps[0]].rollout === true;
  const unseen = (text) => element("span", { class: "unseen" }, text);
  const top = element("tr", {}, element("th", { scope: "col" }, unseen("Layer")));
  for (const head of heads) {
    const shownName = head === null ? "mean" : `${head + 1}`;
    top.append(element("th", { scope: "col", class: head === null ? "mean" : null }, isRollout ? unseen("all heads") : shownName));
  }
  const body = element("tbody");
  for (const n of maps) {
    const map = DATA.maps[n];
    const row = element("tr", { title: map.tap }, element("th", { scope: "row" }, isRollout ? unseen("all layers") : `${map.layer + 1}`));
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
  const label = `${viewName(map, view)}; largest weight: ${shown(best.query)} attends to ${shown(best.key)}, ${number(best.weight)}`;
  const canvas = element("canvas", { style: { "aspect-ratio": limited(columns / rows, 0.5, 2) } });
  const made = element("button", { type: "button", class: "thumb", "aria-label": label, "data-map": mapNumber, "data-view": viewNumber }, canvas);
  paintThumb(canvas, map, view);
  made.addEventListener("click", () => openHead(mapNumber, viewNumber));
  for (const event of ["pointerenter", "focus"]) made.addEventListener(event, () => glance(map, view));
  return made;
}

/** Paint a thumbnail. Thumbnails of a kind share one scale. Colours depend on the square root of the weight, so
    that broad heads remain visible beside sharp ones. */
function paintThumb(canvas, map, view) {
  const most = Math.max(...DATA.maps.filter((other) => kindName(other) === kindName(map)).flatMap((other) => other.views.map((each) => each.greatest)));
  const shares = Float32Array.from(bytes(view.shades), (shade) => Math.sqrt((shade / SHADES) * (view.greatest / (most || 1))));
  paint(canvas, shares, view.cells[0], view.cells[1], 1);
}

function glance(map, view) {
  const best = strongestOf(map, view);
  $("glance").replaceChildren(
    `${viewName(map, view)}: largest weight: `, named(best.query), " attends to ", named(best.key), " ", element("b", {}, number(best.weight)),
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

/** Move to the next thumbnail in the direction of an arrow key. */
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

/** Show a head and scroll to it. */
function openHead(map, view) {
  change({ map, view });
  $("one-head").focus({ preventScroll: true });
  const top = $("one-head").getBoundingClientRect().top;
  if (top < 0 || top > innerHeight / 2) $("one-head").scrollIntoView();
}
