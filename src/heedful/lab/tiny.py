"""Training runs of a second or two, and other helpers shared by experiments.

Models are built from the same parts, objectives, optimizers and schedules as large ones.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.utils.flop_counter import FlopCounterMode

from heedful.data.batch import Batch
from heedful.explain.attention_map import AttentionMap, Kind
from heedful.explain.explanation import Explanation
from heedful.explain.patterns.census import Census, census
from heedful.lab.seeds import generator_from, seeded
from heedful.models import language_model
from heedful.models.base import Model
from heedful.models.encoder import Encoder, EncoderConfig
from heedful.models.language_model import LanguageModel, LanguageModelConfig
from heedful.models.mixers import AttentionConfig
from heedful.models.sections import FeedForwardConfig
from heedful.models.stacks import LayerConfig, stack, token_head
from heedful.nn.blocks import EncoderBlock, EncoderStack
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.feedforward import FeedForward
from heedful.nn.layout import Tokens
from heedful.nn.norms import LayerNorm
from heedful.nn.patches import Images
from heedful.nn.positions import Added, Positions
from heedful.nn.residual import PreNorm
from heedful.nn.taps import capture
from heedful.objectives.classification import class_logits
from heedful.objectives.terms import Objective
from heedful.tasks.model_input import INPUT, Axis
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.optimizers import OptimizerConfig, build_optimizer, gradient_norm, set_lr
from heedful.training.schedules import Schedule

Item = TypeVar("Item")


@dataclass(frozen=True)
class Training:
    """Losses and gradient norms by update; training stops early if the loss is NaN or infinite.

    Args:
        losses: loss of each batch before its update, in nats per item.
        norms: norm of all gradients taken as one vector.
    """

    losses: Sequence[float]
    norms: Sequence[float]

    @property
    def curve(self) -> tuple[Sequence[float], Sequence[float]]:
        """Losses over updates, counted from 1, as a curve to draw."""
        return range(1, len(self.losses) + 1), self.losses

    @property
    def end(self) -> float:
        """Mean of the last ten losses; infinite if one of them is NaN or infinite."""
        last = [loss if math.isfinite(loss) else math.inf for loss in self.losses[-10:]]
        return sum(last) / len(last)


def plain_stack(
    d_model: int, n_layers: int, *, causal: bool, placement: Literal["post", "pre"] = "post"
) -> EncoderStack:
    """Build an untrained stack of attention (4 heads) and feed-forward layers (4 d_model hidden units)."""
    family = LanguageModelConfig if causal else EncoderConfig
    layer = LayerConfig(
        mixer=AttentionConfig(n_heads=4, dropout=0.0),
        channels=FeedForwardConfig(d_ff=4 * d_model, activation="relu"),
        norm_placement=placement,
    )
    return stack(family(d_model=d_model, n_layers=n_layers, dropout=0.0, layer=layer), 1)


def attention_taps(name: str, n_layers: int) -> list[str]:
    """Return the names of a self-attention tap (such as "scores" or "weights") in all layers of a stack."""
    return [f"stack.blocks.{layer}.mixer.part.{name}" for layer in range(n_layers)]


def pre_norm_block(mixer: nn.Module, d_model: int, d_ff: int) -> EncoderBlock:
    """Build a block of a mixer and a feed-forward layer, each after a layer norm."""
    feed_forward = FeedForward(d_model, d_ff)
    return EncoderBlock(PreNorm(mixer, LayerNorm(d_model)), PreNorm(feed_forward, LayerNorm(d_model)))


def word_model(
    table: nn.Parameter, stack: EncoderStack, positions: Positions, *, tied: bool = True
) -> LanguageModel:
    """Build a language model with scaled embeddings; the output layer shares their table if ``tied``."""
    n_words, d_model = table.shape
    embedding = TokenEmbedding(table, Added(positions), scale=math.sqrt(d_model))
    return LanguageModel(embedding, stack, token_head(d_model, n_words, table if tied else None))


def symbol_model(n_symbols: int, context: int, *, n_layers: int, n_heads: int, seed: int) -> LanguageModel:
    """Build a causal Transformer of width 32 with learned positions and initial weights."""
    layer = LayerConfig(mixer=AttentionConfig(n_heads=n_heads))
    config = LanguageModelConfig(d_model=32, n_layers=n_layers, layer=layer, context=context, dropout=0.0)
    with seeded(seed):
        return language_model.build(config, n_symbols)


@torch.no_grad()
def attention_weights(model: Encoder | LanguageModel, inputs: Tokens | Images) -> Float[Tensor, "L n H T T"]:
    """Return the self-attention weights of all layers for sequences of equal length."""
    names = attention_taps("weights", len(model.stack.blocks))
    with capture(model, dict.fromkeys(names)) as captured:
        model(inputs)
    return torch.stack([captured[name][-1] for name in names])


def census_of(texts: Iterable[Sequence[str]], kind: Kind, seen: Float[Tensor, "L n H T T"]) -> Census:
    """Take the census of attention patterns (`heedful.explain.patterns.census`) from the weights of texts."""
    heads = tuple(range(seen.shape[2]))
    explanations = []
    for text, own in zip(texts, seen.unbind(1), strict=True):
        maps = [
            AttentionMap(f"layer {n}", kind, n, INPUT, INPUT, heads, layer.numpy())
            for n, layer in enumerate(own)
        ]
        explanations.append(Explanation("lab", "heads", None, {}, {INPUT: Axis(tuple(text))}, maps))
    return census(explanations)


def train(
    model: nn.Module,
    objective: Objective,
    batches: Iterable[Batch],
    optimizer: OptimizerConfig,
    schedule: Schedule,
) -> Training:
    """Train on each batch in turn, and leave the model in evaluation mode."""
    step = ModelWithLoss(model.train(), objective)
    torch_optimizer = build_optimizer(optimizer, model)
    losses: list[float] = []
    norms: list[float] = []
    for update, batch in enumerate(batches, 1):
        loss, _ = step(batch, step.counts(batch))
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            break
        torch_optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norms.append(gradient_norm(model.parameters()).item())
        set_lr(torch_optimizer, schedule.rate(update))
        torch_optimizer.step()
    model.eval()
    return Training(losses, norms)


def minimise(model: nn.Module, losses: Iterable[Tensor], rate: float) -> Iterator[float]:
    """Update the weights with Adam after each loss, and yield its value.

    Args:
        model: its weights are updated.
        losses: must be computed lazily, as by a generator.
        rate: learning rate.
    """
    optimizer = torch.optim.Adam(model.parameters(), rate, fused=True)
    for loss in losses:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def draw_from(items: Sequence[Item], n: int, generator: torch.Generator) -> list[Item]:
    """Draw ``n`` items with replacement."""
    return [items[i] for i in torch.randint(len(items), (n,), generator=generator).tolist()]


def cyclic_sequences(
    n: int, length: int, n_symbols: int, generator: torch.Generator
) -> Int[Tensor, "n length"]:
    """Draw sequences in which each symbol determines the next: a single random cycle through all symbols."""
    order = torch.randperm(n_symbols, generator=generator_from(7))
    first = torch.randint(n_symbols, (n, 1), generator=generator)
    return order[(first + torch.arange(length)) % n_symbols]


@torch.no_grad()
def predicted_classes(model: Model, inputs: Tokens | Images) -> Int[Tensor, " n"]:
    """Return the most probable class of each input."""
    return class_logits(model(inputs), model.heads, inputs.layout).argmax(-1)


def class_accuracy(model: Model, batch: Batch) -> float:
    """Return the share of inputs whose class is predicted correctly."""
    assert batch.classes is not None
    return (predicted_classes(model, batch.inputs) == batch.classes).float().mean().item()


def largest_difference(a: Tensor, b: Tensor) -> float:
    """Return the largest absolute difference of two elements at the same place."""
    return (a - b).abs().max().item()


def relative_difference(value: Tensor, reference: Tensor) -> float:
    """Return the norm of the difference, divided by that of the reference."""
    return ((value - reference).norm() / reference.norm()).item()


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the slope of the least-squares line through the points."""
    return float(np.polyfit(np.asarray(xs, float), np.asarray(ys, float), 1)[0])


