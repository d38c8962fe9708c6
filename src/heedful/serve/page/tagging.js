// Tagging: each line of the text is a sentence of its own, whose words are coloured by their tags.

import { el } from "./dom.js";
import { textField } from "./fields.js";
import { lineAnswers, linesOf } from "./lines.js";
import { notesOf } from "./panel.js";
import { spokenTags, tagSummary, taggedWords } from "./tags.js";

/** Return the form of a run. */
export function tagging(run) {
  const [column] = run.inputs;
  const text = textField("Text", { rows: 3, hint: "Each line is tagged by itself." });
  const box = el("input", { type: "checkbox", id: "split-words", checked: true });
  const raw = el("div", { class: "check" }, box, el("label", { for: "split-words" }, "Split words and punctuation marks"));
  const answersTo = lineAnswers(run, column);
  let explain = () => {};
  let words = null;

  function body() {
    const lines = linesOf(text.value());
    return lines.length ? { inputs: lines.map((line) => ({ [column]: line.text })), words: box.checked ? "raw" : "blanks" } : null;
  }

  async function answer(asked, place, signal) {
    const n = asked.inputs.length;
    const shown = el("div", { class: n > 1 ? "lines" : null });
    const progress = el("p", { class: "hint" });
    const found = [];
    for await (const part of answersTo(asked, signal)) {
      shown.append(...part.map((prediction, index) => lineOf(prediction, found.length + index, n, choose)));
      found.push(...part);
      progress.textContent = n > 1 ? `${found.length} of ${n} lines` : "";
      if (shown.parentNode !== place) place.replaceChildren(shown, progress);
    }
    if (n === 1 && found[0].error) throw new Error(found[0].error);
    place.replaceChildren(shown, ...tagSummary(found, run));
    choose(0);
    return n > 1 ? `${n} lines` : spokenTags(found[0]);

    function choose(index) {
      if (n > 1) [...shown.children].forEach((line, at) => line.classList.toggle("chosen", at === index));
      words = found[index].words ?? null;
      explain();
    }
  }

  function lineOf(prediction, index, n, choose) {
    if (prediction.error) return el("p", { class: "error" }, prediction.error);
    const several = { label: `Words and tags of line ${index + 1}; press one to explain this line`, press: () => choose(index) };
    return el("div", { class: "line" }, taggedWords(prediction, run, n > 1 ? several : {}), ...notesOf(prediction));
  }

  // The words of the answer, because a text would be split into words at its blanks.
  const explained = () => words && { inputs: [{ [column]: words }] };
  const connect = (ask, again) => { explain = again; };
  return { fields: [text.node, raw], body, answer, explained, connect, columns: true, empty: "Type a text; the answer appears here." };
}
