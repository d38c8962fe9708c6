"""The page of the taps is what running models shows, and no number in a shape has two meanings."""

import re
from pathlib import Path

import pytest
import torch
from taps_page import FAMILIES, Family, TapRow, inputs_of, shapes_of, tap_rows, update_page

from heedful.models.registry import BUILDERS, build_model
from heedful.models.transformer import TransformerConfig
from heedful.nn.taps import capture, intervene

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "taps.md"


def test_the_page_is_what_models_show():
    text = PAGE.read_text(encoding="utf-8")
    assert text == update_page(text), (
        "docs/reference/taps.md is not what running models show; regenerate it:\n    make pages"
    )


def test_every_family_of_models_has_a_table():
    assert {family.config.kind for family in FAMILIES} == BUILDERS.keys()


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.title)
def test_letters_are_explained_and_mean_one_number_each(family):
    numbers = [*family.letters.values()]
    assert len({*numbers}) == len(numbers)
    assert 1 not in numbers
    table = PAGE.read_text(encoding="utf-8").partition("| letter | axis |\n")[2].partition("\n\n")[0]
    known = {letter for line in table.splitlines()[1:] for letter in line.split(" | ")[0][2:].split(", ")}
    used = {letter for row in tap_rows(family) for letter in row.shape}
    assert used <= known | {"1"}


def test_rows_are_those_of_a_model_that_is_known():
    (family,) = (f for f in FAMILIES if f.title == "Encoder-decoder")
    found = {row.name: row for row in tap_rows(family)}
    cross = "decoder.blocks.<i>.cross_attention.part"
    wanted = {
        "source_embedding.output": ("T_s", "d"),
        "encoder.blocks.<i>.mixer.part.weights": ("B", "H", "S", "S"),
        "encoder.blocks.<i>.feed_forward.part.hidden": ("T_s", "d_ff"),
        "encoder.top": ("T_s", "d"),
        "decoder.blocks.<i>.mixer.part.weights": ("B", "H", "Q", "Q"),
        f"{cross}.queries": ("B", "H", "Q", "d_k"),
        f"{cross}.keys": ("B", "G", "S", "d_k"),
        f"{cross}.values": ("B", "G", "S", "d_v"),
        f"{cross}.scores": ("B", "H", "Q", "S"),
        f"{cross}.weights": ("B", "H", "Q", "S"),
        f"{cross}.mixed": ("B", "H", "Q", "d_v"),
        "decoder.blocks.<i>.output": ("T", "d"),
    }
    assert {name: found[name].shape for name in wanted} == wanted
    assert found[f"{cross}.weights"].part == "CrossAttention"
    names = list(found)
    assert names.index("source_embedding.output") == 0
    assert names.index(f"{cross}.scores") < names.index(f"{cross}.weights") < names.index(f"{cross}.mixed")


def test_copies_that_differ_have_a_star_and_parts_of_two_kinds_two_lines():
    by_title = {family.title: tap_rows(family) for family in FAMILIES}
    blocks, _ = by_title["Residual convolutional network for images"]
    assert blocks == TapRow("blocks.<i>.output", ("B", "*", "*", "*"), "Bottleneck", blocks.description)
    (mixed,) = (found for title, found in by_title.items() if "experts" in title)
    weights = {row.part: row.shape for row in mixed if row.name.endswith("mixer.part.weights")}
    assert weights == {
        "SelfAttention": ("B", "H", "S", "S"),
        "MemoryCompressedAttention": ("B", "H", "S", "M"),
    }
    (hidden,) = (row for row in mixed if row.name.endswith("experts.<j>.hidden"))
    assert hidden.shape == ("*", "d_ff")


def test_a_number_without_a_letter_or_with_two_is_refused():
    config = TransformerConfig(
        d_model=6, n_layers=1, layer={"mixer": {"n_heads": 2}, "channels": {"d_ff": 7}}
    )
    with pytest.raises(ValueError, match="unknown: size 29 must have exactly one letter, got none"):
        tap_rows(Family("unknown", config, {}))
    with pytest.raises(ValueError, match=r"double: size 3 must have exactly one letter, got \['A', 'B'\]"):
        Family("double", config, {"A": 3, "B": 3}).letter(3)


def test_running_the_tiny_models_leaves_the_generator_alone():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    shapes_of(FAMILIES[0].config)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_example_of_the_page_runs():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

    config = FAMILIES[0].config
    inputs, source = inputs_of(config)
    scope = {"torch": torch, "inputs": inputs, "source": source, "model": build_model(config, 23, 23)}
    exec(code, scope)
    assert scope["weights"].shape == (3, 2, 19, 17)
    assert {"capture": capture, "intervene": intervene}.items() <= scope.items()
