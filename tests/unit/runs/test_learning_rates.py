"""The curve of a schedule has the rates that a training uses."""

import json

import pytest
from typer.testing import CliRunner

from heedful.cli.main import app
from heedful.errors import RequestError
from heedful.explain.drawing.heat_map import SUFFIXES
from heedful.model_summary.described_model import RequestedSizes, find_model
from heedful.recipes.resolve import shipped_recipes
from heedful.runs.learning_rates import UNLIMITED, learning_rates, schedule_of
from heedful.runs.reading import read_recipe
from heedful.runs.train import train_run
from heedful.training.callbacks import Updated
from heedful.training.schedules import Cosine

SCHEDULES = [
    ["schedule.kind=warmup", "schedule.warmup=300"],
    ["schedule.kind=inverse-sqrt", "schedule.warmup=300"],
    ["schedule.kind=inverse-sqrt", "schedule.warmup=5", "schedule.peak=1e-5", "schedule.warmup_from=1e-7"],
    ["schedule.kind=cosine", "schedule.warmup=0.137", "schedule.floor=1e-5"],
    ["schedule.kind=linear", "schedule.warmup=3"],
    ["schedule.kind=linear", "schedule.updates=300", "schedule.warmup=0.5", "schedule.floor=1e-6"],
    ["schedule.kind=constant", "schedule.warmup=0"],
    ["schedule.kind=constant", "schedule.warmup=9999"],
    ["schedule.kind=plateau", "schedule.warmup=17"],
]


def rates_of(name, *overrides):
    described = find_model(name, RequestedSizes(), overrides)
    return learning_rates(name, described.recipe, described.model), described.recipe


@pytest.mark.parametrize("changes", SCHEDULES, ids=lambda changes: " ".join(changes))
@pytest.mark.parametrize("updates", [5, 499, 4321])
def test_a_curve_is_that_of_the_schedule(changes, updates):
    rates, recipe = rates_of("phrasebook-de", f"training.max_updates={updates}", *changes)
    schedule = schedule_of(recipe, updates)
    every = [schedule.rate(update) for update in range(1, updates + 1)]
    assert all(point.rate == every[point.update - 1] for point in rates.points)
    shown = [point.update for point in rates.points]
    assert (shown[0], shown[-1]) == (1, updates) == (1, rates.updates)
    assert shown == sorted(set(shown))
    assert rates.peak.rate == max(every)
    assert len(rates.groups) == 1


def test_a_training_without_a_number_of_updates_shows_the_first_ones():
    changes = ("training.max_updates=null", "training.max_epochs=3", "schedule.kind=constant")
    rates, _ = rates_of("phrasebook-de", *changes)
    assert rates.updates == UNLIMITED
    assert rates.notes[0].startswith("the number of updates depends on training.max_epochs=3")
    rates, _ = rates_of("phrasebook-de", *changes, "schedule.kind=linear", "schedule.updates=77")
    assert rates.updates == 77
    with pytest.raises(RequestError, match=r"decays until training\.max_epochs=3, .*max_updates=N"):
        rates_of("phrasebook-de", *changes, "schedule.kind=linear")


@pytest.fixture
def tuned(tmp_path, make_run):
    """A recipe that starts from a run with two layers, with smaller rates in the lower ones."""
    part = {"mixer": {"kind": "attention", "n_heads": 2}, "channels": {"kind": "feed-forward", "d_ff": 9}}
    recipe = {
        "task": {"kind": "classification"},
        "tokenizer": {"subwords": {"kind": "word"}},
        "model": {"kind": "encoder", "d_model": 8, "n_layers": 2, "max_length": 9, "layer": part},
    }
    run = make_run(tmp_path / "run", recipe, [{"text": x, "label": x} for x in "ab"])
    text = (run / "recipe.yaml").read_text("utf-8")
    start = f"start: {{run: {run}, layer_share: 0.5}}"
    (tmp_path / "tuned.yaml").write_text(text.replace("start: null", start), "utf-8")
    return tmp_path / "tuned.yaml"


def test_groups_have_the_shares_of_their_depth(tuned):
    rates, _ = rates_of(tuned)
    assert [group.share for group in rates.groups] == [1.0, 0.5, 0.25, 0.125]
    model = find_model(tuned, RequestedSizes()).model
    assert sum(group.parameters for group in rates.groups) == sum(p.numel() for p in model.parameters())
    block = sum(p.numel() for name, p in model.named_parameters() if ".blocks.0." in name)
    assert rates.groups[2].parameters == block
    assert any("start.layer_share" in note for note in rates.notes)


