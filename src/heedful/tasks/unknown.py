"""Notes about words that are not in the vocabulary: all of them are read as ``<unk>``."""

import re
from collections.abc import Iterable, Mapping, Sequence

from heedful.data.report import ColumnCounts
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import EncodedTexts, Tokenizer


def unknown_note(
    tokenizer: Tokenizer, texts: Sequence[str], ids: Iterable[Sequence[int]], side: str = ""
) -> str | None:
    """Note how many words or tokens of an input are unknown; None if all are known.

    Args:
        tokenizer: of the texts.
        texts: of the input.
        ids: of them, together; other special tokens among them are not counted.
        side: what the words are called: ``source``.
    """
    flat = [i for part in ids for i in part]
    unknown = flat.count(SPECIALS.unknown)
    if not unknown:
        return None
    total = sum(i not in _FRAMING for i in flat)
    return f"{unknown:,} of {total:,} {_named(tokenizer, side)} {_unknown(unknown)}{_first(tokenizer, texts)}"


def is_of_unknown_words(note: str) -> bool:
    """Whether a note of an input is about unknown words only (`unknown_note`)."""
    return _UNKNOWN.match(note) is not None


def unknown_notes(side: str, rows: EncodedTexts, *, predicted: bool = False) -> list[str]:
    """How many words of one side of a data set are unknown; nothing if all are known.

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


def unknown_in(tokenizer: Tokenizer, rows: Sequence[Mapping[str, str]]) -> list[str]:
    """`unknown_notes` of each column of some rows of texts."""
    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    return [
        note
        for name, texts in columns.items()
        for note in unknown_notes(name, EncodedTexts.by(tokenizer, texts))
    ]


def counted_notes(
    tokenizer: Tokenizer,
    side: str,
    counts: ColumnCounts,
    texts: Sequence[str] = (),
    *,
    predicted: bool = False,
) -> list[str]:
    """As `unknown_notes`, of what was counted already."""
    if not counts.unknown:
        return []
    share = f"{counts.unknown:,} of {counts.tokens:,} {_named(tokenizer, side)} ({counts.unknown_rate:.1%})"
    note = f"{share} {_unknown(counts.unknown)}{_first(tokenizer, texts)}"
    return [f"{note}; the perplexity counts them as <unk>, whatever they are" if predicted else note]


def joined(*notes: str | None) -> str | None:
    """The notes about an input in one text, or None."""
    return "; ".join(note for note in notes if note) or None


_FRAMING = {SPECIALS.pad, SPECIALS.start, SPECIALS.end, SPECIALS.classify, SPECIALS.separate, SPECIALS.mask}


_UNKNOWN = re.compile(r"[\d,]+ of [\d,]+ (\w+ )?(words|tokens) (is|are) unknown to this run")


def _named(tokenizer: Tokenizer, side: str) -> str:
    """What its ids are: words, or parts of words."""
    what = "words" if tokenizer.model.config.kind == "word" else "tokens"
    return f"{side} {what}".strip()


def _unknown(unknown: int) -> str:
    return f"{'is' if unknown == 1 else 'are'} unknown to this run"


def _first(tokenizer: Tokenizer, texts: Iterable[str]) -> str:
    """The first word of the texts that is unknown, or has something unknown in it."""
    word = next((word for text in texts for word in tokenizer.unknown_words(text)), None)
    if word is None:
        return ""
    return f" (the first{':' if tokenizer.model.config.kind == 'word' else ' in'} {word!r})"
