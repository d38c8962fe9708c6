"""Cross-entropy of classes: of a sequence, of words (tags), and of the ends of an answer span.

    loss = - sum_i sum_c q_i(c) log p_i(c),     q_i(c) = (1 - eps) [c = y_i] + eps / C

with p_i the softmax over the C classes of item i, and eps the label smoothing; a batch may have a weight for
each item (`Batch.weights`). Each objective also reports
how often the most probable class is the right one (``correct``).
"""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from heedful.data.batch import Batch
from heedful.nn.layout import Layout
from heedful.objectives.terms import Term

TAG, ANSWER = "tag", "answer"
"""Names of the heads of taggers and of question answering, and of their loss terms."""


@dataclass(frozen=True)
class SequenceClass:
    """Cross-entropy of one class per sequence, ``batch.classes``.

    Terms: one named like the head (the loss), and ``correct`` (prefixed by the head's name unless that is
    ``class``).

    Args:
        smoothing: label smoothing.
        head: name of the head that computes logits from pooled vectors: ``class``, or ``next`` for next
            sentence prediction (Devlin et al. 2019, section 3.1).
    """

    smoothing: float = 0.0
    head: str = "class"

    def __post_init__(self) -> None:
        _check_smoothing(self.smoothing)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return the counts of both terms: the number of sequences."""
        return dict.fromkeys((self.head, self._correct), batch.inputs.layout.n_sequences)

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Batch) -> list[Term]:
        """Apply ``heads["pooled"]`` and the head, and compute the terms."""
        assert batch.classes is not None
        logits = class_logits(hidden, heads, batch.inputs.layout, self.head)
        return _terms(logits, batch.classes, self.smoothing, self.head, self._correct, batch.weights)

    @property
    def _correct(self) -> str:
        return "correct" if self.head == "class" else f"{self.head} correct"


@dataclass(frozen=True)
class TokenClass:
    """Cross-entropy of one tag for each row that the batch selects, ``batch.targets``.

    The tag of a word is predicted at its first token (Devlin et al. 2019, section 5.3). Terms: ``tag`` (the
    loss) and ``correct``.

    Args:
        smoothing: label smoothing.
    """

    smoothing: float = 0.0

    def __post_init__(self) -> None:
        _check_smoothing(self.smoothing)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return the counts of both terms: the number of words."""
        return dict.fromkeys((TAG, "correct"), len(batch.targets))

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Batch) -> list[Term]:
        """Apply ``heads["tag"]`` to the selected rows and compute the terms."""
        logits: Tensor = heads[TAG](batch.picked(hidden)).float()
        return _terms(logits, batch.targets, self.smoothing, TAG, "correct", batch.weights)


class AnswerSpan:
    """Cross-entropy of the first and the last token of the answer of each sequence, ``batch.answers``.

    With logits s_t and e_t of each token of the sequence, and the answer from token i to token j::

        loss = - (log softmax(s)_i + log softmax(e)_j) / 2

    Terms: ``answer`` (the loss), and ``correct``: how often both ends are the most probable. Source: Devlin
    et al. 2019, section 4.2; without an answer, both are the class token (section 4.3).
    """

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return the counts of both terms: the number of sequences."""
        return dict.fromkeys((ANSWER, "correct"), batch.inputs.layout.n_sequences)

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Batch) -> list[Term]:
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


def class_logits(
    hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, layout: Layout, head: str = "class"
) -> Float[Tensor, "B C"]:
    """Apply the pooling and the named head to the hidden states; return logits in fp32."""
    logits: Tensor = heads[head](heads["pooled"](hidden, layout))
    return logits.float()


def answer_log_probs(
    hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, layout: Layout
) -> Float[Tensor, "B S 2"]:
    """Return the log-probabilities that the answer starts and ends at each token, in fp32.

    Padding is minus infinity.
    """
    logits: Tensor = heads[ANSWER](hidden)
    padded: Tensor = layout.pad(logits.float())
    return padded.masked_fill(~layout.real[:, :, None], float("-inf")).log_softmax(1)


def _terms(
    logits: Float[Tensor, "n C"],
    targets: Int[Tensor, " n"],
    smoothing: float,
    name: str,
    correct: str,
    weights: Float[Tensor, " n"] | None,
) -> list[Term]:
    """Return the summed cross-entropy, and the number of items whose most probable class is right."""
    if weights is None:
        loss = functional.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    else:
        losses = functional.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="none")
        loss = weights @ losses
    n_correct = (logits.detach().argmax(-1) == targets).sum().float()
    return [Term(name, loss, len(logits)), Term(correct, n_correct, len(logits), weight=0.0)]


def _check_smoothing(smoothing: float) -> None:
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing must be in [0, 1), got {smoothing}")
