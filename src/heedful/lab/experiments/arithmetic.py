"""Counting: shapes of printed formulas, parameters and layers of models, and the backward pass.

Items 20, 22, 24, 32 to 35 (shapes and parameters), 52 (layers), 71, 77 and 87 (sizes of models), 96 and 97
(the backward pass) of the lectures. The counts come from heedful's own model summary. Operation counts
decide; wall times are only reported.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import eq

import torch
from torch import Tensor

from heedful.lab.drawing import Bars
from heedful.lab.experiment import Measured, Series, Size, measured_each, measures, table_of
from heedful.lab.seeds import cache, seeded
from heedful.lab.tiny import flops_of, milliseconds, plain_stack
from heedful.model_summary.lines import Line
from heedful.model_summary.summary import ModelSummary, Row, describe
from heedful.models.registry import preset
from heedful.models.stacks import StackConfig
from heedful.models.transformer import TransformerConfig
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.layout import Layout

BASE, BIG = "transformer-base", "transformer-big"
"""The two Transformers of Vaswani et al. 2017, by the names of their presets."""


# Formulas whose shapes do not fit, as printed and as corrected


@dataclass(frozen=True)
class Shape:
    """A printed formula whose factors do not give the right shape.

    Args:
        lecture: S0 to S4.
        printed, correct: the formulas.
        expected: the shape that the result must have.
        as_printed, corrected: compute the shape; raise ValueError or RuntimeError if the factors do not fit.
    """

    lecture: str
    printed: str
    correct: str
    expected: tuple[int, ...]
    as_printed: Callable[[], Sequence[int]]
    corrected: Callable[[], Sequence[int]]


def _m(*shape: int) -> Tensor:
    """Create a matrix without data; only its shape matters."""
    return torch.empty(shape, device="meta")


# 7 words, d = 24, 4 heads of width 6; a feed-forward layer of width 96.
SHAPES = (
    Shape(
        "S4",
        "q_i is the i-th column of Q",
        "q_i is the i-th row of Q",
        (6,),
        lambda: _m(7, 6)[:, 0].shape,
        lambda: _m(7, 6)[0].shape,
    ),
    Shape(
        "S4",
        "softmax(Q_k^T / √d_k) v",
        "softmax(Q K^T / √d_k) V",
        (7, 6),
        lambda: (_m(7, 6).T @ _m(7, 6)).shape,
        lambda: (_m(7, 6) @ _m(7, 6).T @ _m(7, 6)).shape,
    ),
    Shape(
        "S1",
        "X W_h^Q with W_h^Q of N x d/H",
        "W_h^Q of d x d/H",
        (7, 6),
        lambda: (_m(7, 24) @ _m(7, 6)).shape,
        lambda: (_m(7, 24) @ _m(24, 6)).shape,
    ),
    Shape(
        "S1",
        "d = 768 and H = 10 in the original paper",
        "d = 512 and H = 8",
        (64,),
        lambda: (_head_width(768, 10),),
        lambda: (_head_width(512, 8),),
    ),
    Shape(
        "S2",
        "each head has its W_i^O of h d_v x d_model",
        "one W^O, of all heads together",
        (7, 24),
        lambda: (_m(7, 6) @ _m(24, 24)).shape,
        lambda: (torch.cat([_m(7, 6)] * 4, -1) @ _m(24, 24)).shape,
    ),
    Shape(
        "S0",
        "max(0, W_1 z + b_1) W_2 + b_2 with z a column",
        "W_2 max(0, W_1 z + b_1) + b_2",
        (24, 1),
        lambda: ((_m(96, 24) @ _m(24, 1) + _m(96, 1)).relu() @ _m(24, 96) + _m(24, 1)).shape,
        lambda: (_m(24, 96) @ (_m(96, 24) @ _m(24, 1) + _m(96, 1)).relu() + _m(24, 1)).shape,
    ),
)


def _head_width(d_model: int, n_heads: int) -> int:
    with torch.device("meta"):
        return SelfAttention(d_model, n_heads).d_k


def shape_of(attempt: Callable[[], Sequence[int]]) -> tuple[int, ...] | None:
    """Return the shape of the result, or None if the factors do not fit."""
    try:
        return tuple(attempt())
    except (RuntimeError, ValueError):
        return None


@measures("printed-shapes", printed=(True, False))
def compare_shapes_of_formulas(size: Size, *, printed: bool) -> Series:
    """Compute the shapes of the formulas, as printed or corrected, and compare them with the right ones."""
    shapes = {
        "as printed": [shape_of(formula.as_printed) for formula in SHAPES],
        "corrected": [shape_of(formula.corrected) for formula in SHAPES],
    }
    expected, n = [formula.expected for formula in SHAPES], len(SHAPES)
    n_right = {version: sum(map(eq, computed, expected)) for version, computed in shapes.items()}
    version = "as printed" if printed else "corrected"
    n_unfit = shapes[version].count(None)
    return Series(
        {
            "n_right": Measured("formulas that give the shape that they should", n_right[version], "", n),
            "nothing": Measured("formulas whose factors do not fit", n_unfit, expected=0.0),
            "n_formulas": n,
        },
        table_of(
            {
                "lecture": [formula.lecture for formula in SHAPES],
                "printed": [formula.printed for formula in SHAPES],
                "correct": [formula.correct for formula in SHAPES],
                "wanted": map(_format_shape, expected),
                "comes out": map(_format_shape, shapes[version]),
            }
        ),
        [Bars("Formulas that give the right shape", "", "formulas", n_right, levels={"all": float(n)})],
    )


def _format_shape(shape: tuple[int, ...] | None) -> str:
    return "nothing" if shape is None else " x ".join(map(str, shape))


# Matrices, layers, models


@cache
def summary(name: str, *overrides: str) -> ModelSummary:
    """Return the summary of a preset, with some of its values changed."""
    return describe(name, overrides=overrides)


def rows_of(model_summary: ModelSummary, name: str) -> list[Row]:
    """Return all rows with this name.

    Raises:
        KeyError: there is no such row.
    """
    rows = [row for row in model_summary.lines() if row.line.name == name]
    if not rows:
        raise KeyError(name)
    return rows


@measures("head-matrix", printed=({"one head": 32_178}, {"one head": 32_768, "eight heads": 262_144}))
def compare_parameters_of_query_matrix(size: Size, printed: Mapping[str, int]) -> Series:
    """Compare a number printed for W_Q, of one head or of all, with the model summary."""
    line = rows_of(summary(BASE), "W_Q")[0].line
    counts = {"one head": line.each, "eight heads": line.parameters}
    counts_of_printed = {part: counts[part] for part in printed}
    bars = {"printed: 32,178": 32_178, "counted: 32,768": line.each}
    return Series(
        {
            **measured_each("parameters of W_Q, {}", counts_of_printed, expected=printed),
            "eight": Measured("eight times what is printed for one head", 8.0 * 32_178, expected=262_144.0),
            "n_wrong": sum(counts[part] != number for part, number in printed.items()),
        },
        table_of({"what": counts, "counted": counts.values()}),
        [Bars("W_Q of one head", "", "parameters", bars)],
    )


def _layer_of(name: str, side: str) -> tuple[Line, Line, dict[str, int]]:
    """Return a layer of a preset, the same with biases in attention, and the parameters of its parts."""
    summaries = summary(name), summary(name, "layer.mixer.bias=true")
    layer, biased = (rows_of(summary_of_layer, f"{side} layer")[0].line for summary_of_layer in summaries)
    return layer, biased, {part.name: part.parameters for part in layer.parts}


@measures("encoder-parameters", name=(BASE, BIG))
def compare_parameters_of_encoder(size: Size, name: str) -> Series:
    """Compare 3 million per layer and 18 million for six layers with a model."""
    layer, biased, parts = _layer_of(name, "encoder")
    encoder = rows_of(summary(name), "encoder")[0].line
    return Series(
        {
            "layer": Measured("parameters of an encoder layer", layer.each, expected=3_150_336.0),
            "biased": Measured("with biases in attention", biased.each, expected=3_152_384.0),
            "encoder": Measured("parameters of the encoder", encoder.parameters, expected=18e6),
            **measured_each("of a layer: {}", parts),
        },
        table_of({"part": parts, "parameters": parts.values()}),
        [Bars(f"An encoder layer of {name}", "", "parameters", parts)],
    )


@measures("decoder-parameters", name=(BASE, BIG))
def compare_parameters_of_decoder(size: Size, name: str) -> Series:
    """Compare 4 million per decoder layer, 1 per attention and 2 per feed-forward layer with a model."""
    layer, biased, parts = _layer_of(name, "decoder")
    printed = {"causal self-attention": 1e6, "cross-attention": 1e6, "feed-forward": 2e6}
    return Series(
        {
            "layer": Measured("parameters of a decoder layer", layer.each, expected=4_199_936.0),
            "biased": Measured("with biases in attention", biased.each, expected=4_204_032.0),
            **measured_each("of a layer: {}", parts, expected=dict.fromkeys(parts, 0.0) | printed),
            "parts": parts,
        },
        table_of({"part": parts, "parameters": parts.values()}),
        [Bars(f"A decoder layer of {name}", "", "parameters", parts)],
    )


@measures("forty-two-layers", name=(BASE, "transformer-tiny"))
def count_layers(size: Size, name: str) -> Series:
    """Count one layer for each attention, and two for each feed-forward network."""
    config = preset(name)
    assert isinstance(config, TransformerConfig)
    encoder, decoder = config.n_layers, config.n_decoder_layers or config.n_layers
    n = {"encoder": 3 * encoder, "decoder": 4 * decoder, "both": summary(name).layers}
    return Series(
        {
            "layers": Measured("layers", n["both"], expected=42.0),
            "encoder": Measured("of the encoder", n["encoder"]),
            "decoder": Measured("of the decoder", n["decoder"]),
        },
        panels=[Bars(f"Layers of {name}", "", "layers", n, levels={"printed: 42": 42.0})],
    )


PRINTED = {"bert-base": 110e6, "bert-large": 340e6, "vit-b-16": 86e6, "vit-l-16": 307e6, "vit-h-14": 632e6}
"""Sizes printed in the papers (Devlin et al. 2019, section 3; Dosovitskiy et al. 2021, table 1)."""
BERT_VOCABULARY = 30_522


@measures("published-sizes", more_layers=(0, 1))
def compare_published_sizes(size: Size, more_layers: int) -> Series:
    """Compare the sizes printed in papers with models of their configurations."""
    counts = {}
    for name in PRINTED:
        config = preset(name)
        assert isinstance(config, StackConfig)
        changed_config = config.changed(n_layers=config.n_layers + more_layers)
        n_words = BERT_VOCABULARY if name.startswith("bert") else None
        counts[name] = describe(changed_config, vocab_size=n_words).parameters
    errors = {name: abs(counts[name] / printed - 1) for name, printed in PRINTED.items()}
    return Series(
        {**measured_each("parameters of {}", counts, expected=PRINTED), "most": max(errors.values())},
        table_of(
            {
                "model": PRINTED,
                "printed": PRINTED.values(),
                "counted": counts.values(),
                "error": errors.values(),
            }
        ),
        [Bars("Error of the printed sizes", "", "relative error", errors, levels={"2 %": 0.02})],
    )


# The backward pass: a quiz


def quiz_gradients() -> dict[str, float]:
    """Compute the gradients of L = (a c + b) (c / d) at a = 3, b = 1, c = -4, d = 2 with autograd."""
    leaves = {
        name: torch.tensor(gradient, dtype=torch.float64, requires_grad=True)
        for name, gradient in (("a", 3.0), ("b", 1.0), ("c", -4.0), ("d", 2.0))
    }
    a, b, c, d = leaves.values()
    e, f = a * c + b, c / d
    gradients = torch.autograd.grad(e * f, [*leaves.values(), e, f])
    return {name: gradient.item() for name, gradient in zip([*leaves, "e", "f"], gradients, strict=True)}


AS_PRINTED = {"a": 8.0, "b": -2.0, "c": -11.5, "d": 11.0}
CORRECT = {**AS_PRINTED, "d": -11.0}


@measures("autograd-quiz", answers=(AS_PRINTED, CORRECT))
def compare_answers_with_autograd(size: Size, answers: Mapping[str, float]) -> Series:
    """Compare the answers of the quiz with autograd."""
    gradients = quiz_gradients()
    names = sorted(answers, key=lambda name: name != "d")
    gradients_in_order = {name: gradients[name] for name in names}
    x, letters = "gradient of L with respect to", "abcd"
    return Series(
        {
            **measured_each("∂L/∂{}", gradients_in_order, expected=answers),
            "n_wrong": sum(not math.isclose(gradients[name], answer) for name, answer in answers.items()),
        },
        table_of(
            {"by": answers, "printed": answers.values(), "autograd": [gradients[name] for name in answers]}
        ),
        [
            Bars("Printed answers", x, "", {name: answers[name] for name in letters}),
            Bars("Autograd", x, "", {name: gradients[name] for name in letters}),
        ],
    )


# Forward and backward


@measures("backward-cost", weights=(True, False))
def measure_cost_of_backward_pass(size: Size, *, weights: bool) -> Series:
    """Count the operations of matrix products in both passes through an encoder, and report wall times."""
    d, n = (256, 64) if size == "short" else (512, 128)
    with seeded(0):
        stack = plain_stack(d, 2, causal=False).requires_grad_(weights)
        x = torch.randn(n, d, requires_grad=True)
    layout, inputs = Layout.of([n]), [x, *(stack.parameters() if weights else ())]

    def forward() -> Tensor:
        return stack(x, layout).sum()

    def backward(result: Tensor) -> None:
        torch.autograd.grad(result, inputs)

    result = forward()
    counts = {"forward": flops_of(forward), "backward": flops_of(partial(backward, result))}
    times = {
        "forward": milliseconds(lambda _: forward(), lambda: None),
        "backward": milliseconds(backward, forward),
    }
    ratio = counts["backward"] / counts["forward"]
    return Series(
        {
            "ratio": Measured("operations backward to forward", ratio, expected=2.0),
            **measured_each("{}", counts, "FLOPs"),
        },
        table_of({"pass": counts, "FLOPs": counts.values(), "ms": times.values()}),
        [
            Bars(
                "Matrix products of two encoder layers",
                "",
                "FLOPs",
                {name: float(count) for name, count in counts.items()},
                levels={"twice forward": 2.0 * counts["forward"]},
            ),
            Bars("Wall time here (not used for the verdict)", "", "ms", times),
        ],
    )
