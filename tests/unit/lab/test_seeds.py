"""Seeds: the same numbers, and no trace."""

import torch

from heedful.lab.seeds import seeded


def test_a_seed_gives_the_same_numbers_and_leaves_the_generator_alone():
    state = torch.get_rng_state()
    with seeded(3):
        first = torch.rand(5)
    assert torch.equal(torch.get_rng_state(), state)
    with seeded(3):
        assert torch.equal(torch.rand(5), first)
    with seeded(4):
        assert not torch.equal(torch.rand(5), first)
