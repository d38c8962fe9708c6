// Language models: a continuation, written token by token; then what else could have come at each token, on which
// one clicks to go on from there.

import { isAbort, post, stream } from "./api.js";
import { bar, choiceField, details, el, numberField, percent, wordLine } from "./dom.js";
import { textField } from "./fields.js";
import { notesOf } from "./panel.js";

const SEEDS = 2 ** 31;
const TOKENS = 40;

/** Return the form of a run. */
export function completion(run) {
  const own = run.decoding ?? {};
  const prompt = textField("Prompt", { rows: 4 });
  const kind = choiceField("Choose tokens", [["sample", "at random"], ["greedy", "the most probable"]], own.kind === "greedy" ? "greedy" : "sample");
  const temperature = numberField("Temperature", { value: own.temperature ?? 1, min: 0, max: 5, step: 0.1 });
  const topK = numberField("Top k", { value: own.top_k ?? "", min: 1 });
  const topP = numberField("Top p", { value: own.top_p ?? 1, min: 0.01, max: 1, step: 0.01 });
  const most = numberField("Most tokens", { value: TOKENS, min: 1, max: 5000 });
  const seed = numberField("Seed", { min: 0, max: SEEDS });
  const before = [];
  let kept = "";
  let given = null;
  let written = "";
  let piece = el("span");
  let ask = () => {};

  const decoding = () => (kind.value() === "greedy" ? { kind: "greedy" } : {
    kind: "sample", temperature: temperature.value() ?? 1, top_k: topK.value(), top_p: topP.value() ?? 1,
    seed: seed.value() ?? Math.floor(Math.random() * SEEDS),
  });

  function body() {
    if (given !== prompt.value()) {
      kept = "";
      before.length = 0;
    }
    given = prompt.value();
    return { inputs: [given + kept], max_new_tokens: most.value() ?? TOKENS, decoding: decoding() };
  }

  async function answer(request, place, signal) {
    piece = el("span", { class: "new" });
    const text = el("p", { class: "output running", dir: "auto" }, el("span", { class: "given" }, given), el("span", { class: "kept" }, kept), piece);
    place.replaceChildren(text);
    const prediction = await stream(run, request, signal, (more) => piece.append(more)).finally(() => text.classList.remove("running"));
    written = prediction.output ?? "";
    if (written) piece.replaceWith(...tokens(prediction, text));
    else place.append(el("p", { class: "hint" }, "The model ends the text here."));
    place.append(...notesOf(prediction));
    if (before.length) place.append(el("button", { type: "button", onclick: back }, "Back to the one before"));
    return `${given}${kept}${written}`;
  }

  /** Say that the text is not finished; what there is of it stays, and one may go on from there. */
  function stopped(place) {
    const text = piece.textContent;
    if (!text) {
      place.replaceChildren(el("p", { class: "hint" }, "Nothing was written."));
      return "Nothing was written.";
    }
    place.append(el("p", { class: "note" }, "Stopped: the text is not finished."), el("button", { type: "button", onclick: () => branch(text) }, "Go on"));
    return "Stopped";
  }

  /** Return a continuation as tokens, each of which shows what else could have come when it is pressed. */
  function tokens({ tokens: names, log_probs: logProbs }, text) {
    const parts = aligned(names, written);
    const upTo = (index) => parts.slice(0, index).map((part) => part.before + part.text).join("");
    const choices = el("div", { class: "choices-of" }, el("p", { class: "hint" }, "Press a token to see what else could have come, and to go on from there."));
    let asking = null;
    const line = wordLine(parts.map(({ before: blank, text: word }, index) => {
      const p = Math.exp(logProbs[index]);
      return { before: blank, text: word.replaceAll("\n", "⏎") || "·", after: word.replaceAll(/[^\n]/g, ""), note: percent(p), class: p < 0.1 ? "rare" : p < 0.5 ? "likely" : "" };
    }), { label: "The continuation; press a token to see what else could have come", press: offer });
    line.node.classList.add("inline");
    text.after(choices);

    async function offer(index) {
      asking?.abort();
      asking = new AbortController();
      line.mark([index]);
      try {
        const found = await candidates(given + kept + upTo(index), parts.slice(index), asking.signal);
        choices.replaceChildren(el("h2", {}, "Instead of ", el("q", {}, shownOf(names[index]))), el("ul", { class: "bars" }, ...found.map(({ answer: name, log_prob: logProb }) => {
          const next = textOf(name, names[index], parts[index].before);
          const row = bar("", Math.exp(logProb), percent(Math.exp(logProb)), { chosen: name === names[index] });
          const go = el("button", { type: "button", disabled: next === null, onclick: () => branch(upTo(index) + next) }, shownOf(name));
          row.querySelector(".name").replaceChildren(go);
          return row;
        })));
      } catch (error) {
        if (!isAbort(error)) choices.replaceChildren(el("p", { class: "error", role: "alert" }, error.message));
      }
    }
    return [line.node];
  }

  /** Return the most probable tokens after a text. The explanation of a token has them: it is the first of `parts`. */
  async function candidates(text, parts, signal) {
    const shown = parts.findIndex((part) => (part.before + part.text).trim());
    const target = parts.slice(0, shown + 1 || parts.length).map((part) => part.before + part.text).join("");
    for (let left = text; ;) {
      try {
        const explanation = await post(run, "explain", { inputs: [left], target, views: ["lens"], layers: [0], heads: [0] }, signal);
        const { answers, depths } = explanation.more.lens;
        return depths.at(-1).top.at(-lengthOf(target, answers));
      } catch (error) {
        // Beyond its context, a model reads the end of a text.
        if (error.status !== 422 || !/context/.test(error.message) || left.length < 2) throw error;
        left = left.slice(left.length / 2);
      }
    }
  }

  function branch(more) {
    before.push(kept);
    kept += more;
    ask();
  }

  function back() {
    kept = before.pop();
    ask();
  }

  const settings = details("Settings", el("div", { class: "row" }, kind.node, temperature.node, topK.node, topP.node, most.node, seed.node));
  const explained = ({ inputs }) => (written ? { inputs, target: written } : null);
  return { fields: [prompt.node, settings], body, answer, stopped, explained, verb: "stream", button: "Continue", connect: (act) => { ask = act; }, empty: "Type the beginning of a text and press Continue, or Ctrl and Enter." };
}

