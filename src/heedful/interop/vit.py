"""Vision Transformers (Dosovitskiy et al. 2021) from and to the folders of transformers.

| config.json | heedful's ``model`` |
|---|---|
| hidden_size, num_hidden_layers, num_attention_heads, intermediate_size | d_model, n_layers, n_heads, d_ff |
| image_size, patch_size, num_channels | picture_size, patch_size, channels |
| hidden_act, layer_norm_eps | activation, norm_eps |
| hidden_dropout_prob, attention_probs_dropout_prob | dropout, attention_dropout |
| id2label | the labels |

``preprocessor_config.json`` says the mean and the deviation that pixels are brought to. The two libraries
make a picture square in different ways: heedful cuts out its middle, transformers presses it together unless
it is told to cut, which an exported folder tells it.

A ViTModel has no classifier: it becomes a run whose head begins afresh, to start others from. Its layer over
the first token (``pooler``) has no place in a heedful run.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from heedful.data.pictures import PICTURE
from heedful.errors import RequestError
from heedful.interop.activations import ACTIVATIONS, WRITTEN
from heedful.interop.checkpoint import HARMLESS, Checkpoint, Settings
from heedful.interop.encoders import (
    epsilon_of,
    fresh,
    labels_of,
    recipe_of,
    sizes_of,
    written_labels,
    written_sizes,
)
from heedful.interop.format import ExportedModel, ImportedModel
from heedful.interop.names import Pair, Reshaped, Table, give, linear, pair, take
from heedful.interop.refusing import refuse_other_heads, refuse_others
from heedful.models.vision import VisionConfig
from heedful.runs.run import Run
from heedful.tasks.labels import LABEL
from heedful.tasks.picture_classification import PictureProcessor
from heedful.tasks.pictures import PictureReader

TASK, READER = "picture-classification", "preprocessor_config.json"
_OWN, _POOLER = "vit.", r"vit\.pooler\..*"

_HARMLESS = HARMLESS | {"encoder_stride", "pooler_output_size", "pooler_act"}

# Of Pillow's ways to resize, by their numbers.
_BILINEAR = 2


def table(config: VisionConfig, heads: Collection[str]) -> Table:
    """The names of all tensors.

    Args:
        config: of the model.
        heads: the names of those that there are on both sides.
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
        *linear(f"{ours}.mixing.norm", f"{theirs}.layernorm_before"),
        *linear(
            f"{ours}.mixing.part.qkv", *(f"{attention}.attention.{x}" for x in ("query", "key", "value"))
        ),
        *linear(f"{ours}.mixing.part.out", f"{attention}.output.dense"),
        *linear(f"{ours}.feed_forward.norm", f"{theirs}.layernorm_after"),
        *linear(f"{ours}.feed_forward.part.up", f"{theirs}.intermediate.dense"),
        *linear(f"{ours}.feed_forward.part.down", f"{theirs}.output.dense"),
    ]


class ViT:
    """See `heedful.interop.format.Format`."""

    name: ClassVar[str] = "vit"
    loaders: ClassVar[dict[str, str]] = {TASK: "transformers.AutoModelForImageClassification"}

    def read(self, checkpoint: Checkpoint) -> ImportedModel:
        """A run that labels pictures."""
        settings, held = checkpoint.config, checkpoint.tensors()
        config, labels = _configuration(settings), labels_of(settings)
        reader, notes = _reader(checkpoint, config)
        heads = {"class"} if any(name.startswith("classifier.") for name in held) else set()
        if not heads:
            notes.append(
                "the source has no classifier: it begins afresh, so this run is one to start others from "
                "(start.run), and labels by chance"
            )
        if any(name.startswith((f"{_OWN}pooler.", "pooler.")) for name in held):
            notes.append(
                "the layer over the first token (pooler) stays behind: heedful's has none for pictures"
            )
        if unread := settings.unread(_HARMLESS):
            notes.append(f"{settings.source}: keys that heedful does not know: {', '.join(unread)}")
        task = {"kind": TASK, "labels": list(labels)}
        columns = {PICTURE: PICTURE, LABEL: LABEL}
        data = {"kind": "tsv", "paths": "{}.tsv", "columns": columns, "header": True}
        plain = recipe_of(
            "A Vision Transformer", checkpoint, task, data, model=config.model_dump(mode="json")
        )
        processor = PictureProcessor(reader, labels)
        model = fresh(plain, checkpoint, held, processor.sizes)
        give(table(config, heads), held, model, str(checkpoint.weights))
        return ImportedModel(plain, processor, model, notes)

    def write(self, run: Run) -> ExportedModel:
        """ViTForImageClassification, and how it is given pictures."""
        config: Any = run.recipe.model
        _refuse(config)
        tensors = take(table(config, {"class"}), run.model)
        files = {READER: json.dumps(_written_reader(run.processor.reader), indent=2) + "\n"}
        return ExportedModel({**_written(config), **written_labels(run.processor.labels)}, tensors, files)


