/* Probabilities of predicted tokens, and further views. */

/** Create tokens coloured by a value; the colours end at `most`. `unknown` has the indices of unknown words. */
function numbered(tokens, values, most, label, unknown = []) {
  const short = tokens.length <= NUMBERED;
  const chips = tokens.map((token, n) => {
    const value = values[n] ?? null;
    const text = value === null ? "no value" : label(value);
    const isUnknown = unknown.includes(n);
    const chip = element("span", { class: isUnknown ? "chip unknown" : "chip", title: `${shown(token)}${isUnknown ? " (unknown)" : ""}: ${text}` }, isUnknown ? element("span", { class: "word" }, shown(token)) : shown(token));
    if (isUnknown) chip.append(element("em", {}, " unknown"));
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
    ...found.map(([name, values]) => headed(`Probability of each ${name} token`, "Stronger colour: higher probability.", numbered(DATA.sides[name].tokens, values, 1, percent))),
  );
}

const VIEWS = { tokens: tokensView, table: tableView, patches: patchesView, heat: heatView, image: imageView };

function drawMore() {
  $("more").replaceChildren(...DATA.more.map(drawnView));
}

/** Draw a view, with its note below it. */
function drawnView(view) {
  const section = VIEWS[view.kind](view);
  if (view.note) section.append(element("p", { class: "hint" }, view.note));
  return section;
}

/** Draw a view with a value per token, or per word of its `labels`. */
function tokensView(view) {
  const own = greatestOf(view.values.map((value) => Math.abs(value ?? 0)));
  const signed = view.values.some((value) => value < 0);
  const strip = numbered(view.labels ?? DATA.sides[view.side].tokens, view.values, view.scale ?? own, aligned(own), view.unknown);
  return headed(view.title, signed ? "Blue: positive; red: negative." : "Stronger colour: larger value.", strip, ...sharedScale(view, signed));
}

/** Draw the scale that views of one unit share: its colours are those of backgrounds of text. */
function sharedScale({ scale, unit }, signed) {
  if (scale === undefined) return [];
  const bar = colourBar(scale, { least: signed ? -scale : 0, label: aligned(scale), end: TINT });
  return [element("div", { class: "legend" }, ...bar, ` ${unit}`)];
}

function tableView(view) {
  const top = element("tr", {}, ...view.columns.map((name) => element("th", { scope: "col", class: "text-cell" }, named(String(name)))));
  const rows = view.rows.map((row) => element("tr", {}, ...row.map(tableCell)));
  const table = element("table", { class: "plain" }, element("thead", {}, top), element("tbody", {}, ...rows));
  return headed(view.title, "", element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": view.title }, table));
}

/** Draw the image and heat maps of its patches, on one scale, or each on its own (`apart`). A heat map may have its
    own grid, for example of pixels. */
function patchesView(view) {
  const side = DATA.sides[view.side];
  const among = view.among ?? null;
  const all = view.images.flatMap((each) => each.values);
  const signed = all.some((value) => value < 0);
  const scaleOf = (values) => {
    const most = Math.max(among === null ? 0 : 1 / among, greatestOf(values.map(Math.abs)));
    return { most, label: signed ? aligned(most) : number };
  };
  const legendOf = ({ most, label }) => patchesLegend(most, { among, least: signed ? -most : 0, label });
  const together = scaleOf(all);
  const images = view.images.map((each) => {
    const grid = each.grid ?? side.grid;
    const own = view.apart ? scaleOf(each.values) : together;
    const { frame, canvas } = heatOf(side);
    paint(canvas, each.values, ...grid, own.most);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${each.label}: ${strongestPatches(grid, each.values, own.label)}`);
    return element("figure", {}, frame, element("figcaption", {}, each.label), ...(view.apart ? [legendOf(own)] : []));
  });
  const hint = signed ? "Blue: positive; red: negative." : "Stronger colour: larger value.";
  const gallery = element("div", { class: "gallery wide" }, photoFigure(side), ...images);
  return headed(view.title, hint, gallery, ...(view.apart ? [] : [legendOf(together)]));
}

/** Describe the patches with the largest magnitudes, as text. */
function strongestPatches(grid, values, label) {
  const places = strongestPlaces(values.map(Math.abs), 3);
  return places.map((n) => `row ${Math.floor(n / grid[1]) + 1}, column ${(n % grid[1]) + 1}: ${label(values[n])}`).join("; ");
}

/** Draw a matrix whose rows and columns have names as a table with its numbers. */
function namedHeat(view) {
  const most = view.largest ?? 1;
  const label = aligned(most);
  const top = element("tr", {}, element("td"), ...view.columns.map((name) => element("th", { scope: "col" }, named(name))));
  const levels = sixteen(view.levels);
  const signed = levels.some((level) => level > 0 && level < (LEVELS + 1) / 2);
  const rows = view.rows.map((name, i) => {
    const cells = view.columns.map((_, j) => {
      const level = levels[i * view.columns.length + j];
      if (level === 0) return element("td", {}, "\u2013");
      const value = (2 * (level - 1)) / (LEVELS - 1) - 1;
      const cell = element("td", { class: "tinted" }, label(value * most));
      tint(cell, (value * most) / (view.scale ?? most));
      return cell;
    });
    return element("tr", {}, element("th", { scope: "row" }, named(name)), ...cells);
  });
  const table = element("table", { class: "plain" }, element("thead", {}, top), element("tbody", {}, ...rows));
  const hint = signed ? "Blue: positive; red: negative." : "Stronger colour: larger value.";
  return headed(view.title, hint, element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": view.title }, table), ...sharedScale(view, signed));
}

/** Draw values from -1 to 1 as one image: positive blue, negative red, NaN empty. */
function heatView(view) {
  const [rows, columns] = view.size;
  if (view.rows && rows * columns <= TABLE) return namedHeat(view);
  const canvas = element("canvas", { role: "img", "aria-label": `${view.title}: ${rows} by ${columns} values`, width: columns, height: rows });
  const image = new ImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const share = (view.largest ?? 1) / (view.scale ?? view.largest ?? 1);
  sixteen(view.levels).forEach((level, n) => {
    if (level === 0) return;
    const value = (2 * (level - 1)) / (LEVELS - 1) - 1;
    pixels[n] = (value < 0 ? colours.minus : colours.plus).packed[Math.round(255 * Math.abs(value) * share)];
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
  const scale = Math.max(1, Math.floor(420 / Math.max(rows, columns)));
  canvas.style.setProperty("width", `${scale * columns}px`);
  const most = number(view.scale ?? view.largest ?? 1);
  return headed(view.title, `Blue: ${most}; red: -${most}.`, element("div", { class: "heat" }, canvas));
}

function imageView(view) {
  const image = element("img", { src: view.image, alt: view.text, class: "tiles" });
  image.style.setProperty("width", `${view.width}px`);
  return headed(view.title, view.text, image);
}

/** Create a cell: a number, a text, nothing, a text with its probability, or an object (see `cellOf`). */
function tableCell(value) {
  if (value === null) return element("td");
  if (typeof value === "number") return element("td", {}, Number.isInteger(value) ? `${value}` : number(value));
  if (typeof value !== "object") return element("td", { class: "text-cell" }, named(String(value)));
  return cellOf(Array.isArray(value) ? { text: String(value[0]), probability: value[1] } : value);
}

/** Create a cell with a text and optionally its `probability`, the `share` or `colour` of its background, whether it
    is `bold`, and the head that it opens (`tap` and `head`). */
function cellOf({ text, probability, share = probability, colour, bold, tap, head }) {
  const map = DATA.maps.findIndex((each) => each.tap === tap);
  const view = map < 0 ? -1 : DATA.maps[map].views.findIndex((each) => each.head === head);
  const label = view < 0 ? null : `${text}: open ${viewName(DATA.maps[map], DATA.maps[map].views[view])}`;
  const shownText = view < 0 ? named(text) : element("button", { type: "button", class: "opens", "aria-label": label, onclick: () => openHead(map, view) }, shown(text));
  const classes = [probability === undefined ? "" : "text-cell", share === undefined && colour === undefined ? "" : "tinted"].filter(Boolean);
  const cell = element("td", { class: classes.join(" ") || null }, bold ? element("strong", {}, shownText) : shownText);
  if (probability !== undefined) cell.append(element("small", {}, percent(probability)));
  if (share !== undefined) tint(cell, limited(share, 0, 1));
  else if (colour !== undefined) fill(cell, colour.match(/[0-9a-f]{2}/g).map((part) => parseInt(part, 16)));
  return cell;
}

function drawGiven() {
  const sides = Object.values(DATA.sides).filter((side) => side.image);
  $("given").replaceChildren(...sides.map((side) => element("img", { src: side.image, alt: "input image" })));
}
