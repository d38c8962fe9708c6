"""How well a model foretells text: nats per token, perplexity of a token and of a word, bits per byte."""

import math
from dataclasses import dataclass, fields

from heedful.errors import RequestError
from heedful.tasks.metrics.score import Score

WORDS = "white-space+line-ends"
"""How `count_words` counts, for signatures."""


def count_words(text: str) -> int:
    """The words of a document, split at white space, and one more for each line's end.

    The last line ends where the document does, if not before; so a text has as many whether it is one
    document or each of its lines is one. WikiText's published perplexities count ends of lines in this way.
    """
    return len(text.split()) + text.count("\n") + (not text.endswith("\n"))


@dataclass(frozen=True)
class Likelihood:
    """The negative log-likelihood of a text, summed, with the counts it is divided by.

    Args:
        nll: Σ -ln p(token), in nats, over everything that was foretold (end tokens too, if they were).
        tokens: how many tokens that is.
        bytes: length in UTF-8 of the text they spell.
        characters: its length in code points; 0 where they were not counted.
        words: its words and line ends (see `count_words`); 0 where they were not counted.

    Raises:
        RequestError: no tokens, or a negative number of bytes, characters or words.
    """

    nll: float
    tokens: int
    bytes: int
    characters: int = 0
    words: int = 0

    def __post_init__(self) -> None:
        if self.tokens < 1 or min(self.bytes, self.characters, self.words) < 0:
            raise RequestError(f"there is no text to score: {self.tokens} tokens, {self.bytes} bytes")

    def __add__(self, other: "Likelihood") -> "Likelihood":
        sums = (getattr(self, f.name) + getattr(other, f.name) for f in fields(self))
        return Likelihood(*sums)

    @property
    def nats_per_token(self) -> float:
        """The nll divided by the tokens: the cross-entropy that training reports."""
        return self.nll / self.tokens

    @property
    def perplexity(self) -> float:
        """exp(nll / tokens). It depends on the tokenizer: compare it only under the same one."""
        return _exp(self.nats_per_token)

    @property
    def perplexity_of_a_word(self) -> float:
        """exp(nll / words); it may be compared between tokenizers.

        Raises:
            RequestError: no words were counted.
        """
        if self.words == 0:
            raise RequestError("a text without a word has no perplexity of a word")
        return _exp(self.nll / self.words)

    @property
    def bits_per_byte(self) -> float:
        """The nll over ln 2 times the bytes; it may be compared between tokenizers.

        Raises:
            RequestError: the text has no bytes.
        """
        if self.bytes == 0:
            raise RequestError("a text without a single byte has no bits per byte")
        return self.nll / (math.log(2) * self.bytes)

    def scores(self, tokenizer: str, reading: str = "") -> dict[str, Score]:
        """Nats per token, perplexity and, where they were counted, those of words, bytes and characters.

        Args:
            tokenizer: what identifies the tokenizer (a hash, say); part of the signature of what
                depends on it.
            reading: what else decides the numbers, as ``key:value|key:value``: how much a model reads
                before each token, say. Part of every signature.
        """
        counts = {"tokens": self.tokens, "bytes": self.bytes}
        if self.characters:
            counts["characters"] = self.characters
        if self.words:
            counts["words"] = self.words
        rest = f"|{reading}" if reading else ""
        own = f"unit:token|tokenizer:{tokenizer}{rest}"
        found = {
            "nats_per_token": Score("nats per token", self.nats_per_token, own, counts=counts),
            "perplexity": Score("perplexity", self.perplexity, own, counts=counts),
        }
        if self.words:
            value, signature = self.perplexity_of_a_word, f"unit:word|words:{WORDS}{rest}"
            found["perplexity_of_a_word"] = Score("perplexity of a word", value, signature, counts=counts)
        if self.bytes:
            per_byte = self.bits_per_byte
            found["bits_per_byte"] = Score("bits per byte", per_byte, f"unit:byte{rest}", counts=counts)
        if self.characters:
            value, signature = self.nll / (math.log(2) * self.characters), f"unit:character{rest}"
            found["bits_per_character"] = Score("bits per character", value, signature, counts=counts)
        return found


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf
