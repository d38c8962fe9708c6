"""Label smoothing: what it does to perplexity and to the most probable symbol.

Item 57 of the lectures (what they leave out of the recipe).
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from heedful.data.batch import Batch
from heedful.lab.drawing import Curves
from heedful.lab.experiment import Measured, Series, Size, measures
from heedful.lab.seeds import generator_from, seeded
from heedful.lab.tiny import train
from heedful.nn.layout import Tokens
from heedful.objectives.cross_entropy import NextToken
from heedful.training.optimizers import AdamConfig
from heedful.training.schedules import Cosine

SYMBOLS, LENGTH, BATCH, RATE = 11, 32, 16, 0.2
UPDATES, TESTED = {"short": 150, "long": 1500}, {"short": 400, "long": 4000}


class Bigrams(nn.Module):
    """A table of logits for each previous symbol, which can represent the chain exactly."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(SYMBOLS, SYMBOLS))
        self.heads = nn.ModuleDict({"token": nn.Linear(SYMBOLS, SYMBOLS, bias=False)})
        self.heads["token"].requires_grad_(False).weight.copy_(torch.eye(SYMBOLS))  # type: ignore[operator]

    def forward(self, inputs: Tokens, source: None = None) -> Float[Tensor, "T V"]:
        """Return the logits of the next symbols."""
        return functional.embedding(inputs.ids, self.table)


def transition_probabilities() -> Float[Tensor, "V V"]:
    """Return the probabilities of the next symbol given the previous one; no two are nearly equal."""
    ranks = torch.rand(SYMBOLS, SYMBOLS, generator=generator_from(5)).argsort(-1).argsort(-1)
    weights = (1.0 + ranks.double()) ** -3
    return weights / weights.sum(-1, keepdim=True)


def draw_chains(n: int, generator: torch.Generator) -> Tensor:
    """Draw sequences of `LENGTH` symbols, the first one uniformly."""
    p, rows = transition_probabilities(), torch.empty(n, LENGTH, dtype=torch.int64)
    rows[:, 0] = torch.randint(SYMBOLS, (n,), generator=generator)
    for t in range(1, LENGTH):
        rows[:, t] = torch.multinomial(p[rows[:, t - 1]], 1, generator=generator)[:, 0]
    return rows


@measures("label-smoothing", smoothing=(0.1, 0.0))
def compare_with_and_without_smoothing(size: Size, smoothing: float) -> Series:
    """Train with and without label smoothing on a known chain, and compare on new sequences of it."""
    rates = (0.0, smoothing)
    rows = draw_chains(TESTED[size], generator_from(9))
    previous, targets = rows[:, :-1].reshape(-1), rows[:, 1:].reshape(-1)
    loss, accuracy, entropy, curves = {}, {}, {}, {}
    for rate in dict.fromkeys(rates):
        with seeded(0), torch.no_grad():
            model = Bigrams()
        texts = draw_chains(BATCH * UPDATES[size], generator_from(7)).split(BATCH)
        batches = (Batch.windows(text.numpy()) for text in texts)
        schedule = Cosine(peak=RATE, warmup=20, updates=UPDATES[size])
        training = train(model, NextToken(rate), batches, AdamConfig(), schedule)
        log_probs = model.table.detach().double().log_softmax(-1)
        loss[rate] = -log_probs[previous, targets].mean().item()
        accuracy[rate] = (log_probs.argmax(-1)[previous] == targets).double().mean().item()
        entropy[rate] = -(log_probs.exp() * log_probs).sum(-1)[previous].mean().item()
        curves[f"ε = {rate:g}"] = training.curve
    p = transition_probabilities()
    q = (1 - smoothing) * p + smoothing / SYMBOLS
    least_loss = -(p * q.log()).sum(-1)[previous].mean().item()
    best_accuracy = p.max(-1).values[previous].mean().item()
    perplexity_without, perplexity_with = (math.exp(loss[rate]) for rate in rates)
    return Series(
        {
            "plain": Measured("perplexity without smoothing", perplexity_without),
            "own": Measured("perplexity with the smoothing", perplexity_with, expected=math.exp(least_loss)),
            "unsure": Measured("entropy of the predictions, with the smoothing", entropy[smoothing], "nats"),
            "sure": Measured("entropy of the predictions, without", entropy[0.0], "nats"),
            "right_plain": Measured("right symbols without smoothing", accuracy[0.0], expected=best_accuracy),
            "right_own": Measured(
                "right symbols with the smoothing", accuracy[smoothing], expected=best_accuracy
            ),
            "worse": perplexity_with / perplexity_without - 1,
            "gained": accuracy[smoothing] - accuracy[0.0],
        },
        [
            {"smoothing": rate, "perplexity": math.exp(loss[rate]), "right": accuracy[rate]}
            for rate in dict.fromkeys(rates)
        ],
        [Curves("Loss in training, with its smoothing", "update", "nats per symbol", curves)],
    )
