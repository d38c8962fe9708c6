"""Every shipped recipe is read whole, and says where its data come from."""

import json
import os
import re

import pytest
from tiers import sampled

from heedful.data.sources import (
    BuiltInSource,
    CaptionedFolderSource,
    ConllSource,
    FilesSource,
    FolderSource,
    IdxSource,
    JsonlSource,
    SegmentedFolderSource,
    SquadSource,
    TextSource,
    TsvSource,
)
from heedful.errors import RequestError
from heedful.models.registry import PRESETS, SIZES, build_model
from heedful.nn.attention.recurrent_heads import resolutions
from heedful.recipes.resolve import shipped_recipes
from heedful.recipes.schema import Recipe
from heedful.recipes.trees import Mark, Tree
from heedful.recipes.yaml import dump_yaml, read_yaml
from heedful.runs.building import on_device
from heedful.runs.prepare import rows_of
from heedful.runs.reading import read_recipe, recipe_from
from heedful.tasks.registry import task_for

NAMES = list(shipped_recipes())
OWN = [
    "my-own-files",
    "my-own-text",
    "my-own-labels",
    "my-own-numbers",
    "my-own-pairs",
    "my-own-summaries",
    "my-own-tags",
    "my-own-questions",
    "my-own-images",
    "my-own-captions",
    "my-own-masks",
]
# Their vocabularies are quickly made; the whole sweep reads all corpora.
SMALL = (
    "digits",
    "scene-masks",
    "scenes",
    "scenes-lstm",
    "scenes-resnet",
    "shakespeare-char-cpu",
    "sick",
    "trec",
)
KINDS = BuiltInSource | FilesSource | TextSource | TsvSource | JsonlSource | IdxSource | FolderSource
KINDS |= CaptionedFolderSource | SegmentedFolderSource | ConllSource | SquadSource


def sources(recipe: Recipe):
    named = [recipe.data.train, recipe.data.valid, *recipe.data.test.values()]
    return [part for source in filter(None, named) for part in getattr(source, "sources", [source])]


def test_the_promised_recipes_are_there():
    promised = {
        "phrasebook-ta",
        "phrasebook-ta-paper",
        "phrasebook-de",
        "phrasebook-rnn",
        "multi30k-ende-tiny",
        "multi30k-ende-rnn",
        "tatoeba-ende-small",
        "reverse",
        "my-own-files",
        "my-own-text",
        "phrasebook-lm",
        "phrasebook-lstm",
        "phrasebook-tags",
        "phrasebook-questions",
        "shakespeare-char",
        "shakespeare-char-cpu",
        "scenes",
        "scenes-lstm",
        "scenes-resnet",
        "my-own-captions",
        "my-own-tags",
        "my-own-questions",
        "my-own-numbers",
        "my-own-pairs",
        "my-own-summaries",
    }
    assert promised <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_recipe_is_valid_and_has_a_description(name):
    recipe, _ = read_recipe(name)
    assert 40 < len(recipe.description) < 400
    for source in sources(recipe):
        assert isinstance(source, KINDS)
        if isinstance(source, FilesSource | IdxSource) and name != "my-own-files":
            assert all("$HEEDFUL_DATA/" in str(path) for path in source.columns.values())
        if isinstance(source, TextSource | TsvSource | JsonlSource) and name not in OWN:
            assert str(source.paths).startswith("$HEEDFUL_DATA/")


@pytest.mark.parametrize("name", NAMES)
def test_a_resolved_recipe_survives_being_written_and_read(name):
    recipe, _ = read_recipe(name)
    text = dump_yaml(recipe.model_dump(mode="json"))
    assert recipe_from(read_yaml(text, "recipe.yaml")) == recipe


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_model_of_a_recipe_can_be_built(name):
    recipe, _ = read_recipe(name)
    model = build_model(recipe.model, *(37 for _ in SIZES[recipe.model.kind]))
    assert sum(p.numel() for p in model.parameters()) > 0


@pytest.fixture(scope="module")
def learned():
    """What a recipe learns from its data: once for those that learn the same from the same."""
    known = {}

    def learn(recipe):
        sections = ("task", "data", "tokenizer")
        plain = recipe.model_dump(mode="json")
        if "tokenizer" in plain:  # what is learned from images also depends on the model
            plain = {name: plain[name] for name in sections} | {"start": plain["start"]}
        key = json.dumps([type(recipe).__name__, plain], sort_keys=True)
        if key not in known:
            known[key] = task_for(recipe).make_processor(lambda: rows_of(recipe, recipe.data.train))
        return known[key]

    return learn


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled([name for name in NAMES if name not in OWN], SMALL))
def test_a_recipe_tells_how_many_parameters_its_model_has(name, learned):
    """With the vocabulary and the labels that its data give."""
    recipe, _ = read_recipe(name)
    if "$HEEDFUL_DATA" in str(recipe.data) and "HEEDFUL_DATA" not in os.environ:
        pytest.skip("reads a corpus from $HEEDFUL_DATA")
    model = on_device("meta", task_for(recipe).build_model, learned(recipe).sizes)
    assert recipe.expected.parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    "name", [name for name, preset in PRESETS.items() if preset.kind in {"transformer", "recurrent"}]
)
def test_every_preset_can_be_put_into_a_recipe(name):
    recipe, _ = read_recipe("phrasebook-ta", [f"model.preset={name}", "tokenizer.shared=true"])
    assert recipe.model == PRESETS[name]


@pytest.mark.parametrize(
    "name", [name for name, preset in PRESETS.items() if preset.kind in {"vision", "resnet"}]
)
def test_every_preset_of_images_can_be_put_into_a_recipe(name):
    recipe, _ = read_recipe("my-own-images", [f"model.preset={name}"])
    assert recipe.model == PRESETS[name]


