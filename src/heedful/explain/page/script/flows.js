/* The sides of a map as text or image, coloured by the attention of the selected token. */

let flows = {};

/** Draw the sides of the map; self-attention has one. */
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

const flow = (name, units, choose) => (DATA.sides[name].grid ? imageFlow(name, choose) : textFlow(name, units, choose));

/** Create the chips of a text, one of which is selected. */
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

/** Scroll a long text to the selected token, without moving the page. */
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

/** Create an image, the heat map of its patches, and chips for tokens that are not patches. */
function imageFlow(name, choose) {
  const side = DATA.sides[name];
  const [rows, columns] = side.grid;
  const patches = side.before + rows * columns;
  const others = side.tokens.map((_, n) => n).filter((n) => n < side.before || n >= patches);
  const chips = others.map((n) => element("button", { type: "button", class: "chip", tabindex: -1, role: "option", onclick: () => choose(n) }, shown(side.tokens[n])));
  const box = element("div", { class: "flow", role: "listbox", "aria-label": `Tokens of the ${name} that are not patches` }, ...chips);
  box.addEventListener("keydown", (event) => alongText(event, chips, false, (n) => (choose(others[n]), chips[n].focus())));
  const photo = photoOf(side);
  const { frame: heat, canvas } = heatOf(side);
  const legend = element("p", { class: "legend" });
  const pair = element("div", { class: "pair", tabindex: 0, role: "application", "aria-roledescription": "image" }, photo, heat);
  const marks = [photo, heat].map((frame) => {
    const mark = element("div", { class: "patch", hidden: true, style: { "--across": columns, "--down": rows } });
    frame.append(mark);
    return mark;
  });
  let chosen = null;
  let weights = null;
  for (const frame of [photo, heat]) {
    frame.classList.add("big");
    frame.addEventListener("click", (event) => choose(side.before + patchAt(event, frame, side.grid)));
    frame.addEventListener("pointermove", (event) => {
      const at = patchAt(event, frame, side.grid);
      frame.title = `row ${Math.floor(at / columns) + 1}, column ${(at % columns) + 1}${weights ? `: ${number(weights[side.before + at])}` : ""}`;
    });
  }
  pair.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const at = chosen === null ? 0 : chosen;
    choose(side.before + limited(Math.floor(at / columns) + step[0], 0, rows - 1) * columns + limited((at % columns) + step[1], 0, columns - 1));
  });
  const describe = () => {
    const where = chosen === null ? "" : `, patch in row ${Math.floor(chosen / columns) + 1}, column ${(chosen % columns) + 1}`;
    pair.setAttribute("aria-label", `Image of the ${name}${where}${weights && chosen !== null ? `, ${number(weights[side.before + chosen])}` : ""}`);
  };
  return {
    node: element("div", {}, element("p", { class: "flow-name" }, name), ...(chips.length ? [box] : []), pair, legend),
    tint(given, most) {
      weights = given;
      heat.hidden = legend.hidden = given === null;
      if (given !== null) {
        paint(canvas, given.subarray(side.before, patches), rows, columns, most);
        legend.replaceChildren(...colourBar(most, { among: amongOf(current().map) }));
      }
      tintChips(chips, others.map((n) => side.tokens[n]), given === null ? null : others.map((n) => given[n]), most);
      describe();
    },
    mark(n) {
      chosen = n !== null && n >= side.before && n < patches ? n - side.before : null;
      for (const mark of marks) {
        mark.hidden = chosen === null;
        if (chosen === null) continue;
        mark.style.setProperty("--i", Math.floor(chosen / columns));
        mark.style.setProperty("--j", chosen % columns);
      }
      markChip(chips, others.indexOf(n));
      describe();
    },
    focus: () => (chosen === null && chips.length ? chips.find((chip) => chip.tabIndex === 0) : pair).focus(),
  };
}

/** Return the number of tokens that a row sums over; null if its rows do not sum to 1. */
const amongOf = (map) => (map.rollout && map.queries !== map.keys ? null : map.size[1]);

const frameOf = (side, ...children) => element("div", { class: "frame", style: { "aspect-ratio": side.grid[1] / side.grid[0] } }, ...children);

/** Return the image. */
const photoOf = (side) => frameOf(side, ...(side.image ? [element("img", { src: side.image, alt: "", draggable: "false" })] : []));

/** Return a canvas of the image's shape, one pixel per patch. It is beside the image, not on top of it, so that
    their colours are not confused. */
function heatOf(side) {
  const canvas = element("canvas");
  return { frame: frameOf(side, canvas), canvas };
}

/** Return the image as a figure, which precedes the heat maps of its patches. */
const photoFigure = (side) => element("figure", {}, photoOf(side), element("figcaption", {}, "the image"));

function patchAt(event, frame, [rows, columns]) {
  const box = frame.getBoundingClientRect();
  const i = limited(Math.floor(((event.clientY - box.top) / box.height) * rows), 0, rows - 1);
  return i * columns + limited(Math.floor(((event.clientX - box.left) / box.width) * columns), 0, columns - 1);
}
