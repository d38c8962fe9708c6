"""Texts and pairs of texts as models read them: special tokens, truncation, unknown words, batches."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.data.report import ColumnCounts, EncodedRow
from heedful.data.sources import LocatedRow, Row
from heedful.errors import quoted
from heedful.models.base import Model
from heedful.nn.layout import Ids, Layout
from heedful.tasks.prediction import BATCH_TOKENS, EMPTY, Progress, content_of
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import EncodedTexts, Tokenizer

TEXT, PAIR = "text", "pair"


# Special tokens around one text.
N_SPECIALS = 2


@dataclass(frozen=True)
class Template:
    """The special tokens around texts: ``start a end``, or ``start a end b end`` for pairs.

    Args:
        start_id: the id before the first text.
        end_id: the id after each text.
        add_special_tokens: false: a text is its own tokens, and an empty one is ``end_id`` alone.
    """

    start_id: int
    end_id: int
    add_special_tokens: bool = True

    def __call__(self, rows: Sequence[Sequence[Ids]], samples: Sequence[int] = ()) -> Batch:
        """Return a batch of texts or pairs, without targets."""
        if not self.add_special_tokens:
            return Batch.bare([text if len(text) else [self.end_id] for (text,) in rows], samples)
        return Batch.with_special_tokens(rows, classify=self.start_id, separate=self.end_id, samples=samples)

    def n_specials(self, n_texts: int) -> int:
        """Return the number of special tokens around ``n_texts`` texts that are read together."""
        return 1 + n_texts if self.add_special_tokens else 0


@dataclass(frozen=True)
class SourceTemplate:
    """One text between special tokens, as models read the source of a translation.

    Args:
        before: the ids before it.
        after: the ids after it.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]

    def __call__(self, rows: Sequence[Sequence[Ids]], samples: Sequence[int] = ()) -> Batch:
        """Return a batch of single texts, without targets."""
        return Batch.bare([[*self.before, *text, *self.after] for (text,) in rows], samples)

    def n_specials(self, n_texts: int) -> int:
        """Return the number of special tokens."""
        return len(self.before) + len(self.after)


CLASS_TEMPLATE = Template(SPECIALS.classify, SPECIALS.separate)
"""``<cls> a <sep> b <sep>`` (Devlin et al. 2019, figure 2)."""

DOCUMENT_TEMPLATE = Template(SPECIALS.end, SPECIALS.end)
"""``</s> a </s> b </s>``: as documents in running text, so a language model has learned all of these tokens.

Radford et al. 2018 (section 3.3) use newly initialised tokens for start, delimiter and end.
"""

BARE_TEMPLATE = Template(SPECIALS.end, SPECIALS.end, add_special_tokens=False)
"""``a``: the tokens of one text alone, as GPT-2's classifiers in other libraries read them."""


def text_columns(pairs: bool) -> tuple[str, ...]:
    """Return the columns that hold text."""
    return (TEXT, PAIR) if pairs else (TEXT,)


def encode_texts(tokenizer: Tokenizer, texts: Iterable[str]) -> list[list[int]]:
    """Return the ids of texts that are read whole; none of a text of white space alone."""
    return tokenizer.encode_batch([content_of(text) for text in texts])


def encode_columns(
    tokenizers: Mapping[str, Tokenizer], rows: Iterable[LocatedRow[Row]], chunk: int = 1000
) -> Iterator[tuple[LocatedRow[Row], dict[str, list[int]]]]:
    """Yield each row with the ids of its texts, by column; rows are read and encoded in chunks.

    Args:
        tokenizers: of each column.
        rows: that have these columns.
        chunk: number of rows that are encoded together.
    """
    rows = iter(rows)
    while block := list(islice(rows, chunk)):
        ids = [
            encode_texts(tokenizer, (row.row[column] for row in block))
            for column, tokenizer in tokenizers.items()
        ]
        for row, *ids_of_row in zip(block, *ids, strict=True):
            yield row, dict(zip(tokenizers, ids_of_row, strict=True))


def synthetic_ids(draw: np.random.Generator, vocab_size: int, n: int, length: int) -> list[NDArray[np.int64]]:
    """Return ``n`` random texts whose lengths differ from ``length`` by a token at most, for timing."""
    lengths = (max(0, length + (0, -1, 1)[i % 3]) for i in range(n))
    return [draw.integers(len(SPECIALS), vocab_size, n_ids) for n_ids in lengths]


def truncate(
    texts: Sequence[Ids], longest: int, template: Template | SourceTemplate = CLASS_TEMPLATE
) -> list[Ids]:
    """Truncate texts, the longest first, to ``longest`` tokens together, special tokens included."""
    budget = longest - template.n_specials(len(texts))
    lengths = [len(text) for text in texts]
    while sum(lengths) > budget:
        longest_index = max(range(len(lengths)), key=lambda i: lengths[i])
        next_longest = max((n for i, n in enumerate(lengths) if i != longest_index), default=0)
        # Down to the length of the next longest at once, then evenly.
        lengths[longest_index] -= max(1, min(sum(lengths) - budget, lengths[longest_index] - next_longest))
    return [text[:n] for text, n in zip(texts, lengths, strict=True)]


