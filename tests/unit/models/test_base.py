"""The interface of models."""

import numpy as np
import pytest
import torch

import heedful

PADDED = torch.tensor([[5, 7, 3], [6, 0, 0]])


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("transformer-tiny", (PADDED, PADDED), "a Tensor"),
        ("char-mini-cpu", ([[5, 7], [6]],), "a list of 2"),
        ("char-mini-cpu", (PADDED.numpy(),), "a ndarray"),
        ("vit-mini", (torch.zeros(2, 1, 8, 8),), "a Tensor"),
        ("vit-mini", (np.zeros((2, 1, 8, 8)),), "a ndarray"),
    ],
)
@pytest.mark.usefixtures("without_shape_checks")  # which refuse it before the model does
def test_what_is_not_packed_is_refused_with_the_remedy(name, arguments, kind):
    model = heedful.build(name) if name.startswith("vit") else heedful.build(name, vocab_size=11)
    with pytest.raises(TypeError, match=rf"got {kind}; pack ids with heedful\.nn\.layout\.Tokens\.of"):
        model(*arguments)
