// Tags: the words of the text, coloured by tag, with the tag below each.

import { colourOf, el, percent, wordLine } from "./dom.js";

export function showTags(prediction, answer, { run }) {
  const { words, output, log_probs: logProbs, entities } = prediction;
  const colours = new Map(run.labels.map((label, index) => [label, colourOf(index)]));
  const items = words.map((word, index) => ({ text: word, class: "tagged", note: `${output[index]}, ${percent(Math.exp(logProbs[index]))}` }));
  const line = wordLine(items, { label: "Words and their tags" });
  for (const [index, node] of [...line.node.children].entries()) {
    node.style.setProperty("--tag", colours.get(output[index]) ?? "");
    node.append(el("span", { class: "tag" }, output[index]));
  }
  answer.append(line.node);
  const counts = new Map();
  for (const tag of output) counts.set(tag, (counts.get(tag) ?? 0) + 1);
  answer.append(el("ul", { class: "legend", "aria-label": "Tags" }, ...[...counts].sort().map(([tag, n]) => {
    const swatch = el("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = colours.get(tag) ?? "";
    return el("li", {}, swatch, `${tag} `, el("span", { class: "count" }, String(n)));
  })));
  if (entities?.length) answer.append(el("ul", { class: "others" }, ...entities.map((each) => el("li", {}, `${each.text} `, el("span", { class: "tag" }, each.label ?? "")))));
  return words.map((word, index) => `${word} ${output[index]}`).join(", ");
}
