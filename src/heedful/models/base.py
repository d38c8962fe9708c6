"""The interface of models: what objectives, decoders and tasks call."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from heedful.errors import type_name
from heedful.nn.layout import Tokens
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
