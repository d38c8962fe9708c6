// What all forms share: asking as one types, giving up what is out of date, errors, "Why?" and "The call".

import { callPart } from "./call.js";
import { isAbort, post } from "./api.js";
import { InvalidField, debounced, el } from "./dom.js";
import { whyPart } from "./why.js";

const PAUSE = 250;
/** Milliseconds after which a place without an answer says that one is computed. */
const SLOW = 1000;

/**
 * What a kind of task shows.
 * @typedef {object} Form
 * @property {Node[]} fields
 * @property {() => object|null} body  the body of the request that the fields describe; null: nothing to answer yet.
 *     It throws `InvalidField`
 * @property {(prediction: object, answer: HTMLElement, body: object) => string} [show]  shows an answer; returns it
 *     in a few words, for screen readers
 * @property {(body: object, answer: HTMLElement, signal: AbortSignal) => Promise<string>} [answer]  asks and shows,
 *     instead of `show`; it may set `form.explained`
 * @property {(answer: HTMLElement) => string} [stopped]  shows that an answer was not finished, and what there is of
 *     it; returns it in a few words. By default nothing is left of it
 * @property {(body: object) => object|null} [explained]  what an explanation needs of a request
 * @property {string} [verb]  of the request, if not `predict`
 * @property {string} [button]  name of the button of a form that does not answer as one types
 * @property {string} empty  what is shown before there is an answer
 * @property {boolean} [columns]  whether the answer stands beside the fields
 * @property {(ask: () => void, explain: () => void) => void} [connect]  gives a form what makes it ask, and what has
 *     the last answer explained again after `explained` has changed
 */

/** Return the part of the page with a form and its answers. */
export function panel(run, form) {
  const answer = el("div", { class: "answer" }, el("p", { class: "hint" }, form.empty));
  const said = el("p", { class: "unseen", role: "status" });
  const problem = el("div", { class: "problem", role: "alert" });
  const call = callPart(run, form.verb ?? "predict");
  const explained = form.explained ?? ((body) => body);
  const why = form.verb === "embed" ? null : whyPart(run);
  let asking = null;
  let answered = null;

  const stop = form.button && el("button", { type: "button", hidden: true, onclick: stopAsking }, "Stop");
  const go = form.button && el("button", { type: "submit", class: "main" }, form.button);

  function stopAsking() {
    if (asking) asking.isStopped = true;
    asking?.abort();
  }

  async function ask() {
    later.cancel();
    asking?.abort();
    problem.replaceChildren();
    let body;
    try {
      body = form.body();
    } catch (error) {
      if (!(error instanceof InvalidField)) throw error;
      busy(false);
      problem.replaceChildren(el("p", { class: "error" }, error.message));
      return;
    }
    answered = null;
    if (body === null) {
      asking = null;
      busy(false);
      said.textContent = "";
      answer.replaceChildren(el("p", { class: "hint" }, form.empty));
      call.show(null);
      why?.show(null);
      return;
    }
    const own = (asking = new AbortController());
    busy(true);
    const slow = setTimeout(() => {
      const isUnanswered = [...answer.children].every((child) => child.className === "hint");
      if (isUnanswered) answer.replaceChildren(el("p", { class: "hint" }, "Computing …"));
    }, SLOW);
    call.show(body);
    try {
      said.textContent = await (form.answer ?? predicted)(body, answer, own.signal);
      answered = body;
      why?.show(explained(body));
    } catch (error) {
      if (isAbort(error)) {
        if (own.isStopped) said.textContent = form.stopped?.(answer) ?? "";
        return;
      }
      said.textContent = form.stopped?.(answer) ?? "";
      if (!form.stopped) answer.replaceChildren();
      problem.replaceChildren(el("p", { class: "error" }, error.message), el("button", { type: "button", onclick: ask }, "Try again"));
    } finally {
      clearTimeout(slow);
      if (asking === own) busy(false);
    }
  }

  async function predicted(body, place, signal) {
    const { predictions: [prediction] } = await post(run, "predict", body, signal);
    if (prediction.error) throw new Error(prediction.error);
    place.replaceChildren();
    const words = form.show(prediction, place, body);
    place.append(...notesOf(prediction));
    return words;
  }

  function busy(is) {
    answer.setAttribute("aria-busy", is);
    if (form.button) stop.hidden = !is;
  }

  const later = debounced(PAUSE, ask);
  form.connect?.(ask, () => answered && why?.show(explained(answered)));
  const node = el("form", {
    class: form.columns ? "form columns" : "form", novalidate: true,
    oninput: (event) => (form.button || event.target.closest("[data-quiet]") ? null : later()),
    onsubmit: (event) => { event.preventDefault(); ask(); },
    onkeydown: (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); ask(); } },
  }, el("div", { class: "fields" }, ...form.fields, form.button ? el("div", { class: "buttons" }, go, stop) : null),
  el("section", { class: "answers", "aria-label": "Answer", "data-quiet": true }, problem, answer, said));
  return el("div", { class: "panel" }, node, why?.node ?? null, call.node);
}

/** What is unusual about an answer. */
export const notesOf = (prediction) => (prediction.notes ?? []).map((note) => el("p", { class: "note" }, note));
