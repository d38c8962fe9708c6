"""Import and export of Vision Transformers (Dosovitskiy et al. 2021) in the format of transformers.

| config.json | heedful's ``model`` |
|---|---|
| hidden_size, num_hidden_layers, num_attention_heads | d_model, n_layers, layer.mixer.n_heads |
| intermediate_size | layer.channels.d_ff |
| image_size, patch_size, num_channels | image_size, patch_size, channels |
| hidden_act gelu, gelu_new, relu … | layer.channels.activation |
| layer_norm_eps | layer.norm.eps |
| hidden_dropout_prob, attention_probs_dropout_prob | dropout, layer.mixer.dropout |
| id2label | the labels |

``preprocessor_config.json`` contains the mean and standard deviation for pixel normalisation. Non-square
images differ: heedful takes a centre crop, transformers squeezes them unless ``do_center_crop`` is set, which
exported folders do.

A ViTModel has no classifier: it becomes a run with a randomly initialised head, to start others from. Its
pooler is dropped.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from torch import nn

from heedful.data.images import IMAGE
from heedful.interop.checkpoint import CONFIG, Checkpoint, Settings
from heedful.interop.configuration import (
    ALIKE,
    Key,
    read_keys,
    read_labels,
    refuse,
    stack_keys,
    unsupported,
    write_keys,
    write_labels,
)
from heedful.interop.format import ExportedModel, ImportedModel, imported_model, recipe_of
from heedful.interop.names import Table, layers, linear, pair, reshaped, write_weights
from heedful.interop.unread import ANY, Harmless
from heedful.models.resnet import ResNetConfig
from heedful.models.vision import VisionConfig
from heedful.recipes.schema import Recipe
from heedful.runs.loading import LoadedRun
from heedful.tasks.image_task import ImageProcessor
from heedful.tasks.inputs.images import ImageReader
from heedful.tasks.inputs.labels import LABEL
from heedful.typing import JsonObject

TASK, READER = "image-classification", "preprocessor_config.json"
_PREFIX, _POOLER = "vit.", r"vit\.pooler\..*"

_HARMLESS: Mapping[str, Harmless] = {
    CONFIG: dict.fromkeys(("encoder_stride", "pooler_output_size", "pooler_act"), ANY),
    READER: dict.fromkeys(
        (
            "image_processor_type", "feature_extractor_type", "processor_class", "do_convert_rgb",
            "data_format", "return_tensors", "device", "default_to_square",
        ),
        ANY,
    ),
}  # fmt: skip

# Number of Pillow's resampling filter.
_BILINEAR = 2

_ATTENTION = "attention.attention"
_LAYER = {
    "mixer.norm": ("layernorm_before",),
    "mixer.part.qkv": (f"{_ATTENTION}.query", f"{_ATTENTION}.key", f"{_ATTENTION}.value"),
    "mixer.part.out": ("attention.output.dense",),
    "feed_forward.norm": ("layernorm_after",),
    "feed_forward.part.up": ("intermediate.dense",),
    "feed_forward.part.down": ("output.dense",),
}


def _read_side(settings: Settings, key: str, default: int) -> int:
    """Read a side length, given as one number or as two equal ones."""
    sides = settings.values.get(key)
    if not isinstance(sides, list):
        return settings.positive_int(key, default)
    settings.keys_read.add(key)
    if len(sides) != 2 or sides[0] != sides[1] or type(sides[0]) is not int or sides[0] < 1:
        raise settings.error(key, f"expected two equal sides (images are square), got {sides}")
    return sides[0]


KEYS = (
    Key("image_size", "image_size", _read_side, 224),
    Key("patch_size", "patch_size", _read_side, 16),
    *stack_keys(dropout=0.0),
    Key("num_channels", "channels", default=3),
)


def table(config: VisionConfig, heads: Collection[str]) -> Table:
    """Return the table of tensor names.

    Args:
        config: configuration of the model.
        heads: names of the heads that exist on both sides.
    """
    d, channels, patch, n = config.d_model, config.channels, config.patch_size, config.n_tokens
    embeddings, patches = f"{_PREFIX}embeddings", f"{_PREFIX}embeddings.patch_embeddings.projection"
    kernel = reshaped((d, channels * patch**2), (d, channels, patch, patch))
    positions = reshaped((n, d), (1, n, d))
    pairs = [
        pair("embedding.class_token", f"{embeddings}.cls_token", form=reshaped((1, d), (1, 1, d))),
        pair("embedding.positions.positions.weight", f"{embeddings}.position_embeddings", form=positions),
        *linear("embedding.patches.projection", patches, weight=kernel),
        *linear("stack.norm", f"{_PREFIX}layernorm"),
        *layers(config.n_layers, "stack", f"{_PREFIX}encoder.layer", _LAYER),
    ]
    if "class" in heads:
        pairs += linear("heads.class.1", "classifier")
    ignored = [] if "class" in heads else [r"heads\.class\..*"]
    return Table(pairs, derived=[_POOLER], prefix=_PREFIX, ignored=ignored)


class ViT:
    """See `heedful.interop.format.Format`."""

    name: ClassVar[str] = "vit"
    harmless: ClassVar[Mapping[str, Harmless]] = _HARMLESS
    loaders: ClassVar[dict[str, str]] = {TASK: "transformers.AutoModelForImageClassification"}

    def read(self, checkpoint: Checkpoint) -> ImportedModel:
        """Read an image classifier."""
        settings, tensors = checkpoint.config, checkpoint.tensors()
        config, labels = _configuration(settings), read_labels(settings)
        reader, notes = _reader(checkpoint, config)
        heads = {"class"} if any(name.startswith("classifier.") for name in tensors) else set()
        if not heads:
            notes.append(
                "the source has no classifier: the head is randomly initialised; use this run to start "
                "others from (start.run), not for predictions"
            )
        if any(name.startswith((f"{_PREFIX}pooler.", "pooler.")) for name in tensors):
            notes.append("the pooler is not imported: heedful's vision models have none")
        task = {"kind": TASK, "labels": list(labels)}
        columns = {IMAGE: IMAGE, LABEL: LABEL}
        data = {"kind": "tsv", "paths": "{}.tsv", "columns": columns, "header": True}
        model = config.model_dump(mode="json")
        recipe = recipe_of("A Vision Transformer", checkpoint, task, data, model=model)
        processor = ImageProcessor(reader, labels)
        return imported_model(checkpoint, recipe, processor, table(config, heads), tensors, notes)

    def obstacles(self, recipe: Recipe, model: nn.Module) -> list[str]:
        """Return all settings of a recipe that the format does not support."""
        config: Any = recipe
        return _unsupported(config.model)

    def write(self, run: LoadedRun) -> ExportedModel:
        """Return a ViTForImageClassification with its image preprocessing."""
        config: VisionConfig = run.recipe.model
        refuse(self.obstacles(run.recipe, run.model))
        content = {
            "architectures": ["ViTForImageClassification"],
            "model_type": "vit",
            **write_keys(config, KEYS),
            "qkv_bias": True,
            "dtype": "float32",
            **write_labels(run.processor.labels),
        }
        content["intermediate_size"] = content["intermediate_size"] or 4 * config.d_model
        files = {READER: json.dumps(_reader_config(run.processor.reader), indent=2) + "\n"}
        return ExportedModel(content, write_weights(table(config, {"class"}), run.model), files)


def _configuration(settings: Settings) -> VisionConfig:
    for architecture in settings.strings("architectures"):
        if architecture == "ViTForMaskedImageModeling":
            raise settings.error("architectures", f"{architecture}: this head is not supported")
    settings.refuse("quantization_config", "quantised weights are not supported", (None,))
    settings.refuse(
        "qkv_bias", "must be true: heedful's attention has biases in all projections", (None, True)
    )
    section = read_keys(settings, KEYS)
    side, patch = section["image_size"], section["patch_size"]
    if side % patch:
        raise settings.error("patch_size", f"{patch} does not divide image_size={side}")
    return VisionConfig(**section)


def _reader(checkpoint: Checkpoint, config: VisionConfig) -> tuple[ImageReader, list[str]]:
    """Read the image preprocessing, with notes about differences; defaults are those of transformers."""
    settings, notes = checkpoint.settings(READER), []
    values = settings.values
    settings.refuse("do_resize", "must be true: heedful resizes images to the model's size", (None, True))
    settings.refuse("do_rescale", "must be true: heedful scales pixels to [0, 1]", (None, True))
    scale = settings.get("rescale_factor", (int, float), 1 / 255)
    if abs(scale * 255 - 1) > 1e-6:
        raise settings.error("rescale_factor", f"must be 1/255 (pixels are scaled to [0, 1]), got {scale}")
    is_cropped, expected = settings.get("do_center_crop", bool, False), {config.image_size}
    # The crop, if any, determines the final size.
    size_key = "crop_size" if is_cropped and "crop_size" in values else "size"
    if not _sides(settings, size_key) <= expected:
        raise settings.error(
            size_key, f"must equal the model's image_size={config.image_size}, got {values[size_key]}"
        )
    if not is_cropped:
        notes.append("non-square images are cropped here, but squeezed in transformers")
    elif not _sides(settings, "size") <= expected:
        notes.append(
            f"{settings.source}: size={values['size']}, of which transformers takes a centre crop; heedful "
            "uses the largest centre square of an image"
        )
    if (resampling := settings.get("resample", int, _BILINEAR)) != _BILINEAR:
        notes.append(
            f"{settings.source}: resample={resampling}: heedful uses bilinear resampling ({_BILINEAR})"
        )
    if settings.get("do_normalize", bool, True):
        mean, std = (_numbers(settings, key, config.channels) for key in ("image_mean", "image_std"))
    else:
        mean, std = (0.0,) * config.channels, (1.0,) * config.channels
    if min(std) <= 0:
        raise settings.error("image_std", f"must be above 0, got {list(std)}")
    return ImageReader(config.image_size, config.channels, mean, std), notes


def _sides(settings: Settings, key: str) -> set[int]:
    """Return the side lengths in a key; empty if it is missing."""
    size = settings.get(key, (int, dict), {})
    return {size} if isinstance(size, int) else {side for side in size.values() if isinstance(side, int)}


def _numbers(settings: Settings, key: str, channels: int) -> tuple[float, ...]:
    values = settings.get(key, list, [0.5] * channels)
    if len(values) != channels or not all(type(value) in (int, float) for value in values):
        raise settings.error(key, f"expected {channels} numbers, one per channel, got {values}")
    return tuple(float(value) for value in values)


def _unsupported(config: VisionConfig | ResNetConfig) -> list[str]:
    """Return the settings of the model that ViT does not support."""
    if not isinstance(config, VisionConfig):
        return [f"model.kind={config.kind}: not supported by ViT: expected kind vision"]
    requirements = {
        **ALIKE,
        "layer.norm_placement": ("pre", "its norms precede the sublayers (pre-norm)"),
        "layer.mixer.score.kind": ("scaled-dot", "it uses scaled dot-product attention"),
        "positions.kind": ("learned", "its positions are learned"),
        "pooling": ("first", "it has a class token"),
    }
    return unsupported(config, "ViT", requirements)


def _reader_config(reader: ImageReader) -> JsonObject:
    """Return the content of preprocessor_config.json: resize the shorter side, then take a centre crop."""
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"shortest_edge": reader.size},
        "resample": _BILINEAR,
        "do_center_crop": True,
        "crop_size": {"height": reader.size, "width": reader.size},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(reader.mean),
        "image_std": list(reader.std),
        "do_convert_rgb": reader.channels == 3,
    }
