"""Suggestions for unknown keys: the settings of other toolkits, keys of other sections and of other kinds."""

import re
from pathlib import Path

import pytest

from heedful.errors import RequestError
from heedful.models.registry import SIZES
from heedful.recipes.problems import kinds_of
from heedful.recipes.resolve import shipped_recipes
from heedful.recipes.schema import DataConfig
from heedful.recipes.suggestions import find_key, other_kinds, other_toolkits
from heedful.runs.reading import read_recipe
from heedful.tasks.registry import TASKS, task_class

MESSAGES = {
    # Settings of other toolkits, at the top level and in sections.
    "batch_size=32": "use training.tokens_per_update (tokens of a whole update, not sequences)",
    "training.batch_size=32": "use training.tokens_per_update (tokens of a whole update, not sequences)",
    "training.lr=1e-3": "use schedule.peak (the largest rate)",
    "optimizer.lr=1e-3": "use schedule.peak (the largest rate)",
    "num_train_epochs=3": "use training.max_epochs",
    "max-steps=3": "use training.max_updates",
    "training.gradient_accumulation_steps=2": (
        "use training.accumulate (splits an update, and does not make it larger)"
    ),
    "early_stopping=true": "use training.patience (validations without improvement)",
    "training.fp16=true": "use training.precision (auto, fp32 or bf16; there is no fp16)",
    "training.warmup_ratio=0.1": "use schedule.warmup (updates, or a share of them below 1)",
    "model.num_heads=4": "use model.layer.mixer.n_heads",
    "model.encoder.type=transformer": "use model.kind (and sizes in the section model, for both sides)",
    "data.max_seq_length=50": "use data.filter.max_length (tokens of a text)",
    "drop_path=0.1": "not supported",
    "output_dir=x": "use the option --out of heedful train",
    "device=cuda": "use the option --device of heedful train",
    "model_name_or_path=bert": "convert the model with heedful import, and name its folder in start.run",
    # Of the kinds that the recipe has; else the kind is named.
    "training.weight_decay=0.1": "use optimizer.weight_decay, which needs optimizer.kind=adamw or muon",
    "optimizer.weight_decay=0.1": "it needs optimizer.kind=adamw or muon",
    "decoding.temperature=1": "it needs decoding.kind=sample",
    # heedful's own keys in another section.
    "seed=3": "did you mean 'training.seed'?",
    "model.seed=3": "did you mean 'training.seed'?",
    "training.label_smoothing=0": "did you mean 'objective.label_smoothing'?",
    "training.temperature=1": "did you mean 'decoding.temperature', which needs decoding.kind=sample or mbr?",
    "model.alpha=1": "did you mean 'decoding.length_penalty.alpha'?",
}


def message(recipe, *overrides):
    with pytest.raises(RequestError) as caught:
        read_recipe(recipe, overrides)
    return str(caught.value)


@pytest.mark.parametrize("override", MESSAGES)
def test_an_unknown_key_gets_the_key_that_is_meant(override):
    line = message("phrasebook-de", override)
    assert line.startswith(f"on the command line: {override.split('.type=')[0].split('=')[0]}")
    assert ": unknown key" in line
    assert MESSAGES[override] in line


@pytest.mark.parametrize(
    ("recipe", "overrides", "expected"),
    [
        ("phrasebook-de", ["hidden_size=8"], "use model.d_model"),
        ("phrasebook-rnn", ["hidden_size=8"], "use model.d_hidden"),
        ("phrasebook-lm", ["max_seq_len=8"], "use model.context"),
        ("phrasebook-lm", ["max_new_tokens=8"], "use completion.max_new_tokens or decoding.max_length.cap"),
        ("phrasebook-de", ["schedule.kind=warmup", "lr=1"], "use schedule.factor (a factor of the rate that"),
        ("phrasebook-de", ["optimizer.kind=adamw", "weight_decay=1"], "use optimizer.weight_decay"),
        ("phrasebook-de", ["lowercase=true"], "did you mean 'tokenizer.source.lowercase'?"),
        ("phrasebook-tags", ["decoding.learning_rate=1"], "use schedule.peak"),
        ("phrasebook-tags", ["decoding.beam=1"], "decoding has no keys here"),
        ("phrasebook-tags", ["lowercase=true"], "did you mean 'tokenizer.text.lowercase'?"),
    ],
)
def test_the_key_is_one_that_the_recipe_may_have(recipe, overrides, expected):
    line = message(recipe, *overrides)
    assert f"unknown key; {expected}" in line or f"unknown key ({expected}" in line
    assert "needs" not in line


def test_a_kind_that_is_a_list_is_a_mistake_like_others():
    lines = message("phrasebook-de", "schedule={kind: [cosine], peek: 1}", "training.lr=1").splitlines()
    assert any("schedule.kind" in line for line in lines)
    assert any("training.lr" in line and "use schedule." in line for line in lines)


