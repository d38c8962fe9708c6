"""Keys of each block of queries in local attention: its own block and the ``earlier`` blocks before it.

With blocks of b tokens, queries of block i read the w = (earlier + 1) b keys of blocks i - earlier to i, as
far as a causal mask allows (Liu et al. 2018, section 4.2.3; earlier blocks only in the code of its authors).
Axes: n blocks, h heads, b queries, w keys.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heedful.nn.layout import Layout


@dataclass(frozen=True, eq=False)
class BlockWindows:
    """Blocks of queries (`Layout.split_blocks`), each at the end of its window of keys.

    Args:
        queries: the blocks, each at the end of its window.
        keys: the windows.
        missing: which earlier blocks do not exist, the most distant first.
        real: true for keys inside the sequence.
    """

    queries: Layout
    keys: Layout
    missing: Bool[Tensor, "n earlier"]
    real: Bool[Tensor, "n 1 w"]

    @classmethod
    def of(cls, layout: Layout, block: int, earlier: int) -> "BlockWindows":
        """Build the windows of ``layout``, at least one of whose sequences is longer than a block."""
        blocks = layout.split_blocks(block)
        index = torch.tensor([i for n in layout.lengths for i in range(-(-n // block))], device=layout.device)
        missing = index[:, None] < torch.arange(earlier, 0, -1, device=layout.device)
        real = torch.cat([(~missing).repeat_interleave(block, dim=1), blocks.real], dim=1)
        queries = Layout.of(blocks.lengths, [earlier * block] * blocks.n_sequences, layout.device)
        keys = Layout.of([(earlier + 1) * block] * blocks.n_sequences, device=layout.device)
        return cls(queries, keys, missing, real[:, None])

    def with_earlier_blocks(self, x: Float[Tensor, "n h b d"]) -> Float[Tensor, "n h w d"]:
        """Prepend to each block of x the blocks before it in its sequence."""
        blocks, n = [x], self.missing.shape[1]
        for distance in range(1, n + 1):
            # The blocks before a sequence belong to another one: mask them, including any NaN.
            masked = self.missing[:, n - distance, None, None, None]
            blocks.insert(0, x.roll(distance, 0).masked_fill(masked, 0.0))
        return torch.cat(blocks, dim=2)
