"""The interface of models: what objectives, decoders and tasks call."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.errors import type_name
from heedful.nn.layout import Tokens
from heedful.nn.patches import Images
from heedful.nn.state import State


class Model(nn.Module):
    """Packed inputs → hidden states ``[T, d]``, from which the named ``heads`` compute logits or vectors.

    It is called as ``model(inputs, source)``; a model without a source is given None. A model that generates
    tokens has ``heads["token"]``, and implements `start` and `extend`.
    """

    heads: nn.ModuleDict

    lowers: ClassVar[bool] = False
    """Whether it can be trained on a copy of its weights in bf16, if no module needs them in fp32."""

    @property
    def alignment_taps(self) -> Sequence[str]:
        """Names of the taps of attention weights over the source, from the first layer to the last."""
        return ()

    def start(self, source: Any) -> State:
        """Read the source and return the initial state; without a source, it is the number of sequences.

        Raises:
            NotImplementedError: if the model does not generate tokens.
        """
        raise NotImplementedError

    def extend(self, tokens: Tokens, state: State) -> tuple[Float[Tensor, "T d"], State]:
        """Append the next tokens to every hypothesis; ``tokens.layout`` must be from `State.next_layout`.

        The state that was passed in must not be used again.

        Raises:
            NotImplementedError: if the model does not generate tokens.
        """
        raise NotImplementedError

    def logits(
        self,
        ids: Int[Tensor, "B S"] | Sequence[Sequence[int]],
        lengths: Sequence[int] | None = None,
        source: Int[Tensor, "B R"] | Sequence[Sequence[int]] | Images | None = None,
        source_lengths: Sequence[int] | None = None,
    ) -> Float[Tensor, "B S V"]:
        """Return logits over the vocabulary at every position, zeros at padding.

        ``logits[b, t]`` is about the token after ``ids[b, : t + 1]`` in a model that generates tokens, and
        about token t itself in a masked language model. Objectives and decoders call `forward`, which returns
        hidden states, and apply the head to the rows that they need.

        Args:
            ids: one list of ids for each sequence, or a tensor ``[B, S]``, right-padded with any id.
            lengths: the number of tokens of each row of a tensor; None: no row has padding.
            source: what the model reads, if it has an encoder: ids as above, or images.
            source_lengths: as ``lengths``, of the source.

        Raises:
            ValueError: the model has no head for tokens, or the lengths do not fit.
        """
        if "token" not in self.heads:
            heads = ", ".join(self.heads) or "none"
            raise ValueError(f"the model has no logits of tokens: its heads are {heads}; call model.heads[…]")
        device = next(self.parameters()).device
        tokens = _packed(ids, lengths, device)
        read: Images | Tokens | None = None
        if isinstance(source, Images):
            read = source.to(device)
        elif source is not None:
            read = _packed(source, source_lengths, device)
        return tokens.layout.pad(self.heads["token"](self(tokens, read)))


def _packed(
    ids: Tensor | Sequence[Sequence[int]], lengths: Sequence[int] | None, device: torch.device
) -> Tokens:
    if isinstance(ids, Tensor):
        return Tokens.from_padded(ids, [ids.shape[1]] * len(ids) if lengths is None else lengths).to(device)
    if lengths is not None:
        raise ValueError("lengths: expected none for lists of ids, which have their own")
    return Tokens.of(ids).to(device)


def check_packed(*inputs: object) -> None:
    """Check that a model is not given plain ids or pixels.

    Raises:
        TypeError: it is.
    """
    for given in inputs:
        if isinstance(given, Tensor | np.ndarray | list | tuple):
            raise TypeError(
                f"expected Tokens or Images, got {type_name(given)}; pack ids with "
                "heedful.nn.layout.Tokens.of([[5, 7], [6]]), or if they are padded [B, S], with "
                "Tokens.from_padded(ids, lengths); and pixels with "
                "heedful.nn.patches.Images.of(pixels, n_tokens)"
            )
