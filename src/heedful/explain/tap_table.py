"""The page `docs/taps.md`: what passes the taps of every family of models, and in which shapes.

Nothing of it but the words is written by hand: tiny models, one or more of each family, are run, and as all
their sizes differ, each number of a shape tells which letter it is. The page is made anew by

    python -m heedful.explain.tap_table > docs/taps.md
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from heedful.models.captioner import CaptionerConfig
from heedful.models.encoder import EncoderConfig
from heedful.models.language_model import ExpertsConfig, LanguageModelConfig
from heedful.models.recurrent import AdditiveAttention, RecurrentConfig
from heedful.models.registry import build_model
from heedful.models.resnet import ResNetConfig
from heedful.models.transformer import TransformerConfig
from heedful.models.vision import VisionConfig
from heedful.nn.layout import Tokens
from heedful.nn.patches import Images
from heedful.nn.taps import Tap, intervene, taps

# Lengths of the sequences of a batch, on each side. All sums, maxima and sizes below are different numbers.
SOURCE, TARGET = [17, 8, 4], [12, 19, 10]
VOCABULARY = 23

_TEXT = {"T": sum(TARGET), "S": max(TARGET), "B": len(TARGET)}
_PAIR = {"T_s": sum(SOURCE), "S": max(SOURCE), "T": sum(TARGET), "Q": max(TARGET), "B": len(TARGET)}
_HEADS = {"d": 11, "d_ff": 13, "H": 6, "G": 2, "d_k": 5, "d_v": 7}
_STACK: dict[str, Any] = {
    "d_model": 11, "d_ff": 13, "n_heads": 6, "n_kv_heads": 2, "d_k": 5, "d_v": 7, "n_layers": 2,
    "positions": "learned",
}  # fmt: skip
_IMAGE: dict[str, Any] = {"image_size": 12, "channels": 3, "patch_size": 4}

LETTERS = {
    "T, T_s": "all tokens of a batch, one sequence after another; of the source, where there are two sides",
    "B": "sequences",
    "S": "tokens of the longest sequence; of the longest source, where there are two sides",
    "Q": "tokens of the longest target",
    "N": "patches of an image, and its class token where there is one",
    "M": "slots of a compressed memory: the first token, and one for so many tokens",
    "H, G": "heads; heads of keys and values, each of which serves H / G heads",
    "d, d_k, d_v, d_ff": "widths: of the model, of a query or key, of a value, of the hidden units",
    "n": "experts",
    "d_h, d_out": "widths of recurrent states and of readouts",
    "d_e": "width of embedded tokens",
    "*": "differs from one copy of the tap to the next",
}

WORDS = """# Taps

<!-- Made by: python -m heedful.explain.tap_table > docs/taps.md -->

Every model has named points at which values can be read or replaced while it runs (`src/heedful/nn/taps.py`).
A watcher gets copies, and the model computes bit for bit what it does unwatched: where the fast kernel forms
no attention weights, those of the heads asked for are computed beside it. A listener is in the way: what it
returns takes the place of the value, and a layer in which somebody listens to scores or weights takes the
explicit path.

```python
import torch
from heedful.nn.taps import intervene, taps, capture

print(list(taps(model)))
with capture(model, {"decoder.blocks.0.cross_attention.part.weights": [0, 3]}) as seen:  # two of its heads
    model(inputs, source)
(weights,) = seen["decoder.blocks.0.cross_attention.part.weights"]  # [B, 2, Q, S]

def without_head_1(mixed):
    return mixed.index_fill(1, torch.tensor([1]), 0.0)

with intervene(model, {"decoder.blocks.0.cross_attention.part.mixed": without_head_1}):
    model(inputs, source)
```

The tables hold for whole sequences. In decoding, a tap sees what is new in each step: the queries of the
next tokens, with the keys, values and weights of all tokens so far. The hypotheses of a sentence are queries
side by side of one row in cross-attention, and rows of their own everywhere else. Rectangles are filled up:
what stands beyond the end of a sequence means nothing as a query, and has weight 0 as a key.

Position mixers without heads (transforms, convolutions, networks along the positions) have no taps of their
own: `added`, of the residual connection around them, sees what they give.

