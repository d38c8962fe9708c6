"""Contenders that train encoder-decoders, and their benchmark."""

from contenders import ours
from contenders.pairs import peers
from harness.batches import pairs
from harness.contender import Contender
from harness.flops import Shape, encoder_decoder
from harness.training import Claim


def contenders(shape: Shape, dropout: float, rounds: int, device: str) -> list[Contender]:
    """Return heedful and the peers."""
    return ours.training_pairs(shape, dropout, rounds, device) + peers(shape, dropout, rounds, device)


def claim(name: str, title: str, shape: Shape) -> Claim:
    """Return the benchmark of training steps on sentence pairs: forward, backward, update."""

    def tokens(number: int) -> int:
        return sum(map(len, pairs(shape, number + 1)[number].targets))

    def flops(number: int) -> int:
        batch = pairs(shape, number + 1)[number]
        return encoder_decoder(shape, [*map(len, batch.sources)], [*map(len, batch.targets)])

    return Claim(name, title, contenders, shape, ours.prepare, tokens, flops)
