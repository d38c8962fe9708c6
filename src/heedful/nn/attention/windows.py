"""Windows over blocks: the keys that local attention needs beside each block of queries."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heedful.nn.layout import Layout


@dataclass(frozen=True, eq=False)
class Window:
    """Blocks of tokens (`Layout.cut`), and for each a window over itself and the blocks before it.

    Args:
        queries: the blocks, each placed at the end of its window.
        keys: the windows.
        missing: of the earlier blocks, the most distant first, which do not exist.
        real: which keys do.
    """

    queries: Layout
    keys: Layout
    missing: Bool[Tensor, "n earlier"]
    real: Bool[Tensor, "n 1 w"]

    @classmethod
    def of(cls, layout: Layout, block: int, earlier: int) -> "Window":
        """The windows over the blocks of ``layout``, some of whose sequences are longer than a block."""
        cut = layout.cut(block)
        place = torch.tensor([i for n in layout.lengths for i in range(-(-n // block))], device=layout.device)
        missing = place[:, None] < torch.arange(earlier, 0, -1, device=layout.device)
        real = torch.cat([(~missing).repeat_interleave(block, dim=1), cut.real], dim=1)
        queries = Layout.of(cut.lengths, [earlier * block] * cut.n_sequences, layout.device)
        keys = Layout.of([(earlier + 1) * block] * cut.n_sequences, device=layout.device)
        return cls(queries, keys, missing, real[:, None])

    def over(self, x: Float[Tensor, "n h b d"]) -> Float[Tensor, "n h w d"]:
        """Before each block of x, those that come before it in its sequence."""
        parts, n = [x], self.missing.shape[1]
        for back in range(1, n + 1):
            # What lies before a sequence belongs to another one: nothing of it may pass, not even a NaN.
            gone = self.missing[:, n - back, None, None, None]
            parts.insert(0, x.roll(back, 0).masked_fill(gone, 0.0))
        return torch.cat(parts, dim=2)
