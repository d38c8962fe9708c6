"""Blocks, which mix positions and then channels, and stacks of blocks.

 EncoderBlock             DecoderBlock
┌────────────┐           ┌────────────┐
│ feed-fwd   │           │ feed-fwd   │
│ self-att.  │           │ cross-att. │◄── memory of the encoder's top
└─────▲──────┘           │ causal s.-a│
      x                  └─────▲──────┘
                               x

Taps see the residual stream, ``[T, d]``: ``after_mixer``, ``after_cross_attention``, ``output`` of a block;
``top`` of a stack sees it after the last norm.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.errors import RequestError
from heedful.nn.layout import Layout
from heedful.nn.residual import Residual
from heedful.nn.state import Cache, CachingMixer, Memory, MemoryMixer
from heedful.nn.taps import Tap, taps

AFTER_MIXER, OUTPUT = "residual stream after the position mixer", "residual stream after the block"


class EncoderBlock(nn.Module):
    """``R = FF(Mix(x))``, each with residual and norm (Vaswani et al. 2017, figure 1, left).

    FF is an identity if the mixer also mixes channels, as in a recurrent network.
    """

    def __init__(self, mixer: Residual, feed_forward: Residual | nn.Identity) -> None:
        super().__init__()
        self.mixer, self.after_mixer = mixer, Tap(AFTER_MIXER)
        self.feed_forward, self.output = feed_forward, Tap(OUTPUT)

    def new_cache(self) -> Cache:
        """Return an empty cache of the mixer.

        Raises:
            RequestError: the mixer has none, such as a custom one that was only meant to be trained.
        """
        part = self.mixer.part
        if not isinstance(part, CachingMixer):
            raise RequestError(
                f"{type(part).__name__} has no method new_cache(), so the model cannot generate; see "
                "heedful.nn.state.Cache"
            )
        return part.new_cache()

    def forward(
        self, x: Float[Tensor, "T d"], layout: Layout, cache: Cache | None = None
    ) -> Float[Tensor, "T d"]:
        """Apply the block; with a cache, the tokens continue the cached sequences."""
        return self.output(self.feed_forward(self.after_mixer(self.mixer(x, layout, cache))))


class DecoderBlock(nn.Module):
    """Causal self-attention, cross-attention, feed-forward (Vaswani et al. 2017, figure 1, right)."""

    def __init__(self, mixer: Residual, cross_attention: Residual, feed_forward: Residual) -> None:
        super().__init__()
        self.mixer, self.after_mixer = mixer, Tap(AFTER_MIXER)
        self.cross_attention = cross_attention
        self.after_cross_attention = Tap("residual stream after cross-attention")
        self.feed_forward, self.output = feed_forward, Tap(OUTPUT)

    def make_memory(self, encoded: Float[Tensor, "T_s d_s"], layout: Layout) -> Memory:
        """Return the cross-attention memory of the encoder output."""
        part = self.cross_attention.part
        assert isinstance(part, MemoryMixer)
        return part.make_memory(encoded, layout)

    def forward(
        self, x: Float[Tensor, "T d"], layout: Layout, memory: Memory, cache: Cache | None = None
    ) -> Float[Tensor, "T d"]:
        """Apply the block; with a cache, the tokens continue the cached sequences."""
        x = self.after_mixer(self.mixer(x, layout, cache))
        x = self.after_cross_attention(self.cross_attention(x, layout, memory))
        return self.output(self.feed_forward(x))


Block = TypeVar("Block", bound=nn.Module)


class _Stack(nn.Module, Generic[Block]):
    """Sequence of blocks, followed by a norm."""

    def __init__(self, blocks: Sequence[Block], norm: nn.Module) -> None:
        super().__init__()
        self.blocks, self.norm = nn.ModuleList(blocks), norm
        self.top = Tap("output of the stack")
        self.compiled: Callable[..., Tensor] | None = None
        self._taps: list[list[Tap]] = []

    @property
    def block_list(self) -> list[Block]:
        """The blocks, with their type, which a `ModuleList` does not have."""
        return cast(list[Block], list(self.blocks))

    def compile_blocks(self, backend: str = "inductor") -> None:
        """Compile one block for training; all blocks of the same kind share the graph.

        Decoding stays uncompiled, because its shapes change at every step. Layouts must be prepared
        (`Layout.prepare`).
        """
        self.compiled = torch.compile(_call, dynamic=True, backend=backend)
        self._taps = [[*taps(block).values()] for block in self.blocks]

    def _caller(self, i: int) -> Callable[..., Tensor]:
        """Return the function that calls block i: uncompiled if its taps are in use, which graphs omit."""
        if self.compiled is None or not self.training or any(tap.busy for tap in self._taps[i]):
            return _call
        return self.compiled


def _call(block: nn.Module, *context: object) -> Tensor:
    return block(*context)


class EncoderStack(_Stack[EncoderBlock]):
    """Stack of encoder blocks, followed by a norm (an identity in post-norm stacks)."""

    def forward(
        self, x: Float[Tensor, "T d"], layout: Layout, caches: Sequence[Cache] | None = None
    ) -> Float[Tensor, "T d"]:
        """Apply all blocks; with caches, the tokens continue the cached sequences."""
        for i, block in enumerate(self.blocks):
            x = self._caller(i)(block, x, layout, None if caches is None else caches[i])
        return self.top(self.norm(x))


class DecoderStack(_Stack[DecoderBlock]):
    """Stack of decoder blocks; every block reads the encoder output through its own memory."""

    def make_memory(self, encoded: Float[Tensor, "T_s d_s"], layout: Layout) -> list[Memory]:
        """Return one memory per block."""
        return [block.make_memory(encoded, layout) for block in self.block_list]

    def forward(
        self,
        x: Float[Tensor, "T d"],
        layout: Layout,
        memories: Sequence[Memory],
        caches: Sequence[Cache] | None = None,
    ) -> Float[Tensor, "T d"]:
        """Apply all blocks; with caches, the tokens continue the cached sequences."""
        for i, block in enumerate(self.blocks):
            x = self._caller(i)(block, x, layout, memories[i], None if caches is None else caches[i])
        return self.top(self.norm(x))
