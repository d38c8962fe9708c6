// Which forms a run has. A task without a form of its own, such as one of a plug-in, has a field for each column.

import { completion } from "./completion.js";
import { answers } from "./answers.js";
import { filling } from "./filling.js";
import { neighbours } from "./neighbours.js";
import { tagging } from "./tagging.js";
import { translation } from "./translation.js";

/** Return the forms of a run, the first one first: each with its name in addresses, its title, and how it is made. */
export function formsOf(run) {
  const near = { name: "neighbours", title: "Nearest texts", make: neighbours };
  const own = ownForm(run);
  if (run.images.length) return [own];
  return run.task === "sentence-embedding" ? [near, own] : [own, near];
}

function ownForm(run) {
  if (run.images.length) return { name: "image", title: "Image", make: answers };
  if (run.options.includes("max_new_tokens")) return { name: "continue", title: "Continue", make: completion };
  if (run.options.includes("words")) return { name: "tag", title: "Tag", make: tagging };
  if (run.options.includes("gap")) return { name: "fill", title: "Fill masks", make: filling };
  if (run.generates && run.inputs.length === 1) return { name: "write", title: run.task === "translation" ? "Translate" : "Write", make: translation };
  return { name: "answer", title: "Answer", make: answers };
}
