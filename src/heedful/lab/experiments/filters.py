"""Filters: attention as a convolution, a convolution as attention, and the cost of pixels as tokens."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from heedful.lab.drawing import Curves, Matrix, curves_over
from heedful.lab.experiment import Measured, Series, Size, measures, table_of
from heedful.lab.seeds import seeded
from heedful.lab.tiny import largest_difference
from heedful.model_summary.summary import ModelSummary, summary_of
from heedful.nn.attention.scores import DotScore
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.layout import Layout
from heedful.nn.mixers import DepthwiseSeparableConvolution
from heedful.nn.taps import recording
from heedful.nn.visibility import Blocks

KERNEL, CHANNELS_IN, CHANNELS_OUT = 3, 3, 5
SHARPNESS = 128.0
NARROW = (3.8, 3.4)  # inches of a panel if three are side by side
ALPHAS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


def convolving_attention(kernel: Tensor, sharpness: float, n_heads: int) -> SelfAttention:
    """Build attention whose head h attends to the neighbour at offset Δ_h; K² heads are a K x K convolution.

        score of the key at position k for the query at q = -α |k - q - Δ_h|²
        = α (2 (q + Δ)_1, 2 (q + Δ)_2, -1) · (k_1, k_2, |k|²) + …

    where … is the same for all keys. Tokens contain their positions as (p_1, p_2, |p|², 1) after their
    features. The values are the features, and the slice of W_O for head h is the kernel's matrix at Δ_h.

    Source: Cordonnier et al. 2020, theorem 1 and section 3.

    Args:
        kernel: ``[C_out, C_in, K, K]``.
        sharpness: α; the larger, the more a head attends to its one neighbour only.
        n_heads: how many of the K² offsets get a head, row by row.
    """
    c_out, c_in, k, _ = kernel.shape
    d = c_in + 4
    x_axis, y_axis, squared_norm, bias = range(c_in, d)
    part = SelfAttention(d, n_heads, d_k=3, d_v=c_in, score=DotScore())
    w_q, w_k, w_v = (torch.zeros(n_heads, rows, d) for rows in (3, 3, c_in))
    w_o = torch.zeros(d, n_heads, c_in)
    for h in range(n_heads):
        row, column = h // k, h % k
        w_q[h, 0, x_axis], w_q[h, 0, bias] = 2 * sharpness, 2 * sharpness * (row - k // 2)
        w_q[h, 1, y_axis], w_q[h, 1, bias] = 2 * sharpness, 2 * sharpness * (column - k // 2)
        w_q[h, 2, bias] = -sharpness
        w_k[h, 0, x_axis] = w_k[h, 1, y_axis] = w_k[h, 2, squared_norm] = 1
        w_v[h, :, :c_in] = torch.eye(c_in)
        w_o[:c_out, h] = kernel[:, :, row, column]
    with torch.no_grad():
        part.qkv.weight.copy_(torch.cat([w.flatten(0, 1) for w in (w_q, w_k, w_v)]))
        part.out.weight.copy_(w_o.flatten(1))
    return part


def _tokens_of_image(image: Tensor) -> Tensor:
    """Convert ``[C, H, W]`` to tokens ``[(H + 2) (W + 2), C + 4]``, with zero padding and positions."""
    padded = functional.pad(image, (1, 1, 1, 1))
    _, height, width = padded.shape
    rows = torch.arange(height).repeat_interleave(width).float()
    columns = torch.arange(width).repeat(height).float()
    places = torch.stack((rows, columns, rows**2 + columns**2, torch.ones_like(rows)), 1)
    return torch.cat((padded.flatten(1).mT, places), 1)


def _apply_to_image(part: SelfAttention, image: Tensor) -> Tensor:
    """Apply attention to the tokens of an image, and remove the padding: ``[C_out, H, W]``."""
    height, width = image.shape[1] + 2, image.shape[2] + 2
    y = part(_tokens_of_image(image), Layout.of([height * width]))
    return y.view(height, width, -1)[1:-1, 1:-1, :CHANNELS_OUT].permute(2, 0, 1)


@measures("convolution-by-heads", n_heads=(KERNEL**2, KERNEL**2 - 1))
@seeded()
@torch.no_grad()
def measure_difference_from_convolution(size: Size, n_heads: int) -> Series:
    """Measure the difference between attention with hand-made weights and a 3 x 3 convolution."""
    height, width = {"short": (7, 9), "long": (15, 17)}[size]
    image = torch.randn(CHANNELS_IN, height, width)
    kernel = torch.randn(CHANNELS_OUT, CHANNELS_IN, KERNEL, KERNEL)
    convolved = functional.conv2d(image[None], kernel, padding=1)[0]

    outputs = {
        alpha: _apply_to_image(convolving_attention(kernel, alpha, n_heads), image)
        for alpha in (*ALPHAS, SHARPNESS)
    }
    errors = {alpha: largest_difference(output, convolved) for alpha, output in outputs.items()}
    differences = [errors[alpha] for alpha in ALPHAS]
    expected = 0.0 if n_heads == KERNEL**2 else None
    return Series(
        {
            "apart": Measured("greatest difference from the convolution", errors[SHARPNESS], "", expected),
            "most": Measured("greatest number in the convolution's output", convolved.abs().max().item()),
            "n_heads": Measured("heads", float(n_heads), expected=float(KERNEL**2)),
            "n_neighbours": KERNEL**2,
        },
        table_of({"sharpness α": ALPHAS, "greatest difference": differences}),
        [
            Matrix("Convolution", "", "", convolved[0].tolist(), inches=NARROW),
            Matrix("Attention", "", "", outputs[SHARPNESS][0].tolist(), inches=NARROW),
            Curves(
                "Difference by sharpness",
                "α",
                "greatest difference",
                curves_over(ALPHAS, {"": [max(each, 1e-8) for each in differences]}),
                log="xy",
                inches=NARROW,
            ),
        ],
    )


# Filters along the tokens

D, HEADS, WIDTH = 12, 4, 5


@torch.no_grad()
def filters_of(part: SelfAttention | DepthwiseSeparableConvolution, x: Tensor) -> Float[Tensor, "d n n"]:
    """Return the filter of each feature for the tokens ``x``.

    Those of attention are the weights of the feature's head; those of a convolution are one row of taps,
    shifted along the tokens.
    """
    n = len(x)
    if isinstance(part, SelfAttention):
        with recording(part, ["weights"]) as activations:
            part(x, Layout.of([n]))
        return activations["weights"][0][0].repeat_interleave(D // HEADS, 0)
    reach, filters = part.kernel // 2, torch.zeros(D, n, n)
    for offset in range(-reach, reach + 1):
        taps = part.depthwise.weight[:, 0, offset + reach]
        filters += taps[:, None, None] * torch.ones(n - abs(offset)).diag(offset)
    return filters


def _feature_mixer(kind: str) -> SelfAttention | DepthwiseSeparableConvolution:
    """Build a mixer that keeps features separate: its matrices across features are the identity."""
    if kind == "convolution":
        part = DepthwiseSeparableConvolution(D, WIDTH, bias=False)
        nn.init.eye_(part.pointwise.weight)
        return part
    attention = SelfAttention(D, HEADS)
    with torch.no_grad():
        attention.qkv.weight[-D:] = torch.eye(D)
        attention.out.weight.copy_(torch.eye(D))
    return attention


@measures("attention-as-filter", kind=("attention", "convolution"))
@seeded()
@torch.no_grad()
def compare_filters_of_two_inputs(size: Size, kind: str) -> Series:
    """Measure whether the filters that a mixer applies along the tokens depend on the tokens."""
    n = {"short": 14, "long": 30}[size]
    part, inputs = _feature_mixer(kind), torch.randn(2, n, D)
    filters = [filters_of(part, x) for x in inputs]
    off = max(
        largest_difference(torch.einsum("cij,jc->ic", matrix, x), part(x, Layout.of([n])))
        for matrix, x in zip(filters, inputs, strict=True)
    )
    different = len({tuple(matrix.flatten().tolist()) for matrix in filters[0]})
    reached = (filters[0][0] != 0).sum(-1).max().item()
    attends = kind == "attention"
    return Series(
        {
            "changes": Measured(
                "change of the coefficients from one input to another",
                largest_difference(*filters),
                expected=None if attends else 0.0,
            ),
            "different": Measured(
                f"different filters for {D} features",
                float(different),
                expected=float(HEADS if attends else D),
            ),
            "off": Measured("difference of filtering and the mixer itself", off, expected=0.0),
            "reached": Measured("tokens that a filter reaches", float(reached)),
        },
        panels=[
            Matrix(title, "input token", "output token", matrix.tolist(), inches=NARROW)
            for title, matrix in (
                ("Feature 0, one input", filters[0][0]),
                ("Feature 0, another input", filters[1][0]),
                (f"Feature {D - 1}, one input", filters[0][-1]),
            )
        ],
    )


# Pixels as tokens

SIDES = (28, 56, 112, 224)
PATCH, BLOCK, D_VIT, HEADS_VIT = 16, 196, 768, 12


def _attention_flops(summary: ModelSummary) -> float:
    """Count the operations of scores and weighted sums for an image."""
    rows = (row for row in summary.lines() if row.line.name in {"scores", "weighted sum"})
    return summary.target_length * sum(row.flops_per_token for row in rows)


def _summary(n_tokens: int, block: int | None = None) -> ModelSummary:
    with torch.device("meta"):
        pattern = None if block is None else Blocks(block)
        part = SelfAttention(D_VIT, HEADS_VIT, pattern=pattern)
        x, layout = torch.empty(n_tokens, D_VIT), Layout.of([n_tokens], device="meta")
    return summary_of(nn.Sequential(part), lambda model: model[0](x, layout), n_tokens)


@measures("pixels-as-tokens", block=(None, BLOCK))
def measure_growth_of_operations(size: Size, block: int | None) -> Series:
    """Measure the growth of the operations of attention if every pixel is a token."""
    pixels = [_attention_flops(_summary(side**2, block)) for side in SIDES]
    patches = _attention_flops(_summary((SIDES[-1] // PATCH) ** 2))
    largest = _summary(SIDES[-1] ** 2, block)
    power = math.log(pixels[-1] / pixels[0]) / math.log((SIDES[-1] / SIDES[0]) ** 2)
    on_pixels, on_patches = largest.flops_per_token * SIDES[-1] ** 2, _summary(196).flops_per_token * 196
    return Series(
        {
            "power": Measured(
                "power of the number of pixels with which scores grow",
                power,
                expected=2.0 if block is None else 1.0,
            ),
            "ratio": Measured(
                "scores and sums, pixels to patches, 224 x 224",
                pixels[-1] / patches,
                expected=65536.0 if block is None else None,
            ),
            "on_pixels": Measured("one layer on pixels, forward", on_pixels / 1e12, "TFLOPs"),
            "on_patches": Measured("one layer on patches, forward", on_patches / 1e12, "TFLOPs"),
            "block": BLOCK,
        },
        table_of(
            {
                "image": [f"{side} x {side}" for side in SIDES],
                "tokens": [side**2 for side in SIDES],
                "FLOPs of scores and sums": pixels,
            }
        ),
        [
            Curves(
                "FLOPs of scores and weighted sums, one layer, one image",
                "side of the image, pixels",
                "FLOPs",
                curves_over(
                    SIDES,
                    {
                        "pixels" if block is None else f"pixels, in blocks of {block}": pixels,
                        "patches of 4 x 4": [_attention_flops(_summary((side // 4) ** 2)) for side in SIDES],
                    },
                ),
                log="xy",
                inches=(5.2, 3.4),
            )
        ],
    )