def n_parameters(*modules: nn.Module) -> int:
    """Count the learned parameters; shared ones count once."""
    return sum(p.numel() for p in {p for module in modules for p in module.parameters()})


def operations_behind(result: Tensor) -> dict[Node, list[Node]]:
    """Return the operations that autograd recorded for ``result``, in an order in which they can run.

    The values are the operations whose results an operation uses.
    """
    inputs_of: dict[Node, list[Node]] = {}
    pending = [] if result.grad_fn is None else [result.grad_fn]
    while pending:
        node = pending[-1]
        inputs = [input_node for input_node, _ in node.next_functions if input_node is not None]
        missing = [input_node for input_node in inputs if input_node not in inputs_of]
        if missing:
            pending += missing
        else:
            inputs_of[pending.pop()] = inputs
    return inputs_of


# Costs: operation counts, which decide verdicts, and wall times, which are only reported

REPEATS = 7

Argument = TypeVar("Argument")


def flops_of(work: Callable[[], object]) -> int:
    """Count the floating-point operations of the matrix products in ``work``."""
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def milliseconds(work: Callable[[Argument], object], make_argument: Callable[[], Argument]) -> float:
    """Return the shortest of `REPEATS` wall times of ``work``, after one untimed warm-up call.

    The shortest time is the one least disturbed by other processes. Operations are not counted at the same
    time, since counting takes many times longer than the computation itself.

    Args:
        work: function to time; it must not build models.
        make_argument: makes a new argument of ``work`` for each call; its own time is not included.
    """
    work(make_argument())
    times = []
    for _ in range(REPEATS):
        argument = make_argument()
        start = time.perf_counter()
        work(argument)
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)
