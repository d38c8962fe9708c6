"""Steps with weights over the source: those of the explicit path, and the same logits as without them."""

import torch

from heedful.nn.layout import Tokens
from heedful.nn.taps import recording
from heedful.tasks.generation import generator as module
from heedful.tasks.generation.generator import Generator

SOURCE = Tokens.of([[7, 8, 9, 2], [2], [10, 11, 2]])
PREFIXES = Tokens.of([[1, 5], [1], [1, 6, 7]])


@torch.no_grad()
def steps(model, *, attention=True):
    """After the prefixes, two steps of two hypotheses for each sentence, the second from other rows."""
    generator = Generator(model, attention=attention)
    first = generator.prefill(SOURCE, PREFIXES)
    second = generator.step(torch.arange(5, 11), first.state.expand(2), None)
    return first, second, generator.step(torch.arange(9, 15), second.state, torch.tensor([1, 0, 2, 2, 5, 4]))


def test_weights_of_steps_are_those_of_the_explicit_path(translator, monkeypatch):
    observed = steps(translator)
    monkeypatch.setattr(module, "capture", recording)
    for one, other, n in zip(observed, steps(translator), (3, 6, 6), strict=True):
        assert one.attention.shape == (n, 4)
        torch.testing.assert_close(one.attention, other.attention, rtol=0.0, atol=1e-6)
        torch.testing.assert_close(one.attention.sum(-1), torch.ones(n))
        torch.testing.assert_close(one.logits, other.logits, rtol=1e-5, atol=1e-5)


def test_looking_at_the_weights_changes_no_logit(translator):
    for one, other in zip(steps(translator), steps(translator, attention=False), strict=True):
        assert other.attention is None
        assert torch.equal(one.logits, other.logits)
