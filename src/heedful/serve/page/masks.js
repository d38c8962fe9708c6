// A mask drawn over its image.

import { colourOf, el, newId, percent } from "./dom.js";

const OPACITY = 60;

export function showMask(prediction, answer, { run, image }) {
  const { output: { size: [width, height], runs }, shares } = prediction;
  const canvas = el("canvas", { width, height, role: "img", "aria-label": `Mask: ${spoken(shares)}` });
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(width, height);
  // Labels that are numbers are the numbers of the mask; others are counted.
  const areNumbers = run.labels.every((label) => /^\d+$/.test(label));
  const indexOf = (number) => (areNumbers ? run.labels.indexOf(String(number)) : number);
  let at = 0;
  for (const [number, length] of runs) {
    const index = indexOf(number);
    const shade = index >= 0 && index < run.labels.length ? rgb(colourOf(index)) : null;
    for (let i = 0; i < length; i += 1, at += 4) if (shade) pixels.data.set([...shade, 255], at);
  }
  context.putImageData(pixels, 0, 0);
  const id = newId("opacity");
  const slider = el("input", { type: "range", min: 0, max: 100, value: OPACITY, id, oninput: () => { canvas.style.opacity = slider.value / 100; } });
  canvas.style.opacity = OPACITY / 100;
  answer.append(
    el("div", { class: "overlay" }, el("img", { src: image, alt: "" }), canvas),
    el("div", { class: "row" }, el("label", { for: id }, "Opacity of the mask"), slider),
    el("ul", { class: "legend", "aria-label": "Classes" }, ...Object.entries(shares).map(([label, share]) => {
      const swatch = el("span", { class: "swatch", "aria-hidden": "true" });
      swatch.style.background = colourOf(run.labels.indexOf(label));
      return el("li", {}, swatch, `${label} `, el("span", { class: "count" }, percent(share)));
    })));
  return spoken(shares);
}

const spoken = (shares) => Object.entries(shares).map(([label, share]) => `${label} ${percent(share)}`).join(", ");

const rgb = (colour) => colour.match(/[0-9a-f]{2}/gi).map((part) => Number.parseInt(part, 16));