def schemas():
    return [task_class(kind).Recipe for kind in TASKS]


@pytest.mark.parametrize("key", sorted({setting.key for setting in other_toolkits() if setting.key}))
def test_every_key_of_the_table_exists(key):
    assert any(find_key(schema, key.split("."), None) for schema in schemas())


def test_the_table_names_each_setting_once():
    settings = [(setting.name, setting.key) for setting in other_toolkits()]
    assert len(set(settings)) == len(settings)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name, _ in settings)
    assert [s.name for s in other_toolkits() if not s.key and not s.note] == []


# The page of other toolkits ---------------------------------------------------------------------------------

DOCS = Path(__file__).parents[3] / "docs"

# Values of the setting that stands before them, and what is called in Python or on the command line.
NO_SETTINGS = {
    "word", "char", "recurrent", "post", "luong", "zero", "last", "noam", "warmupinversesquareroot", "gpt2",
    "avg", "create_model", "gen_subset", "num_samples", "average_checkpoints", "head_view", "model_view",
    "neuron_view",
}  # fmt: skip


def names_of_the_page():
    """Yield the names of settings in the left column, each with the cell beside it."""
    page = (DOCS / "reference" / "coming-from.md").read_text(encoding="utf-8")
    for left, right in re.findall(r"^\| (`.+?) \| (.+) \|$", page, re.M):
        for code in re.findall(r"`([^`]+)`", left):
            name = re.match(r"-*([\w.-]+)", code)[1]
            if name == name.lower() and (name := name.replace("-", "_").split(".")[0]) not in NO_SETTINGS:
                yield name, right


def test_the_page_of_other_toolkits_agrees_with_the_table():
    """A name there is in the table, with a key that the page gives, or is a key of heedful itself."""
    settings = "".join(
        path.read_text(encoding="utf-8") for path in (DOCS / "reference" / "settings").glob("*.md")
    )
    own_keys = set(re.findall(r"^\| \[?`(\w+)`", settings, re.M))
    cells = {}
    for name, right in names_of_the_page():
        cells[name] = cells.get(name, "") + right
    assert len(cells) > 100
    wrong = []
    for name, right in cells.items():
        keys = [setting.key.removesuffix(".kind") for setting in other_toolkits() if setting.name == name]
        is_given = any(key.split(".")[-1] in right if key else "not supported" in right for key in keys)
        if not is_given and (keys or name not in own_keys):
            wrong.append((name, keys, right))
    assert wrong == []


OTHER_KINDS = [
    ("phrasebook-tags", "task.kind=ner", "unknown kind 'ner'; use tagging"),
    ("sst2", "model.kind=transformer", "not for task classification; use encoder or language-model"),
    ("sst2", "model.kind=vit", "not for task classification; use encoder or language-model"),
    (
        "sst2",
        "model.kind=bert",
        "unknown kind 'bert'; use encoder, or start from an imported BERT, with start.run",
    ),
]


@pytest.mark.parametrize(("recipe", "override", "expected"), OTHER_KINDS)
def test_a_kind_of_other_toolkits_gets_the_one_that_is_meant(recipe, override, expected):
    key = override.partition("=")[0].removesuffix(".kind") + ".kind"
    assert any(
        f"{key}={kind}: {expected}" in message(recipe, override) for kind in [override.split("=")[1], "csv"]
    )


def test_the_kinds_that_are_meant_exist():
    """In the section of a task, which offers it in place of the other name."""
    kinds = {
        section: {kind for (where, _), (kind, _) in other_kinds().items() if where == section}
        for section in ("task", "model", "data")
    }
    assert kinds["task"] <= {*TASKS}
    assert kinds["model"] <= {*SIZES}
    assert kinds["data"] <= kinds_of(DataConfig, "train")


def test_kinds_that_only_programs_write_are_not_offered():
    lines = message("phrasebook-tags", "tokenizer.subwords.kind=x", "data.train.kind=x")
    assert "sentencepiece" not in lines
    assert "memory" not in lines


def test_a_tokenizer_that_cannot_be_trained_is_refused_with_the_recipe():
    line = message("phrasebook-tags", "tokenizer.subwords=sentencepiece")
    assert line.endswith(
        "tokenizer.subwords.kind: sentencepiece cannot be trained, only imported (heedful import); "
        "use unigram, which is trained in the same way"
    )


def test_an_unknown_key_of_a_section_without_a_kind_is_explained(tmp_path):
    shipped = shipped_recipes()["phrasebook-tags"].read_text(encoding="utf-8")
    lines = [line for line in shipped.splitlines() if not line.startswith("optimizer")]
    (tmp_path / "r.yaml").write_text("\n".join(lines), encoding="utf-8")
    line = message(tmp_path / "r.yaml", "optimizer.lr=1e-3")
    assert (
        line == "on the command line: optimizer.lr=0.001: unknown key; use schedule.peak (the largest rate)"
    )
