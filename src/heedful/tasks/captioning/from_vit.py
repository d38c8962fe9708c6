"""Start a captioner from an image classifier: the ViT's patches, positions and blocks become its encoder."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from heedful.config import Config
from heedful.models.mixers import AttentionConfig
from heedful.models.vision import PatchesConfig, VisionConfig
from heedful.recipes.problems import validate
from heedful.recipes.schema import Recipe
from heedful.recipes.trees import Tree
from heedful.tasks.inputs.images import ImageReader
from heedful.tasks.pretrained import HEADS, MappedWeights, WarmStart, start_image_reader, start_model_kind

VISION = "vision"
"""The kind of the other model."""

SETTINGS = {*PatchesConfig.model_fields, "d_model", "n_layers", "layer", "pattern", "dropout"}
"""The settings that a captioner's encoder shares with a ViT; its ``positions`` are those of words."""

PREFIXES = {"embedding.": "source_embedding.", "stack.": "encoder."}
"""Name prefixes of the parts that both have: the ViT's, the captioner's."""

CLASS_TOKEN = "embedding.class_token"
POSITIONS = "source_embedding.positions.positions.weight"
WEIGHT, BIAS = (f"source_embedding.patches.projection.{name}" for name in ("weight", "bias"))


@runtime_checkable
class ReadsImages(Protocol):
    """A recipe that says how images are read (`heedful.tasks.captioning.task.CaptioningRecipe`)."""

    @property
    def reader(self) -> ImageReader:
        """How images are read."""
        ...


class CaptionerFromViT(WarmStart):
    """A captioner may also start from an image classifier, whose model becomes its encoder."""

    kinds = (VISION,)

    def model(self, theirs: Tree) -> Tree:
        """The section of a ViT becomes that of a captioner."""
        kind = theirs.find(("kind",))
        return model_section(theirs) if kind is not None and kind.data == VISION else theirs

    def weights(self, recipe: Recipe, tensors: Mapping[str, Tensor]) -> MappedWeights:
        """The weights of a ViT become those of the encoder."""
        if start_model_kind(recipe) != VISION:
            return MappedWeights(tensors)
        assert isinstance(recipe, ReadsImages)
        ours = recipe.reader
        theirs = start_image_reader(recipe, ours.size, ours.channels)
        assert theirs is not None
        return encoder_weights(tensors, theirs, ours)


class _WithModel(Config):
    """The section ``model`` of a classifier."""

    model: VisionConfig


def model_section(theirs: Tree) -> Tree:
    """The section ``model`` of a captioner whose encoder is the model of this section.

    Raises:
        RequestError: lists every invalid setting with file and line.
        ValueError: if it mixes patches in another way or in windows, or has no positions.
    """
    config = validate(Tree({"model": theirs}, theirs.mark), _WithModel).model
    for mixer in (layer.mixer for layer in config.layers):
        if not isinstance(mixer, AttentionConfig):
            raise ValueError(f"mixes patches by {mixer.kind}, and a captioner's encoder by attention")
        if mixer.visible.kind != "all":
            raise ValueError("mixes patches in windows, and a captioner's encoder all of them")
    if config.positions.kind != "learned":
        raise ValueError("has no table of positions, and a captioner's encoder has one")
    sections = {key: part for key, part in theirs.value.items() if key in SETTINGS}
    return Tree({**sections, "kind": Tree("captioner", theirs.mark)}, theirs.mark)


def encoder_weights(tensors: Mapping[str, Tensor], theirs: ImageReader, ours: ImageReader) -> MappedWeights:
    """A ViT's weights under the names of a captioner, which has no class token and no head for classes.

    Without a class token, the encoder computes what the ViT did; with one, its patches no longer see it.

    Args:
        tensors: the ViT's weights.
        theirs: how the ViT reads images.
        ours: how the captioner does.
    """
    renamed = {
        own + name.removeprefix(other): tensor
        for name, tensor in tensors.items()
        for other, own in PREFIXES.items()
        if name.startswith(other) and name != CLASS_TOKEN
    }
    left = sorted({f"the head {name.split('.')[1]}" for name in tensors if name.startswith(HEADS)})
    if CLASS_TOKEN in tensors:
        renamed[POSITIONS] = renamed[POSITIONS][1:]
        left = ["the class token and its place", *left]
    renamed[WEIGHT], renamed[BIAS] = convert_projection(renamed[WEIGHT], renamed[BIAS], theirs, ours)
    return MappedWeights(renamed, new_parts=("target_embedding.", "decoder."), left=tuple(left))


def convert_projection(
    weight: Float[Tensor, "d n"], bias: Float[Tensor, " d"], theirs: ImageReader, ours: ImageReader
) -> tuple[Float[Tensor, "d n"], Float[Tensor, " d"]]:
    """Return a projection of patches that maps our numbers to what the old one made of theirs.

    They read a pixel u as ``x = (u - m) / s``, we as ``y = (u - m') / s'``. So ``x = (s' y + m' - m) / s`` in
    each channel, and ``W x + b = W (s' / s) y + (b + W (m' - m) / s)``.
    """
    m, s, m_own, s_own = (
        torch.tensor(values, dtype=torch.float64).repeat_interleave(weight.shape[1] // len(values))
        for values in (theirs.mean, theirs.std, ours.mean, ours.std)
    )
    old = weight.double()
    return (old * (s_own / s)).to(weight.dtype), (bias.double() + old @ ((m_own - m) / s)).to(bias.dtype)
