// Masked language models: a text with masks, and what may stand in them.

import { bars, el, percent } from "./dom.js";
import { inputFields } from "./fields.js";

const MASK = "[MASK]";
const N_BEST = 8;

/** Return the form of a run. */
export function filling(run) {
  const { nodes, read } = inputFields(run);
  const area = nodes[0].querySelector("textarea");
  const insert = () => {
    area.setRangeText(MASK, area.selectionStart, area.selectionEnd, "end");
    area.focus();
    area.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const button = el("button", { type: "button", onclick: insert }, "Put a mask here");
  const body = () => {
    const input = read();
    return input && { inputs: [input], n_best: N_BEST };
  };
  function show(prediction, answer) {
    const { output, score, alternatives = [], tokens, log_probs: logProbs, follows } = prediction;
    answer.append(el("p", { class: "output", dir: "auto" }, output));
    const all = [prediction, ...alternatives];
    if (tokens?.length) answer.append(bars(all.map((each) => [each.tokens.join(" … "), Math.exp(each.score)]), (name) => name === tokens.join(" … ")));
    if (follows !== undefined) answer.append(el("p", { class: "hint" }, `The second text follows the first: ${percent(follows)}`));
    return logProbs ? `${output}, ${percent(Math.exp(score))}` : output;
  }
  const explained = ({ inputs }) => ({ inputs });
  return { fields: [...nodes, button], body, show, explained, columns: true, empty: `Type a text with ${MASK} in place of a word; the answer appears as you type.` };
}
