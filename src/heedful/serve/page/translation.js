// Text to text, such as translation: two columns, further answers, and which words belong together.

import { Refusal, isAbort, post } from "./api.js";
import { details, el, labelled, numberField, wordLine, wordsOf } from "./dom.js";
import { textField } from "./fields.js";
import { notesOf } from "./panel.js";

const N_BEST = 3;

/** Return the form of a run. */
export function translation(run) {
  const [column] = run.inputs;
  const source = textField("Source", { rows: 6 });
  const searches = run.decoding?.kind === "beam";
  const begins = el("input", { type: "text", spellcheck: "false", dir: "auto" });
  const nBest = numberField("Answers", { value: searches ? N_BEST : 1, min: 1, max: 20 });
  const beam = numberField("Beam", { value: Math.max(N_BEST, run.decoding?.beam ?? 1), min: 1, max: 64 });
  let aligns = true;
  let written = "";
  let ask = () => {};

  function body() {
    if (!source.value().trim()) return null;
    const options = {};
    if (searches) {
      options.n_best = nBest.value() ?? 1;
      options.beam = Math.max(beam.value() ?? 1, options.n_best);
    }
    if (begins.value.trim()) options.target_prefix = begins.value.trim();
    if (aligns) options.alignment = true;
    return { inputs: [{ [column]: source.value() }], ...options };
  }

  async function answer(asked, place, signal) {
    let found;
    try {
      found = await post(run, "predict", asked, signal);
    } catch (error) {
      // Not every model aligns: then its answers are shown without.
      if (isAbort(error) || !(error instanceof Refusal) || error.status !== 422 || !asked.alignment) throw error;
      const { alignment, ...others } = asked;
      found = await post(run, "predict", others, signal);
      aligns = false;
    }
    const [prediction] = found.predictions;
    if (prediction.error) throw new Error(prediction.error);
    place.replaceChildren();
    show(prediction, place, asked.inputs[0][column]);
    place.append(...notesOf(prediction));
    written = prediction.output ?? "";
    return written || "no answer";
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
      label: "Answer; press a word to change how it goes on", choose: (index) => link(index, 1),
      press: (index) => {
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

  const settings = details("Settings", labelled("Output begins with", begins, "Or press a word of the answer."), searches ? el("div", { class: "row" }, nBest.node, beam.node) : "");
  const explained = ({ inputs, beam: width, target_prefix: prefix }) => {
    if (prefix) return { inputs, target: written };
    return width ? { inputs, decoding: { ...run.decoding, beam: width, n_best: 1 } } : { inputs };
  };
  return { fields: [source.node, settings], body, answer, explained, columns: true, connect: (given) => { ask = given; }, empty: "Type a text; the answer appears as you type." };
}
