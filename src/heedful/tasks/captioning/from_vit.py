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

    def model(self, section: Tree) -> Tree:
        """Return the section of a ViT as that of a captioner."""
        kind = section.find(("kind",))
        return model_section(section) if kind is not None and kind.data == VISION else section

    def weights(self, recipe: Recipe, tensors: Mapping[str, Tensor]) -> MappedWeights:
        """Return the weights of a ViT as those of the encoder."""
        if start_model_kind(recipe) != VISION:
            return MappedWeights(tensors)
        assert isinstance(recipe, ReadsImages)
        new_reader = recipe.reader
        old_reader = start_image_reader(recipe, new_reader.size, new_reader.channels)
        assert old_reader is not None
        return encoder_weights(tensors, old_reader, new_reader)


class _WithModel(Config):
    """The section ``model`` of a classifier."""

    model: VisionConfig


def model_section(section: Tree) -> Tree:
    """Return the section ``model`` of a captioner whose encoder is the model of this section.

    Raises:
        RequestError: lists every invalid setting with file and line.
        ValueError: if it mixes patches in another way or in windows, or has no positions.
    """
    config = validate(Tree({"model": section}, section.mark), _WithModel).model
    for mixer in (layer.mixer for layer in config.layers):
        if not isinstance(mixer, AttentionConfig):
            raise ValueError(
                f"has layer.mixer.kind={mixer.kind}, but the encoder of a captioner requires attention"
            )
        if mixer.visible.kind != "all":
            raise ValueError(
                f"has layer.mixer.visible.kind={mixer.visible.kind}, but the encoder of a captioner "
                "attends to all patches"
            )
    if config.positions.kind != "learned":
        raise ValueError("has no learned positions, but the encoder of a captioner requires them")
    sections = {key: setting for key, setting in section.value.items() if key in SETTINGS}
    return Tree({**sections, "kind": Tree("captioner", section.mark)}, section.mark)


def encoder_weights(
    tensors: Mapping[str, Tensor], old_reader: ImageReader, new_reader: ImageReader
) -> MappedWeights:
    """Return a ViT's weights under the names of a captioner, which lacks class token and class head.

    Without a class token, the encoder computes what the ViT did; with one, patches no longer attend to it.

    Args:
        tensors: the ViT's weights.
        old_reader: how the ViT reads images.
        new_reader: how the captioner does.
    """
    renamed = {
        new_prefix + name.removeprefix(old_prefix): tensor
        for name, tensor in tensors.items()
        for old_prefix, new_prefix in PREFIXES.items()
        if name.startswith(old_prefix) and name != CLASS_TOKEN
    }
    dropped = sorted({f"the head {name.split('.')[1]}" for name in tensors if name.startswith(HEADS)})
    if CLASS_TOKEN in tensors:
        renamed[POSITIONS] = renamed[POSITIONS][1:]
        dropped = ["the class token and its place", *dropped]
    renamed[WEIGHT], renamed[BIAS] = convert_projection(
        renamed[WEIGHT], renamed[BIAS], old_reader, new_reader
    )
    return MappedWeights(renamed, new_parts=("target_embedding.", "decoder."), dropped=tuple(dropped))


def convert_projection(
    weight: Float[Tensor, "d n"], bias: Float[Tensor, " d"], old_reader: ImageReader, new_reader: ImageReader
) -> tuple[Float[Tensor, "d n"], Float[Tensor, " d"]]:
    """Return the projection of patches that gives the old outputs for images normalised by the new reader.

    The old reader maps a pixel u to ``x = (u - m) / s``, the new one to ``y = (u - m') / s'``. So
    ``x = (s' y + m' - m) / s`` in each channel, and ``W x + b = W (s' / s) y + (b + W (m' - m) / s)``.
    """
    m, s, m_new, s_new = (
        torch.tensor(values, dtype=torch.float64).repeat_interleave(weight.shape[1] // len(values))
        for values in (old_reader.mean, old_reader.std, new_reader.mean, new_reader.std)
    )
    old_weight = weight.double()
    return (old_weight * (s_new / s)).to(weight.dtype), (bias.double() + old_weight @ ((m_new - m) / s)).to(
        bias.dtype
    )
