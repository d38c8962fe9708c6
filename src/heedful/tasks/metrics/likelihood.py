"""Metrics of language models: nats per token, perplexity per token and per word, bits per byte."""

import math
from dataclasses import dataclass, fields

from heedful.errors import RequestError
from heedful.tasks.metrics.score import Score

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

    @property
    def nats_per_token(self) -> float:
        """nll / tokens: the cross-entropy that training reports."""
        return self.nll / self.tokens

    @property
    def perplexity(self) -> float:
        """exp(nll / tokens); comparable only between models with the same tokenizer."""
        return _exp(self.nats_per_token)

    @property
    def perplexity_of_a_word(self) -> float:
        """exp(nll / words); comparable between tokenizers.

        Raises:
            RequestError: no words were counted.
        """
        if self.words == 0:
            raise RequestError("perplexity per word is undefined: the text has no words")
        return _exp(self.nll / self.words)

    @property
    def bits_per_byte(self) -> float:
        """nll / (ln 2 * bytes); comparable between tokenizers.

        Raises:
            RequestError: the text has no bytes.
        """
        if self.bytes == 0:
            raise RequestError("bits per byte is undefined: the text has no bytes")
        return self.nll / (math.log(2) * self.bytes)

    def scores(self, tokenizer: str, settings: str = "") -> dict[str, Score]:
        """Compute nats per token and perplexity and, if counted, the metrics per word, byte and character.

        Args:
            tokenizer: identifier of the tokenizer (for example, a hash), for the signatures of metrics that
                depend on it.
            settings: other settings that change the numbers, as ``key:value|key:value`` (for example, the
                context length); part of every signature.
        """
        counts = {"tokens": self.tokens, "bytes": self.bytes}
        if self.characters:
            counts["characters"] = self.characters
        if self.words:
            counts["words"] = self.words
        suffix = f"|{settings}" if settings else ""
        token_signature = f"unit:token|tokenizer:{tokenizer}{suffix}"
        scores = {
            "nats_per_token": Score("nats per token", self.nats_per_token, token_signature, counts=counts),
            "perplexity": Score("perplexity", self.perplexity, token_signature, counts=counts),
        }
        if self.words:
            value, signature = self.perplexity_of_a_word, f"unit:word|words:{WORDS}{suffix}"
            scores["perplexity_of_a_word"] = Score("perplexity of a word", value, signature, counts=counts)
        if self.bytes:
            per_byte = self.bits_per_byte
            scores["bits_per_byte"] = Score("bits per byte", per_byte, f"unit:byte{suffix}", counts=counts)
        if self.characters:
            value, signature = self.nll / (math.log(2) * self.characters), f"unit:character{suffix}"
            scores["bits_per_character"] = Score("bits per character", value, signature, counts=counts)
        return scores


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf
