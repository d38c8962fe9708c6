"""Settings that do not go together are told before any work, at the one that can be changed at hand."""

import pytest

from heedful.artifacts.run_folder import RunFolder
from heedful.errors import RequestError
from heedful.recipes.resolve import overrides_tree
from heedful.recipes.trees import merge
from heedful.recipes.yaml import dump_yaml
from heedful.runs.reading import read_recipe, recipe_from

RECIPE = """\
task: {kind: translation}
data:
  train: {kind: files, columns: {source: a, target: b}}
  valid: {kind: files, columns: {source: a, target: b}}
tokenizer: {subwords: {kind: bpe, merges: 40}}
model: {kind: transformer, n_layers: 1, d_model: 16, layer: {mixer: {n_heads: 2}, channels: {d_ff: 32}}}
schedule:
  kind: linear
  warmup: 50
training:
  max_updates: 60
"""


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "r.yaml"

    def written(old="", new=""):
        path.write_text(RECIPE.replace(old, new) if old else RECIPE)
        return str(path)

    return written


NONE = "schedule.warmup={0} must be smaller than {2}={1}; lower it"


@pytest.mark.parametrize(
    "change, overrides, place, message",
    [
        (("50", "60"), [], "r.yaml:9", NONE.format(60, 60, "training.max_updates")),
        ((), ["training.max_updates=50"], "on the command line", NONE.format(50, 50, "training.max_updates")),
        ((), ["schedule.warmup=70"], "on the command line", NONE.format(70, 60, "training.max_updates")),
        ((), ["schedule.updates=40"], "on the command line", NONE.format(50, 40, "schedule.updates")),
        (
            ("max_updates: 60", "max_minutes: 1"),
            [],
            "r.yaml:8",
            "schedule.kind=linear needs a last update",
        ),
        (("max_updates", "metric: x\n  max_updates"), [], "r.yaml:11", "training.metric=x is not measured"),
        ((), ["training.metric=x"], "on the command line", "training.metric=x is not measured"),
        (
            (),
            ["training.max_updates=null"],
            "on the command line",
            "training: set at least one of max_updates",
        ),
    ],
)
def test_settings_that_do_not_go_together(recipe, change, overrides, place, message):
    with pytest.raises(RequestError) as raised:
        read_recipe(recipe(*change), overrides)
    where, problem = str(raised.value).split(": ", 1)
    assert where.endswith(place)
    assert problem.startswith(message)


def test_a_warm_up_that_leaves_some_is_right(recipe):
    assert read_recipe(recipe(), ["schedule.warmup=59"])[0].schedule.warmup == 59
    assert read_recipe(recipe(), ["schedule={kind: constant, warmup: 100}"])[0].schedule.warmup == 100