@dataclass(frozen=True)
class TemplateLimit:
    """The most tokens that the texts of a row may have together. A `heedful.data.report.Limit`.

    Args:
        columns: of the texts.
        longest: the most tokens of a sequence.
        template: the special tokens around the texts.
        key: the setting that limits the length of a sequence.
    """

    columns: Sequence[str]
    longest: int
    template: Template
    key: str

    @property
    def most(self) -> int:
        """The most tokens that the texts may have together."""
        return self.longest - self.template.n_specials(len(self.columns))

    @property
    def reason(self) -> str:
        """See `heedful.data.report.Limit`."""
        return f"{self._columns_text} longer than {self._limit_text}"

    def excess(self, row: EncodedRow) -> str | None:
        """See `heedful.data.report.Limit`."""
        n_tokens = sum(len(row.get(column, ())) for column in self.columns)
        if n_tokens <= self.most:
            return None
        return f"{self._columns_text} has {n_tokens} tokens, more than {self._limit_text}"

    def truncate(self, row: EncodedRow) -> EncodedRow:
        """Return the row with truncated texts; see `truncate`."""
        texts: Any = truncate([row[column] for column in self.columns], self.longest, self.template)
        return {**row, **dict(zip(self.columns, texts, strict=True))}

    @property
    def _columns_text(self) -> str:
        return " with ".join(self.columns)

    @property
    def _limit_text(self) -> str:
        n_specials = self.longest - self.most
        specials_text = f", of which {n_specials} are special tokens" if n_specials else ""
        return f"{self.most} ({self.key}={self.longest}{specials_text})"


class TextOutput(NamedTuple):
    """What `run_on_texts` returns for an input."""

    output: Tensor
    """Its row of the model's outputs, on the CPU."""
    notes: tuple[str, ...] = ()
    """What is unusual about it."""
    cut: int = 0
    """How many of its tokens were not read."""


@torch.inference_mode()
def run_on_texts(
    model: Model,
    tokenizer: Tokenizer,
    inputs: Sequence[Sequence[str]],
    head: Callable[[Tensor, nn.ModuleDict, Layout], Tensor],
    *,
    longest: int,
    template: Template = CLASS_TEMPLATE,
    progress: Progress = lambda n: None,
) -> list[TextOutput]:
    """Apply a model to texts or pairs of texts, neighbours in length together.

    Args:
        model: in evaluation mode.
        tokenizer: of all texts.
        inputs: of each the texts that are read together, often one.
        head: maps hidden states, heads and layout to a row for each sequence.
        longest: maximum number of tokens of a sequence; longer texts are truncated, with a note.
        template: the special tokens around the texts.
        progress: called with the number of inputs just done.
    """
    ids = [encode_texts(tokenizer, texts) for texts in inputs]
    n_tokens = [sum(map(len, parts)) + template.n_specials(len(parts)) for parts in ids]
    outputs, device = [TextOutput(torch.zeros(0))] * len(ids), next(model.parameters()).device
    lengths = {i: min(max(n, 1), longest) for i, n in enumerate(n_tokens)}
    for group in group_by_length(lengths, BATCH_TOKENS):
        batch = template([truncate(ids[i], longest, template) for i in group]).to(device)
        rows = head(model(batch.inputs), model.heads, batch.inputs.layout).cpu()
        for i, row in zip(group, rows, strict=True):
            max_text_tokens = longest - template.n_specials(len(inputs[i]))
            outputs[i] = TextOutput(row, *input_note(tokenizer, inputs[i], ids[i], max_text_tokens))
        progress(len(group))
    return outputs


def input_note(
    tokenizer: Tokenizer, texts: Sequence[str], ids: Sequence[Sequence[int]], limit: int
) -> tuple[tuple[str, ...], int]:
    """Note what is unusual about an input, and count its tokens that were not read.

    Args:
        tokenizer: of the texts.
        texts: of the input.
        ids: of each text.
        limit: the most tokens that the texts may have together.
    """
    n_tokens = sum(map(len, ids))
    if n_tokens == 0:
        return (EMPTY,), 0
    truncation = f"cut from {n_tokens} to {limit} tokens" if n_tokens > limit else None
    return join_notes(truncation, unknown_note(tokenizer, texts, ids)), max(0, n_tokens - limit)


