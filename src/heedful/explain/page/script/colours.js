/* Colours: the two scales of the style sheet, and functions that use them. */

const colours = {};

function resolved(name) {
  const probe = document.body.appendChild(element("i", { style: { color: `var(${name})` } }));
  const found = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  probe.remove();
  return found;
}

/** Return 256 colours, interpolated between the eight of the style sheet; `packed` has them as pixel values. */
function ramp(name) {
  const stops = Array.from({ length: 8 }, (_, n) => resolved(`${name}-${n}`));
  const found = Array.from({ length: 256 }, (_, n) => {
    const at = (n / 255) * 7;
    const low = Math.min(Math.floor(at), 6);
    return [0, 1, 2].map((c) => Math.round(stops[low][c] + (at - low) * (stops[low + 1][c] - stops[low][c])));
  });
  found.packed = Uint32Array.from(found, ([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r);
  return found;
}

function readColours() {
  Object.assign(colours, { plus: ramp("--plus"), minus: ramp("--minus") });
}

const css = (colour) => `rgb(${colour.join(" ")})`;
const colourOf = (scale, share) => scale[Math.round(255 * limited(share, 0, 1))];

/** Return black or white, whichever has more contrast to a colour (WCAG relative luminance). */
function legible(colour) {
  const [r, g, b] = colour.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}

/** Colour an element with text by a share from -1 to 1. */
function tint(node, share) {
  fill(node, colourOf(share < 0 ? colours.minus : colours.plus, TINT * Math.abs(share)));
}

/** Give an element with text a background, and the colour of text that is legible on it. */
function fill(node, colour) {
  node.style.setProperty("background-color", css(colour));
  node.style.setProperty("color", legible(colour));
}

function untint(node) {
  node.style.removeProperty("background-color");
  node.style.removeProperty("color");
}

/** Paint one pixel per value, positive blue and negative red; the scale ends at `greatest` and its negative. */
function paint(canvas, values, rows, columns, greatest) {
  canvas.width = columns;
  canvas.height = rows;
  const image = new ImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const share = greatest > 0 ? 255 / greatest : 0;
  for (let n = 0; n < pixels.length; n++) {
    const { packed } = values[n] < 0 ? colours.minus : colours.plus;
    pixels[n] = packed[Math.round(limited(Math.abs(values[n]) * share, 0, 255))];
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/** Create a colour bar from `least` (0, or the negative of the maximum) to `greatest`.
    The colours go up to the share `end` of their scale. If rows sum to 1 over `among` tokens, it marks the colour of uniform attention. */
function colourBar(greatest, { among = null, least = 0, label = number, end = 1 } = {}) {
  const canvas = element("canvas", { role: "img", "aria-label": `colours from ${least ? label(least) : 0} to ${label(greatest)}` });
  paint(canvas, Array.from({ length: 256 }, (_, n) => least + (n / 255) * (greatest - least)), 1, 256, greatest / end);
  const bar = element("span", { class: "colours" }, canvas);
  const ends = [least ? label(least) : "0", bar, greatest === 1 && !least ? "1" : label(greatest)];
  if (among === null) return ends;
  bar.append(element("i", { style: { "--at": greatest > 0 ? limited(1 / among / greatest, 0, 1) : 0 } }));
  return [...ends, element("span", { class: "even" }, `uniform: 1/${among} = ${number(1 / among)}`)];
}

/** Return the end of the colour scale. */
const full = (greatest) => (state.scale === "one" ? 1 : greatest);