def test_a_run_to_start_from_that_is_not_there_is_named_by_its_whole_path(recipe, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(RequestError) as raised:
        read_recipe(recipe(), ["start.run=runs/a"])
    assert f"start.run: {tmp_path / 'elsewhere' / 'runs' / 'a'}: no such folder" in str(raised.value)
    assert str(raised.value).endswith(f"start at {tmp_path / 'elsewhere'}")
    (tmp_path / "own.yaml").write_text("base: r.yaml\nstart: {run: runs/a}\n")
    with pytest.raises(RequestError) as raised:
        read_recipe(str(tmp_path / "own.yaml"))
    assert f"start.run: {tmp_path / 'runs' / 'a'}: no such folder" in str(raised.value)
    assert str(raised.value).endswith(f"start at {tmp_path}")


def test_a_folder_whose_name_is_not_utf_8_is_refused(tmp_path):
    folder = tmp_path / b"a\xff".decode("utf-8", "surrogateescape")
    folder.mkdir()
    (folder / "r.yaml").write_text(RECIPE)
    with pytest.raises(RequestError, match="must be UTF-8"):
        read_recipe(str(folder / "r.yaml"))


MISSPELT = "no such column (did you mean 'source'?); the task translation reads source, target and alignment"
OF_TEST = "data.test.a={kind: jsonl, paths: a, columns: {source: s, target: t}, lists: {sorce: r}}"
VALID = ("valid: {kind: files, columns: {", "valid: {kind: files, columns: {sorce: c, ")
SIDE_BY_SIDE = (
    "data.train={kind: beside, sources: "
    "[{kind: files, columns: {source: a}}, {kind: files, columns: {target: b, sorce: c}}]}"
)


@pytest.mark.parametrize(
    "change, override, place, key",
    [
        ((), "data.train.columns.sorce=c", "on the command line", "data.train.columns.sorce"),
        (VALID, "training.seed=1", "r.yaml:4", "data.valid.columns.sorce"),
        ((), OF_TEST, "on the command line", "data.test.a.lists.sorce"),
        ((), SIDE_BY_SIDE, "on the command line", "data.train.sources.1.columns.sorce"),
    ],
)
def test_a_column_that_nobody_reads_is_refused(recipe, change, override, place, key):
    with pytest.raises(RequestError) as raised:
        read_recipe(recipe(*change), [override])
    where, problem = str(raised.value).split(": ", 1)
    assert where.endswith(place)
    assert problem == f"{key}: {MISSPELT}"


def test_every_column_that_nobody_reads_is_told(recipe):
    with pytest.raises(RequestError) as raised:
        read_recipe(recipe(), ["data.train.columns.sorce=c", "data.valid.columns.label=c"])
    first, second = str(raised.value).splitlines()
    assert "data.train.columns.sorce" in first
    assert "data.valid.columns.label: no such column; the task" in second


def test_columns_that_the_task_could_read_may_stand_there(recipe):
    """A recipe whose guidance is switched off keeps its alignments, and one of pairs its second texts."""
    read, _ = read_recipe(recipe(), ["data.train.columns.alignment=c"])
    assert read.objective.guided is None
    read_recipe("my-own-labels", ["data.train.columns.pair=2"])
    read_recipe("my-own-questions", ["data.train={kind: jsonl, paths: a, columns: {question: q, start: s}}"])


def test_a_run_of_such_a_recipe_is_still_loaded(recipe):
    _, tree = read_recipe(recipe())
    extra = overrides_tree(["data.train.columns.sorce=c"])
    assert recipe_from(merge(tree, extra)).data.train.columns["sorce"] == "c"


@pytest.mark.parametrize(
    ("override", "left"), [("data.test=null", []), ("data.test.test2016=null", ["test2017"])]
)
def test_test_sets_can_be_taken_away(override, left):
    assert list(read_recipe("multi30k-ende-tiny", [override])[0].data.test) == left


# All errors at once -----------------------------------------------------------------------------------------


def lines_of(recipe, *overrides):
    with pytest.raises(RequestError) as caught:
        read_recipe(recipe, overrides)
    return str(caught.value).split("\n")


def test_all_errors_between_sections_are_reported_at_once():
    schedule = ["schedule.kind=cosine", "schedule.warmup=9999"]
    lines = lines_of(
        "phrasebook-de", "data.bpe_dropout=0.1", "model.tie=three-way", "training.metric=x", *schedule
    )
    keys = ["training.metric=x", "schedule.warmup=9999", "data.bpe_dropout", "model.tie=three-way"]
    assert [line.removeprefix("on the command line: ").split(" ")[0] for line in lines] == keys


def test_all_errors_of_columns_are_reported_at_once():
    lines = lines_of(
        "phrasebook-de",
        "data.filter.max_length={sorce: 3, source: 5, text: 7}",
        "data.train.columns={source: source, taget: target}",
    )
    assert [line.removeprefix("on the command line: ").partition("; ")[0] for line in lines] == [
        "data.filter.max_length: unknown column 'sorce' (did you mean 'source'?)",
        "data.filter.max_length: unknown column 'text' (did you mean 'target'?)",
        "data.train.columns.taget: no such column (did you mean 'target'?)",
    ]


def test_overrides_are_named_if_they_cause_errors_in_lines_of_the_recipe():
    lines = lines_of("phrasebook-de", "task.kind=tagging")
    assert lines[0] == (
        "on the command line: task.kind=tagging: this override does not fit the recipe phrasebook-de, "
        "which is valid without it:"
    )
    assert "phrasebook-de.yaml:26: validation.decode: unknown key; validation has no keys here" in lines
    lines = lines_of("phrasebook-de", "task.kind=tagging", "training.max_updates=5")
    assert lines[0].startswith(
        "on the command line: task.kind=tagging training.max_updates=5: these overrides"
    )


def test_overrides_are_not_blamed_for_errors_of_the_recipe(tmp_path):
    (tmp_path / "mine.yaml").write_text("base: phrasebook-de\ntraining: {sed: 3}\n", encoding="utf-8")
    path = str(tmp_path / "mine.yaml")
    wrong = f"{path}:2: training.sed: unknown key (did you mean 'seed'?)"
    assert lines_of(path, "training.max_updates=5") == [wrong]
    assert sorted(lines_of(path, "training.max_updates=x")) == [
        wrong, "on the command line: training.max_updates=x: expected a whole number, got 'x'"
    ]  # fmt: skip


# Settings by the amount of data -----------------------------------------------------------------------------

SIZED = """\
base: my-own-labels
data:
  test: null
training: {max_updates: 400}
sizes:
  - {max_rows: 3, training: {max_updates: 200}}
  - {max_rows: 5, model: {d_model: 64}}
"""


@pytest.mark.parametrize(
    "rows, updates, d_model, lines",
    [
        (
            3,
            200,
            128,
            ["mine.yaml:6: settings for 3 rows", "(at most 3): {training: {max_updates: 200}}"],
        ),
        (
            5,
            400,
            64,
            ["mine.yaml:7: settings for 5 rows", "(at most 5): {model: {d_model: 64}}"],
        ),
        (6, 400, 128, []),
        (None, 400, 128, []),
    ],
)
def test_settings_are_those_for_the_training_data(tmp_path, rows, updates, d_model, lines):
    (tmp_path / "mine.yaml").write_text(SIZED)
    if rows is not None:
        (tmp_path / "train.tsv").write_text("good\ta text\n" * rows)
    messages = []
    recipe, tree = read_recipe(str(tmp_path / "mine.yaml"), log=messages.append)
    assert (recipe.training.max_updates, recipe.model.d_model) == (updates, d_model)
    assert tree.find(("training", "max_updates")).data == updates
    said = [
        part for line in messages for part in line.removeprefix(f"{tmp_path}/").split(" of training data ")
    ]
    assert said == lines


@pytest.mark.parametrize(
    ("overrides", "logged"),
    [
        (["training.max_updates=9"], "{training: {patience: 2}, model: {d_model: 64}}"),
        (["training.max_updates=9", "training.patience=3"], "{model: {d_model: 64}}"),
        (["training.max_updates=9", "training.patience=3", "model.d_model=32"], None),
    ],
)
def test_settings_that_overrides_replace_are_not_logged(tmp_path, overrides, logged):
    sizes = "sizes: [{max_rows: 3, training: {max_updates: 200, patience: 2}, model: {d_model: 64}}]\n"
    (tmp_path / "mine.yaml").write_text("base: my-own-labels\ndata: {test: null}\n" + sizes)
    (tmp_path / "train.tsv").write_text("good\ta text\n")
    messages = []
    recipe, _ = read_recipe(str(tmp_path / "mine.yaml"), overrides, log=messages.append)
    assert recipe.training.max_updates == 9
    assert [message.split("): ")[1] for message in messages] == ([] if logged is None else [logged])


def test_errors_in_all_entries_are_found_whatever_the_data(tmp_path):
    (tmp_path / "mine.yaml").write_text(SIZED.replace("{d_model: 64}", "{d_modle: 64}"))
    message = f"{tmp_path}/mine.yaml:7: model.d_modle: unknown key (did you mean 'd_model'?)"
    assert lines_of(str(tmp_path / "mine.yaml")) == [message]


def test_overrides_need_not_fit_entries_that_are_not_chosen(tmp_path):
    text = SIZED.replace("{d_model: 64}", "{layer: {mixer: {n_heads: 2}}}").replace("{max_rows: 5,", "{")
    (tmp_path / "mine.yaml").write_text(text)
    (tmp_path / "train.tsv").write_text("good\ta text\n" * 4)
    recipe, _ = read_recipe(str(tmp_path / "mine.yaml"), ["model.d_model=14"])
    assert (recipe.size, recipe.model.d_model, recipe.training.max_updates) == (1, 14, 400)
    (tmp_path / "train.tsv").write_text("good\ta text\n" * 3)
    assert lines_of(str(tmp_path / "mine.yaml"), "model.d_model=14")[0].endswith(
        "divisible by n_heads=4; change one of them, or set d_k and d_v"
    )


def test_a_resumed_run_keeps_the_settings_that_it_was_started_with(tmp_path):
    (tmp_path / "mine.yaml").write_text(SIZED)
    (tmp_path / "train.tsv").write_text("good\ta text\n" * 3)
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    started, _ = read_recipe(str(tmp_path / "mine.yaml"), resumed=run)
    assert started.size == 0
    run.recipe.write_text(dump_yaml(started.model_dump(mode="json")))
    for rows in (4, 5, 6, 0):
        (tmp_path / "train.tsv").write_text("good\ta text\n" * rows)
        assert read_recipe(str(tmp_path / "mine.yaml"), resumed=run)[0] == started
    (tmp_path / "train.tsv").unlink()
    assert read_recipe(str(tmp_path / "mine.yaml"), resumed=run)[0] == started
    assert read_recipe(str(tmp_path / "mine.yaml"))[0].size is None


def test_sizes_can_be_taken_away_where_a_run_is_continued_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(SIZED)
    start, _ = read_recipe(str(tmp_path / "mine.yaml"))
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "recipe.yaml").write_text(dump_yaml(start.model_dump(mode="json")))
    recipe, _ = read_recipe(str(tmp_path / "mine.yaml"), ["start.run=start", "sizes=null"])
    assert (recipe.size, recipe.start.run) == (None, "start")