@pytest.mark.parametrize("name", OWN)
def test_the_commented_recipe_says_something_of_every_section(name):
    text = shipped_recipes()[name].read_text(encoding="utf-8")
    tree = read_yaml(text, f"{name}.yaml").data
    lines = text.splitlines()
    for section in set(tree) - {"description"}:
        at = next(i for i, line in enumerate(lines) if line.startswith(f"{section}:"))
        assert lines[at - 1].startswith("#"), f"{section} has no comment above it"


def test_the_other_attentions_that_a_comment_names_can_be_had():
    name = "phrasebook-rnn-heads"
    written = re.findall(
        r"^ *# +(model\.attention)='(.*)'$", shipped_recipes()[name].read_text("utf-8"), re.M
    )
    configs = [read_recipe(name, [f"{key}={value}"])[0].model.attention for key, value in written]
    assert [config.kind for config in configs] == ["multi-head-location", "multi-head-multi-resolution"]
    shipped = read_recipe(name)[0].model.attention
    assert {(c.n_heads, c.d_k, c.d_v) for c in configs} == {(shipped.n_heads, shipped.d_k, shipped.d_v)}
    assert resolutions(configs[1].half_width, configs[1].n_heads) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.tie=three-way", "tokenizer.shared=true"),
        ("training.direction=higher", "training.metric=loss, for which lower is better"),
        ("training.metric=rouge", "not measured"),
        ("model.layer.mixer.n_heads=3", "must be divisible by n_heads=3"),
        ("model.layer.mixer.n_headz=3", "did you mean 'n_heads'"),
        ("training.seed=x", "whole number"),
        (
            "model={preset: transformer-tiny, tie: none, layer: {norm: {kind: power, warmup: 401}}}",
            "at most 400",
        ),
        ("task.kind=translate", "translation"),
        (
            "model={preset: transformer-tiny, tie: none, decoder_layer: {norm: {kind: power, warmup: 401}}}",
            "at most 400",
        ),
        ("data.train.kind=filez", "files"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_reason(override, message):
    with pytest.raises(RequestError) as caught:
        read_recipe("phrasebook-ta", [override])
    assert message in str(caught.value)


def test_a_metric_of_decoding_needs_decoding():
    with pytest.raises(RequestError, match=r"validation\.decode"):
        read_recipe("phrasebook-ta", ["training.metric=bleu", "validation.decode=0"])


def test_paths_start_at_the_recipes_folder(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(shipped_recipes()["my-own-files"].read_text(encoding="utf-8"), encoding="utf-8")
    recipe, tree = read_recipe(str(file))
    assert recipe.root == str(tmp_path.resolve())
    assert isinstance(tree, Tree)
    assert isinstance(tree.mark, Mark)


@pytest.mark.parametrize(
    "written, root",
    [("data", "here/data"), ("../data", "data"), ("~/data", "home/data"), ("$HEEDFUL_DATA/x", "corpora/x")],
)
def test_a_written_root_starts_where_paths_start(tmp_path, monkeypatch, written, root):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HEEDFUL_DATA", str(tmp_path / "corpora"))
    file = tmp_path / "here" / "mine.yaml"
    file.parent.mkdir()
    file.write_text(f"root: {written}\n{shipped_recipes()['my-own-files'].read_text(encoding='utf-8')}")
    recipe, _ = read_recipe(str(file))
    assert recipe.root == str((tmp_path / root).resolve())


@pytest.mark.parametrize("name, right", [("my-own-files", "source"), ("my-own-labels", "text")])
def test_a_limit_on_a_column_that_there_is_not_is_refused(tmp_path, name, right):
    wrong = right[:-2] + right[:-3:-1]
    file = tmp_path / "mine.yaml"
    file.write_text(shipped_recipes()[name].read_text(encoding="utf-8"), encoding="utf-8")
    recipe, _ = read_recipe(str(file), [f"data.filter.max_length={{{right}: 23}}"])
    assert recipe.data.filter.limit(right) == 23
    with pytest.raises(RequestError, match=rf"unknown column '{wrong}'.*{right}"):
        read_recipe(str(file), [f"data.filter.max_length={{{wrong}: 23}}"])


def test_a_table_of_positions_and_not_the_training_filter_limits_what_is_read():
    from heedful.tasks.generation.text_generation import MAX_SOURCE

    filtered, _ = read_recipe("phrasebook-ta", ["data.filter.max_length=20"])
    assert filtered.max_source == MAX_SOURCE
    tabled, _ = read_recipe(
        "phrasebook-ta",
        [
            "model.positions=learned",
            "model.max_length=31",
            "data.filter.max_length=20",
            "decoding.max_length.cap=30",
            "validation.decode=0",
        ],
    )
    assert tabled.max_source == 30


def test_what_a_recipe_reaches_is_not_inherited():
    assert read_recipe("phrasebook-ta")[0].expected.scores
    ours, base = (read_recipe(name)[0].expected for name in ("shakespeare-char", "shakespeare-char-cpu"))
    assert base.scores
    assert not ours.scores.keys() & base.scores.keys()
    assert (ours.minutes, base.minutes is None) == (None, False)
    assert ours.note != base.note
    assert read_recipe("phrasebook-rnn")[0].expected.note != read_recipe("phrasebook-ta")[0].expected.note


def test_power_normalisation_may_warm_up_for_half_of_the_run():
    changes = ["model.layer.norm={kind: power, warmup: 400}"]
    assert read_recipe("phrasebook-ta", changes)[0].model.layer.norm.warmup == 400
