// An answer marked in its passage.

import { bars, el, percent } from "./dom.js";

export function showSpan(prediction, answer, { input }) {
  const { output, start, end, score, alternatives = [] } = prediction;
  // Positions count characters, as Python does, not the units of JavaScript's texts.
  const passage = [...input.passage];
  const part = (from, to) => passage.slice(from, to).join("");
  const marked = output === null || start === undefined ? [input.passage] : [part(0, start), el("mark", {}, part(start, end)), part(end)];
  answer.append(el("p", { class: output === null ? "output none" : "output", dir: "auto" }, output ?? "no answer in this passage"), el("blockquote", { class: "passage", dir: "auto" }, ...marked));
  const all = [prediction, ...alternatives].filter((each) => each.score !== undefined);
  if (all.length > 1) answer.append(bars(all.map((each) => [each.output ?? "no answer", Math.exp(each.score)]), (name) => name === (output ?? "no answer")));
  return output === null ? "no answer in this passage" : `${output}, ${percent(Math.exp(score))}`;
}
