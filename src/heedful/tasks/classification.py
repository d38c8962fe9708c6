"""Classification: a label for a text, or for a pair of texts.

row -> token ids, number of the label -> `Batch.labelled` -> model -> loss     `LabelCodec`
text -> token ids -> hidden states -> class -> label                           `Classifier.predict`
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from heedful.data.batch import Batch
from heedful.data.report import Encoded
from heedful.data.sources import Located, Row, Where
from heedful.errors import RequestError
from heedful.nn.layout import Ids
from heedful.objectives.classification import class_logits
from heedful.tasks.grouping import longest_first
from heedful.tasks.labels import LABEL, answer, number_of
from heedful.tasks.prediction import Prediction
from heedful.text.tokenizer import Tokenizer

TEXT, PAIR = "text", "pair"

# Tokens that are read together: of the rectangle [texts, longest].
BUDGET = 8192

# The special tokens around one text; a second one needs one more.
N_SPECIALS = 2


def text_columns(pairs: bool) -> tuple[str, ...]:
    """The columns that hold text."""
    return (TEXT, PAIR) if pairs else (TEXT,)


@dataclass(frozen=True)
class LabelCodec:
    """The tokenizer of the texts, and the labels in the order of their numbers.

    Args:
        tokenizer: of both texts of a pair.
        labels: all there are.
    """

    tokenizer: Tokenizer
    labels: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """Differs where anything is encoded differently."""
        return f"{self.tokenizer.fingerprint}-{'|'.join(map(repr, self.labels))}"

    @property
    def sizes(self) -> tuple[int, int]:
        """The sizes of the vocabulary and of the set of labels."""
        return self.tokenizer.vocab_size, len(self.labels)

    def number(self, label: str, where: Where) -> int:
        """The number of a label; see `heedful.tasks.labels.number_of`."""
        return number_of(label, self.labels, where)

    def encode(
        self, rows: Iterable[Located[Row]], columns: Sequence[str], chunk: int = 1000
    ) -> Iterator[Encoded]:
        """The ids of the texts and the number of the label, row by row."""
        rows = iter(rows)
        while block := list(islice(rows, chunk)):
            texts = [self.tokenizer.encode_batch([r.row[column] for r in block]) for column in columns]
            for row, *ids in zip(block, *texts, strict=True):
                label = [self.number(row.row[LABEL], row.where)]
                yield Located({**dict(zip(columns, ids, strict=True)), LABEL: label}, row.where)

    def collate(
        self, parts: Sequence[Sequence[Any]], labels: Sequence[int], samples: Sequence[int] = ()
    ) -> Batch:
        """A batch of the given texts."""
        specials = self.tokenizer.specials
        return Batch.labelled(
            parts, labels, classify=specials.classify, separate=specials.separate, samples=samples
        )


def fitted(texts: Sequence[Ids], longest: int) -> list[Ids]:
    """The texts cut, the longer one first, so that they and their special tokens are ``longest`` together."""
    room = longest - N_SPECIALS - (len(texts) - 1)
    kept = [len(text) for text in texts]
    while sum(kept) > room:
        most = max(range(len(kept)), key=lambda i: kept[i])
        others = max((n for i, n in enumerate(kept) if i != most), default=0)
        # Down to the other's length at once, then evenly.
        kept[most] -= max(1, min(sum(kept) - room, kept[most] - others))
    return [text[:n] for text, n in zip(texts, kept, strict=True)]


class Classifier:
    """A model with its codec: texts in, labels out, as many and in the same order.

    A prediction's ``text`` is the label, its ``score`` the label's log-probability, its ``alternatives``
    the next labels.

    Args:
        model: has heads ``pooled`` and ``class``; put into evaluation mode here.
        codec: of texts and labels.
        longest: the most tokens of a sequence; longer texts are cut, and the prediction says so.
        n_best: labels to give for each input.
        budget: tokens of the rectangle that is read together; bounds the memory.
    """

    def __init__(
        self, model: Any, codec: LabelCodec, *, longest: int, n_best: int = 1, budget: int = BUDGET
    ) -> None:
        self.model, self.codec = model.eval(), codec
        self.longest, self.n_best, self.budget = longest, n_best, budget
        self.device = next(model.parameters()).device

    @torch.inference_mode()
    def predict(
        self,
        texts: Sequence[str | Sequence[str]],
        *,
        alignment: bool = False,
        first: int = 0,
        progress: Callable[[int], None] = lambda n: None,
    ) -> list[Prediction]:
        """Label the inputs, each a text or a pair of texts.

        Args:
            texts: the inputs.
            alignment: refused: nothing is written that could be aligned.
            first: not used: nothing is drawn.
            progress: called with the number of inputs just done.
        """
        if alignment:
            raise RequestError("a classifier writes nothing, so there is no alignment")
        parts = [(text,) if isinstance(text, str) else tuple(text) for text in texts]
        encoded = [self.codec.tokenizer.encode_batch(part) for part in parts]
        results: list[Prediction] = [Prediction("") for _ in texts]
        for group in self._groups(encoded):
            batch = self.codec.collate([fitted(encoded[i], self.longest) for i in group], [0] * len(group))
            batch = batch.to(self.device)
            hidden = self.model(batch.inputs)
            log_probs = class_logits(hidden, self.model.heads, batch.inputs.layout).log_softmax(-1).cpu()
            for i, row in zip(group, log_probs, strict=True):
                results[i] = self._prediction(row, sum(map(len, encoded[i])), len(encoded[i]))
            progress(len(group))
        return results

    def _groups(self, encoded: Sequence[Sequence[Sequence[int]]]) -> Iterator[list[int]]:
        """Indices of inputs, longest first, cut into groups of bounded size."""
        sizes = (sum(map(len, parts)) + N_SPECIALS + 1 for parts in encoded)
        return longest_first({i: min(n, self.longest) for i, n in enumerate(sizes)}, self.budget)

    def _prediction(self, log_probs: torch.Tensor, n_tokens: int, n_texts: int) -> Prediction:
        room = self.longest - N_SPECIALS - (n_texts - 1)
        note = None
        if n_tokens == 0:
            note = "the input is empty"
        elif n_tokens > room:
            note = f"cut from {n_tokens} to {room} tokens"
        return answer(log_probs, self.codec.labels, self.n_best, note)
