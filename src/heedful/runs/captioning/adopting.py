"""A captioner whose encoder begins as a classifier of images was left: ViT's patches, places and blocks."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from heedful.models.patches import PatchesConfig
from heedful.recipes.trees import Tree
from heedful.runs.warm_start import HEADS, MappedWeights
from heedful.tasks.images import ImageReader

VISION = "vision"
"""The kind of the other model."""

SETTINGS = {*PatchesConfig.model_fields, "d_ff"} - {"kind", "positions"}
"""What a captioner's encoder and a ViT are told alike; the captioner's ``positions`` are those of words."""

PREFIXES = {"embedding.": "source_embedding.", "stack.": "encoder."}
"""Theirs and ours, of the parts that both have."""

CLASS_TOKEN = "embedding.class_token"
POSITIONS = "source_embedding.positions.positions.weight"
WEIGHT, BIAS = (f"source_embedding.patches.projection.{name}" for name in ("weight", "bias"))


def model_section(theirs: Tree) -> Tree:
    """The section ``model`` of a captioner whose encoder is the model of this one.

    Raises:
        ValueError: it mixes patches in another way or in windows, or does not know their places.
    """
    told = theirs.data
    if told.get("mixer", "attention") != "attention":
        raise ValueError(f"mixes patches by {told['mixer']}, and a captioner's encoder by attention")
    if told.get("window") is not None:
        raise ValueError("mixes patches in windows, and a captioner's encoder all of them")
    if told.get("positions", "learned") != "learned":
        raise ValueError("has no table of positions, and a captioner's encoder has one")
    sections = {key: part for key, part in theirs.value.items() if key in SETTINGS}
    if "d_ff" in sections and told["d_ff"] is None:
        sections["d_ff"] = Tree(4 * told["d_model"], sections["d_ff"].mark)
    return Tree({**sections, "kind": Tree("captioner", theirs.mark)}, theirs.mark)


def encoder_weights(held: Mapping[str, Tensor], theirs: ImageReader, ours: ImageReader) -> MappedWeights:
    """A ViT's weights under the names of a captioner, which has no class token and no head for classes.

    Where there is no class token, the encoder computes what the ViT did; where there is one, its patches no
    longer see it.

    Args:
        held: the ViT's weights.
        theirs: how the ViT reads images.
        ours: how the captioner does.
    """
    found = {
        own + name.removeprefix(other): tensor
        for name, tensor in held.items()
        for other, own in PREFIXES.items()
        if name.startswith(other) and name != CLASS_TOKEN
    }
    left = sorted({f"the head {name.split('.')[1]}" for name in held if name.startswith(HEADS)})
    if CLASS_TOKEN in held:
        found[POSITIONS] = found[POSITIONS][1:]
        left = ["the class token and its place", *left]
    found[WEIGHT], found[BIAS] = reread(found[WEIGHT], found[BIAS], theirs, ours)
    return MappedWeights(found, new_parts=("target_embedding.", "decoder."), left=tuple(left))


def reread(
    weight: Float[Tensor, "d n"], bias: Float[Tensor, " d"], theirs: ImageReader, ours: ImageReader
) -> tuple[Float[Tensor, "d n"], Float[Tensor, " d"]]:
    """A projection of patches that makes of our numbers what it made of theirs.

    They read a pixel u as ``x = (u - m) / s``, we as ``y = (u - m') / s'``. So ``x = (s' y + m' - m) / s`` in
    each channel, and ``W x + b = W (s' / s) y + (b + W (m' - m) / s)``.
    """
    m, s, m_own, s_own = (
        torch.tensor(values, dtype=torch.float64).repeat_interleave(weight.shape[1] // len(values))
        for values in (theirs.mean, theirs.std, ours.mean, ours.std)
    )
    old = weight.double()
    return (old * (s_own / s)).to(weight.dtype), (bias.double() + old @ ((m_own - m) / s)).to(bias.dtype)
