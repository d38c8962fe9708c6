"""The interface of models."""

from dataclasses import replace

import jaxtyping
import numpy as np
import pytest
import torch

import heedful
from heedful.model_summary.measuring import inputs_of
from heedful.nn.layout import Tokens

PADDED = torch.tensor([[5, 7, 3], [6, 0, 0]])
SOURCE = torch.tensor([[4, 5, 6, 7, 8], [9, 3, 0, 0, 0]])


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
def test_what_is_not_packed_is_refused_with_the_remedy(name, arguments, kind):
    jaxtyping.config.update("jaxtyping_disable", True)  # the checks refuse it before the model does
    model = heedful.build(name) if name.startswith("vit") else heedful.build(name, vocab_size=11)
    with pytest.raises(TypeError, match=rf"got {kind}; pack ids with heedful\.nn\.layout\.Tokens\.of"):
        model(*arguments)


@pytest.mark.parametrize("name", ["transformer-tiny", "rnn-tiny", "char-mini-cpu", "captioner-mini"])
def test_logits_are_the_heads_padded_and_see_no_padding(name):
    torch.manual_seed(0)
    model = heedful.build(name, vocab_size=11).eval()
    lengths, source, of_source = [3, 1], None, None
    read = None
    if name in ("transformer-tiny", "rnn-tiny"):
        source, of_source = SOURCE, [5, 2]
        read = Tokens.from_padded(source, of_source)
    elif name == "captioner-mini":
        _, source = inputs_of(model, 2, 3, 3, "cpu")
        source = read = replace(source, pixels=torch.randn_like(source.pixels))
    with torch.no_grad():
        tokens = Tokens.from_padded(PADDED, lengths)
        expected = tokens.layout.pad(model.heads["token"](model(tokens, read)))
        logits = model.logits(PADDED, lengths, source, of_source)
        assert logits.shape == (2, 3, 11)
        torch.testing.assert_close(logits, expected, rtol=0, atol=0)
        assert not logits[1, 1:].any()
        assert logits[0].any(-1).all()
        other = torch.where(PADDED == 0, 9, PADDED)
        torch.testing.assert_close(model.logits(other, lengths, source, of_source), logits, rtol=0, atol=0)
        lists = None if source is None else source if of_source is None else [[4, 5, 6, 7, 8], [9, 3]]
        torch.testing.assert_close(model.logits([[5, 7, 3], [6]], None, lists), logits, rtol=0, atol=0)
        whole = model.logits(PADDED, None, source, of_source)
        torch.testing.assert_close(whole[0], logits[0])
        assert whole[1].any(-1).all()


def test_logits_that_cannot_be_are_refused():
    model = heedful.build("char-mini-cpu", vocab_size=11)
    with pytest.raises(ValueError, match="lengths must be at most the row length 3, got 4"):
        model.logits(PADDED, [4, 1])
    with pytest.raises(ValueError, match="lengths: expected none for lists"):
        model.logits([[5]], [1])
    with pytest.raises(ValueError, match="no logits of tokens: its heads are "):
        heedful.build("vit-mini").logits(PADDED)