def group_by_length(
    lengths: Mapping[int, int], budget: int, cost: Callable[[int], int] = lambda n: n
) -> Iterator[list[int]]:
    """Yield the keys of ``lengths`` in groups that form a batch, longest first.

    Equal lengths stay in their order.

    Args:
        lengths: of each input, by its number.
        budget: the maximum cost of a group, padded to its longest input; a single input may cost more.
        cost: returns the cost of an input, given the length of the longest one.
    """
    order = sorted(lengths, key=lambda i: -lengths[i])
    while order:
        size = max(1, budget // cost(lengths[order[0]]))
        yield order[:size]
        order = order[size:]


def unknown_note(
    tokenizer: Tokenizer, texts: Sequence[str], ids: Iterable[Sequence[int]], side: str = ""
) -> str | None:
    """Note how many words or tokens of an input are unknown, and which; None if all are known.

    Args:
        tokenizer: of the texts.
        texts: of the input.
        ids: of them, together; other special tokens among them are not counted.
        side: what the words are called: ``source``.
    """
    all_ids = [i for part in ids for i in part]
    unknown = all_ids.count(SPECIALS.unknown)
    if not unknown:
        return None
    total = sum(i not in _NOT_WORDS for i in all_ids)
    share = f"{unknown:,} of {total:,} {_units(tokenizer, side)}"
    return f"{share} {_are_unknown(unknown)}{_every_unknown(tokenizer, texts)}"


def is_of_unknown_words(note: str) -> bool:
    """Return whether a note of an input is about unknown words only (`unknown_note`)."""
    return _UNKNOWN.match(note) is not None


def unknown_notes(side: str, rows: EncodedTexts, *, predicted: bool = False) -> list[str]:
    """Note how many words of one side of a data set are unknown; nothing if all are known.

    Args:
        side: what it is called.
        rows: its texts.
        predicted: whether a likelihood is computed of them.
    """
    counts = ColumnCounts()
    for ids in rows.ids:
        counts.lengths[len(ids)] += 1
        counts.unknown += ids.count(SPECIALS.unknown)
    return counted_notes(rows.tokenizer, side, counts, rows.texts, predicted=predicted)


def unknown_notes_by_column(tokenizer: Tokenizer, rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return `unknown_notes` of each column of rows of texts."""
    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    return [
        note
        for name, texts in columns.items()
        for note in unknown_notes(name, EncodedTexts.encode(tokenizer, texts))
    ]


def counted_notes(
    tokenizer: Tokenizer,
    side: str,
    counts: ColumnCounts,
    texts: Sequence[str] = (),
    *,
    predicted: bool = False,
) -> list[str]:
    """Return `unknown_notes`, given counts."""
    if not counts.unknown:
        return []
    share = f"{counts.unknown:,} of {counts.tokens:,} {_units(tokenizer, side)} ({counts.unknown_rate:.1%})"
    note = f"{share} {_are_unknown(counts.unknown)}{_first_unknown(tokenizer, texts)}"
    return [f"{note}; the perplexity counts them as <unk>, whatever they are" if predicted else note]


def join_notes(*notes: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the notes about an input that there are."""
    lists = ((note,) if isinstance(note, str) else note or () for note in notes)
    return tuple(note for each in lists for note in each if note)


def cut_output_note(n: int, reason: str) -> str:
    """Note that an output was cut at ``n`` tokens, and what sets this limit."""
    return f"output cut at {n:,} tokens ({reason})"


def violated_note(names: Sequence[str]) -> str | None:
    """Note the constraints that an output does not hold; None if it holds all."""
    return f"constraints not satisfied: {', '.join(names)}" if names else None


MOST_NAMED = 20
"""Maximum number of unknown words of an input that a note names."""

_NOT_WORDS = {SPECIALS.pad, SPECIALS.start, SPECIALS.end, SPECIALS.classify, SPECIALS.separate, SPECIALS.mask}


_UNKNOWN = re.compile(r"[\d,]+ of [\d,]+ (\w+ )?(words|tokens) (is|are) unknown to this run")


def _units(tokenizer: Tokenizer, side: str) -> str:
    """Return what messages call the ids: words, or tokens."""
    unit = "words" if tokenizer.model.config.kind == "word" else "tokens"
    return f"{side} {unit}".strip()


def _are_unknown(n: int) -> str:
    return f"{'is' if n == 1 else 'are'} unknown to this run"


def _every_unknown(tokenizer: Tokenizer, texts: Iterable[str]) -> str:
    """Return a note on the words of an input that are unknown, or have an unknown part, each once."""
    words = [*dict.fromkeys(word for text in texts for word in tokenizer.unknown_words(text))]
    if not words:
        return ""
    named = ", ".join(map(quoted, words[:MOST_NAMED]))
    more = f" and {len(words) - MOST_NAMED:,} more" if len(words) > MOST_NAMED else ""
    return f" ({'' if tokenizer.model.config.kind == 'word' else 'in '}{named}{more})"


def _first_unknown(tokenizer: Tokenizer, texts: Iterable[str]) -> str:
    """Return a note on the first word of the texts that is unknown, or has an unknown part."""
    word = next((word for text in texts for word in tokenizer.unknown_words(text)), None)
    if word is None:
        return ""
    return f" (the first{':' if tokenizer.model.config.kind == 'word' else ' in'} {quoted(word)})"
