"""Convert GPT-2's heads for whole texts, which read the last token.

| transformers | tensors | task |
|---|---|---|
| GPT2ForSequenceClassification | ``score``, which has no bias | classification |
| the same with one label | the same, one row | regression |

The last token is the last one that is not padding, so the padding token must not occur in texts.
"""

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from heedful.errors import RequestError
from heedful.interop.checkpoint import Settings
from heedful.interop.heads import Classes, Head, Numbers, class_lines, number_lines, of_texts
from heedful.interop.names import Numbering
from heedful.text.specials import SPECIALS

_SCORE = "score"
_BIAS = f"{_SCORE}.bias"
_CLASS = "GPT2ForSequenceClassification"
_NORM = "transformer.ln_f.bias"

HEADS: dict[str, Head] = {
    head.task: head for head in (Classes(_CLASS, class_lines(_SCORE)), Numbers(_CLASS, number_lines(_SCORE)))
}
"""All heads, by task. Their lines include the bias of heedful's layers (`with_bias`, `without_bias`)."""

# Heads that are not supported.
_OTHERS = {"GPT2ForTokenClassification", "GPT2ForQuestionAnswering", "GPT2DoubleHeadsModel"}


def head_of(settings: Settings, held: Collection[str]) -> Head | None:
    """Return the head of a folder; None for a language model.

    Raises:
        RequestError: if heedful does not support it.
    """
    told = settings.texts("architectures")
    if others := sorted(_OTHERS & {*told}):
        raise settings.wrong("architectures", f"{others[0]}: heads of this kind are not supported")
    if _CLASS in told or any(name.startswith(f"{_SCORE}.") for name in held):
        return HEADS[of_texts(settings)]
    return None


def with_bias(held: Mapping[str, Tensor], n: int, source: str) -> dict[str, Tensor]:
    """Return the tensors with zeros added for the missing bias.

    Raises:
        RequestError: if there is a bias, which transformers would not read.
    """
    if _BIAS in held:
        raise RequestError(f"{source}: does not fit its configuration:\n  unknown: {_BIAS}")
    return {**held, _BIAS: torch.zeros(n)}


def without_bias(tensors: dict[str, Tensor]) -> bool:
    """Move the bias of the head into the norm before it, which nothing else reads; return whether it had one.

    ``W (z + b) + c = W (z + b + e)`` with ``W e = c``, where e is the shortest solution.

    Raises:
        RequestError: there is none.
    """
    bias, weight = tensors.pop(_BIAS).double(), tensors[f"{_SCORE}.weight"].double()
    if not bias.any():
        return False
    before = tensors[_NORM].double()
    after = (before + torch.linalg.pinv(weight) @ bias).float()
    left = (weight @ after.double() - weight @ before - bias).abs().max()
    if left > 1e-5 * max(1.0, float(bias.abs().max())):
        raise RequestError(
            "GPT-2's head has no bias, and the bias of this run cannot be moved into the norm before it: "
            f"the rows of its {len(weight)} answers depend on each other"
        )
    tensors[_NORM] = after
    return True


def refuse_other_pad(settings: Settings, numbering: Numbering, *, framed: bool) -> None:
    """Refuse a padding token in which texts may end: transformers would read the token before it.

    Raises:
        RequestError: if it is an ordinary token, or the token that ends every text.
    """
    pad, end = settings.get("pad_token_id", int), numbering.theirs[SPECIALS.end]
    never = {numbering.theirs[our] for our in SPECIALS.never_written} | (set() if framed else {end})
    if pad is not None and 0 <= pad < len(numbering.ours) and pad not in never:
        raise settings.wrong(
            "pad_token_id", f"{pad}: texts may end in this token, and transformers would then read the token "
            "before it"
        )  # fmt: skip
