"""How well a model foretells text: nats per token, perplexity, bits per byte."""

import math
from dataclasses import dataclass

from heedful.errors import RequestError
from heedful.evaluation.score import Score


@dataclass(frozen=True)
class Likelihood:
    """The negative log-likelihood of a text, summed, with the counts it is divided by.

    Args:
        nll: Σ -ln p(token), in nats, over everything that was foretold (end tokens too, if they were).
        tokens: how many tokens that is.
        bytes: length in UTF-8 of the text they spell.

    Raises:
        RequestError: no tokens, or a negative number of bytes.
    """

    nll: float
    tokens: int
    bytes: int

    def __post_init__(self) -> None:
        if self.tokens < 1 or self.bytes < 0:
            raise RequestError(f"there is no text to score: {self.tokens} tokens, {self.bytes} bytes")

    def __add__(self, other: "Likelihood") -> "Likelihood":
        return Likelihood(self.nll + other.nll, self.tokens + other.tokens, self.bytes + other.bytes)

    @property
    def nats_per_token(self) -> float:
        """The nll divided by the tokens: the cross-entropy that training reports."""
        return self.nll / self.tokens

    @property
    def perplexity(self) -> float:
        """exp(nll / tokens). It depends on the tokenizer: compare it only under the same one."""
        try:
            return math.exp(self.nats_per_token)
        except OverflowError:
            return math.inf

    @property
    def bits_per_byte(self) -> float:
        """The nll over ln 2 times the bytes; it may be compared between tokenizers.

        Raises:
            RequestError: the text has no bytes.
        """
        if self.bytes == 0:
            raise RequestError("a text without a single byte has no bits per byte")
        return self.nll / (math.log(2) * self.bytes)

    def scores(self, tokenizer: str) -> dict[str, Score]:
        """Nats per token, perplexity and (where there are bytes) bits per byte as scores.

        Args:
            tokenizer: what identifies the tokenizer (a hash, say); part of the signature of what
                depends on it.
        """
        counts = {"tokens": self.tokens, "bytes": self.bytes}
        own = f"unit:token|tokenizer:{tokenizer}"
        found = {
            "nats_per_token": Score("nats per token", self.nats_per_token, own, counts=counts),
            "perplexity": Score("perplexity", self.perplexity, own, counts=counts),
        }
        if self.bytes:
            found["bits_per_byte"] = Score("bits per byte", self.bits_per_byte, "unit:byte", counts=counts)
        return found
