// Fields for the input of a run: a text for each column, or an image.

import { el, labelled, titled } from "./dom.js";

const LARGE = 2 << 20;
const SIDE = 1024;
const QUALITY = 0.92;

/** Characters beyond which a field does not grow with its text: to measure that takes the browser long. */
const LONG = 20_000;

/** A field for a text that grows with it. */
export function textField(label, { rows = 3, placeholder = null, hint = null } = {}) {
  const fit = () => area.classList.toggle("long", area.value.length > LONG);
  const area = el("textarea", { rows, placeholder, spellcheck: "false", dir: "auto", oninput: fit });
  return { node: labelled(label, area, hint), input: area, value: () => area.value };
}

/**
 * Fields for the columns of an input.
 * @returns {{nodes: Node[], read: () => object|null, image: () => string|null}} `read` is null while a required column
 *     is empty; `image` is what is shown of an image
 */
export function inputFields(run) {
  const optional = new Set(run.optional_inputs);
  const fields = [...run.inputs, ...run.optional_inputs].map((name) => [name,
    run.images.includes(name) ? imageField(titled(name)) : textField(titled(name) + (optional.has(name) ? " (optional)" : ""), { rows: name === "passage" ? 7 : 3 })]);
  const read = () => {
    const found = fields.map(([name, field]) => [name, field.value()]).filter(([name, value]) => !(optional.has(name) && !value));
    if (found.some(([, value]) => !value?.trim())) return null;
    return Object.fromEntries(found);
  };
  const image = () => fields.map(([, field]) => field.shown?.()).find(Boolean) ?? null;
  return { nodes: fields.map(([, field]) => field.node), read, image };
}

/** A field for an image: chosen, dropped or pasted. `value()` is its file in base64, `shown()` its address. */
function imageField(label) {
  let address = null;
  const input = el("input", { type: "file", accept: "image/*", "data-quiet": true, onchange: () => input.files[0] && take(input.files[0]) });
  const shown = el("div", { class: "picture" });
  const note = el("p", { class: "hint", role: "status" }, "Choose a file, drop one here, or paste an image.");
  const zone = el("div", {
    class: "drop",
    ondragover: (event) => { event.preventDefault(); zone.classList.add("over"); },
    ondragleave: () => zone.classList.remove("over"),
    ondrop: (event) => { event.preventDefault(); zone.classList.remove("over"); takeFirst(event.dataTransfer.files); },
    onpaste: (event) => takeFirst(event.clipboardData.files),
  }, labelled(label, input), note, shown);

  function takeFirst(files) {
    if (files.length) take(files[0]);
  }

  async function take(file) {
    try {
      const { blob, scaled } = await bounded(file);
      address = await addressOf(blob);
      note.textContent = `${file.name}${scaled ? `, sent as ${scaled} pixels because the file is large` : ""}`;
      shown.replaceChildren(el("img", { src: address, alt: `The chosen image, ${file.name}` }));
    } catch {
      address = null;
      note.textContent = `${file.name} is not an image that this browser can read.`;
      shown.replaceChildren();
    }
    zone.dispatchEvent(new Event("input", { bubbles: true }));
  }
  return { node: zone, value: () => address?.slice(address.indexOf(",") + 1), shown: () => address };
}

/** Return an image as it is, or, if its file is large, smaller: the service bounds the size of requests. */
async function bounded(file) {
  const image = await createImageBitmap(file);
  if (file.size <= LARGE) return { blob: file, scaled: null };
  const scale = Math.min(1, SIDE / Math.max(image.width, image.height));
  const canvas = el("canvas", { width: Math.round(image.width * scale), height: Math.round(image.height * scale) });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", QUALITY));
  return { blob, scaled: `${canvas.width} × ${canvas.height}` };
}

function addressOf(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}
