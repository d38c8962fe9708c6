// Elements, and small helpers of all forms. Texts of users become text nodes only: nothing is parsed as HTML.

/**
 * Make an element.
 * @param {string} tag its name
 * @param {Object<string, any>} [properties] attributes; `on…` are listeners; false, null and undefined are left out
 * @param {...(Node|string|null)} children
 * @returns {any}
 */
export function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

let number = 0;

/** Return an id that no other element has. */
export const newId = (stem) => `${stem}-${(number += 1)}`;

/** A control below its label. */
export function labelled(text, control, hint = null) {
  control.id ||= newId("control");
  return el("div", { class: "field" }, el("label", { for: control.id }, text), control, hint && el("p", { class: "hint" }, hint));
}

/** What a field must be instead of what it is. */
export class InvalidField extends Error {}

/**
 * A number with its label; `value()` is undefined while it is empty, and throws `InvalidField` if it is not in the
 * range, which is then shown below the field.
 */
export function numberField(text, { value = "", min, max, step = 1 } = {}) {
  const input = el("input", { type: "number", min, max, step, value, inputmode: "decimal", oninput: () => show() });
  const note = el("p", { class: "hint range", id: newId("range"), hidden: true });
  const node = labelled(text, input);
  node.append(note);
  input.setAttribute("aria-describedby", note.id);
  const isWrong = ({ badInput, rangeUnderflow, rangeOverflow, stepMismatch }) => badInput || rangeUnderflow || rangeOverflow || (stepMismatch && step === 1);

  function show() {
    const wrong = isWrong(input.validity);
    const range = input.max === "" ? `at least ${input.min}` : `from ${input.min} to ${input.max}`;
    note.textContent = wrong ? `A ${step === 1 ? "whole " : ""}number ${range}.` : "";
    note.hidden = !wrong;
    input.setAttribute("aria-invalid", wrong);
    return wrong;
  }
  const read = () => {
    if (show()) throw new InvalidField(`${text}: ${note.textContent.toLowerCase()}`);
    return input.value === "" ? undefined : input.valueAsNumber;
  };
  return { node, input, value: read };
}

/** A choice among a few values, given as pairs of value and text. */
export function choiceField(text, pairs, chosen) {
  const select = el("select", {}, ...pairs.map(([value, words]) => el("option", { value, selected: value === chosen }, words)));
  return { node: labelled(text, select), input: select, value: () => select.value };
}

/** A part that is closed at first. */
export function details(summary, ...children) {
  return el("details", { class: "more" }, el("summary", {}, summary), ...children);
}

/** Call a function some time after the last of several calls. */
export function debounced(milliseconds, act) {
  let timer = 0;
  const later = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...values), milliseconds);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

/** A probability as a percentage, never rounded to a certainty that it has not. */
export function percent(p) {
  if (p < 0.001) return p > 0 ? "<0.1 %" : "0 %";
  if (p > 0.999 && p < 1) return ">99.9 %";
  return `${(100 * p).toFixed(p < 0.0995 ? 1 : 0)} %`;
}

/** A number in four digits. */
export const short = (value) => Number(value.toPrecision(4)).toString();

/** A name of a column or task as a title. */
export const titled = (name) => (name.charAt(0).toUpperCase() + name.slice(1)).replaceAll(/[-_]/g, " ");

/** A row of a chart: a name, a bar and a number; `share` is from 0 to 1. */
export function bar(name, share, text, { chosen = false } = {}) {
  const fill = el("span", { class: "fill" });
  fill.style.width = `${100 * Math.min(1, Math.max(0, share))}%`;
  return el("li", { class: chosen ? "bar chosen" : "bar" },
    el("span", { class: "name" }, name, chosen ? el("span", { class: "unseen" }, " (answer)") : null),
    el("span", { class: "track", "aria-hidden": "true" }, fill),
    el("span", { class: "number" }, text));
}

/** Bars of probabilities, given as pairs of a name and a probability. */
export function bars(pairs, isChosen = () => false) {
  return el("ul", { class: "bars" }, ...pairs.map(([name, p]) => bar(name, p, percent(p), { chosen: isChosen(name) })));
}

const HUES = 10;

const colours = [];

/** The colour of the class of a number; ten of them, then the first again. */
export function colourOf(index) {
  // Read once: it makes the browser lay out all that was added.
  colours[index % HUES] ??= getComputedStyle(document.documentElement).getPropertyValue(`--class-${index % HUES}`).trim();
  return colours[index % HUES];
}

/**
 * A text whose words can be chosen: by the mouse, or by arrow keys, with one tab stop.
 * @param {{text: string, before?: string, after?: string, note?: string, class?: string}[]} items `before` and
 *     `after` are shown around a word and are not part of it; `note` is its description
 * @param {{label: string, choose?: (index: number|null) => void, press?: (index: number) => void}} options `choose`
 *     is called for the word under the mouse or the focus, `press` for one that is clicked, or on Enter
 */
export function wordLine(items, { label, choose = () => {}, press = null }) {
  const nodes = items.map((item, index) => el("span", {
    class: `word ${item.class ?? ""}`, role: press ? "button" : "option", tabindex: index ? -1 : 0,
    "aria-description": item.note, title: item.note, lang: "",
    onmouseenter: () => choose(index), onmouseleave: () => choose(null),
    onfocus: () => choose(index), onblur: () => choose(null),
    onclick: () => press?.(index),
  }, item.text));
  const move = (event) => {
    const at = nodes.indexOf(document.activeElement);
    const steps = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: nodes.length - 1 };
    if ((event.key === "Enter" || event.key === " ") && press && at >= 0) press(at);
    else if (event.key in steps && nodes[steps[event.key]]) {
      nodes[at].tabIndex = -1;
      nodes[steps[event.key]].tabIndex = 0;
      nodes[steps[event.key]].focus();
    } else return;
    event.preventDefault();
  };
  const content = new DocumentFragment();
  nodes.forEach((node, index) => content.append(items[index].before ?? "", node, items[index].after ?? ""));
  const role = press ? "group" : "listbox";
  const node = el("div", { class: "words", role, "aria-label": label, "aria-orientation": press ? null : "horizontal", onkeydown: move }, content);
  return { node, mark: (chosen) => nodes.forEach((word, index) => word.classList.toggle("linked", chosen.includes(index))) };
}

/** Most words of one text that are shown as words; more would keep the browser busy for seconds. */
export const MOST_WORDS = 2000;

/** Split a text at blanks: the first words, and what stands before each; the last one has the rest of the text. */
export function wordsOf(text) {
  const words = [];
  let end = 0;
  for (const { 1: before, 2: word, index, 0: whole } of text.matchAll(/(\s*)(\S+)/gu)) {
    if (words.length === MOST_WORDS) {
      words.at(-1).text += text.slice(end);
      break;
    }
    words.push({ before, text: word });
    end = index + whole.length;
  }
  return words;
}
