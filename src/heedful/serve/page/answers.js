// The form of tasks whose answer follows from their input at once: labels, label sets, numbers, answers in a passage,
// captions and masks. What an answer has decides how it is shown.

import { el } from "./dom.js";
import { inputFields } from "./fields.js";
import { showLabels } from "./labels.js";
import { showMask } from "./masks.js";
import { showNumber } from "./numbers.js";
import { showSpan } from "./spans.js";
import { spokenTags, tagSummary, taggedWords } from "./tags.js";

/** Return the form of a run. */
export function answers(run) {
  const { nodes, read, image } = inputFields(run);
  const options = {};
  const n = Math.min(run.labels.length, 1000);
  if (run.options.includes("n_best")) options.n_best = Math.max(1, n || 3);
  const body = () => {
    const input = read();
    return input && { inputs: [input], ...options };
  };
  const show = (prediction, answer, asked) => shower(prediction, run)(prediction, answer, { run, input: asked.inputs[0], image: image() });
  const explained = ({ inputs }) => ({ inputs });
  const what = run.images.length ? "Choose an image" : run.inputs.length > 1 ? "Fill in the fields" : "Type a text";
  return { fields: nodes, body, show, explained, columns: true, empty: `${what}; the answer appears here.` };
}

function shower(prediction, run) {
  const { output } = prediction;
  if (prediction.words) return showTags;
  if (run.inputs.includes("passage")) return showSpan;
  if (prediction.probabilities) return showLabels;
  if (typeof output === "number") return showNumber;
  return output?.runs ? showMask : showAnything;
}

function showTags(prediction, answer, { run }) {
  answer.append(taggedWords(prediction, run), ...tagSummary([prediction], run));
  return spokenTags(prediction);
}

/** Show a text, with further ones, or anything else as JSON. */
function showAnything(prediction, answer) {
  const { output, alternatives = [] } = prediction;
  if (typeof output === "string") {
    answer.append(el("p", { class: "output", dir: "auto" }, output));
    if (alternatives.length) answer.append(el("ol", { class: "others" }, ...alternatives.map((each) => el("li", { dir: "auto" }, String(each.output)))));
    return output;
  }
  if (output === null) {
    answer.append(el("p", { class: "output none" }, "no answer"));
    return "no answer";
  }
  const { version, input, ...rest } = prediction;
  answer.append(el("pre", { tabindex: 0, role: "region", "aria-label": "Answer as JSON" }, JSON.stringify(rest, null, 2)));
  return "answered";
}