const BYTES = /<0x([0-9A-F]{2})>/g;

/** A token as text: ▁ is a blank, <0x0A> a byte; null if it is a special token, or a part of a character. */
function plain(token) {
  if (/^<\/?s>$|^<\w+>$/.test(token) && !/^<0x/.test(token)) return null;
  const text = token.replaceAll("▁", " ");
  if (!text.includes("<0x")) return text;
  const bytes = [];
  let at = 0;
  const encode = (part) => new TextEncoder().encode(part);
  for (const match of text.matchAll(BYTES)) {
    bytes.push(...encode(text.slice(at, match.index)), Number.parseInt(match[1], 16));
    at = match.index + match[0].length;
  }
  bytes.push(...encode(text.slice(at)));
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(bytes));
  } catch {
    return null;
  }
}

/** A token as it can be seen. */
const shownOf = (token) => (token === "</s>" ? "end of the text" : (plain(token) ?? token).replaceAll("\n", "⏎").replace(/^ +$/, "␣"));

/** How many of the last tokens a text has. */
function lengthOf(text, tokens) {
  const bare = (some) => some.replaceAll(/\s/g, "");
  let n = 1;
  while (n < tokens.length && bare(tokens.slice(-n).map((token) => plain(token) ?? "").join("")).length < bare(text).length) n += 1;
  return n;
}

/** A candidate as text in place of a token that has blanks before it; of words, a blank belongs to no token. */
function textOf(candidate, token, blank) {
  const text = plain(candidate);
  return text === null || token.includes("▁") || candidate.includes("▁") ? text : blank + text;
}

/** Tokens with the parts of the text that they stand for: blanks before each, and its text. */
function aligned(tokens, output) {
  const parts = [];
  let at = 0;
  for (const token of tokens) {
    const whole = plain(token) ?? "";
    const text = output.startsWith(whole, at) && !whole.trim() ? whole : whole.trimStart();
    const found = text ? output.indexOf(text, at) : -1;
    const start = found >= 0 ? found : at;
    const end = found >= 0 ? found + text.length : at;
    const between = output.slice(at, start);
    parts.push({ before: between, text: output.slice(start, end) });
    at = end;
  }
  if (parts.length) parts.at(-1).text += output.slice(at);
  return parts;
}
