// Text to text, such as translation: two columns, further answers, and which words belong together. Of a translation,
// each line is a sentence of its own: of several lines the answers are shown, and of the one that is pressed the words.

import { Refusal, isAbort, post } from "./api.js";
import { details, el, labelled, numberField, wordLine, wordsOf } from "./dom.js";
import { textField } from "./fields.js";
import { lineAnswers, linesOf } from "./lines.js";
import { notesOf } from "./panel.js";

const N_BEST = 3;

/** Return the form of a run. */
export function translation(run) {
  const [column] = run.inputs;
  const splits = run.task === "translation";
  const source = textField("Source", { rows: 6, hint: splits ? "Each line is translated by itself." : null });
  const searches = run.decoding?.kind === "beam";
  const begins = el("input", { type: "text", spellcheck: "false", dir: "auto" });
  const nBest = numberField("Answers", { value: searches ? N_BEST : 1, min: 1, max: 20 });
  const beam = numberField("Beam", { value: Math.max(N_BEST, run.decoding?.beam ?? 1), min: 1, max: 64 });
  let aligns = run.aligns;
  let lines = [];
  let chosen = 0;
  let written = "";
  let ask = () => {};
  let explain = () => {};
  nBest.input.addEventListener("input", () => {
    if (nBest.input.validity.valid && Number(beam.input.value) < nBest.input.valueAsNumber) beam.input.value = nBest.input.value;
  });

  function body() {
    if (!source.value().trim()) return null;
    const options = {};
    if (searches) {
      options.n_best = nBest.value() ?? 1;
      beam.input.min = options.n_best; // there are as many answers as hypotheses at most
      options.beam = beam.value() ?? options.n_best;
    }
    if (begins.value.trim()) options.target_prefix = begins.value.trim();
    if (aligns) options.alignment = true;
    lines = splits ? linesOf(source.value()) : [{ before: "", text: source.value() }];
    return { inputs: lines.map(({ text }) => ({ [column]: text })), ...options };
  }

  async function predicted(asked, signal) {
    const sent = aligns ? asked : withoutAlignment(asked);
    try {
      return (await post(run, "predict", sent, signal)).predictions;
    } catch (error) {
      // Not every model aligns: then its answers are shown without.
      if (isAbort(error) || !(error instanceof Refusal) || error.status !== 422 || !sent.alignment) throw error;
      const { predictions } = await post(run, "predict", withoutAlignment(asked), signal);
      aligns = false;
      return predictions;
    }
  }

  const answersTo = lineAnswers(run, column, predicted);

  async function answer(asked, place, signal) {
    const own = lines;
    const text = el("p", { class: "output", dir: "auto" });
    const progress = el("p", { class: "hint" });
    const found = [];
    for await (const part of answersTo(asked, signal)) {
      text.append(part.map((each, index) => own[found.length + index].before + textOf(each)).join(""));
      found.push(...part);
      progress.textContent = `${found.length} of ${own.length} lines`;
      if (found.length < own.length && text.parentNode !== place) place.replaceChildren(text, progress);
    }
    chosen = 0;
    if (own.length > 1) return showLines(found, own, place);
    const [prediction] = found;
    if (prediction.error) throw new Error(prediction.error);
    place.replaceChildren();
    show(prediction, place, own[0].text);
    place.append(...notesOf(prediction));
    written = prediction.output ?? "";
    return written || "no answer";
  }

  /** Show the answers to lines, and of the one that is pressed what there is to see of it. */
  function showLines(found, own, place) {
    const part = el("section", { class: "line-of", "aria-live": "polite" });
    const items = found.map((each, index) => ({ before: own[index].before, text: textOf(each), class: each.output ? "" : "none" }));
    const list = wordLine(items, { label: "Answer, line by line; press a line to see its words", press: choose });
    list.node.classList.add("output");
    list.node.dir = "auto";

    function choose(index) {
      const prediction = found[index];
      list.mark([index]);
      part.replaceChildren(el("h2", {}, `Line ${index + 1} of ${own.length}`));
      if (prediction.error) part.append(el("p", { class: "error" }, prediction.error));
      else show(prediction, part, own[index].text);
      part.append(...notesOf(prediction));
      [chosen, written] = [index, prediction.output ?? ""];
      explain();
    }
    place.replaceChildren(list.node, part);
    choose(0);
    return `${found.length} lines, the first: ${items[0].text}`;
  }

  function show(prediction, place, text) {
    const { output, alignment, alternatives = [] } = prediction;
    if (output === null) {
      place.append(el("p", { class: "output none" }, "no answer"));
      return;
    }
    const [read, made] = [wordsOf(text), wordsOf(output)];
    const partners = (index, side) => (alignment ?? []).filter((pair) => pair[side] === index).map((pair) => pair[1 - side]);
    const noted = (words, side, others) => words.map((word, index) => {
      const found = partners(index, side).map((each) => others[each]?.text).filter(Boolean);
      return { ...word, note: found.length ? `aligned with ${found.join(", ")}` : undefined };
    });
    const link = (index, side) => {
      const own = index === null ? [] : [index];
      const far = index === null ? [] : partners(index, side);
      source_.mark(side ? far : own);
      target.mark(side ? own : far);
    };
    const source_ = wordLine(noted(read, 0, made), { label: "Words of the source", choose: (index) => link(index, 0) });
    const target = wordLine(noted(made, 1, read), {
      label: lines.length > 1 ? "Words of this line" : "Answer; press a word to change how it goes on", choose: (index) => link(index, 1),
      press: lines.length > 1 ? null : (index) => {
        begins.value = made.slice(0, index).map((word) => word.before + word.text).join("").trim();
        settings.open = true;
        begins.focus();
        if (begins.value) ask();
      },
    });
    target.node.classList.add("output");
    target.node.dir = "auto";
    place.append(target.node);
    if (alignment?.length) place.append(el("div", { class: "aligned" }, source_.node));
    if (alternatives.length) place.append(el("h2", {}, "Other answers"), el("ol", { class: "others", start: 2 }, ...alternatives.map((each) => el("li", {},
      el("span", { dir: "auto" }, each.output), " ", el("span", { class: "count", title: "score" }, each.score.toFixed(2).replace("-", "−"))))));
  }

  const settings = details("Settings", labelled("Output begins with", begins, "Or press a word of the answer. Of several lines, each begins so."), searches ? el("div", { class: "row" }, nBest.node, beam.node) : "");
  const explained = ({ inputs: { [chosen]: input }, beam: width, target_prefix: prefix }) => {
    const inputs = [input];
    if (prefix) return { inputs, target: written };
    return width ? { inputs, decoding: { ...run.decoding, beam: width, n_best: 1 } } : { inputs };
  };
  return { fields: [source.node, settings], body, answer, explained, columns: true, connect: (act, show_) => { [ask, explain] = [act, show_]; }, empty: "Type a text; the answer appears as you type." };
}

const textOf = (prediction) => prediction.output || (prediction.error ? "(no answer: see this line)" : "(no answer)");

function withoutAlignment({ alignment, ...others }) {
  return others;
}
