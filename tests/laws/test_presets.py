"""Every preset has as many parameters as are published, or as follow from the formulas of its family."""

import pytest
import torch
from tiers import sampled

from heedful.model_summary.summary import describe
from heedful.models.encoder import class_head
from heedful.models.registry import PRESETS, SIZES, build_model

# Each with the sizes of its vocabularies, or, of images, the number of classes of its head.
COUNTS: dict[str, tuple[tuple[int, ...], int]] = {
    "transformer-tiny": ((10_000, 10_000), 2_605_056),
    "transformer-small": ((10_000, 10_000), 36_663_296),
    "transformer-base": ((37_000, 37_000), 63_045_632),
    "transformer-big": ((37_000, 37_000), 214_171_648),
    "rnn-tiny": ((100, 100), 456_804),
    "rnnsearch": ((30_000, 30_000), 80_442_000),
    "rnnencdec": ((30_000, 30_000), 68_578_000),
    "seq2seq": ((160_000, 80_000), 384_112_000),
    "luong": ((50_000, 50_000), 221_083_000),
    "reverse-rnn": ((54, 54), 104_374),
    "char-mini-cpu": ((65,), 809_856),
    "char-mini": ((65,), 10_770_816),
    "modern-mini": ((8192,), 12_587_904),
    "gpt2": ((50_257,), 124_439_808),
    "gpt2-medium": ((50_257,), 354_823_168),
    "gpt2-large": ((50_257,), 774_030_080),
    "gpt2-xl": ((50_257,), 1_557_611_200),
    "t-d": ((32_000,), 32_136_704),
    "t-dmca": ((32_000,), 32_529_920),
    "t-dmca-moe": ((32_000,), 299_324_416),
    "captioner-mini": ((1000,), 820_352),
    "captioner-resnet": ((1000,), 768_032),
    "show-attend-tell": ((10_000,), 42_966_712),
    "show-attend-tell-mini": ((1000,), 842_504),
    "bert-base": ((30_522,), 109_482_240),
    "bert-large": ((30_522,), 335_141_888),
    "vit-b-16": ((1000,), 86_567_656),
    "vit-l-16": ((1000,), 304_326_632),
    "vit-h-14": ((1000,), 632_045_800),
    "vit-mini": ((10,), 540_170),
    "mixer-s-16": ((1000,), 18_528_264),
    "mixer-b-16": ((1000,), 59_880_472),
    "mixer-l-16": ((1000,), 208_196_168),
    "mixer-h-14": ((1000,), 432_350_952),
    "mixer-mini": ((10,), 294_990),
    "bit-r50x1": ((1000,), 25_549_352),
    "resnet-mini": ((10,), 219_194),
}


def test_every_preset_is_counted():
    assert COUNTS.keys() == PRESETS.keys()


@pytest.mark.parametrize("name", COUNTS)
def test_parameters(name):
    config, (sizes, wanted) = PRESETS[name], COUNTS[name]
    with torch.device("meta"):
        parts = [build_model(config, *sizes[: len(SIZES[config.kind])])]
        if not SIZES[config.kind]:
            parts.append(class_head(config.d_model, *sizes, config.dropout))
    assert sum(p.numel() for part in parts for p in part.parameters()) == wanted


@pytest.mark.parametrize("name", sampled(COUNTS, [*COUNTS][::3]))
def test_a_presets_ledger_ends_with_that_number(name):
    """With the vocabulary that it was published with, or of images with its head, and nothing said."""
    ledger = describe(name)
    assert ledger.parameters == COUNTS[name][1]
    assert any("the preset's" in note for note in ledger.notes)
