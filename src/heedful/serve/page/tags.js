// Tags: the words of the text, coloured by tag, with the tag below each; of several lines, each line.

import { MOST_WORDS, colourOf, el, percent, wordLine } from "./dom.js";

/** Return the first words of a line with their tags; `press` is called if one is pressed. */
export function taggedWords({ words, output, log_probs: logProbs }, run, { label = "Words and their tags", press = null } = {}) {
  const colours = coloursOf(run);
  const items = words.slice(0, MOST_WORDS).map((word, index) => ({ text: word, class: "tagged", note: `${output[index]}, ${percent(Math.exp(logProbs[index]))}` }));
  const line = wordLine(items, { label, press });
  line.node.classList.add("tags");
  for (const [index, node] of [...line.node.children].entries()) {
    node.style.setProperty("--tag", colours.get(output[index]) ?? "");
    node.append(el("span", { class: "tag" }, output[index]));
  }
  if (words.length <= MOST_WORDS) return line.node;
  const note = `The first ${MOST_WORDS.toLocaleString("en")} of ${words.length.toLocaleString("en")} words.`;
  return el("div", {}, line.node, el("p", { class: "hint" }, note));
}

/** Return how often each tag occurs in some answers, and the entities that they have. */
export function tagSummary(predictions, run) {
  const colours = coloursOf(run);
  const counts = new Map();
  for (const tag of predictions.flatMap(({ output }) => output ?? [])) counts.set(tag, (counts.get(tag) ?? 0) + 1);
  const legend = el("ul", { class: "legend", "aria-label": "Tags" }, ...[...counts].sort().map(([tag, n]) => {
    const swatch = el("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = colours.get(tag) ?? "";
    return el("li", {}, swatch, `${tag} `, el("span", { class: "count" }, String(n)));
  }));
  const entities = predictions.flatMap((each) => each.entities ?? []);
  const found = entities.slice(0, MOST_WORDS).map((each) => el("li", {}, `${each.text} `, el("span", { class: "tag" }, each.label ?? "")));
  return [legend, found.length ? el("ul", { class: "others" }, ...found) : null].filter(Boolean);
}

/** Return an answer in a few words. */
export const spokenTags = ({ words, output }) => words.slice(0, MOST_WORDS).map((word, index) => `${word} ${output[index]}`).join(", ");

const coloursOf = (run) => new Map(run.labels.map((label, index) => [label, colourOf(index)]));
