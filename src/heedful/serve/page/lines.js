// Texts of several lines, for tasks whose inputs are sentences: each line that is not blank is an input of its own.

import { post } from "./api.js";

/** Most lines of a request, and most characters of more than one. */
const LINES = 32;
const CHARACTERS = 8000;

/** Split a text at line breaks: the lines that are not blank, each with the breaks before it. */
export function linesOf(text) {
  const lines = [];
  let before = "";
  for (const line of text.split("\n")) {
    if (line.trim()) {
      lines.push({ before, text: line });
      before = "";
    }
    before += "\n";
  }
  return lines;
}

/** Return parts of a list of lines that are small enough for a request each. */
function partsOf(texts) {
  const parts = [];
  let size = 0;
  for (const text of texts) {
    if (!parts.length || parts.at(-1).length === LINES || size + text.length > CHARACTERS) {
      parts.push([]);
      size = 0;
    }
    parts.at(-1).push(text);
    size += text.length;
  }
  return parts;
}

/**
 * Return a function that yields the answers to lines in their order, some at a time, with a pause in which the browser
 * draws. Lines that the last text had are not asked for again.
 * @param {(body: object, signal: AbortSignal) => Promise<object[]>} [ask]  returns the predictions of a request
 */
export function lineAnswers(run, column, ask = async (body, signal) => (await post(run, "predict", body, signal)).predictions) {
  let known = new Map();
  return async function* answersTo({ inputs, ...options }, signal) {
    const texts = inputs.map((input) => input[column]);
    const name = (text) => JSON.stringify([options, text]);
    const names = texts.map(name);
    const wanted = new Set(names);
    known = new Map([...known].filter(([each]) => wanted.has(each)));
    const own = known;
    let at = 0;
    async function* ready() {
      while (own.has(names[at])) {
        const found = [];
        for (; found.length < LINES && own.has(names[at]); at += 1) found.push(own.get(names[at]));
        yield found;
        await new Promise((resolve) => { setTimeout(resolve); });
        signal.throwIfAborted();
      }
    }
    yield* ready();
    for (const part of partsOf([...new Set(texts)].filter((text) => !own.has(name(text))))) {
      const predictions = await ask({ inputs: part.map((text) => ({ [column]: text })), ...options }, signal);
      predictions.forEach((prediction, index) => own.set(name(part[index]), prediction));
      yield* ready();
    }
  };
}