def test_muon_has_a_group_for_adam():
    rates, _ = rates_of("phrasebook-de", "optimizer.kind=muon", "optimizer.adam_share=0.3")
    assert [group.share for group in rates.groups] == [1.0, 0.3]
    assert any("optimizer.adam_share" in note for note in rates.notes)


TRANSLATOR = """
task: {kind: translation}
data:
  train: {kind: files, columns: {source: text, target: text}}
  valid: {kind: files, columns: {source: text, target: text}}
tokenizer: {subwords: {kind: character}}
model: {preset: transformer-tiny, d_model: 8, n_layers: 1, layer: {mixer: {n_heads: 2}, channels: {d_ff: 9}}}
schedule: {kind: cosine, warmup: 0.5}
training: {max_updates: 4, precision: fp32}
"""


@pytest.mark.slow
def test_a_training_reports_these_rates(tmp_path):
    (tmp_path / "text").write_text("a b\nb a c\nc\n", "utf-8")
    (tmp_path / "own.yaml").write_text(TRANSLATOR, "utf-8")
    rates, recipe = rates_of(tmp_path / "own.yaml")
    events = []
    train_run(recipe, tmp_path / "run", device="cpu", callbacks=lambda folder: [events.append])
    reported = [event.rate for event in events if isinstance(event, Updated)]
    assert reported == [point.rate for point in rates.points]


@pytest.mark.slow
@pytest.mark.parametrize("updates, last", [("null", 15), (9, 9), (99, 15)])
def test_a_decay_ends_with_the_training_be_it_after_updates_or_epochs(tmp_path, updates, last):
    (tmp_path / "text").write_text("a b\nb a c\nc\n", "utf-8")
    (tmp_path / "own.yaml").write_text(TRANSLATOR, "utf-8")
    limits = ["training.max_epochs=5", f"training.max_updates={updates}", "training.tokens_per_update=2"]
    recipe, events = read_recipe(tmp_path / "own.yaml", limits)[0], []
    train_run(recipe, tmp_path / "run", device="cpu", callbacks=lambda folder: [events.append])
    reported = [event.rate for event in events if isinstance(event, Updated)]
    cosine = Cosine(recipe.schedule.peak, last, round(last / 2))
    assert reported == [cosine.rate(update) for update in range(1, last + 1)]
    assert reported[-1] == 0


@pytest.mark.slow
def test_epochs_that_end_within_the_warm_up_are_refused(tmp_path):
    (tmp_path / "text").write_text("a b\nb a c\nc\n", "utf-8")
    (tmp_path / "own.yaml").write_text(TRANSLATOR, "utf-8")
    limits = ["training.max_epochs=2", "training.max_updates=null", "schedule.warmup=2"]
    recipe = read_recipe(tmp_path / "own.yaml", limits)[0]
    expected = (
        r"training\.max_epochs=2 ends the training after 2 updates, within schedule\.warmup=2; lower it"
    )
    with pytest.raises(RequestError, match=expected):
        train_run(recipe, tmp_path / "run", device="cpu")


def invoke(*arguments):
    return CliRunner().invoke(app, ["describe", *map(str, arguments)])


@pytest.mark.slow
@pytest.mark.parametrize("name", shipped_recipes())
def test_the_schedule_of_every_shipped_recipe_is_plotted(name, published):
    outcome = invoke(name, "--plot", "schedule", "--json")
    assert outcome.exception is None, outcome.exception
    published("schedule", json.loads(outcome.stdout))


def test_the_command_shows_chart_numbers_and_groups(tuned):
    outcome = invoke(tuned, "schedule.kind=constant", "--plot", "schedule")
    assert outcome.exception is None, outcome.exception
    assert outcome.stdout.startswith("learning rate (constant)")
    assert "peak  0.0005     at update 1\n" in outcome.stdout
    assert "share 0.5        peak 0.00025, of" in outcome.stdout


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_plot_is_written(suffix, tmp_path):
    file = tmp_path / f"rates{suffix}"
    outcome = invoke("phrasebook-de", "--plot", "schedule", "--out", file)
    assert outcome.exception is None, outcome.exception
    assert file.stat().st_size > 1000


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["transformer-base", "--plot", "schedule"], "needs a recipe or a run"),
        (["phrasebook-de", "--plot", "schedule", "--time"], "--time: not supported with --plot"),
        (["phrasebook-de", "--out", "x.png"], "--out requires --plot"),
        (["phrasebook-de", "--plot", "schedule", "--out", "x.gif"], "must end in .svg or .png"),
    ],
)
def test_wrong_requests(arguments, message):
    outcome = invoke(*arguments)
    assert isinstance(outcome.exception, RequestError)
    assert message in str(outcome.exception)
