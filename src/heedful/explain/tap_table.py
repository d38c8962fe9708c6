"""Write the tables of `docs/reference/taps.md`: the taps of every model family, with shapes.

Tiny models, at least one per family, are run. All their sizes differ, so each number in a shape identifies
a letter. To update the page, run

    python -m heedful.explain.tap_table docs/reference/taps.md
"""

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from heedful.models.captioner import CaptionerConfig
from heedful.models.encoder import EncoderConfig
from heedful.models.language_model import LanguageModelConfig
from heedful.models.recurrent import RecurrentConfig
from heedful.models.recurrent_captioner import RecurrentCaptionerConfig
from heedful.models.registry import SIZES, AnyConfig, build_model
from heedful.models.resnet import ResNetConfig, ResNetEncoderConfig
from heedful.models.sections import AdditiveConfig
from heedful.models.transformer import TransformerConfig
from heedful.models.vision import VisionConfig
from heedful.nn.layout import Tokens
from heedful.nn.patches import Images
from heedful.nn.taps import Tap, intervene, taps
from heedful.typing import JsonObject

# Sequence lengths of a batch, on each side. All sums, maxima and sizes below differ.
SOURCE, TARGET = [17, 8, 4], [12, 19, 10]
VOCABULARY = 23

_TEXT = {"T": sum(TARGET), "S": max(TARGET), "B": len(TARGET)}
_PAIR = {"T_s": sum(SOURCE), "S": max(SOURCE), "T": sum(TARGET), "Q": max(TARGET), "B": len(TARGET)}
_HEADS = {"d": 11, "d_ff": 13, "H": 6, "G": 2, "d_k": 5, "d_v": 7}
_STACK: JsonObject = {
    "d_model": 11,
    "n_layers": 2,
    "positions": "learned",
    "layer": {"mixer": {"n_heads": 6, "n_kv_heads": 2, "d_k": 5, "d_v": 7}, "channels": {"d_ff": 13}},
}
_LOCAL: JsonObject = {"mixer": {"visible": {"kind": "blocks", "size": 4}}}
_COMPRESSED: JsonObject = {
    "mixer": {"kind": "compressed-attention", "factor": 2, "n_heads": 6, "n_kv_heads": 2, "d_k": 5, "d_v": 7}
}
_EXPERTS: JsonObject = {"channels": {"kind": "experts", "n": 23, "expert": {"d_ff": 13}}}
_IMAGE: JsonObject = {"image_size": 12, "channels": 3, "patch_size": 4}
_CONVOLUTIONS: JsonObject = {
    "n_blocks": [1, 2], "width": 6, "n_groups": 2, "root_kernel": 3, "root_stride": 1, "root_pool": False
}  # fmt: skip
_GRID = ResNetEncoderConfig(**_CONVOLUTIONS)
_CAPTIONS = {"T_s": 27, "S": 9, "T": sum(TARGET), "Q": max(TARGET), "B": 3}
_CELLS = {**_CAPTIONS, "T_s": 108, "S": 36, "d_s": 48}


@dataclass(frozen=True)
class Family:
    """A tiny model that represents its family, and the letters of the sizes that occur in its shapes."""

    title: str
    config: AnyConfig
    letters: Mapping[str, int]

    def letter(self, number: int) -> str:
        """Return the letter of a size.

        Raises:
            ValueError: no letter, or several letters, have this size.
        """
        letters = [letter for letter, size in self.letters.items() if size == number]
        if len(letters) == 1:
            return letters[0]
        if number == 1 and not letters:
            return "1"
        raise ValueError(f"{self.title}: size {number} must have exactly one letter, got {letters or 'none'}")


class TapRow(NamedTuple):
    """A row of the table: a tap, or its copies in equal layers, with ``<i>`` and ``<j>`` for indices."""

    name: str
    shape: tuple[str, ...]
    part: str
    description: str


