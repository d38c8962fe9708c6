// A number, with its interval if the run has one.

import { el, short } from "./dom.js";

export function showNumber(prediction, answer, { run }) {
  const { output, interval } = prediction;
  const hints = run.task === "sentence-embedding" ? ["cosine similarity"] : [];
  const ends = interval?.map(short) ?? null;
  if (ends) hints.push(`interval: ${ends.join(" to ")}`);
  answer.append(el("p", { class: "output big" }, short(output)), ...hints.map((hint) => el("p", { class: "hint" }, hint)));
  return ends ? `${short(output)}, between ${ends.join(" and ")}` : short(output);
}
