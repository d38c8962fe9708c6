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
from collections.abc import Collection
from typing import Any, ClassVar

from heedful.data.images import IMAGE
from heedful.errors import RequestError
from heedful.interop.checkpoint import HARMLESS, Checkpoint, Settings
from heedful.interop.encoders import (
    fresh,
    labels_of,
    recipe_of,
    stack_of,
    written_labels,
    written_stack,
)
from heedful.interop.format import ExportedModel, ImportedModel
from heedful.interop.names import Pair, Reshaped, Table, give, linear, pair, take
from heedful.interop.refusing import ALIKE, refuse_other_heads, refuse_others
from heedful.models.vision import VisionConfig
from heedful.runs.run import Run
from heedful.tasks.image_classification import ImageProcessor
from heedful.tasks.images import ImageReader
from heedful.tasks.labels import LABEL
from heedful.typing import JsonMapping, JsonObject

TASK, READER = "image-classification", "preprocessor_config.json"
_OWN, _POOLER = "vit.", r"vit\.pooler\..*"

_HARMLESS = HARMLESS | {"encoder_stride", "pooler_output_size", "pooler_act"}

# Number of Pillow's resampling filter.
_BILINEAR = 2


def table(config: VisionConfig, heads: Collection[str]) -> Table:
    """Return the table of tensor names.

    Args:
        config: configuration of the model.
        heads: names of the heads that exist on both sides.
    """
    d, channels, patch = config.d_model, config.channels, config.patch_size
    embeddings = f"{_OWN}embeddings"
    kernel = Reshaped((d, channels * patch**2), (d, channels, patch, patch))
    pairs = [
        pair("embedding.class_token", f"{embeddings}.cls_token", form=Reshaped((1, d), (1, 1, d))),
        pair(
            "embedding.positions.positions.weight",
            f"{embeddings}.position_embeddings",
            form=Reshaped((config.n_tokens, d), (1, config.n_tokens, d)),
        ),
        pair(
            "embedding.patches.projection.weight",
            f"{embeddings}.patch_embeddings.projection.weight",
            form=kernel,
        ),
        pair("embedding.patches.projection.bias", f"{embeddings}.patch_embeddings.projection.bias"),
        *linear("stack.norm", f"{_OWN}layernorm"),
    ]
    for i in range(config.n_layers):
        pairs += _layer(f"stack.blocks.{i}", f"{_OWN}encoder.layer.{i}")
    if "class" in heads:
        pairs += linear("heads.class.1", "classifier")
    left = [] if "class" in heads else [r"heads\.class\..*"]
    return Table(pairs, derived=[_POOLER], prefix=_OWN, left=left)


def _layer(ours: str, theirs: str) -> list[Pair]:
    attention = f"{theirs}.attention"
    return [
        *linear(f"{ours}.mixer.norm", f"{theirs}.layernorm_before"),
        *linear(f"{ours}.mixer.part.qkv", *(f"{attention}.attention.{x}" for x in ("query", "key", "value"))),
        *linear(f"{ours}.mixer.part.out", f"{attention}.output.dense"),
        *linear(f"{ours}.feed_forward.norm", f"{theirs}.layernorm_after"),
        *linear(f"{ours}.feed_forward.part.up", f"{theirs}.intermediate.dense"),
        *linear(f"{ours}.feed_forward.part.down", f"{theirs}.output.dense"),
    ]


class ViT:
    """See `heedful.interop.format.Format`."""

    name: ClassVar[str] = "vit"
    loaders: ClassVar[dict[str, str]] = {TASK: "transformers.AutoModelForImageClassification"}

    def read(self, checkpoint: Checkpoint) -> ImportedModel:
        """Read an image classifier."""
        settings, held = checkpoint.config, checkpoint.tensors()
        config, labels = _configuration(settings), labels_of(settings)
        reader, notes = _reader(checkpoint, config)
        heads = {"class"} if any(name.startswith("classifier.") for name in held) else set()
        if not heads:
            notes.append(
                "the source has no classifier: the head is randomly initialised; use this run to start "
                "others from (start.run), not for predictions"
            )
        if any(name.startswith((f"{_OWN}pooler.", "pooler.")) for name in held):
            notes.append("the pooler is not imported: heedful's vision models have none")
        if unread := settings.unread(_HARMLESS):
            notes.append(f"{settings.source}: unknown keys, ignored: {', '.join(unread)}")
        task = {"kind": TASK, "labels": list(labels)}
        columns = {IMAGE: IMAGE, LABEL: LABEL}
        data = {"kind": "tsv", "paths": "{}.tsv", "columns": columns, "header": True}
        plain = recipe_of(
            "A Vision Transformer", checkpoint, task, data, model=config.model_dump(mode="json")
        )
        processor = ImageProcessor(reader, labels)
        model = fresh(plain, checkpoint, held, processor.sizes)
        give(table(config, heads), held, model, str(checkpoint.weights))
        return ImportedModel(plain, processor, model, notes)

    def write(self, run: Run) -> ExportedModel:
        """Return a ViTForImageClassification with its image preprocessing."""
        config: Any = run.recipe.model
        _refuse(config)
        tensors = take(table(config, {"class"}), run.model)
        files = {READER: json.dumps(_written_reader(run.processor.reader), indent=2) + "\n"}
        return ExportedModel({**_written(config), **written_labels(run.processor.labels)}, tensors, files)


