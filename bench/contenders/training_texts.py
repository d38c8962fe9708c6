"""Contenders that train language models, and their benchmark."""

from contenders import ours
from contenders.texts import peers
from harness.contender import Contender
from harness.flops import Shape, language_model
from harness.training import Claim


def contenders(shape: Shape, dropout: float, rounds: int, device: str) -> list[Contender]:
    """Return heedful and the peers."""
    return ours.training_texts(shape, dropout, rounds, device) + peers(shape, dropout, rounds, device)


def claim(name: str, title: str, shape: Shape) -> Claim:
    """Return the benchmark of training steps on windows of text: forward, backward, update."""
    lengths = [shape.length] * shape.batch
    tokens, flops = sum(lengths), language_model(shape, lengths)
    return Claim(name, title, contenders, shape, ours.prepare, lambda number: tokens, lambda number: flops)
