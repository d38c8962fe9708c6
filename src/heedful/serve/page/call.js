// "The call": the request that was just made, as `curl` and as Python with its standard library.

import { hasKey, pathOf } from "./api.js";
import { el, details } from "./dom.js";

const FILE = "image.png";
const MARK = "\u0000";
const WORDS = new Map([[true, "True"], [false, "False"], [null, "None"]]);

const hasEvents = (url) => url.endsWith("/stream");

/** Return the part of the page, and `show`, which gives it the body of a request. */
export function callPart(run, verb) {
  const code = el("div", { class: "calls" });
  const node = details("The call", code);
  const show = (body) => {
    node.hidden = body === null;
    if (body === null) return;
    const url = new URL(pathOf(run, verb), document.baseURI).href;
    code.replaceChildren(block("curl", curlOf(url, body, run.images)), block("Python", pythonOf(url, body, run.images)));
  };
  show(null);
  return { node, show };
}

function block(title, text) {
  const copy = el("button", { type: "button", class: "quiet", onclick: async () => {
    await navigator.clipboard.writeText(text);
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  } }, "Copy");
  copy.setAttribute("aria-label", `Copy the call in ${title}`);
  return el("figure", {}, el("figcaption", {}, title, copy), el("pre", { tabindex: 0, role: "region", "aria-label": `The call in ${title}` }, text));
}

/** A body whose images are the mark of a place. */
function withMarks(body, images, mark) {
  const inputs = body.inputs.map((input) => (typeof input !== "object" || Array.isArray(input) ? input
    : Object.fromEntries(Object.entries(input).map(([name, value]) => [name, images.includes(name) ? mark : value]))));
  return { ...body, inputs };
}

function curlOf(url, body, images) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const key = hasKey() ? ' \\\n  -H "Authorization: Bearer $KEY"' : "";
  const head = `curl${hasEvents(url) ? " -N" : ""} ${quoted(url)}${key} \\\n  -H 'Content-Type: application/json'`;
  if (!images.length) return `${head} \\\n  -d ${quoted(JSON.stringify(body))}`;
  const text = JSON.stringify(withMarks(body, images, "%s")).replaceAll("\\", "\\\\");
  return `printf ${quoted(text)} "$(base64 -w0 ${FILE})" |\n${head} -d @-`;
}

function pythonOf(url, body, images) {
  const headers = ['"Content-Type": "application/json"', ...(hasKey() ? ['"Authorization": "Bearer " + os.environ["KEY"]'] : [])];
  const names = ["json", ...(hasKey() ? ["os"] : []), "urllib.request"];
  const read = [];
  let literal = python(withMarks(body, images, MARK));
  if (images.length) {
    names.unshift("base64");
    read.push(`image = base64.b64encode(open("${FILE}", "rb").read()).decode()`);
    literal = literal.replaceAll(JSON.stringify(MARK), "image");
  }
  return [...names.map((name) => `import ${name}`), "", ...read, `body = ${literal}`, "request = urllib.request.Request(",
    `    ${JSON.stringify(url)},`, "    json.dumps(body).encode(),", `    {${headers.join(", ")}},`, ")",
    "with urllib.request.urlopen(request) as response:", `    print(${hasEvents(url) ? "response.read().decode()" : "json.load(response)"})`].join("\n");
}

/** A JSON value as a literal of Python. */
function python(value) {
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (value !== null && typeof value === "object") {
    const entries = Object.entries(value).filter(([, each]) => each !== undefined);
    return `{${entries.map(([name, each]) => `${JSON.stringify(name)}: ${python(each)}`).join(", ")}}`;
  }
  return WORDS.get(value) ?? JSON.stringify(value);
}
