/* One token: its attention, or the attention it receives, in this head and in all heads of the layer. */

/** Draw the attention of the selected token (or the attention it receives) in all heads of the layer. */
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
  $("token-title").replaceChildren(named(label), out ? " attends to" : " receives attention from");
  $("token-hint").textContent = `${viewName(map, view)}, with all heads of the layer beside it. Click a token, or use the arrow keys.`;
  for (const input of document.querySelectorAll("[name=direction]")) input.checked = input.value === state.direction;
  const side = DATA.sides[out ? map.keys : map.queries];
  $("fan").hidden = side.grid !== null;
  $("heads").hidden = side.grid === null;
  if (side.grid) drawHeads(side, map);
  else drawFan(weights, (out ? keys : queries).labels, label, map, m);
}

/** Draw lines from the selected token to the others, and small bars for every head of the layer. */
function drawFan(weights, labels, label, map, m) {
  const all = map.views.map((_, v) => weightsOf(unpacked(state.map, v)));
  const places = seenBySome(listed(weights, m), all);
  const longest = full(greatestOf(all.flatMap((each) => places.map((n) => each[n]))));
  const rows = places.map((n) => fanRow(n, labels[n], weights, all, longest, map, m));
  const tops = map.views.map((view, v) =>
    element("th", { scope: "col" }, element("button", { type: "button", "aria-pressed": v === state.view, "aria-label": headName(view), onclick: () => reopen(v) }, view.head === null ? "mean" : `${view.head + 1}`)),
  );
  const isPart = labels.length > places.length;
  const note = !isPart ? "" : labels.length > LIST ? `the ${places.length} largest of ${labels.length} weights` : `${labels.length - places.length} with weight 0 in every head ${labels.length - places.length === 1 ? "is" : "are"} omitted`;
  const caption = element("caption", { class: "hint" }, `${note}${note ? "; " : ""}full bar: ${state.scale === "one" ? "1" : number(longest)}`);
  const top = element("tr", {}, element("th", { scope: "col" }, element("span", { class: "unseen" }, "token")), element("th", { scope: "col" }, element("span", { class: "unseen" }, "weight in this head")), ...tops);
  const table = element("table", { class: "bars" }, caption, element("thead", {}, top), element("tbody", {}, ...rows));
  $("fan").replaceChildren(element("span", { class: "from token", "aria-hidden": "true" }, shown(label)), lines(places, weights), element("div", { class: "across" }, table));
}

/** Return the listed tokens, in text order: all, or those with the largest stored weights. */
function listed(weights, m) {
  if (weights.length <= LIST) return Array.from(weights.keys());
  const at = (n) => (state.direction === "out" ? state.query * m.columns + n : n * m.columns + state.key);
  const isStored = (n) => m.given === null || m.given[at(n)] === 1;
  return strongestPlaces(weights, LISTED).filter(isStored).sort((a, b) => a - b);
}

/** Remove tokens with weight 0 in every head, such as later tokens in causal attention, unless all are. */
function seenBySome(places, all) {
  const found = places.filter((n) => all.some((each) => each[n] > 0));
  return found.length ? found : places;
}

/** Open another head of the layer from its column of bars. */
function reopen(view) {
  change({ view });
  document.querySelectorAll("#fan thead button")[view].focus();
}

function fanRow(n, label, weights, all, longest, map, m) {
  const [i, j] = state.direction === "out" ? [state.query, n] : [n, state.key];
  const bars = all.map((each, v) => {
    const text = `${headName(map.views[v])}: ${weightText(unpacked(state.map, v), i, j)}`;
    const bar = element("i", { style: { "--w": longest > 0 ? limited(each[n] / longest, 0, 1) : 0 } });
    return element("td", { class: v === state.view ? "bar chosen" : "bar", title: text }, bar, element("span", { class: "unseen" }, text));
  });
  return element("tr", { "data-unit": n }, element("th", { scope: "row", class: "label" }, named(label)), element("td", { class: "number" }, weightText(m, i, j)), ...bars);
}

/** Draw lines, as wide as their weights, from the middle of the left side to each row. */
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

/** Draw the attention of every head of the layer to the image. */
function drawHeads(side, map) {
  const all = map.views.map((_, v) => weightsOf(unpacked(state.map, v)));
  const most = full(greatestOfPatches(side, all, amongOf(map)));
  const images = map.views.map((view, v) => small(side, all[v], most, headName(view), v === state.view, () => change({ view: v })));
  $("heads").replaceChildren(photoFigure(side), ...images, patchesLegend(most, { among: amongOf(map) }));
}

const patchesOf = (side, weights) => weights.subarray(side.before, side.before + side.grid[0] * side.grid[1]);

/** Return the maximum of a scale for several heat maps of patches, at least uniform attention. */
const greatestOfPatches = (side, all, among) => Math.max(among === null ? 0 : 1 / among, ...all.map((each) => greatestOf(patchesOf(side, each))));

const patchesLegend = (most, what) => element("p", { class: "legend" }, ...colourBar(most, what));

/** Create a small heat map of patches that can be selected. */
function small(side, weights, most, label, isChosen, choose) {
  const { frame, canvas } = heatOf(side);
  paint(canvas, patchesOf(side, weights), ...side.grid, most);
  const press = ({ currentTarget }) => {
    const box = currentTarget.parentElement;
    const at = [...box.children].indexOf(currentTarget);
    choose();
    box.children[at].focus(); // the button has been replaced by a new one
  };
  return element("button", { type: "button", "aria-pressed": isChosen, onclick: press }, frame, element("span", { class: "name" }, element("bdi", {}, shown(label))));
}

/** Draw the attention of each token of a text to the image, in this head, on one scale. */
function drawStrip() {
  const { map, view, m, queries } = current();
  const side = DATA.sides[map.keys];
  $("strip").hidden = side.grid === null || DATA.sides[map.queries].grid !== null;
  if ($("strip").hidden) return;
  $("strip-hint").textContent = viewName(map, view);
  const row = (i) => m.w.subarray(i * m.columns, (i + 1) * m.columns);
  const chosen = (i) => state.direction === "out" && i === state.query;
  const most = full(greatestOfPatches(side, queries.labels.map((_, i) => row(i)), amongOf(map)));
  const images = queries.labels.slice(0, NUMBERED).map((label, i) => small(side, row(i), most, label, chosen(i), () => change({ direction: "out", query: i })));
  $("strip-body").replaceChildren(photoFigure(side), ...images, patchesLegend(most, { among: amongOf(map) }));
}

/** Set the direction; in self-attention, keep the token. */
function setDirection(direction) {
  const { map } = current();
  if (map.queries !== map.keys) change({ direction });
  else if (direction === "in") change({ direction, key: state.query });
  else change({ direction, query: state.key });
}

function focusToken() {
  (state.direction === "out" ? flows.query : flows.key).focus();
  $("one-token").scrollIntoView({ block: "nearest" });
}
