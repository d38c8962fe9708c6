"""What tasks share that answer to a whole text, or to a pair of texts: columns, ids, cutting, reading."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.data.batch import Batch
from heedful.data.report import EncodedRow
from heedful.data.sources import LocatedRow, Row
from heedful.models.base import Model
from heedful.nn.layout import Ids, Layout
from heedful.tasks.grouping import longest_first
from heedful.tasks.unknown import joined, unknown_note
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer

TEXT, PAIR = "text", "pair"

# Tokens that are read together: of the rectangle [texts, longest].
BUDGET = 8192

# The special tokens around one text; a second one needs one more.
N_SPECIALS = 2


@dataclass(frozen=True)
class Template:
    """The special tokens around texts: ``first a last``, or of pairs ``first a last b last``.

    Args:
        first: the id before the first text.
        last: the id that ends each text.
        used: whether they are used. If not, a text is its own tokens, an empty one the last id alone.
    """

    first: int
    last: int
    used: bool = True

    def __call__(self, parts: Sequence[Sequence[Ids]], samples: Sequence[int] = ()) -> Batch:
        """A batch of texts or pairs; no answer yet."""
        if not self.used:
            return Batch.bare([text if len(text) else [self.last] for (text,) in parts], samples)
        return Batch.with_special_tokens(parts, classify=self.first, separate=self.last, samples=samples)

    def n_specials(self, n_texts: int) -> int:
        """The number of special tokens around ``n_texts`` texts that are read together."""
        return 1 + n_texts if self.used else 0


WITH_CLASS = Template(SPECIALS.classify, SPECIALS.separate)
"""``<cls> a <sep> b <sep>`` (Devlin et al. 2019, figure 2)."""

AS_DOCUMENTS = Template(SPECIALS.end, SPECIALS.end)
"""``</s> a </s> b </s>``: as documents lie in running text, so a language model knows all tokens of it.

Radford et al. 2018 (section 3.3) use newly initialised tokens for start, delimiter and end.
"""

BARE = Template(SPECIALS.end, SPECIALS.end, used=False)
"""``a``: the tokens of one text alone, as GPT-2's classifiers in other libraries read them."""


def text_columns(pairs: bool) -> tuple[str, ...]:
    """The columns that hold text."""
    return (TEXT, PAIR) if pairs else (TEXT,)


def encoded(
    tokenizer: Tokenizer, rows: Iterable[LocatedRow[Row]], columns: Sequence[str], chunk: int = 1000
) -> Iterator[tuple[LocatedRow[Row], dict[str, list[int]]]]:
    """Each row with the ids of its texts, by column."""
    rows = iter(rows)
    while block := list(islice(rows, chunk)):
        texts = [tokenizer.encode_batch([r.row[column] for r in block]) for column in columns]
        for row, *ids in zip(block, *texts, strict=True):
            yield row, dict(zip(columns, ids, strict=True))


def fitted(texts: Sequence[Ids], longest: int, frame: Template = WITH_CLASS) -> list[Ids]:
    """The texts cut, the longer one first, so that they and their special tokens are ``longest`` together."""
    room = longest - frame.n_specials(len(texts))
    kept = [len(text) for text in texts]
    while sum(kept) > room:
        most = max(range(len(kept)), key=lambda i: kept[i])
        others = max((n for i, n in enumerate(kept) if i != most), default=0)
        # Down to the other's length at once, then evenly.
        kept[most] -= max(1, min(sum(kept) - room, kept[most] - others))
    return [text[:n] for text, n in zip(texts, kept, strict=True)]


