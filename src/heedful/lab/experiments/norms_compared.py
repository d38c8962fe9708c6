"""A small language model with layer norm and with batch norm, as a function of sentences per batch.

Items 37 (layer norm), 38 (batch norm) and 39 (power norm) of the lectures. The sentences are the English side
of the built-in phrasebook; tokens are its words.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass

import torch
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.lab.drawing import Curves, curves_over
from heedful.lab.experiment import Measured, Series, Size, measured_each, measures, named_each, table_of
from heedful.lab.experiments.transfer import data, sentence_batch
from heedful.lab.seeds import cache, generator_from, seeded
from heedful.lab.tiny import draw_from, train, word_model
from heedful.models.language_model import LanguageModel
from heedful.models.stacks import embedding_table
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.blocks import EncoderBlock, EncoderStack
from heedful.nn.feedforward import FeedForward
from heedful.nn.norms import BatchNorm, LayerNorm, PowerNorm
from heedful.nn.positions import SinusoidalPositions
from heedful.nn.residual import PostNorm
from heedful.objectives.cross_entropy import NextToken
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.optimizers import AdamConfig
from heedful.training.schedules import Constant

# Models

D, N_LAYERS = 32, 2
UPDATES, WARMUP, RATE = 600, 30, 3e-3
LAYER, BATCH, POWER = "layer norm", "batch norm", "power norm"
NORMS: dict[str, Callable[[], nn.Module]] = {
    LAYER: lambda: LayerNorm(D),
    BATCH: lambda: BatchNorm(D),
    POWER: lambda: PowerNorm(D, warmup=WARMUP),
}


def model_of(norm: str, seed: int) -> LanguageModel:
    """Build a language model with a norm after each residual connection, as in the lectures; no dropout."""
    with seeded(seed):
        table = embedding_table(data().n_ids, D)
        blocks = [
            EncoderBlock(
                PostNorm(SelfAttention(D, 4, causal=True), NORMS[norm]()),
                PostNorm(FeedForward(D, 2 * D), NORMS[norm]()),
            )
            for _ in range(N_LAYERS)
        ]
        return word_model(table, EncoderStack(blocks, nn.Identity()), SinusoidalPositions(D))


# Batches


def batch_of(predicted: Sequence[Sequence[int]], extra: Sequence[Sequence[int]] = ()) -> Batch:
    """Build a batch of sentences to predict, followed by others that are only read."""
    batch = sentence_batch([*predicted, *extra])
    n_predicted = sum(len(sentence) + 1 for sentence in predicted)
    return Batch(batch.inputs, batch.targets[:n_predicted], None, (), torch.arange(n_predicted))


def batches(n_sentences: int, n_extra: int, seed: int) -> Iterator[Batch]:
    """Yield a batch for each update; the sentences to predict do not depend on the additional ones."""
    sentences = data().plain
    generator, extra_generator = (generator_from(2 * seed + i) for i in range(2))
    for _ in range(UPDATES):
        yield batch_of(
            draw_from(sentences, n_sentences, generator), draw_from(sentences, n_extra, extra_generator)
        )


# Measurements

N_COMPARED = 64
"""Number of sentences on which both modes are compared."""


@dataclass(frozen=True)
class Trained:
    """Results of a training run, in nats per token.

    Args:
        loss: loss on new sentences in evaluation mode.
        evaluated, in_training: loss on some new sentences in each mode, in batches as large as in training.
        distance: distance of the means of such batches from the running means (`error_of_means`); 0 for layer
            norm.
    """

    loss: float
    evaluated: float
    in_training: float
    distance: float

    @property
    def gap(self) -> float:
        """Loss increase from training mode to evaluation mode."""
        return self.evaluated - self.in_training


@cache
def train_and_evaluate(norm: str, n_sentences: int, n_extra: int, seed: int) -> Trained:
    """Train on batches of this many sentences, and evaluate."""
    model = model_of(norm, seed)
    schedule = Constant(RATE, warmup=WARMUP)
    train(model, NextToken(), batches(n_sentences, n_extra, seed), AdamConfig(), schedule)
    sentences = [ids for ids, _ in data().tested]
    test_batches = [
        batch_of(sentences[i : i + n_sentences], data().plain[i : i + n_extra])
        for i in range(0, N_COMPARED, n_sentences)
    ]
    evaluated, in_training = (mean_loss(model, test_batches, training=mode) for mode in (False, True))
    loss, distance = (
        mean_loss(model, [batch_of(sentences)], training=False),
        error_of_means(model, test_batches),
    )
    return Trained(loss, evaluated, in_training, distance)


def mean_loss(model: nn.Module, batches: Sequence[Batch], *, training: bool) -> float:
    """Return the loss in nats per token, computed on a copy so that running statistics are not changed."""
    model_copy = copy.deepcopy(model).train(training)
    step = ModelWithLoss(model_copy, NextToken())
    with torch.no_grad():
        sums = [step(batch, step.counts(batch))[0].item() * len(batch.targets) for batch in batches]
    return sum(sums) / sum(len(batch.targets) for batch in batches)


def error_of_means(model: nn.Module, batches: Sequence[Batch]) -> float:
    """Return ``√ mean ((μ_B - μ) / σ)²`` over features, batch norms and batches.

    μ_B is the mean of a batch, μ and σ are the running statistics. Measured in evaluation mode, so that the
    input of a norm does not depend on batch statistics below it.
    """
    squares: list[float] = []

    def record(norm: BatchNorm, inputs: tuple[Tensor, ...]) -> None:
        off = (inputs[0].mean(0) - norm.running_mean).square() / (norm.running_variance + norm.eps)
        squares.append(off.mean().item())

    hooks = [
        part.register_forward_pre_hook(record) for part in model.modules() if isinstance(part, BatchNorm)
    ]
    mean_loss(model.eval(), batches, training=False)
    for hook in hooks:
        hook.remove()
    return math.sqrt(sum(squares) / len(squares)) if squares else 0.0


# The verdict

SENTENCES: dict[Size, tuple[int, ...]] = {"short": (1, 8), "long": (1, 2, 4, 8, 16, 32)}
SEEDS: dict[Size, int] = {"short": 1, "long": 2}
N_EXTRA = 32


def _mean(runs: Sequence[Trained]) -> Trained:
    return Trained(*(sum(values) / len(runs) for values in zip(*map(astuple, runs))))


@measures("layer-or-batch-norm", n_extra=(0, N_EXTRA))
def compare_losses_by_batch_size(size: Size, n_extra: int) -> Series:
    """Compare losses by sentences per batch; batch norm gets ``n_extra`` more for its statistics."""
    counts, seeds = SENTENCES[size], range(SEEDS[size])
    extra = {LAYER: 0, BATCH: n_extra} | ({POWER: 0} if size == "long" and not n_extra else {})
    runs = {
        norm: [_mean([train_and_evaluate(norm, n, n_extra_of_norm, seed) for seed in seeds]) for n in counts]
        for norm, n_extra_of_norm in extra.items()
    }
    losses, gaps, distances = (
        {norm: [getattr(run, field) for run in by_count] for norm, by_count in runs.items()}
        for field in ("loss", "gap", "distance")
    )
    leads = [batch - layer for layer, batch in zip(losses[LAYER], losses[BATCH], strict=True)]
    first, last = counts[0], counts[-1]
    first_gaps = {norm: by_count[0] for norm, by_count in gaps.items()}
    end_distances = {str(counts[k]): distances[BATCH][k] for k in (0, -1)}
    end_losses = {
        f"{norm}, sentences: {counts[k]}": by_count[k] for k in (0, -1) for norm, by_count in losses.items()
    }
    x, y = "sentences in a batch", "nats per token"
    return Series(
        {
            "of_one": Measured(f"what layer norm takes off the loss, {x}: {first}", leads[0], "nats"),
            "of_most": Measured(f"the same, sentences: {last}", leads[-1], "nats"),
            **measured_each("loss with {}", end_losses, "nats"),
            **measured_each(
                f"from training mode to evaluation, {{}}, sentences: {first}", first_gaps, "nats"
            ),
            **measured_each("batch's means off the running ones, sentences: {}", end_distances, "deviations"),
            "leads": leads,
        },
        table_of(
            {
                "sentences": counts,
                **named_each("loss, {}", losses),
                f"gap, {BATCH}": gaps[BATCH],
                "means off by": distances[BATCH],
            }
        ),
        [
            Curves("Loss on new sentences", x, f"{y}, evaluation mode", curves_over(counts, losses), log="x"),
            Curves("Loss increase from training to evaluation", x, y, curves_over(counts, gaps), log="x"),
            Curves(
                "Batch norm: means of a batch",
                x,
                "distance from running means (σ)",
                curves_over(counts, {BATCH: distances[BATCH]}),
                log="x",
                limits=(0.0, None),
            ),
        ],
    )
