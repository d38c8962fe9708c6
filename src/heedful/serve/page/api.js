// Requests to the service. Addresses are relative, so that the page also works below a path of a proxy.

const STORED = "heedful-key";
let key = sessionStorage.getItem(STORED) ?? "";
let asking = null;

/** What the service answers instead of what was asked for, in its own words. */
export class Refusal extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Whether an error says that the page itself gave a request up. */
export const isAbort = (error) => error.name === "AbortError";

/** Whether requests carry a key. */
export const hasKey = () => key !== "";

export const pathOf = (run, verb) => `v1/runs/${encodeURIComponent(run.name)}/${verb}`;

/** Send a request, with a key if one is needed; return the response, whose status is 200. */
async function send(path, { body, accept = "application/json", signal } = {}) {
  for (;;) {
    const used = key;
    const headers = { accept };
    if (used) headers.authorization = `Bearer ${used}`;
    if (body) headers["content-type"] = "application/json";
    const settings = { method: body ? "POST" : "GET", headers, signal, cache: "no-store" };
    if (body) settings.body = JSON.stringify(body);
    let response;
    try {
      response = await fetch(path, settings);
    } catch (error) {
      throw isAbort(error) ? error : new Refusal("The service does not answer. Is it still running?", 0);
    }
    if (response.ok) return response;
    const message = await messageOf(response);
    if (response.status !== 401) throw new Refusal(message, response.status);
    // Another request may have asked for the key meanwhile.
    if (key === used) await keyAfter(used ? "This key is not accepted." : "This service needs a key.");
  }
}

async function messageOf(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return `The service answered with status ${response.status}.`;
  }
}

/** Ask the user for a key, once for all requests that wait for it. */
async function keyAfter(message) {
  asking ??= new Promise((resolve, reject) => {
    const dialog = document.createElement("dialog");
    const label = Object.assign(document.createElement("label"), { textContent: "Key", htmlFor: "key" });
    const note = Object.assign(document.createElement("p"), { textContent: message, id: "key-note" });
    const input = Object.assign(document.createElement("input"), { type: "password", id: "key", required: true, autocomplete: "off" });
    input.setAttribute("aria-describedby", "key-note");
    const button = Object.assign(document.createElement("button"), { textContent: "Use this key", className: "main" });
    const form = Object.assign(document.createElement("form"), { method: "dialog", className: "key" });
    form.append(label, input, note, button);
    dialog.append(form);
    dialog.setAttribute("aria-label", "Key of the service");
    form.addEventListener("submit", (submitted) => {
      const given = input.value.trim();
      if (!/^[\x21-\x7e]+$/.test(given)) {
        submitted.preventDefault();
        note.textContent = "A key has no blanks, and only ASCII characters.";
        return;
      }
      key = given;
      sessionStorage.setItem(STORED, key);
      resolve();
    });
    dialog.addEventListener("cancel", () => reject(new Refusal(message, 401)));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }).finally(() => { asking = null; });
  await asking;
}

export async function get(path) {
  return (await send(path)).json();
}

/** Return the JSON that a verb of a run answers. */
export async function post(run, verb, body, signal) {
  return (await send(pathOf(run, verb), { body, signal })).json();
}

/** Return the document of an explanation. */
export async function explanationPage(run, body, signal) {
  return (await send(pathOf(run, "explain"), { body, signal, accept: "text/html" })).text();
}

/** Return the answer to one input; `onPiece` is called with each piece of it as it comes. */
export async function stream(run, body, signal, onPiece) {
  const response = await send(pathOf(run, "stream"), { body, signal, accept: "text/event-stream" });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Refusal("The stream ended before the answer did.", 0);
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const [, kind, data] = /^event: (\w+)\ndata: (.*)$/s.exec(block) ?? [];
      const content = data && JSON.parse(data);
      if (kind === "piece") onPiece(content.text);
      else if (kind === "error") throw new Refusal(content.message, content.status);
      else if (kind === "end") return content;
    }
  }
}