def _configuration(settings: Settings) -> VisionConfig:
    """Read the model configuration."""
    for architecture in settings.texts("architectures"):
        if architecture == "ViTForMaskedImageModeling":
            raise settings.wrong("architectures", f"{architecture}: this head is not supported")
    settings.refuse("quantization_config", "quantised weights are not supported", (None,))
    settings.refuse(
        "qkv_bias", "must be true: heedful's attention has biases in all projections", (None, True)
    )
    side, patch = _square(settings, "image_size", 224), _square(settings, "patch_size", 16)
    if side % patch:
        raise settings.wrong("patch_size", f"{patch} does not divide image_size={side}")
    return VisionConfig(
        **stack_of(settings, 0.0),
        image_size=side,
        patch_size=patch,
        channels=settings.whole("num_channels", 3),
        dropout=settings.rate("hidden_dropout_prob", 0.0),
    )


def _square(settings: Settings, key: str, default: int) -> int:
    """Read a side length, given as one number or as two equal ones."""
    sides = settings.values.get(key)
    if not isinstance(sides, list):
        return settings.whole(key, default)
    settings.known.add(key)
    if len(sides) != 2 or sides[0] != sides[1] or type(sides[0]) is not int or sides[0] < 1:
        raise settings.wrong(key, f"expected two equal sides (images are square), got {sides}")
    return sides[0]


def _reader(checkpoint: Checkpoint, config: VisionConfig) -> tuple[ImageReader, list[str]]:
    """Read the image preprocessing, with notes about differences; defaults are those of transformers."""
    held = checkpoint.json(READER) if checkpoint.has(READER) else {}
    settings, notes = Settings(held, str(checkpoint.path / READER)), []
    settings.refuse("do_resize", "must be true: heedful resizes images to the model's size", (None, True))
    settings.refuse("do_rescale", "must be true: heedful scales pixels to [0, 1]", (None, True))
    scale = settings.get("rescale_factor", (int, float), 1 / 255)
    if abs(scale * 255 - 1) > 1e-6:
        raise settings.wrong("rescale_factor", f"must be 1/255 (pixels are scaled to [0, 1]), got {scale}")
    crops, own = settings.get("do_center_crop", bool, False), {config.image_size}
    # The crop, if any, determines the final size.
    last = "crop_size" if crops and "crop_size" in held else "size"
    if not _sides(settings, last) <= own:
        raise settings.wrong(last, f"must equal the model's image_size={config.image_size}, got {held[last]}")
    if not crops:
        notes.append("non-square images are cropped here, but squeezed in transformers")
    elif not _sides(settings, "size") <= own:
        notes.append(
            f"{settings.source}: size={held['size']}, of which transformers takes a centre crop; heedful "
            "uses the largest centre square of an image"
        )
    if (way := settings.get("resample", int, _BILINEAR)) != _BILINEAR:
        notes.append(f"{settings.source}: resample={way}: heedful uses bilinear resampling ({_BILINEAR})")
    if settings.get("do_normalize", bool, True):
        mean, std = (_numbers(settings, key, config.channels) for key in ("image_mean", "image_std"))
    else:
        mean, std = (0.0,) * config.channels, (1.0,) * config.channels
    if min(std) <= 0:
        raise settings.wrong("image_std", f"must be above 0, got {list(std)}")
    return ImageReader(config.image_size, config.channels, mean, std), notes


def _sides(settings: Settings, key: str) -> set[int]:
    """Return the side lengths in a key; empty if it is missing."""
    size = settings.get(key, (int, dict), {})
    return {size} if isinstance(size, int) else {side for side in size.values() if isinstance(side, int)}


def _numbers(settings: Settings, key: str, channels: int) -> tuple[float, ...]:
    """Read one number per channel."""
    values = settings.get(key, list, [0.5] * channels)
    if len(values) != channels or not all(type(value) in (int, float) for value in values):
        raise settings.wrong(key, f"expected {channels} numbers, one per channel, got {values}")
    return tuple(float(value) for value in values)


def _refuse(config: Any) -> None:
    """Check that ViT supports the model.

    Raises:
        RequestError: it does not; the message names the key.
    """
    if config.kind != "vision":
        raise RequestError(f"model.kind={config.kind}: not supported by ViT: expected kind vision")
    others = {
        **ALIKE,
        "layer.norm_placement": ("pre", "its norms precede the sublayers (pre-norm)"),
        "layer.mixer.score.kind": ("scaled-dot", "it uses scaled dot-product attention"),
        "positions.kind": ("learned", "its positions are learned"),
        "pooling": ("first", "it has a class token"),
    }
    refuse_others(config, "ViT", others)
    refuse_other_heads(config, "ViT")


def _written(config: VisionConfig) -> JsonObject:
    """Return the content of config.json."""
    return {
        "architectures": ["ViTForImageClassification"],
        "model_type": "vit",
        **written_stack(config),
        "image_size": config.image_size,
        "patch_size": config.patch_size,
        "num_channels": config.channels,
        "qkv_bias": True,
        "dtype": "float32",
    }


def _written_reader(reader: ImageReader) -> JsonMapping:
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
