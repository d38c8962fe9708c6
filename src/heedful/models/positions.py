"""Position encodings of recipes: vectors that are added to embeddings, or options of self-attention.

Each is a `Section`, selected by ``kind``; the table `POSITIONS` lists them.
"""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from heedful.config import Section, by_kind
from heedful.nn.attention.relative import Alibi, Rotary
from heedful.nn.positions import (
    ConstantPositions,
    LearnedPositions,
    NoPositions,
    OneHotPositions,
    Positions,
    SinusoidalPositions,
)
from heedful.typing import JsonObject


class PositionsSection(Section):
    """Base class of position encodings."""

    acts_inside: ClassVar[bool] = False
    """Whether positions act inside self-attention; other position mixers do not support them."""

    def build(self, n: int, d: int) -> Positions:
        """Build the vectors of n positions; by default none."""
        return NoPositions(d)

    def inside(self, d_k: int, n_heads: int) -> JsonObject:
        """Return the options of self-attention; by default none."""
        return {}


class SinusoidalConfig(PositionsSection):
    """Sinusoids (Vaswani et al. 2017, section 3.5).

    Args:
        base: pair i of the d components has the angle position / base^(2i / d).
        interleaved: whether sines and cosines alternate; if not, all sines come first, as in Marian models.
        offset: number of the first position.
    """

    kind: Literal["sinusoidal"] = "sinusoidal"
    base: Annotated[float, Field(gt=1)] = 10000.0
    interleaved: bool = True
    offset: Annotated[int, Field(ge=0)] = 0

    def build(self, n: int, d: int) -> Positions:
        """Build the encoding."""
        return SinusoidalPositions(d, self.base, self.interleaved, self.offset)


class GridConfig(PositionsSection):
    """Sinusoids of the row and column of a patch (`heedful.nn.positions.GridPositions`); for images alone."""

    kind: Literal["grid"] = "grid"


class LearnedConfig(PositionsSection):
    """A learned vector for each position up to the maximum length."""

    kind: Literal["learned"] = "learned"

    def build(self, n: int, d: int) -> Positions:
        """Build the table."""
        return LearnedPositions(n, d)


class OneHotConfig(PositionsSection):
    """A one-hot vector for each position up to the maximum length, which is its width."""

    kind: Literal["one-hot"] = "one-hot"

    def build(self, n: int, d: int) -> Positions:
        """Build the encoding."""
        return OneHotPositions(n)


class ConstantConfig(PositionsSection):
    """The position itself, divided by the maximum length, in all components."""

    kind: Literal["constant"] = "constant"

    def build(self, n: int, d: int) -> Positions:
        """Build the encoding."""
        return ConstantPositions(d, 1 / n)


class NoPositionsConfig(PositionsSection):
    """None: order is known only from a causal mask, a recurrence or a convolution."""

    kind: Literal["none"] = "none"


class RotaryConfig(PositionsSection):
    """Rotation of queries and keys inside every self-attention (Su et al. 2021, section 3.2.2).

    Args:
        base: pair i of the components of a head is rotated by base^(-2i / d_rotated) radians per token; a
            larger base distinguishes longer distances.
        d_rotated: number of leading components of each query and key of a head that are rotated; even;
            null: all d_k. GPT-NeoX rotates a quarter of them (Black et al. 2022, section 2.1.1).
        interleaved: whether pairs are adjacent components; if not, component i and i + d_rotated / 2, which
            reads adjacent numbers in memory.
    """

    kind: Literal["rotary"] = "rotary"
    base: Annotated[float, Field(gt=1)] = 10000.0
    d_rotated: Annotated[int, Field(ge=2)] | None = None
    interleaved: bool = False
    acts_inside: ClassVar[bool] = True

    def check_heads(self, d_k: int, score: str) -> None:
        """Check that the rotated components of a head are pairs, and that its kind of score can be rotated.

        Raises:
            ValueError: names the key and the limit.
        """
        if self.d_rotated is None and d_k % 2:
            raise ValueError(
                f"d_k={d_k} must be even with positions.kind=rotary; or set a smaller even "
                "positions.d_rotated"
            )
        if self.d_rotated is not None and (self.d_rotated % 2 or self.d_rotated > d_k):
            raise ValueError(f"positions.d_rotated={self.d_rotated} must be even and at most d_k={d_k}")
        if score == "additive":
            raise ValueError(
                "positions.kind=rotary requires a score that depends only on dot products, got "
                "layer.mixer.score.kind=additive; choose other positions"
            )

    def inside(self, d_k: int, n_heads: int) -> JsonObject:
        """Return the rotation of queries and keys."""
        return {"rotary": Rotary(d_k, d_rotated=self.d_rotated, base=self.base, interleaved=self.interleaved)}


class AlibiConfig(PositionsSection):
    """A bias of the scores that is proportional to the distance (Press et al. 2022); for encoders, it does
    not distinguish a text from its reverse.
    """

    kind: Literal["alibi"] = "alibi"
    acts_inside: ClassVar[bool] = True

    def inside(self, d_k: int, n_heads: int) -> JsonObject:
        """Return the bias."""
        return {"score_bias": Alibi(n_heads)}


POSITIONS: tuple[type[PositionsSection], ...] = (
    *(NoPositionsConfig, LearnedConfig, SinusoidalConfig, RotaryConfig, AlibiConfig),
    *(OneHotConfig, ConstantConfig, GridConfig),
)

if TYPE_CHECKING:
    PositionsConfig = PositionsSection
else:
    PositionsConfig = by_kind(*POSITIONS)
