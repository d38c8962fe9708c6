"""The character language model: its text, its validation, and the plain training loop as baseline."""

import gzip
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from contenders.plain_gpt import PlainGPT, parameter_groups

LENGTH, BATCH, LAYERS, HEADS, WIDTH = 64, 12, 4, 4, 128
UPDATES, WARM_UP, HIGHEST, LOWEST = 2000, 100, 1e-3, 1e-4


@dataclass(frozen=True, eq=False)
class Text:
    """Character ids of the training and validation text; ids follow the order of code points."""

    characters: str
    train: Tensor
    valid: Tensor

    @classmethod
    def read(cls) -> "Text":
        """Read Shakespeare from ``$HEEDFUL_DATA``."""
        root = os.environ.get("HEEDFUL_DATA")
        if not root:
            raise SystemExit("set HEEDFUL_DATA to the folder that holds tinyshakespeare/train.txt.gz")
        texts = [
            gzip.decompress((Path(root) / "tinyshakespeare" / f"{split}.txt.gz").read_bytes()).decode("ascii")
            for split in ("train", "valid")
        ]
        characters = "".join(sorted(set("".join(texts))))
        ids = {c: i for i, c in enumerate(characters)}
        return cls(characters, *(torch.tensor([ids[c] for c in part]) for part in texts))


@dataclass(frozen=True)
class TrainingOutcome:
    """Time and loss of a training.

    Args:
        seconds: training time without validation.
        loss: final loss on the whole validation text, nats per character.
    """

    seconds: float
    loss: float


@torch.no_grad()
def validate(logits: Callable[[Tensor], Tensor], text: Tensor, length: int = LENGTH) -> float:
    """Return the mean loss over the whole text, in consecutive windows of ``length``."""
    n = (len(text) - 1) // length * length
    inputs, targets = text[:n].view(-1, length), text[1 : n + 1].view(-1, length)
    total = 0.0
    for x, y in zip(inputs.split(128), targets.split(128), strict=True):
        loss = nn.functional.cross_entropy(logits(x).flatten(0, 1).float(), y.flatten(), reduction="sum")
        total += float(loss)
    return total / n


def train_plain(text: Text, seed: int, updates: int = UPDATES) -> TrainingOutcome:
    """Train with the usual loop: fp32, eager, AdamW, cosine decay, gradients clipped to 1."""
    torch.manual_seed(seed)
    model = PlainGPT(len(text.characters), LENGTH, LAYERS, WIDTH, HEADS)
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.1), lr=HIGHEST, betas=(0.9, 0.99))
    start = time.perf_counter()
    for update in range(updates):
        for group in optimizer.param_groups:
            group["lr"] = rate(update, updates)
        offsets = torch.randint(len(text.train) - LENGTH, (BATCH, 1))
        window = text.train[offsets + torch.arange(LENGTH + 1)]
        logits = model(window[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    seconds = time.perf_counter() - start
    return TrainingOutcome(seconds, validate(model.eval(), text.valid))


def rate(update: int, updates: int) -> float:
    """Return the learning rate: linear warm-up, then a cosine down to the lowest rate."""
    if update < WARM_UP:
        return HIGHEST * (update + 1) / (WARM_UP + 1)
    progress = (update - WARM_UP) / max(updates - WARM_UP, 1)
    return LOWEST + (HIGHEST - LOWEST) * (1 + math.cos(math.pi * progress)) / 2