Shapes are found by running tiny models. `<i>` counts layers and `<j>` experts, from 0.
"""


@dataclass(frozen=True)
class Family:
    """A model that stands for its family.

    Args:
        title: of its table.
        config: tiny, of sizes that all differ.
        letters: what the numbers mean that occur in shapes.
    """

    title: str
    config: Any
    letters: Mapping[str, int]

    def letter(self, number: int) -> str:
        """The letter of a number.

        Raises:
            ValueError: none has it, or several have.
        """
        found = [letter for letter, size in self.letters.items() if size == number]
        if len(found) == 1:
            return found[0]
        if number == 1 and not found:
            return "1"
        raise ValueError(f"{self.title}: {number} stands for {found or 'nothing that is known'}")


@dataclass(frozen=True)
class Row:
    """A line of a table: a tap, or its copies in equal layers.

    Args:
        name: dotted, with ``<i>`` and ``<j>`` for numbers.
        part: the class of the part that it belongs to.
        shape: in letters.
        description: what passes.
        read_only: whether it cannot be replaced.
    """

    name: str
    part: str
    shape: tuple[str, ...]
    description: str
    read_only: bool


FAMILIES = [
    Family("Encoder-decoder", TransformerConfig(**_STACK, tie="none", max_length=31), {**_PAIR, **_HEADS}),
    Family("Language model", LanguageModelConfig(**_STACK, context=31), {**_TEXT, **_HEADS}),
    Family(
        "Language model with local and compressed attention and a mixture of experts",
        LanguageModelConfig(
            **{**_STACK, "n_layers": 3}, context=31, mixer="alternating", block=4, compression=2,
            experts=ExpertsConfig(n=23),
        ),
        {**_TEXT, **_HEADS, "M": 1 + max(TARGET) // 2, "n": 23},
    ),
    Family("Encoder of texts", EncoderConfig(**_STACK, max_length=31), {**_TEXT, **_HEADS}),
    Family(
        "Encoder of texts, mixed by a recurrence",
        EncoderConfig(**{**_STACK, "d_model": 10}, max_length=31, mixer="recurrent"),
        {**_TEXT, "d": 10, "d_ff": 13, "d_h": 5},
    ),
    Family("Encoder of images", VisionConfig(**_STACK, **_IMAGE), {"T": 30, "N": 10, "B": 3, **_HEADS}),
    Family(
        "Captioner",
        CaptionerConfig(**_STACK, **_IMAGE, max_length=31),
        {"T_s": 27, "S": 9, "T": sum(TARGET), "Q": max(TARGET), "B": 3, **_HEADS},
    ),
    Family(
        "Recurrent encoder-decoder with attention",
        RecurrentConfig(
            d_embedding=5, d_hidden=7, d_readout=11, n_layers=2,
            attention=AdditiveAttention(score="additive", d_attention=13),
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
        "Residual convolutional network of images",
        ResNetConfig(
            image_size=12, channels=3, n_blocks=[1, 2], width=6, n_groups=2, root_kernel=3, root_stride=1,
            root_pool=False,
        ),
        {"B": 3},
    ),
]  # fmt: skip


def rows(family: Family) -> list[Row]:
    """The taps of a family, in the order in which values pass them."""
    passed = shapes_of(family.config)
    groups: dict[Row, list[tuple[int, ...]]] = {}
    for name, (tap, part, shape) in passed.items():
        groups.setdefault(Row(_pattern(name), part, (), tap.description, tap.read_only), []).append(shape)
    return [
        Row(row.name, row.part, tuple(_axes(family, copies)), row.description, row.read_only)
        for row, copies in groups.items()
    ]


def _pattern(name: str) -> str:
    """The dotted name with its first number as ``<i>`` and its second as ``<j>``."""
    letters = iter("ij")
    return re.sub(r"(?<=\.)\d+(?=\.)", lambda _: f"<{next(letters)}>", name)


def _axes(family: Family, copies: Sequence[tuple[int, ...]]) -> Iterator[str]:
    """The letter of each axis; a star where copies differ."""
    for numbers in zip(*copies, strict=True):
        yield family.letter(numbers[0]) if len({*numbers}) == 1 else "*"


def shapes_of(config: Any) -> dict[str, tuple[Tap, str, tuple[int, ...]]]:
    """The taps of a model in the order in which values pass them, the classes of their parts, and shapes."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1)
        model = build_model(config, *_vocabularies(config)).eval()
        inputs = inputs_of(config)
        found: dict[str, tuple[Tap, str, tuple[int, ...]]] = {}

        def see(name: str, tap: Tap) -> Callable[[torch.Tensor], None]:
            part = type(model.get_submodule(name.rpartition(".")[0])).__name__
            return lambda x: found.update({name: (tap, part, tuple(x.shape))})

        known = taps(model)
        with intervene(model, {name: see(name, tap) for name, tap in known.items()}):
            model(*inputs)
    if missing := known.keys() - found:
        raise ValueError(f"nothing passes {sorted(missing)[0]} of {type(model).__name__}")
    return found


def _vocabularies(config: Any) -> tuple[int, ...]:
    sides = {"transformer": 2, "recurrent": 2, "vision": 0, "resnet": 0}
    return (VOCABULARY,) * sides.get(config.kind, 1)


def inputs_of(config: Any) -> tuple[Any, ...]:
    """What a model of the kind is called on."""
    target = Tokens.of([range(n) for n in TARGET])
    if config.kind in {"transformer", "recurrent"}:
        return target, Tokens.of([range(n) for n in SOURCE])
    if config.kind not in {"vision", "resnet", "captioner"}:
        return (target,)
    side = config.image_size
    images = Images.of(torch.zeros(len(TARGET), config.channels, side, side), config.n_tokens)
    return (target, images) if config.kind == "captioner" else (images,)


def page() -> str:
    """The whole page."""
    return "\n".join([WORDS, _table(("letter", "axis"), LETTERS.items()), *map(_section, FAMILIES)])


def _section(family: Family) -> str:
    lines = (
        (
            f"`{row.name}`",
            f"`[{', '.join(row.shape)}]`",
            f"`{row.part}`",
            row.description + " (read only)" * row.read_only,
        )
        for row in rows(family)
    )
    return f"## {family.title}\n\n" + _table(("tap", "shape", "of", "what passes"), lines)


def _table(head: Sequence[str], lines: Any) -> str:
    rule = ["---"] * len(head)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rule, *lines))


if __name__ == "__main__":
    print(page(), end="")
