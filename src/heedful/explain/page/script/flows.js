/* The sides of a map as running text or as the picture, tinted by what the chosen token looks at. */

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
