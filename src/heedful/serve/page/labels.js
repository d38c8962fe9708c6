// Labels and label sets: a bar for each label.

import { bars, details, el, percent } from "./dom.js";

const MOST = 12;

export function showLabels(prediction, answer) {
  const { output, probabilities } = prediction;
  const chosen = Array.isArray(output) ? output : output === null ? [] : [output];
  const sorted = Object.entries(probabilities).sort(([, a], [, b]) => b - a);
  const isChosen = (name) => chosen.includes(name);
  const words = chosen.join(", ") || "no label";
  answer.append(el("p", { class: chosen.length ? "output" : "output none" }, words), bars(sorted.slice(0, MOST), isChosen));
  if (sorted.length > MOST) answer.append(details(`${sorted.length - MOST} more labels`, bars(sorted.slice(MOST), isChosen)));
  return Array.isArray(output) || output === null ? words : `${words}, ${percent(probabilities[output])}`;
}