def test_any_source_of_training_data_chooses_the_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a.py").write_text("x = 1\n" * 9)
    (tmp_path / "mine.yaml").write_text("base: my-own-text\n")
    train = "data.train={kind: text, paths: code, suffixes: [.py], documents: file}"
    recipe, _ = read_recipe(str(tmp_path / "mine.yaml"), [train])
    assert (recipe.size, recipe.model.n_layers) == (0, 4)


def test_the_kind_of_a_section_is_a_section(tmp_path):
    start = """
task: {kind: classification}
data:
  train: {kind: tsv, paths: t.tsv, columns: {text: 1, label: 0}}
  valid: {kind: tsv, paths: t.tsv, columns: {text: 1, label: 0}}
training: {max_updates: 3}
"""
    sizes = "d_model: 12, n_layers: 1, max_length: 20"
    model = f"model: {{kind: encoder, {sizes}, layer: {{norm: rms, channels: gated}}}}\n"
    (tmp_path / "short.yaml").write_text(
        f"{start}{model}tokenizer: {{subwords: word}}\noptimizer: muon\nschedule: constant\n", "utf-8"
    )
    (tmp_path / "long.yaml").write_text(
        f"{start}{model}tokenizer: {{subwords: {{kind: word}}}}\noptimizer: {{kind: muon}}\n"
        "schedule: {kind: constant}\n",
        "utf-8",
    )
    short, whole = (read_recipe(tmp_path / name)[0] for name in ("short.yaml", "long.yaml"))
    assert short == whole
    assert short.optimizer.kind == "muon"
    (tmp_path / "bare.yaml").write_text(start + model + "tokenizer: {subwords: word}\n", "utf-8")
    overridden = read_recipe(tmp_path / "bare.yaml", ["optimizer=muon", "schedule=constant"])[0]
    assert overridden == whole