FAMILIES = [
    Family("Encoder-decoder", TransformerConfig(**_STACK, tie="none", max_length=31), {**_PAIR, **_HEADS}),
    Family("Language model", LanguageModelConfig(**_STACK, context=31), {**_TEXT, **_HEADS}),
    Family(
        "Language model with local and compressed attention and a mixture of experts",
        LanguageModelConfig(
            **{**_STACK, "n_layers": 3}, context=31, pattern=[_LOCAL, {**_COMPRESSED, **_EXPERTS}, _LOCAL]
        ),
        {**_TEXT, **_HEADS, "M": 1 + max(TARGET) // 2, "n": 23},
    ),
    Family("Text encoder", EncoderConfig(**_STACK, max_length=31), {**_TEXT, **_HEADS}),
    Family(
        "Text encoder with recurrent mixer",
        EncoderConfig.model_validate(
            {
                "d_model": 10, "n_layers": 2, "positions": "learned", "max_length": 31,
                "layer": {"mixer": "recurrent", "channels": {"d_ff": 13}},
            }
        ),
        {**_TEXT, "d": 10, "d_ff": 13, "d_h": 5},
    ),
    Family("Image encoder", VisionConfig(**_STACK, **_IMAGE), {"T": 30, "N": 10, "B": 3, **_HEADS}),
    Family(
        "Captioner",
        CaptionerConfig(**_STACK, **_IMAGE, max_length=31),
        {**_CAPTIONS, **_HEADS},
    ),
    Family(
        "Captioner with a residual network",
        CaptionerConfig(**_STACK, **_IMAGE, max_length=31, encoder=_GRID),
        {**_CELLS, **_HEADS},
    ),
    Family(
        "Recurrent captioner",
        RecurrentCaptionerConfig(
            image_size=12, encoder=_GRID, d_embedding=5, d_hidden=7, d_readout=11,
            attention=AdditiveConfig(d_attention=13),
        ),
        {**_CELLS, "d_e": 5, "d_h": 7, "d_out": 11},
    ),
    Family(
        "Recurrent encoder-decoder with attention",
        RecurrentConfig(
            d_embedding=5, d_hidden=7, d_readout=11, n_layers=2,
            attention=AdditiveConfig(d_attention=13),
        ),
        {**_PAIR, "d_e": 5, "d_h": 7, "d_out": 11},
    ),
    Family(
        "Recurrent encoder-decoder without attention",
        RecurrentConfig(
            d_embedding=5, d_hidden=7, n_layers=2, decoder="plain", attention=None, bridge="copy",
            direction="right-to-left",
        ),
        {**_PAIR, "d_e": 5, "d_h": 7},
    ),
    Family(
        "Residual convolutional network for images",
        ResNetConfig(image_size=12, channels=3, **_CONVOLUTIONS),
        {"B": 3, "T": 108, "d": 48},
    ),
]  # fmt: skip


def tap_rows(family: Family) -> list[TapRow]:
    """Return the taps of a family, in the order of the forward pass; a star where copies differ."""
    copies: dict[tuple[str, str, str], list[tuple[int, ...]]] = {}
    for name, (tap, module_class, shape) in shapes_of(family.config).items():
        # The first index is <i>, the second <j>.
        letters = iter("ij")
        pattern = re.sub(r"(?<=\.)\d+(?=\.)", lambda _, left=letters: f"<{next(left)}>", name)
        description = tap.description + " (read only)" * tap.read_only
        copies.setdefault((pattern, module_class, description), []).append(shape)
    return [
        TapRow(
            name,
            tuple(family.letter(n[0]) if len({*n}) == 1 else "*" for n in zip(*shapes)),
            module_class,
            text,
        )
        for (name, module_class, text), shapes in copies.items()
    ]


def shapes_of(config: AnyConfig) -> dict[str, tuple[Tap, str, tuple[int, ...]]]:
    """Return the taps of a model in the order of the forward pass, with module class and shape."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1)
        model = build_model(config, *[VOCABULARY] * len(SIZES[config.kind])).eval()
        inputs = inputs_of(config)
        shapes: dict[str, tuple[Tap, str, tuple[int, ...]]] = {}

        def recorder(name: str, tap: Tap) -> Callable[[torch.Tensor], None]:
            module_class = type(model.get_submodule(name.rpartition(".")[0])).__name__
            return lambda x: shapes.update({name: (tap, module_class, tuple(x.shape))})

        model_taps = taps(model)
        with intervene(model, {name: recorder(name, tap) for name, tap in model_taps.items()}):
            model(*inputs)
    if missing := model_taps.keys() - shapes:
        raise ValueError(f"tap {sorted(missing)[0]} of {type(model).__name__} received no value")
    return shapes


def inputs_of(config: AnyConfig) -> tuple[Tokens | Images, ...]:
    """Return the inputs of a model of this kind."""
    target = Tokens.of([range(n) for n in TARGET])
    if isinstance(config, TransformerConfig | RecurrentConfig):
        return target, Tokens.of([range(n) for n in SOURCE])
    is_captioner = isinstance(config, CaptionerConfig | RecurrentCaptionerConfig)
    if not isinstance(config, VisionConfig | ResNetConfig | CaptionerConfig | RecurrentCaptionerConfig):
        return (target,)
    size = config.image_size
    images = Images.of(torch.zeros(len(TARGET), config.channels, size, size), config.n_tokens)
    return (target, images) if is_captioner else (images,)


def update_page(text: str) -> str:
    """Return the text of the page with new tables; all before the first of them is kept."""
    sections = [text.partition("\n## ")[0]]
    for family in FAMILIES:
        lines = [
            f"| `{row.name}` | `[{', '.join(row.shape)}]` | `{row.part}` | {row.description} |\n"
            for row in tap_rows(family)
        ]
        header = "| tap | shape | module | value |\n| --- | --- | --- | --- |\n"
        sections.append(f"## {family.title}\n\n{header}{''.join(lines)}")
    return "\n".join(sections)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(update_page(path.read_text(encoding="utf-8")), encoding="utf-8")