def _configuration(settings: Settings) -> VisionConfig:
    """The model that a configuration describes."""
    for architecture in settings.texts("architectures"):
        if architecture == "ViTForMaskedImageModeling":
            raise settings.wrong("architectures", f"{architecture}: heads of this kind are not imported")
    settings.refuse("quantization_config", "quantised weights are not read", (None,))
    settings.refuse("qkv_bias", "heedful's attention has biases in all projections", (None, True))
    side, patch = _square(settings, "image_size", 224), _square(settings, "patch_size", 16)
    if side % patch:
        raise settings.wrong("patch_size", f"{patch} does not divide image_size={side}")
    return VisionConfig(
        **sizes_of(settings),  # type: ignore[arg-type]
        picture_size=side,
        patch_size=patch,
        channels=settings.whole("num_channels", 3),
        activation=settings.choice("hidden_act", ACTIVATIONS, "gelu"),  # type: ignore[arg-type]
        norm_eps=epsilon_of(settings),
        dropout=settings.rate("hidden_dropout_prob", 0.0),
        attention_dropout=settings.rate("attention_probs_dropout_prob", 0.0),
    )


def _square(settings: Settings, key: str, default: int) -> int:
    """A side, which may be told twice."""
    sides = settings.values.get(key)
    if not isinstance(sides, list):
        return settings.whole(key, default)
    settings.known.add(key)
    if len(sides) != 2 or sides[0] != sides[1] or type(sides[0]) is not int or sides[0] < 1:
        raise settings.wrong(key, f"{sides}: heedful's pictures are square")
    return sides[0]


def _reader(checkpoint: Checkpoint, config: VisionConfig) -> tuple[PictureReader, list[str]]:
    """How pictures are read, and in what that differs; without the file, as transformers does by default."""
    held = checkpoint.json(READER) if checkpoint.has(READER) else {}
    told, notes = Settings(held, str(checkpoint.path / READER)), []
    told.refuse("do_resize", "heedful brings pictures to the model's size", (None, True))
    told.refuse("do_rescale", "heedful reads pixels from 0 to 1", (None, True))
    scale = told.get("rescale_factor", (int, float), 1 / 255)
    if abs(scale * 255 - 1) > 1e-6:
        raise told.wrong("rescale_factor", f"{scale} is not 1/255: heedful reads pixels from 0 to 1")
    crops, own = told.get("do_center_crop", bool, False), {config.picture_size}
    # What is cut out in the end counts, where something is.
    last = "crop_size" if crops and "crop_size" in held else "size"
    if not _sides(told, last) <= own:
        raise told.wrong(last, f"{held[last]} is not the model's image_size={config.picture_size}")
    if not crops:
        notes.append("pictures that are not square are cut here, and pressed together in transformers")
    elif not _sides(told, "size") <= own:
        notes.append(
            f"{told.source}: size={held['size']}, of which transformers cuts out the middle: heedful reads "
            "the whole middle square of a picture"
        )
    if (way := told.get("resample", int, _BILINEAR)) != _BILINEAR:
        notes.append(f"{told.source}: resample={way}: heedful resizes bilinearly ({_BILINEAR})")
    if told.get("do_normalize", bool, True):
        mean, std = (_numbers(told, key, config.channels) for key in ("image_mean", "image_std"))
    else:
        mean, std = (0.0,) * config.channels, (1.0,) * config.channels
    if min(std) <= 0:
        raise told.wrong("image_std", f"{list(std)}: must be above 0")
    return PictureReader(config.picture_size, config.channels, mean, std), notes


def _sides(told: Settings, key: str) -> set[int]:
    """The lengths of sides that a key says; none where it is not there."""
    size = told.get(key, (int, dict), {})
    return {size} if isinstance(size, int) else {side for side in size.values() if isinstance(side, int)}


def _numbers(told: Settings, key: str, channels: int) -> tuple[float, ...]:
    """One for each channel."""
    values = told.get(key, list, [0.5] * channels)
    if len(values) != channels or not all(type(value) in (int, float) for value in values):
        raise told.wrong(key, f"expected {channels} numbers, one for each channel, found {values}")
    return tuple(float(value) for value in values)


def _refuse(config: Any) -> None:
    """Refuse what ViT has not.

    Raises:
        RequestError: naming the key.
    """
    if config.kind != "vision":
        raise RequestError(f"model.kind={config.kind}: ViT's model is of the kind vision")
    others = {
        "mixer": ("attention", "it mixes by attention"),
        "window": (None, "each token attends to all of its sequence"),
        "norm": ("layer", "its norms are layer norms"),
        "norm_placement": ("pre", "its norms stand before its parts"),
        "positions": ("learned", "its positions are learned"),
        "pooling": ("first", "it has a token for the class"),
        "score": ("scaled-dot", "it scales the products of queries and keys"),
        "attention_bias": (True, "its attention has biases"),
        "feed_forward": ("plain", "its feed-forwards are not gated"),
        "feed_forward_bias": (True, "its feed-forwards have biases"),
    }
    refuse_others(config, "ViT", others)
    refuse_other_heads(config, "ViT")


def _written(config: VisionConfig) -> dict[str, Any]:
    """The content of config.json."""
    return {
        "architectures": ["ViTForImageClassification"],
        "model_type": "vit",
        **written_sizes(config),
        "image_size": config.picture_size,
        "patch_size": config.patch_size,
        "num_channels": config.channels,
        "hidden_act": WRITTEN[config.activation],
        "layer_norm_eps": config.norm_eps,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "qkv_bias": True,
        "dtype": "float32",
    }


def _written_reader(reader: PictureReader) -> Mapping[str, Any]:
    """The content of preprocessor_config.json: the shorter side fills the square, its middle is cut out."""
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
