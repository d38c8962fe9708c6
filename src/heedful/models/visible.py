"""Which tokens a token sees: the section ``visible`` of attention, and its table.

| kind | a token sees |
|---|---|
| all | all tokens |
| window | the tokens near it |
| blocks | its block, and neighbouring blocks |
| dilated | every n-th token near it |
| strided | the tokens near it, and every n-th token |
| fixed | its block, and the last tokens of every block |
| global | the tokens near it, and the first tokens, which see all |
| tree | itself and its ancestors in a tree |
| mask | what a table says |

In causal attention, a token sees only those of them that are not later than itself. `heedful.nn.visibility`
has the formulas.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints, model_validator

from heedful.config import CustomSection, Section, by_kind
from heedful.models.sections import Positive
from heedful.nn.visibility import (
    AttentionPattern,
    Blocks,
    Dilated,
    Fixed,
    GlobalTokens,
    Mask,
    Strided,
    Tree,
    Window,
)

AtLeastTwo = Annotated[int, Field(ge=2)]


class VisibleSection(Section):
    """Base class of sections ``visible``; all keys except ``kind`` are arguments of the class ``builds``."""

    builds: ClassVar[Callable[..., AttentionPattern]]

    local: ClassVar[bool] = False
    """Whether a token sees only its neighbours."""

    def build(self) -> AttentionPattern | None:
        """Build the pattern; None: all tokens are visible."""
        return type(self).builds(**self.model_dump(exclude={"kind"}))


class AllConfig(VisibleSection):
    """All tokens; in causal attention, all up to the token itself."""

    kind: Literal["all"] = "all"

    def build(self) -> None:
        """Return None."""
        return


class WindowConfig(VisibleSection):
    """A token sees itself and size - 1 tokens before it, and as many after it if attention is not causal
    (Beltagy et al. 2020, section 3.1; Mistral 7B, Jiang et al. 2023, section 2).

    Args:
        size: width of the window.
    """

    builds: ClassVar[Callable[..., AttentionPattern]] = Window
    local: ClassVar[bool] = True
    kind: Literal["window"] = "window"
    size: AtLeastTwo


class BlocksConfig(VisibleSection):
    """Tokens of the same block, and of neighbouring blocks (causal: Liu et al. 2018, section 4.2.3).

    Args:
        size: number of tokens of a block.
        earlier: number of previous blocks that are also visible, and of following ones if attention is not
            causal.
    """

    builds: ClassVar[Callable[..., AttentionPattern]] = Blocks
    local: ClassVar[bool] = True
    kind: Literal["blocks"] = "blocks"
    size: Positive = 256
    earlier: Annotated[int, Field(ge=0)] = 0


class DilatedConfig(VisibleSection):
    """Every step-th token near a token (Beltagy et al. 2020, section 3.1).

    Args:
        size: number of visible tokens, including the token itself; as many after it if attention is not
            causal.
        step: distance between them.
    """

    builds: ClassVar[Callable[..., AttentionPattern]] = Dilated
    local: ClassVar[bool] = True
    kind: Literal["dilated"] = "dilated"
    size: AtLeastTwo
    step: AtLeastTwo


class StridedConfig(VisibleSection):
    """A window of ``stride`` tokens, and every stride-th token (Child et al. 2019, section 4.2).

    Args:
        stride: size of the window, and distance between the other tokens.
    """

    builds: ClassVar[Callable[..., AttentionPattern]] = Strided
    kind: Literal["strided"] = "strided"
    stride: AtLeastTwo


class FixedConfig(VisibleSection):
    """Tokens of the same block, and the last tokens of every block (Child et al. 2019, section 4.2).

    Args:
        size: number of tokens of a block.
        summary: number of tokens at the end of every block that tokens of other blocks see.
    """

    builds: ClassVar[Callable[..., AttentionPattern]] = Fixed
    kind: Literal["fixed"] = "fixed"
    size: AtLeastTwo
    summary: Positive = 1

    @model_validator(mode="after")
    def _fits(self) -> "FixedConfig":
        if self.summary > self.size:
            raise ValueError(f"summary must be at most size={self.size}, got {self.summary}")
        return self


class GlobalConfig(VisibleSection):
    """The first ``n`` tokens see all and are seen by all, others see a window (Beltagy et al. 2020, section
    3.1; in causal attention, the attention sinks of Xiao et al. 2024).

    Args:
        n: number of global tokens.
        size: width of the window.
    """

    builds: ClassVar[Callable[..., AttentionPattern]] = GlobalTokens
    kind: Literal["global"] = "global"
    n: Positive = 1
    size: AtLeastTwo


class TreeConfig(VisibleSection):
    """A token sees itself and its ancestors in a complete tree, whose nodes are numbered level by level: the
    parent of token i > 0 is (i - 1) // branching (Miao et al. 2024, section 4.2).

    Args:
        branching: number of children of each node.
    """

    builds: ClassVar[Callable[..., AttentionPattern]] = Tree
    kind: Literal["tree"] = "tree"
    branching: AtLeastTwo = 2


class MaskConfig(VisibleSection):
    """A table of the tokens that each token sees, for sequences of limited length such as images.

    Args:
        rows: for each token a text with a character for each token: ``1`` if it is visible, else ``0``. In
            cross-attention, rows are target tokens and columns source tokens.
    """

    kind: Literal["mask"] = "mask"
    rows: Annotated[list[Annotated[str, StringConstraints(pattern="^[01]+$")]], Field(min_length=1)]

    @model_validator(mode="after")
    def _is_a_table(self) -> "MaskConfig":
        if len(lengths := {len(row) for row in self.rows}) > 1:
            raise ValueError(f"rows must have the same length, got {min(lengths)} and {max(lengths)}")
        return self

    def build(self) -> Mask:
        """Build the pattern."""
        return Mask(tuple(self.rows))


class CustomVisible(VisibleSection, CustomSection):
    """A custom set of visible tokens: a subclass of `heedful.nn.visibility.AttentionPattern`."""

    contract: ClassVar[type] = AttentionPattern

    def build(self) -> AttentionPattern:
        """Build the pattern."""
        pattern: AttentionPattern = self.instance()
        return pattern


VISIBLE: tuple[type[VisibleSection], ...] = (
    AllConfig,
    WindowConfig,
    BlocksConfig,
    DilatedConfig,
    StridedConfig,
    FixedConfig,
    GlobalConfig,
    TreeConfig,
    MaskConfig,
)
"""Sets of visible tokens; one added here is available in every attention."""

if TYPE_CHECKING:
    VisibleConfig = VisibleSection
else:
    VisibleConfig = by_kind(*VISIBLE, custom=CustomVisible)
