"""Metrics of language models: nats per token, perplexity per token and per word, bits per byte."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial

from heedful.errors import RequestError
from heedful.tasks.metrics.score import Score
from heedful.tasks.metrics.statistics import Numbers, RowStatistics, exponential, ratio

Rows = Callable[[], Numbers]
"""Returns the fields of a `Likelihood` of each document, ``[n, 5]``."""

WORDS = "white-space+line-ends"
"""The counting rule of `count_words`, for signatures."""


def count_words(text: str) -> int:
    """Count the whitespace-separated words of a document, plus one per line end.

    The end of the document counts as the end of its last line, so a text has the same count as one document
    or with each line as a document. Published WikiText perplexities count line ends in this way.
    """
    return len(text.split()) + text.count("\n") + (not text.endswith("\n"))


@dataclass(frozen=True)
class Likelihood:
    """Total negative log-likelihood of a text, with the counts to normalise it.

    Args:
        nll: Σ -ln p(token), in nats, over all predicted tokens (including end tokens, if predicted).
        tokens: number of predicted tokens.
        bytes: length of their text in UTF-8.
        characters: its length in code points; 0 if not counted.
        words: its words and line ends (see `count_words`); 0 if not counted.

    Raises:
        RequestError: there are no tokens, or a count is negative.
    """

    nll: float
    tokens: int
    bytes: int
    characters: int = 0
    words: int = 0

    def __post_init__(self) -> None:
        if self.tokens < 1 or min(self.bytes, self.characters, self.words) < 0:
            raise RequestError(f"no text to score: got {self.tokens} tokens, {self.bytes} bytes")

    def __add__(self, other: "Likelihood") -> "Likelihood":
        sums = (getattr(self, f.name) + getattr(other, f.name) for f in fields(self))
        return Likelihood(*sums)

    def scores(self, tokenizer: str, settings: str = "", rows: Rows | None = None) -> list[Score]:
        """Compute nats per token and perplexity and, if counted, the metrics per word, byte and character.

        Those of tokens are comparable only between models with the same tokenizer.

        Args:
            tokenizer: identifier of the tokenizer (for example, a hash), for the signatures of metrics that
                depend on it.
            settings: other settings that change the numbers, as ``key:value|key:value`` (for example, the
                context length); part of every signature.
            rows: returns the five numbers of each document, for tests of significance.
        """
        counts = {"tokens": self.tokens, "bytes": self.bytes}
        optional = {"characters": self.characters, "words": self.words}
        counts |= {name: n for name, n in optional.items() if n}
        token, suffix = f"token|tokenizer:{tokenizer}", f"|{settings}" if settings else ""
        table = (
            ("nats per token", _nats, self.tokens, token),
            ("perplexity", _perplexity, self.tokens, token),
            ("perplexity of a word", _perplexity, self.words, f"word|words:{WORDS}"),
            ("bits per byte", _bits, self.bytes, "byte"),
            ("bits per character", _bits, self.characters, "character"),
        )
        return [
            Score(
                name,
                value(self.nll, n),
                f"unit:{unit}{suffix}",
                counts=counts,
                statistics=None
                if rows is None
                else partial(_statistics, rows, value, unit.partition("|")[0]),
            )
            for name, value, n, unit in table
            if n
        ]


def _statistics(rows: Rows, value: Callable[[float, int], float], unit: str) -> RowStatistics:
    """Return the statistics of a measure per unit."""
    numbers = rows()
    names = [field.name for field in fields(Likelihood)]
    statistics = ratio(
        numbers[:, 0], numbers[:, names.index(f"{unit}s")], 1 / math.log(2) if value is _bits else 1.0
    )
    return exponential(statistics) if value is _perplexity else statistics


def _nats(nll: float, n: int) -> float:
    return nll / n


def _perplexity(nll: float, n: int) -> float:
    try:
        return math.exp(nll / n)
    except OverflowError:
        return math.inf


def _bits(nll: float, n: int) -> float:
    return nll / (math.log(2) * n)