@dataclass(frozen=True)
class TemplateLimit:
    """What a model reads of the texts of a row together. A `heedful.data.report.Limit`.

    Args:
        columns: of the texts.
        longest: the most tokens of a sequence.
        frame: the special tokens around the texts.
        key: the setting that limits the length of a sequence.
    """

    columns: Sequence[str]
    longest: int
    frame: Template
    key: str

    @property
    def room(self) -> int:
        """Tokens that the texts may have together."""
        return self.longest - self.frame.n_specials(len(self.columns))

    @property
    def reason(self) -> str:
        """See `heedful.data.report.Limit`."""
        return f"{self._named} longer than {self._said}"

    def over(self, row: EncodedRow) -> str | None:
        """See `heedful.data.report.Limit`."""
        n = sum(len(row[column]) for column in self.columns)
        return None if n <= self.room else f"{self._named} has {n} tokens, more than {self._said}"

    def cut(self, row: EncodedRow) -> EncodedRow:
        """As `fitted` does it."""
        texts: Any = fitted([row[column] for column in self.columns], self.longest, self.frame)
        return {**row, **dict(zip(self.columns, texts, strict=True))}

    @property
    def _named(self) -> str:
        return " with ".join(self.columns)

    @property
    def _said(self) -> str:
        n = self.longest - self.room
        besides = f", of which {n} are special tokens" if n else ""
        return f"{self.room} ({self.key}={self.longest}{besides})"


class Read(NamedTuple):
    """The result of a `TextReader` for an input."""

    answer: Tensor
    """Its row, on the CPU."""
    note: str | None = None
    """What is unusual about it."""
    cut: int = 0
    """How many of its tokens were not read."""


class TextReader:
    """Reads one or two texts for each input, neighbours in length together.

    Args:
        model: put into evaluation mode here.
        tokenizer: of all texts.
        longest: the most tokens of a sequence; longer texts are truncated, with a note.
        answer: what is made of hidden states, heads and layout: a row for each sequence.
        frame: the special tokens around the texts.
        budget: maximum number of tokens of a batch, with padding.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        *,
        longest: int,
        answer: Callable[[Tensor, Any, Layout], Tensor],
        frame: Template = WITH_CLASS,
        budget: int = BUDGET,
    ) -> None:
        self.model, self.tokenizer = model.eval(), tokenizer
        self.longest, self.answer, self.frame, self.budget = longest, answer, frame, budget
        self.device = next(model.parameters()).device

    @torch.inference_mode()
    def read(
        self, inputs: Sequence[str | Sequence[str]], progress: Callable[[int], None] = lambda n: None
    ) -> list[Read]:
        """For each input its row of the answer, and notes about it."""
        parts = [(text,) if isinstance(text, str) else tuple(text) for text in inputs]
        ids = [self.tokenizer.encode_batch(part) for part in parts]
        results = [Read(torch.zeros(0))] * len(ids)
        for group in self._groups(ids):
            batch = self.frame([fitted(ids[i], self.longest, self.frame) for i in group]).to(self.device)
            answers = self.answer(self.model(batch.inputs), self.model.heads, batch.inputs.layout).cpu()
            for i, row in zip(group, answers, strict=True):
                results[i] = Read(row, *self._note(parts[i], ids[i]))
            progress(len(group))
        return results

    def _groups(self, ids: Sequence[Sequence[Sequence[int]]]) -> Iterator[list[int]]:
        """Indices of inputs, longest first, cut into groups of bounded size."""
        sizes = (sum(map(len, parts)) + self.frame.n_specials(len(parts)) for parts in ids)
        return longest_first({i: min(max(n, 1), self.longest) for i, n in enumerate(sizes)}, self.budget)

    def _note(self, texts: Sequence[str], ids: Sequence[Sequence[int]]) -> tuple[str | None, int]:
        """Notes about an input, and how many of its tokens were not read."""
        n_tokens, room = sum(map(len, ids)), self.longest - self.frame.n_specials(len(texts))
        if n_tokens == 0:
            return "the input is empty", 0
        cut = f"cut from {n_tokens} to {room} tokens" if n_tokens > room else None
        return joined(cut, unknown_note(self.tokenizer, texts, ids)), max(0, n_tokens - room)
