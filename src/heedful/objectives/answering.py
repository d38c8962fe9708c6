"""Extractive question answering: predict the start and end of the answer span.

With logits s_t and e_t of each token of the sequence, and the answer from token i to token j::

    loss = - (log softmax(s)_i + log softmax(e)_j) / 2

Source: Devlin et al. 2019, section 4.2; without an answer, both are the class token (section 4.3).
"""

from jaxtyping import Float
from torch import Tensor, nn

from heedful.nn.layout import Layout
from heedful.objectives.terms import Supervised, Term

ANSWER = "answer"


class AnswerSpan:
    """Objective for sequences with one answer span each, ``batch.answers``.

    Terms: ``answer`` (the loss), and ``correct`` (reported only): how often both ends are the most probable.
    """

    def counts(self, batch: Supervised) -> dict[str, int]:
        """Return the counts of both terms: the number of sequences."""
        return dict.fromkeys((ANSWER, "correct"), batch.inputs.layout.n_sequences)

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Supervised) -> list[Term]:
        """Apply ``heads["answer"]`` to all tokens and compute the terms."""
        layout, answers = batch.inputs.layout, batch.answers
        assert answers is not None
        if not layout.n_sequences:
            zero = hidden.sum()
            return [Term(ANSWER, zero, 0), Term("correct", zero.detach(), 0, weight=0.0)]
        log_probs = answer_log_probs(hidden, heads, layout)
        targets = (answers - layout.offsets[:-1, None])[:, None]
        n, loss = len(log_probs), -log_probs.gather(1, targets).sum() / 2
        correct = (log_probs.detach().argmax(1) == targets[:, 0]).all(-1).sum().float()
        return [Term(ANSWER, loss, n), Term("correct", correct, n, weight=0.0)]


def answer_log_probs(
    hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, layout: Layout
) -> Float[Tensor, "B S 2"]:
    """Return the log-probabilities that the answer starts and ends at each token, in fp32.

    Padding is minus infinity.
    """
    logits: Tensor = heads[ANSWER](hidden)
    padded: Tensor = layout.pad(logits.float())
    return padded.masked_fill(~layout.real[:, :, None], float("-inf")).log_softmax(1)
