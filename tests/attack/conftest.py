"""What attacks share: the real command with its runs, and a source of randomness."""

import random

import pytest
from commands import corpus, heedful, process, transformer  # noqa: F401
from killing import whole  # noqa: F401


@pytest.fixture
def draw(request: pytest.FixtureRequest) -> random.Random:
    """The same numbers in every `make test`; fresh ones with ``--full``, whose seed a failure shows."""
    seed = request.config.getoption("--seed")
    if seed is None:
        seed = random.SystemRandom().getrandbits(32) if request.config.getoption("--full") else 0
    print(f"seed of this attack: {seed} (the same again: --seed {seed})")
    return random.Random(seed)
