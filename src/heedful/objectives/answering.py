"""Where an answer begins and ends in a sequence.

With logits s_t and e_t of each of the sequence's tokens, and the answer from token i to token j::

    loss = - (log softmax(s)_i + log softmax(e)_j) / 2

Source: Devlin et al. 2019, section 4.2; without an answer both are the class token (section 4.3).
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from heedful.objectives.terms import Supervised, Term

ANSWER = "answer"


class AnswerSpan:
    """Every sequence has an answer, ``batch.answers``.

    Terms: ``answer`` (the loss), and ``correct``, reported only: how often both ends are the most probable.
    """

    def counts(self, batch: Supervised) -> dict[str, int]:
        """Both run over the sequences."""
        return dict.fromkeys((ANSWER, "correct"), batch.inputs.layout.n_sequences)

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Supervised) -> list[Term]:
        """Apply ``heads["answer"]`` to all tokens, and compare."""
        layout, answers = batch.inputs.layout, batch.answers
        assert answers is not None
        if not layout.n_sequences:
            nothing = hidden.sum()
            return [Term(ANSWER, nothing, 0), Term("correct", nothing.detach(), 0, weight=0.0)]
        log_probs = answer_log_probs(hidden, heads, layout)
        wanted = (answers - layout.offsets[:-1, None])[:, None]
        n, loss = len(log_probs), -log_probs.gather(1, wanted).sum() / 2
        correct = (log_probs.detach().argmax(1) == wanted[:, 0]).all(-1).sum().float()
        return [Term(ANSWER, loss, n), Term("correct", correct, n, weight=0.0)]


def answer_log_probs(
    hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, layout: Any
) -> Float[Tensor, "B S 2"]:
    """Of each place of each sequence, how probably the answer begins there, and ends there; fp32.

    Past the end of a sequence stands minus infinity.
    """
    logits: Tensor = heads[ANSWER](hidden)
    rectangle: Tensor = layout.pad(logits.float())
    return rectangle.masked_fill(~layout.real[:, :, None], float("-inf")).log_softmax(1)
