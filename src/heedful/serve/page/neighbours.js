// Vectors of texts as nearest neighbours: their cosines are computed here.

import { post } from "./api.js";
import { bar, choiceField, el } from "./dom.js";
import { textField } from "./fields.js";

/** Return the form of a run. */
export function neighbours(run) {
  const query = textField("Find texts near", { rows: 2 });
  const among = textField("Among these texts", { rows: 9, hint: "One per line." });
  const pooling = choiceField("Vector", [["", "as the run says"], ["mean", "mean of all tokens"], ["first", "first token"], ["last", "last token"]], "");
  const vectors = new Map();
  const lines = () => [...new Set(among.value().split("\n").map((line) => line.trim()).filter(Boolean))];

  function body() {
    const text = query.value().trim();
    if (!text || !lines().length) return null;
    const options = pooling.value() ? { pooling: pooling.value() } : {};
    return { inputs: [text, ...lines().filter((line) => line !== text)], ...options };
  }

  async function answer({ inputs, ...options }, place, signal) {
    const name = (text) => JSON.stringify([options, text]);
    const missing = inputs.filter((text) => !vectors.has(name(text)));
    for (let at = 0; at < missing.length; at += run.limits.inputs) {
      const part = missing.slice(at, at + run.limits.inputs);
      const { embeddings } = await post(run, "embed", { inputs: part, ...options }, signal);
      embeddings.forEach((each, index) => vectors.set(name(part[index]), each.vector ? unit(each.vector) : null));
    }
    const [text, ...others] = inputs;
    const own = vectors.get(name(text));
    if (!own) throw new Error("The first text has no vector: it is empty for this run.");
    const found = others.filter((other) => vectors.get(name(other))).map((other) => [other, dot(own, vectors.get(name(other)))]).sort(([, a], [, b]) => b - a);
    place.replaceChildren(el("ol", { class: "bars near" }, ...found.map(([other, cosine]) => bar(other, cosine, cosine.toFixed(3).replace("-", "−")))), el("p", { class: "hint" }, "Cosine of the vectors."));
    return found.length ? `The nearest: ${found[0][0]}, ${found[0][1].toFixed(3)}` : "no other text";
  }
  return { fields: [query.node, among.node, pooling.node], body, answer, verb: "embed", columns: true, empty: "Type a text, and others to compare it with." };
}

const dot = (a, b) => a.reduce((sum, value, index) => sum + value * b[index], 0);

function unit(vector) {
  const norm = Math.hypot(...vector) || 1;
  return vector.map((value) => value / norm);
}
