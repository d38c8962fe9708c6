/* ---- Weights ----------------------------------------------------------------------------------------- */

function bytes(text) {
  const raw = atob(text);
  const found = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) found[i] = raw.charCodeAt(i);
  return found;
}

/** Decode 16-bit integers, little-endian like the memory of all machines with a browser. */
const sixteen = (text) => new Uint16Array(bytes(text).buffer);

/** Return the weights of a view: `w` in row-major order; `given`: whether a weight is stored (null: all are);
    `bound`: upper bound of the others in a row, which are drawn as uniform. */
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

/** Merge subwords into words. The result is approximate (`near`) if not all weights are stored. */
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

/** Format a weight: the stored value, an upper bound, or an approximation. */
function weightText(m, i, j) {
  const at = i * m.columns + j;
  if (m.near) return `about ${number(m.w[at])}`;
  if (m.given !== null && !m.given[at]) return `at most ${number(m.bound[i])}`;
  return number(m.w[at]);
}

/* ---- Units ------------------------------------------------------------------------------------------- */

/** Whether the words of a side differ from its tokens: a word has several tokens, or an unknown token is shown in
    its original form as a word. Tokens with word -1 belong to no word. */
function hasWords(side) {
  const words = side.words.filter((word) => word >= 0);
  const isNamed = (token, n) => token === "<unk>" && side.words[n] >= 0 && side.surface[side.words[n]] !== token;
  return new Set(words).size < words.length || side.tokens.some(isNamed);
}

/** Return the units of an axis: `labels`, the unit `of` each token, and the number of `pieces` of each unit. */
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
    if (word >= 0 && token === UNKNOWN && side.surface[word] !== UNKNOWN) found.labels[places.get(key)] = `${side.surface[word]} [unknown]`;
  });
  return found;
}

const cache = new Map();

/** Return the matrix of a view in the selected units, from a small cache. */
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

/** Return the selected map and view, with matrix and units. */
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

/** Return the weights of the selected token along the other side. */
function weightsOf(m) {
  if (state.direction === "out") return m.w.subarray(state.query * m.columns, (state.query + 1) * m.columns);
  return Float32Array.from({ length: m.rows }, (_, i) => m.w[i * m.columns + state.key]);
}
