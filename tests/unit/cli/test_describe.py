"""``heedful describe`` as a person meets it."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from jsonschema import Draft202012Validator
from tiers import sampled
from typer.testing import CliRunner

from heedful.cli import describe
from heedful.errors import RequestError
from heedful.model_summary import memory, summary
from heedful.recipes.resolve import shipped_recipes
from heedful.runs import timing
from heedful.runs.reading import read_recipe
from heedful.text.specials import SPECIALS

OF_EACH_TASK = [
    "phrasebook-ta",
    "phrasebook-rnn",
    "scitldr-tdmca",
    "wikitext2-lm",
    "phrasebook-lstm",
    "wikitext2-spans",
    "trec",
    "sick-embeddings",
    "sick-relatedness",
    "phrasebook-tags",
    "phrasebook-questions",
    "fashion-resnet",
    "scene-masks",
    "scenes-lstm",
    "my-own-files",
    "my-own-images",
]

SCHEMA = Path(__file__).parents[3] / "docs" / "schemas" / "ledger.schema.json"

RECIPE = """
task: {kind: translation}
data:
  train: {kind: files, columns: {source: a.en, target: a.de}}
  valid: {kind: files, columns: {source: b.en, target: b.de}}
tokenizer: {subwords: SUBWORDS}
model: {preset: transformer-tiny, layer: {channels: {d_ff: 31}}, n_layers: 1}
objective: {chunk: 17}
training: {max_updates: 3, tokens_per_update: 1010, accumulate: 5}
"""


def verb():
    app = typer.Typer()
    app.callback()(lambda: None)  # with it, one command alone keeps its name
    app.command("describe")(describe.describe)
    return app


@pytest.fixture(autouse=True)
def _few_updates_are_timed(monkeypatch):
    for limit in ("SECONDS", "PATIENCE"):
        monkeypatch.setattr(timing, limit, 0.0)
    monkeypatch.setattr(timing, "LIMIT", math.inf)


@pytest.fixture(autouse=True)
def _memory_is_measured_where_it_is_tested(request, monkeypatch):
    """Measuring takes two seconds of each description; tests that read the memory ask for `measured`."""
    if "measured" not in request.fixturenames:
        nothing = dict.fromkeys(memory.KINDS, 0)
        monkeypatch.setattr(memory.Update, "memory", lambda self, n: (nothing, set()))


@pytest.fixture
def measured():
    """The memory of an update is measured, as for a person."""


def invoke(*arguments):
    return CliRunner().invoke(verb(), ["describe", *map(str, arguments)])


def answer(*arguments):
    outcome = invoke(*arguments, "--json")
    assert outcome.exception is None, outcome.exception
    return json.loads(outcome.stdout)


def recipe(folder, subwords="{kind: bpe, vocab_size: 211}"):
    path = folder / "small.yaml"
    path.write_text(RECIPE.replace("SUBWORDS", subwords), encoding="utf-8")
    return path


# d_model 128, d_ff 31, one layer on each side, biases in attention
ATTENTION = 4 * (128 * 128 + 128)
FEED_FORWARD = 2 * 128 * 31 + 31 + 128
SMALL = 3 * ATTENTION + 2 * FEED_FORWARD + 5 * 2 * 128


def test_a_presets_ledger_ends_with_its_total():
    outcome = invoke("transformer-base")
    assert outcome.exit_code == 0
    table = outcome.stdout.split("\n\n")[1].splitlines()
    assert table[0].split() == ["part", "formula", "each", "times", "parameters", "FLOPs/token"]
    assert table[-1].split()[:2] == ["total", "63,045,632"]
    assert any("32,768" in row and "32,178" in row for row in table)
    assert outcome.stderr == ""


@pytest.mark.parametrize("what", ["transformer-base", "rnnsearch", "seq2seq"])
def test_json_conforms_to_its_schema(what, measured):
    value = answer(what, "vocab_size=101")
    Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(value)
    assert value["name"] == what
    assert sum(row["parameters"] for row in value["lines"][:-1] if row["depth"] == 0) == value["total"]
    assert value["lines"][-1]["parameters"] == value["total"]


def test_json_is_one_object_alone():
    assert len(invoke("rnn-tiny", "--json").stdout.splitlines()) == 1


def test_overrides_change_the_model():
    base, more = answer("transformer-tiny"), answer("transformer-tiny", "n_layers=5", "vocab_size=9999")
    encoder = next(row for row in base["lines"] if row["name"] == "encoder layer")
    decoder = next(row for row in base["lines"] if row["name"] == "decoder layer")
    assert more["total"] - base["total"] == encoder["each"] + decoder["each"] - 128


def test_lengths_and_batch_are_taken():
    short, long = answer("transformer-tiny", "--length", 10), answer("transformer-tiny", "--length", 20)
    # Scores and weighted sums of 4 + 2 * 4 attentions: ten more keys, 2 * 2 * 128 FLOPs for each.
    assert long["flops_per_token"] - short["flops_per_token"] == 12 * 10 * 2 * 2 * 128
    assert answer("transformer-tiny", "--length", 10, "--source-length", 30)["source_length"] == 30
    assert answer("transformer-tiny", "--batch", 97)["tokens"] == 97


def test_a_recipe_by_its_path(tmp_path, measured):
    value = answer(recipe(tmp_path))
    assert value["total"] == SMALL + 211 * 128
    assert value["tokens"] == 1010 // 5
    assert set(value["memory"]) == {"weights", "gradients", "optimizer", "activations", "loss"}
    assert value["memory"]["weights"] >= 4 * value["total"]
    assert value["notes"][0].startswith("V = 211")


def test_overrides_of_a_recipe(tmp_path):
    value = answer(recipe(tmp_path), "model.layer.channels.d_ff=37", "tokenizer.subwords.vocab_size=223")
    assert value["total"] == SMALL + 2 * 6 * (2 * 128 + 1) + 223 * 128
    assert answer(recipe(tmp_path), "vocab_size=7")["total"] == SMALL + 7 * 128


@pytest.mark.parametrize(
    "subwords, size",
    [
        ("{kind: byte}", 256 + 7),
        ("{kind: byte-bpe, merges: 100}", 256 + 7 + 100),
        ("{kind: bpe, merges: 100}", 256 + 7 + 100),
        ("{kind: bpe, merges: 100, byte_fallback: false}", 7 + 100),
        ("{kind: word}", 37000),
    ],
)
def test_the_vocabulary_a_recipe_will_have(tmp_path, subwords, size):
    value = answer(recipe(tmp_path, subwords))
    assert value["total"] == SMALL + size * 128
    assert value["notes"][0].startswith(f"V = {size:,}")


@pytest.mark.parametrize("name, n_classes", [("trec", 6), ("fashion-resnet", 10), ("phrasebook-tags", 5)])
def test_what_only_the_data_decide_is_assumed_aloud_beside_what_was_measured(name, n_classes):
    measured = read_recipe(name)[0].expected.parameters
    notes = answer(name)["notes"]
    assert any(note.startswith("2 classes, assumed") for note in notes)
    assert f"with its own data it has {measured:,} parameters, as measured" in notes[-1]
    assert f"the {answer(name)['total']:,} here" in notes[-1]
    asked = answer(name, f"n_classes={n_classes}")["notes"]
    assert f"{n_classes} classes" in asked
    assert not any("as measured" in note for note in asked)
    # Another model than the one that was measured:
    changed = answer(name, "model.dropout=0.0")["notes"]
    assert not any("as measured" in note for note in changed)


def test_labels_that_the_recipe_names_are_counted():
    assert "2 classes: task.labels" in answer("sst2")["notes"]


def test_fashion_has_the_measured_size_with_ten_classes():
    expected = read_recipe("fashion-resnet")[0].expected.parameters
    assert answer("fashion-resnet", "n_classes=10")["total"] == expected


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["trec", "n_classes=0"], "always has a head"),
        (["reverse", "n_classes=3"], "translation has no classes"),
        (["gpt2", "n_classes=3"], "generates tokens"),
        (["vit-mini", "n_classes=-1"], "at least 0"),
    ],
)
def test_classes_that_cannot_be_are_refused(arguments, message):
    outcome = invoke(*arguments)
    assert isinstance(outcome.exception, RequestError)
    assert message in str(outcome.exception)


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(shipped_recipes(), OF_EACH_TASK))
def test_every_shipped_recipe_can_be_described(name, measured):
    assert answer(name)["total"] > 0


def test_a_run_is_described_with_its_own_tokenizers(tmp_path):
    from heedful.text.configuration import ByteConfig, PreprocessingConfig
    from heedful.text.training import train_tokenizer

    run = tmp_path / "run"
    run.mkdir()
    recipe(tmp_path).rename(run / "recipe.yaml")
    text = (
        (run / "recipe.yaml").read_text(encoding="utf-8").replace("preset: transformer-tiny, layer: {", TINY)
    )
    (run / "recipe.yaml").write_text(text, encoding="utf-8")
    tokenizer = train_tokenizer(ByteConfig(kind="byte"), [], PreprocessingConfig())
    assert answer(run)["total"] == SMALL + 211 * 128
    for side in ("source", "target"):
        tokenizer.save(run / f"{side}.tokenizer.json")
    assert answer(run)["total"] == SMALL + tokenizer.vocab_size * 128


TINY = "kind: transformer, d_model: 128, layer: {mixer: {n_heads: 4}, "


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["transformer-bsae"], "'transformer-base'"),
        (["multi30k-ende-tinny"], "multi30k-ende-tiny"),
        (["transformer-base", "layer.mixer.n_haeds=4"], "'n_heads'"),
        (["transformer-base", "n_layers"], "KEY=VALUE"),
        (["nowhere/run"], "nowhere/run"),
    ],
)
def test_a_wrong_request_names_the_nearest_right_one(arguments, message):
    outcome = invoke(*arguments)
    assert isinstance(outcome.exception, RequestError)
    assert outcome.exception.exit_status == 2
    assert message in str(outcome.exception)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    outcome = invoke(tmp_path)
    assert isinstance(outcome.exception, RequestError)
    assert "recipe.yaml" in str(outcome.exception)


@pytest.mark.slow
def test_the_fewest_micro_batches_that_fit_are_found(tmp_path, measured):
    own = recipe(tmp_path)  # 5 micro-batches
    resident = {n: answer(own, f"training.accumulate={n}")["resident"] for n in (5, 10, 20)}
    assert resident[5] > resident[10] > resident[20]
    for accumulate, needed in [(n, resident[n]) for n in (5, 10)]:
        value = answer(own, "--memory", f"{(needed + 2000) / 2**20:.6f}MiB")
        Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(value)
        assert (value["fit"]["accumulate"], value["fit"]["resident"]) == (accumulate, needed)
        assert value["fit"]["tokens"] == 1010 // accumulate
    none = answer(own, "--memory", "1MiB")["fit"]
    assert none["accumulate"] is None
    assert none["resident"] == resident[20]  # of 50 tokens: one sequence
    for size, sentence in (
        ("1GiB", "training.accumulate=5 (as it is) fits into 1.0 GiB: about "),
        ("1MiB", "no training.accumulate fits into 1 MiB: one sequence at a time takes "),
    ):
        assert sentence in invoke(own, "--memory", size).stdout


@pytest.mark.slow
def test_micro_batches_are_named_where_the_machine_is_too_small(tmp_path, monkeypatch, measured):
    own = recipe(tmp_path)
    resident = answer(own)["resident"]
    for there, accumulate in ((resident, None), (None, None), (resident - 1, 10)):
        monkeypatch.setattr(summary, "machine_memory", lambda there=there: there)
        assert answer(own).get("fit", {}).get("accumulate") == accumulate


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["transformer-tiny", "--memory", "6GiB"], "only given for a recipe or a run"),
        (["phrasebook-de", "--memory", "6"], "--memory 6: expected a size such as 6GiB"),
        (["phrasebook-de", "--memory", "6GiB", "--batch", "7"], "--batch: not supported with --memory"),
        (["phrasebook-de", "--memory", "6GiB", "--time"], "--time: not supported with --memory"),
    ],
)
def test_memory_that_says_nothing_is_refused(arguments, message):
    outcome = invoke(*arguments)
    assert isinstance(outcome.exception, RequestError)
    assert message in str(outcome.exception)


@pytest.mark.slow
def test_updates_are_timed_as_the_recipe_would_make_them(tmp_path):
    value = answer(recipe(tmp_path), "--time", "--device", "cpu", "--length", "13")
    Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(value)
    timing = value["timing"]
    # 1010 // 13 sentences of 13, 12 and 14 tokens in turn, a fifth of them at once: parts of 15 or 16
    assert 1010 - 13 - 5 <= timing["tokens"] <= 1010
    assert (timing["device"], timing["compiled"]) == ("cpu", False)
    assert timing["tokens_per_second"] == pytest.approx(timing["tokens"] / timing["seconds"])
    assert timing["training_seconds"] == pytest.approx(3 * timing["seconds"])
    assert "timing" not in answer(recipe(tmp_path))


@pytest.mark.slow
def test_what_was_timed_is_told_below_the_table(tmp_path):
    changes = ("training.max_updates=1000000", "training.compile=off")
    outcome = invoke(recipe(tmp_path), *changes, "--time", "--device", "cpu")
    assert outcome.exception is None, outcome.exception
    (timed,) = [part for part in outcome.stdout.split("\n\n") if "made up, on cpu in" in part]
    for words in ("target tokens/s", "1,000,000 updates"):
        assert words in timed


@pytest.mark.slow
@pytest.mark.parametrize("arguments", sampled([("--length", "13"), ()], [()]), ids=["made up", "own data"])
def test_of_updates_that_are_too_slow_some_rows_are_timed(tmp_path, monkeypatch, arguments):
    for name in ("a.en", "a.de", "b.en", "b.de"):
        (tmp_path / name).write_text("abc abd\nbca\n" * 300)
    small = recipe(tmp_path, "{kind: character}")
    whole = answer(small, "--time", "--device", "cpu", *arguments)["timing"]
    n_rows = []
    update = timing.update_weights

    def counted(*arguments, **options):
        n_rows.append(len(arguments[4]))
        return update(*arguments, **options)

    monkeypatch.setattr(timing, "update_weights", counted)
    monkeypatch.setattr(timing, "LIMIT", 1e-9)
    monkeypatch.setattr(timing, "LONG_ENOUGH", 0.0)
    value = answer(small, "--time", "--device", "cpu", *arguments)
    Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(value)
    part = value["timing"]
    assert whole["row_stride"] == 1
    assert max(n_rows[-timing.FEWEST :]) <= 2  # one, or two of an update with more rows than the mean
    assert part["row_stride"] > 50
    assert part["tokens"] == pytest.approx(whole["tokens"], rel=0.2)  # those of whole updates
    assert (part["memory"], part["process"]) == (None, None)
    assert part["tokens_per_second"] == pytest.approx(part["tokens"] / part["seconds"])
    outcome = invoke(small, "--time", "--device", "cpu", *arguments)
    assert f"1 in {part['row_stride']} rows of" in outcome.stdout
    assert "cut short" in outcome.stdout


def test_a_whole_update_is_estimated_from_one_that_is_long_enough(monkeypatch, tmp_path):
    """1,000 rows of a second each, and 10 for the optimizer; the clock stands still otherwise."""
    now, strides = [0.0], []

    class Trial(timing._Trial):
        def work(self, stride):
            def update():
                used = -(-1000 // stride)
                strides.append(stride)
                now[0] += 10 + used
                return 1000 / used

            return update

    trial = Trial(None, None, None, [], tmp_path)
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    for limit, expected in ((1.0, [1000, 250]), (math.inf, [1000, 250, 62, 15, 3, 1])):
        strides.clear()
        monkeypatch.setattr(timing, "LONG_ENOUGH", limit)
        # one row counts as part of the fixed costs
        assert trial.estimated_seconds(1000) == pytest.approx(1010, rel=0.25)
        assert strides == [stride for stride in expected for _ in range(2)]


@pytest.mark.parametrize(("seconds", "stride"), [(0.001, 1), (3.7, 1), (15.0, 4), (60.0, 16), (1e9, 50)])
def test_as_many_rows_are_left_out_as_time_is_missing(seconds, stride, monkeypatch):
    """There are at least 8 updates: the widest micro-batch, four to warm up, and three that are timed."""
    monkeypatch.setattr(timing, "LIMIT", 30.0)
    assert timing._Trial.row_stride(seconds, 50) == stride


@pytest.mark.full
def test_a_recipe_whose_data_are_at_hand_is_timed_on_them(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "FEWEST", 8)  # two epochs
    for name in ("a.en", "a.de", "b.en", "b.de"):
        (tmp_path / name).write_text("abc abd\nbca\n" * 300)
    small = recipe(tmp_path, "{kind: character}")
    value = answer(small, "--time", "--device", "cpu")
    Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(value)
    timed = value["timing"]
    assert timed["own_data"]
    # An epoch is 3,600 tokens: three updates that are nearly full, and what is left.
    assert 3600 / 4 - 8 <= timed["tokens"] <= 1010
    # Its five characters, and not the vocabulary that is assumed of texts nobody has read.
    source = next(row for row in value["lines"] if row["name"] == "source embedding")
    assert source["parameters"] == (len(SPECIALS) + 5) * 128
    # Who asks for lengths or sizes gets them, made up.
    for asked in (("--length", "13"), ("vocab_size=40",)):
        assert not answer(small, *asked, "--time", "--device", "cpu")["timing"]["own_data"]


def test_a_model_without_a_recipe_cannot_be_timed():
    outcome = invoke("transformer-tiny", "--time")
    assert isinstance(outcome.exception, RequestError)
    assert "a recipe or a run" in str(outcome.exception)


def test_a_terminal_gets_the_same_numbers_as_a_table(capsys, measured):
    from heedful.model_summary.summary import describe as counted

    ledger = counted("transformer-tiny")
    describe._show(ledger)
    shown = capsys.readouterr().out
    for row in ledger.lines():
        assert f"{row.line.parameters:,}" in shown


HELP = """
import pkgutil, sys
from importlib import import_module
from typer.testing import CliRunner
import heedful.cli
from heedful.cli.main import app
for module in pkgutil.iter_modules(heedful.cli.__path__, "heedful.cli."):
    import_module(module.name)
shown = CliRunner().invoke(app, ["--help"])
assert len(app.registered_commands) > 1 and shown.exit_code == 0 and "describe" in shown.stdout, shown.output
for command in app.registered_commands:
    assert CliRunner().invoke(app, [command.name, "--help"]).exit_code == 0
sys.exit(3 if "torch" in sys.modules else 0)
"""


def test_help_of_all_verbs_does_not_import_torch():
    assert subprocess.run([sys.executable, "-c", HELP]).returncode == 0
