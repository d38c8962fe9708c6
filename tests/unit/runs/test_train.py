"""From recipe to run: what is rehearsed, what a resumed run may change, and what stays usable."""

import json
import shutil
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from heedful.api.run import load
from heedful.api.training import train_into
from heedful.artifacts.run_folder import RunFolder, locked
from heedful.cli.train import log_result, nothing_to_do, report
from heedful.data.lines import Location
from heedful.data.plan import in_order
from heedful.data.report import Longest
from heedful.errors import DamagedError, DataError, RequestError, WorkError
from heedful.recipes.resolve import overrides_tree
from heedful.recipes.trees import merge
from heedful.runs import train as module
from heedful.runs.evaluate import evaluate, with_evaluation
from heedful.runs.prepare import prepare
from heedful.runs.reading import recipe_from, saved_tree
from heedful.runs.train import train_run
from heedful.tasks import base
from heedful.tasks.base import PreparedData
from heedful.tasks.metrics import translation
from heedful.tasks.metrics.translation import sentence_scores
from heedful.tasks.seq2seq import ValidationConfig
from heedful.tasks.translation import (
    EvaluationConfig,
    PretrainedConfig,
    Translation,
    TranslationRecipe,
)
from heedful.text.configuration import WordConfig
from heedful.training import distribution, fast_paths
from heedful.training.callbacks import TensorBoard
from heedful.training.checkpoints import ScoredCheckpoint, TrainingState, average, path_of, paths
from heedful.training.loop import TrainingResult
from heedful.training.schedules import ConstantConfig, LinearConfig
from heedful.training.update import PlannedData


def recipe(**training):
    files = {"kind": "files", "columns": {"source": "text", "target": "text"}}
    return TranslationRecipe.model_validate(
        {
            "task": {"kind": "translation"},
            "data": {"train": files, "valid": files},
            "tokenizer": {"subwords": {"kind": "character"}},
            "model": {
                "kind": "transformer",
                "d_model": 4,
                "n_layers": 1,
                "layer": {
                    "mixer": {"kind": "attention", "n_heads": 2},
                    "channels": {"kind": "feed-forward", "d_ff": 3},
                },
            },
            "schedule": {"kind": "constant"},
            "training": {"max_updates": 2, "validate_every": 2, "precision": "fp32", **training},
        }
    )


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    (tmp_path / "text").write_text("a b\nb a c\nc\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    (folder / "text").write_text("a b\nb a c\nc\n")
    train_run(recipe().model_copy(update={"root": str(folder)}), folder / "run", device="cpu")
    return folder


@pytest.fixture
def run(finished, tmp_path, monkeypatch):
    """A finished run, with its corpus, in the current folder."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


# The weights it ends with ---------------------------------------------------------------------------------


@pytest.mark.parametrize("of_average, kept", [(0.5, "average"), (2.0, "best")])
def test_the_better_of_average_and_best_checkpoint_is_kept(corpus, monkeypatch, of_average, kept):
    """Validations say 1.5, then 1 (update 2), then 3 (update 3), and of the average what is given."""
    logged, measured = [], iter([1.5, 1.0, 3.0, of_average])
    monkeypatch.setattr(Translation, "validation_metrics", lambda self, terms: {"loss": next(measured)})
    settings = recipe(max_updates=3, validate_every=1, average=2, keep_last=3)
    trained = train_run(settings, corpus / "run", device="cpu", log=logged.append)
    files = [path_of(corpus / "run", update) / "model.safetensors" for update in (2, 3)]
    expected, _ = average(files if kept == "average" else files[:1])
    final = load_file(trained.folder.weights)
    assert all(torch.equal(final[name], tensor) for name, tensor in expected.items())
    assert any(line.endswith("the run keeps the " + {"best": "best one"}.get(kept, kept)) for line in logged)


def test_a_recipe_may_keep_the_average_whatever_validation_says(corpus, monkeypatch):
    """It is not even validated: the three values are those of the updates."""
    measured = iter([1.5, 1.0, 3.0])
    monkeypatch.setattr(Translation, "validation_metrics", lambda self, terms: {"loss": next(measured)})
    settings = recipe(max_updates=3, validate_every=1, average=2, keep_last=3, keep_average="always")
    trained = train_run(settings, corpus / "run", device="cpu")
    expected, _ = average([path_of(corpus / "run", n) / "model.safetensors" for n in (2, 3)])
    final = load_file(trained.folder.weights)
    assert all(torch.equal(final[name], tensor) for name, tensor in expected.items())


# What is refused before any work ---------------------------------------------------------------------------


def test_a_second_training_of_a_run_is_refused_and_changes_nothing(run):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with locked(run), pytest.raises(RequestError, match="locked by another process that writes to it"):
        train_run(recipe(max_updates=3), run, resume=True, device="cpu")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    train_run(recipe(max_updates=3), run, resume=True, device="cpu")


def test_a_training_that_saved_nothing_is_told_from_a_run(corpus):
    settings = recipe().model_copy(update={"schedule": ConstantConfig(peak=1e30)})
    with pytest.raises(
        WorkError,
        match=r"start a new run \(--resume, or heedful.resume, keeps the schedule\) with a lower learning",
    ):
        train_run(settings.model_copy(update={"root": str(corpus)}), corpus / "run", device="cpu")
    with pytest.raises(RequestError, match="ended before its first checkpoint; replace it with --overwrite"):
        train_run(recipe(), corpus / "run", device="cpu")
    with (
        locked(corpus / "run"),
        pytest.raises(RequestError, match="locked by another process that writes to it"),
    ):
        train_run(recipe(), corpus / "run", device="cpu")
    assert (corpus / "run" / "bad_batch.json").exists()


def test_a_fresh_training_beside_one_that_begins_is_refused_and_takes_nothing_away(corpus):
    with locked(corpus / "run"):
        with pytest.raises(RequestError, match="locked by another process that writes to it"):
            train_run(recipe(), corpus / "run", device="cpu")
        assert (corpus / "run").is_dir()
    assert not (corpus / "run").exists()


def test_a_model_that_does_not_fit_is_told_and_leaves_nothing(corpus):
    settings = recipe()
    wide = settings.model.model_copy(update={"d_model": 8_000_000})
    logged = []
    with pytest.raises(RequestError, match=r"^model: does not fit in memory: .* GiB, and this machine has "):
        train_run(
            settings.model_copy(update={"model": wide}),
            corpus / "runs" / "x",
            device="cpu",
            log=logged.append,
        )
    assert logged == []  # no work was begun
    assert [path.name for path in corpus.iterdir()] == ["text"]


# The rehearsal --------------------------------------------------------------------------------------------


class Rehearsed(nn.Module):
    """Stands for a step, and notes what it is given."""

    def __init__(self):
        super().__init__()
        self.model, self.batches = nn.Linear(2, 3), []

    def counts(self, batch):
        return {}

    def forward(self, batch, counts):
        self.batches.append(batch.samples)
        return self.model.weight.sum(), []


class Samples:
    """Stands for a batch: the numbers of its samples."""

    def __init__(self, samples):
        self.samples = list(samples)

    def to(self, device):
        return self


@pytest.mark.parametrize("n_parts", [1, 2, 5])
def test_what_is_rehearsed_is_the_largest_rectangle_that_is_run_at_once(n_parts):
    lengths = np.array([[3, 3]] * 11 + [[13, 2], [2, 7], [5, 5], [17, 16]] * 3)
    data = PlannedData(lengths, lambda samples, epoch: Samples(samples), tokens_per_update=10_000, seed=1)
    step = Rehearsed()
    module.rehearse(step, data, n_parts, torch.device("cpu"), str)
    parts = data.split(range(len(lengths)), n_parts)
    (batch,) = step.batches
    assert batch in parts
    rectangles = [len(part) * lengths[part].max() for part in parts]
    assert len(batch) * lengths[batch].max() == max(rectangles)
    assert step.model.weight.grad is None


def test_memory_is_tried_with_the_micro_batches_of_the_training(corpus, monkeypatch):
    tried = []
    monkeypatch.setattr(module, "rehearse", lambda step, data, n_parts, *rest: tried.append(n_parts))
    train_run(recipe(accumulate=3, max_updates=1), corpus / "run", device="cpu")
    assert tried == [3]


LONGEST = Longest("source", 1234, Location("{my}.source", 300))
ROW = "longest source: {my}.source:300, 1,234 tokens"


@pytest.mark.parametrize(
    "budget, longest, first, last",
    [
        (1233, LONGEST, f"{ROW}, more than training.tokens_per_update (1,233): set data", "max_length"),
        (1234, LONGEST, "the widest micro-batch", f"max_length ({ROW})"),
        (1234, None, "the widest micro-batch", "max_length"),
    ],
)
def test_a_micro_batch_without_room_names_the_longest_row(budget, longest, first, last):
    class Full(Rehearsed):
        def forward(self, batch, counts):
            raise RuntimeError("can't allocate memory")

    data = PlannedData(np.array([7, 5]), lambda samples, epoch: Samples(samples), 100, seed=1)
    words = partial(module.too_wide, recipe(tokens_per_update=budget), longest)
    with pytest.raises(RequestError) as error:
        module.rehearse(Full(), data, 1, torch.device("cpu"), words)
    assert str(error.value).startswith(first)
    assert str(error.value).endswith(last)
    assert "the widest micro-batch (2 sequences of up to 7 tokens) does not fit" in str(error.value)


@pytest.mark.parametrize(
    ("room", "remedy"),
    [
        (12 * 7, None),
        (6 * 7, "training.accumulate=6 fits; or lower training.tokens_per_update, or "),
        (2 * 7, "training.accumulate=24 fits; or"),
        (7, "training.accumulate=48 fits; or"),
        (6, "lower training.tokens_per_update, raise training.accumulate, or"),
    ],
)
def test_more_micro_batches_are_named_if_they_fit(room, remedy):
    class Small(Rehearsed):
        def forward(self, batch, counts):
            if len(batch.samples) * 7 > room:
                raise RuntimeError("can't allocate memory")
            return super().forward(batch, counts)

    data = PlannedData(np.array([7] * 24), lambda samples, epoch: Samples(samples), 1000, seed=1)
    words = partial(module.too_wide, recipe(accumulate=3), None)
    step = Small()
    if remedy is None:
        module.rehearse(step, data, 2, torch.device("cpu"), words)
        return
    with pytest.raises(RequestError) as error:
        module.rehearse(step, data, 2, torch.device("cpu"), words)
    assert str(error.value).startswith(
        f"the widest micro-batch (12 sequences of up to 7 tokens) does not fit in memory; {remedy}"
    )
    assert step.model.weight.grad is None


def test_other_errors_of_the_rehearsal_are_not_about_memory():
    class Wrong(Rehearsed):
        def forward(self, batch, counts):
            raise RequestError("objective: unknown")

    data = PlannedData(np.array([7, 5]), lambda samples, epoch: Samples(samples), 100, seed=1)
    with pytest.raises(RequestError, match=r"^objective: unknown$"):
        module.rehearse(Wrong(), data, 1, torch.device("cpu"), partial(module.too_wide, recipe(), None))


@pytest.fixture
def broken_compiler(monkeypatch):
    """What torch 2.11 did on a GPU: the code that it made stopped with an error."""

    def broken(block, *context):
        raise NameError("name 's19' is not defined")

    monkeypatch.setattr(torch, "compile", lambda *arguments, **options: broken)
    monkeypatch.setattr(fast_paths, "find_compiler", lambda device: "g++")


def test_a_model_whose_compiled_code_fails_is_trained_without_compiling(corpus, monkeypatch, broken_compiler):
    logged = []
    monkeypatch.setitem(fast_paths.WORTH_COMPILING, "cpu", 0)
    ours = train_run(recipe(compile="auto"), corpus / "compiled", device="cpu", log=logged.append)
    reason = "torch's compiler failed (NameError: name 's19' is not defined); training without compiling"
    assert reason in logged
    theirs = train_run(recipe(compile="off"), corpus / "plain", device="cpu")
    ours, theirs = (load_file(trained.folder.weights) for trained in (ours, theirs))
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())


def test_a_compiler_that_fails_without_a_message_is_named(corpus, monkeypatch):
    def broken(block, *context):
        raise AssertionError

    monkeypatch.setattr(torch, "compile", lambda *arguments, **options: broken)
    monkeypatch.setattr(fast_paths, "find_compiler", lambda device: "g++")
    with pytest.raises(WorkError, match=r"torch's compiler failed \(AssertionError: \); set training"):
        train_run(recipe(compile="on"), corpus / "run", device="cpu")


def test_compiled_code_that_fails_although_it_was_asked_for_ends_the_training(corpus, broken_compiler):
    with pytest.raises(WorkError, match=r"^training\.compile: .*'s19'.*; set training\.compile=off"):
        train_run(recipe(compile="on"), corpus / "run", device="cpu")


def test_the_longest_row_of_the_training_data_is_handed_on(corpus, monkeypatch):
    messages = []
    monkeypatch.setattr(module, "rehearse", lambda *arguments: messages.append(arguments[-1]))
    train_run(recipe(max_updates=1, tokens_per_update=4), corpus / "run", device="cpu")
    assert messages[0]("").startswith(
        "longest source: text:2, 5 tokens, more than training.tokens_per_update (4)"
    )


class Stored:
    """Stands for a token store in which every sentence has as many tokens as are given."""

    def __init__(self, lengths):
        self.n = lengths

    def lengths(self, column):
        return np.array(self.n)


def test_validation_runs_micro_batches(monkeypatch):
    task, plan = Translation(recipe(tokens_per_update=80, accumulate=4)), []
    monkeypatch.setattr(base, "in_order", lambda *given: plan.extend(in_order(*given)) or plan)
    task.validator(PreparedData(task, None, Stored([9] * 12), []), None)
    assert [len(samples) for samples in plan] == [2] * 6


def test_a_schedule_that_does_not_fit_leaves_nothing_behind(corpus):
    settings, schedule = recipe(max_updates=5), LinearConfig(warmup=9)
    with pytest.raises(RequestError, match=r"schedule\.warmup"):
        train_run(settings.model_copy(update={"schedule": schedule}), corpus / "run", device="cpu")
    assert not (corpus / "run").exists()


@pytest.mark.parametrize("part", ["build_optimizer", "callbacks", "validator"])
def test_a_request_that_fails_before_the_first_update_leaves_nothing_behind(corpus, monkeypatch, part):
    def fails(*arguments, **options):
        raise RequestError("it does not fit")

    if part == "build_optimizer":
        monkeypatch.setattr(module, part, fails)
    elif part == "validator":
        monkeypatch.setattr(Translation, part, fails)
    callbacks = {"callbacks": fails} if part == "callbacks" else {}
    with pytest.raises(RequestError, match="it does not fit"):
        train_run(recipe(), corpus / "run", device="cpu", **callbacks)
    assert not (corpus / "run").exists()


def by_power(warmup, decoder=False, **training):
    """A recipe whose encoder, or decoder, is normalised by power."""
    own = recipe(max_updates=None, validate_every=2, **training)
    norms = [{"norm": {"kind": "power", "warmup": warmup}}, {"norm": "layer"}]
    layer, decoder_layer = reversed(norms) if decoder else norms
    model = own.model.changed(layer=layer, decoder_layer=decoder_layer)
    return own.model_copy(update={"model": model})


@pytest.mark.parametrize("decoder", [False, True])
def test_a_norm_that_patience_may_leave_in_its_warm_up_is_refused_before_any_work(corpus, decoder):
    """Three validations at least, of two updates and four batches each."""
    with pytest.raises(RequestError, match=r"after 12 batches.*at most 6"):
        train_run(by_power(7, decoder, patience=2, accumulate=2), corpus / "run")
    assert not (corpus / "run").exists()


@pytest.mark.parametrize("training", [{"max_epochs": 1}, {"max_minutes": 9.0, "max_epochs": 1}])
def test_where_the_data_end_a_training_within_the_warm_up_of_its_norm_it_is_told(corpus, training):
    said = []
    train_run(by_power(7, **training), corpus / "run", log=said.append)
    assert any("still in its warm-up (1 of 7 batches)" in line for line in said)
    said.clear()
    train_run(by_power(1, **training), corpus / "other", log=said.append)
    assert not any("warm-up" in line for line in said)


def test_scores_of_chinese_are_taken_of_its_characters(corpus):
    settings = recipe().model_copy(
        update={
            "evaluation": EvaluationConfig(language="zh"),
            "validation": ValidationConfig(decode=None),
            "root": str(corpus),
        }
    )
    (corpus / "text").write_text("你好 世界\n再见\n")
    train_run(settings, corpus / "run", device="cpu")
    made = load(corpus / "run", device="cpu")
    found = evaluate(made, "valid", settings.data.valid)
    signatures = {score.name: score.signature for score in found.scores}
    assert "|tok:zh|" in signatures["BLEU"]
    (row, _) = found.rows()
    (own,) = sentence_scores([row["output"]], [row["target"]], language="zh")
    assert row["scores"]["BLEU"] == own["BLEU"]


def test_a_missing_tokeniser_of_the_language_is_noticed_before_any_work(corpus, monkeypatch):
    def missing(*args, trg_lang="", **more):
        raise RuntimeError("Please install it: pip install sacrebleu[ja]")

    monkeypatch.setattr(translation, "BLEU", missing)
    asked = {"evaluation": EvaluationConfig(language="ja"), "root": str(corpus / "nowhere")}
    settings = recipe().model_copy(update={**asked, "validation": ValidationConfig(decode=1)})
    with pytest.raises(RequestError, match=r"language=ja: .*heedful\[japanese\]"):
        train_run(settings, corpus / "run", device="cpu")
    assert not (corpus / "run").exists()
    # Validations that compute no BLEU need no tokeniser; the data are then the first thing that is missing.
    settings = recipe().model_copy(update={**asked, "validation": ValidationConfig(decode=0)})
    with pytest.raises(RequestError, match="nowhere"):
        train_run(settings, corpus / "run", device="cpu")


def test_texts_without_spaces_choose_the_tokeniser_which_a_finished_run_can_be_given(corpus):
    (corpus / "text").write_text("สวัสดีชาวโลก\nขอบคุณมาก\n")
    validation = ValidationConfig(decode=None)
    settings = recipe().model_copy(update={"validation": validation, "root": str(corpus)})
    said = []
    train_run(settings, corpus / "run", device="cpu", log=said.append)
    (note,) = [line for line in said if "no spaces between words" in line]
    assert "look like th" in note
    made = load(corpus / "run", device="cpu")
    first = evaluate(made, "valid", settings.data.valid)
    assert any("look like th" in note for note in first.notes)
    other = with_evaluation(made, ["language=zh"])
    again = evaluate(other, "valid", settings.data.valid)
    assert not any("evaluation.language" in note for note in again.notes)
    of = [{score.name: score.signature for score in found.scores}["BLEU"] for found in (first, again)]
    assert ["|tok:char|" in of[0], "|tok:zh|" in of[1]] == [True, True]
    assert made.recipe.evaluation.language is None
    for wrong in ("language=xx", "langage=th"):
        with pytest.raises(RequestError, match=r"evaluation\.lang"):
            with_evaluation(made, [wrong])


# Going on with a finished run -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("decode", "cut"), [(None, 2), (2, 1), (0, 0)])
def test_sources_that_validations_cut_are_counted(corpus, decode, cut):
    (corpus / "text").write_text("\n".join(" ".join("a" * n) for n in (2000, 1, 99, 1100)) + "\n")
    settings = recipe().model_copy(
        update={"validation": ValidationConfig(decode=decode), "root": str(corpus)}
    )
    said = []
    train_run(settings, corpus / "run", device="cpu", log=said.append)
    note = f"data.valid: validations translate only the first 1,024 tokens of {cut} longer sources"
    assert [line for line in said if "1,024" in line] == [note] * bool(cut)


def test_a_run_stays_usable_when_going_on_with_it_fails(run, monkeypatch):
    def fails(*arguments, **options):
        raise RequestError("failed")

    before = load(run, device="cpu").model.state_dict()
    monkeypatch.setattr(module.Training, "fit", fails)
    with pytest.raises(RequestError, match="failed"):
        train_run(recipe(max_updates=3), run, resume=True, device="cpu")
    after = load(run, device="cpu")
    assert after.recipe.training.max_updates == 3
    assert all(torch.equal(value, after.model.state_dict()[name]) for name, value in before.items())


def test_a_run_stays_usable_when_its_card_cannot_be_written(run, monkeypatch):
    def killed(path, value):
        if path.name == "run.json" and "recipe.yaml" in value["files"]:
            raise KeyboardInterrupt
        write(path, value)

    write = module.write_card
    monkeypatch.setattr(module, "write_card", killed)
    with pytest.raises(KeyboardInterrupt):
        train_run(recipe(max_updates=3), run, resume=True, device="cpu")
    assert load(run, device="cpu").recipe.training.max_updates == 3


def test_a_finished_run_without_checkpoints_does_not_begin_again(run):
    shutil.rmtree(run / "checkpoints")
    before = (run / "weights.safetensors").read_bytes()
    with pytest.raises(RequestError, match="no checkpoints to continue from"):
        train_run(recipe(max_updates=3), run, resume=True, device="cpu")
    assert (run / "weights.safetensors").read_bytes() == before
    load(run, device="cpu")


def files_of(run):
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


@pytest.mark.parametrize("harm", ["missing", "version", "hash", "key", "text"])
def test_a_card_that_is_missing_or_damaged_is_named_and_written_again_by_resuming(run, harm):
    """Without it, predictions would come from a checkpoint: other weights than the run ended with."""
    card, before = run / "run.json", load_file(run / "weights.safetensors")
    content = card.read_text("utf-8")
    changes = {
        "version": ('"version": 1', '"version": "1"'),
        "hash": ('"sha256": "', '"sha256": "0'),
        "key": ('"bytes"', '"bites"'),
        "text": ('"translation"', '"regression"'),
    }
    if harm == "missing":
        card.unlink()
    else:
        card.write_text(content.replace(*changes[harm], 1), "utf-8")
        assert card.read_text("utf-8") != content
    with pytest.raises(DamagedError, match=r"run\.json: .*train with --resume to write it again"):
        load(run, device="cpu")
    train_run(recipe(), run, resume=True, device="cpu")
    after = load(run, device="cpu").model.state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


def test_a_card_without_its_own_hash_is_damaged(run):
    card = json.loads((run / "run.json").read_text("utf-8"))
    del card["sha256"]
    (run / "run.json").write_text(json.dumps(card), "utf-8")
    with pytest.raises(DamagedError, match=r"run\.json: .*sha256: missing"):
        load(run, device="cpu")


def test_an_imported_run_without_its_card_is_not_trained_from_the_start(run):
    (run / "run.json").unlink()
    shutil.rmtree(run / "checkpoints")
    before = files_of(run)
    for resume in (True, False):
        with pytest.raises(RequestError, match=r"no checkpoints to continue from|already contains a run"):
            train_run(recipe(max_updates=3), run, resume=resume, device="cpu")
    with pytest.raises(DamagedError, match=r"run\.json: missing, though .*; restore it from a copy$"):
        load(run, device="cpu")
    assert files_of(run) == before


def flip(path):
    """Change one letter, so that the file stays text."""
    content = bytearray(path.read_bytes())
    content[-6] ^= 1
    path.write_bytes(content)


@pytest.fixture
def stopped(run, monkeypatch):
    """A run whose training was killed after its second update and checkpoint, and was not finished before."""
    shutil.rmtree(run)
    monkeypatch.setattr(module, "finish", lambda *arguments: None)
    train_run(recipe(save_every=1, max_updates=2), run, device="cpu")
    monkeypatch.undo()
    monkeypatch.chdir(run.parent)
    load(run, device="cpu")
    return run


@pytest.mark.parametrize("name", ["recipe.yaml", "source.tokenizer.json", "started.json"])
def test_a_damaged_file_of_an_unfinished_run_is_named_and_nothing_goes_on(stopped, name):
    flip(stopped / name)
    before = files_of(stopped)
    with pytest.raises(DamagedError, match=rf"{name}: damaged: .*restore it from a copy"):
        load(stopped, device="cpu")
    with pytest.raises(DamagedError, match=rf"{name}: damaged: .*restore it from a copy"):
        train_run(recipe(save_every=1, max_updates=3), stopped, resume=True, device="cpu")
    assert files_of(stopped) == before


@pytest.mark.parametrize("name", ["model.safetensors", "state.json", "manifest.json"])
def test_an_unfinished_run_does_not_fall_back_on_an_older_checkpoint_unasked(stopped, name):
    newest = paths(stopped)[-1]
    assert newest.name == "step-00000002"
    flip(newest / name)
    with pytest.raises(
        DamagedError, match=rf"step-00000002/{name}: .*--resume`.* continues from .*-00000001"
    ):
        load(stopped, device="cpu")
    train_run(recipe(save_every=1, max_updates=2), stopped, resume=True, device="cpu")
    load(stopped, device="cpu")


def test_a_recipe_that_is_not_utf_8_is_damage(stopped):
    path = stopped / "recipe.yaml"
    path.write_bytes(path.read_bytes().replace(b"task:", b"ta\xffk:"))
    (stopped / "started.json").unlink()
    with pytest.raises(DamagedError, match=r"recipe\.yaml: damaged: line \d+ is not UTF-8"):
        load(stopped, device="cpu")
    with pytest.raises(DamagedError, match=r"recipe\.yaml: damaged: line \d+ is not UTF-8"):
        train_run(recipe(max_updates=3), stopped, resume=True, device="cpu")


def test_a_folder_whose_path_is_not_utf_8_holds_a_run(corpus):
    folder = corpus / b"r\xffn".decode("utf-8", "surrogateescape")
    train_run(recipe(average=2, save_every=1), folder, device="cpu")
    train_run(recipe(average=2, save_every=1, max_updates=3), folder, resume=True, device="cpu")
    assert load(folder, device="cpu").predict(["a b"])
    other = corpus / f"{folder.name}-2"
    with pytest.raises(RequestError, match="must be valid UTF-8 for TensorBoard"):
        train_run(recipe(), other, device="cpu", callbacks=lambda made: [TensorBoard(made.path)])
    assert not other.exists()


def test_what_a_killed_writer_left_goes_when_the_run_goes_on(stopped):
    left = [stopped / f".weights.safetensors.{'0' * 16}.tmp", stopped / ".tmpA1b2C3"]
    for path in left:
        path.write_text("half")
    train_run(recipe(save_every=1, max_updates=3), stopped, resume=True, device="cpu")
    assert not any(path.exists() for path in left)
    assert not (stopped / "started.json").exists()


@pytest.mark.parametrize("change", [{"metric": "perplexity"}, {"seed": 5}])
def test_what_decides_the_best_checkpoint_stays(run, change):
    key, value = next(iter(change.items()))
    with pytest.raises(RequestError, match=rf": training\.{key}={value} \(started with \w+\); restore them"):
        train_run(recipe(**change), run, resume=True, device="cpu")


def test_the_direction_of_a_metric_may_be_given_or_not(run):
    """It is that of the metric in any case."""
    train_run(recipe(max_updates=3, direction="lower"), run, resume=True, device="cpu")
    assert saved_tree(run).find(("training", "direction")).value == "lower"
    train_run(recipe(max_updates=4), run, resume=True, device="cpu")


def test_every_setting_that_a_resumed_run_may_not_change_is_named(run):
    changed = recipe().model_dump(mode="json")
    changed["model"] |= {"d_model": 8, "tie": "none"}
    changed["data"]["filter"]["max_length"] = {"source": 7}
    changed["optimizer"] = {"kind": "sgd"}
    with pytest.raises(RequestError) as raised:
        train_run(TranslationRecipe.model_validate(changed), run, resume=True, device="cpu")
    for part in (
        "model.d_model=8 (started with 4)",
        "model.tie=none (started with ",
        "optimizer.kind=sgd (started",
    ):
        assert part in str(raised.value)
    assert "data.filter.max_length.source=7 (started with nothing)" in str(raised.value)
    assert str(raised.value).startswith(
        f"{run}: cannot be resumed with other settings than it was started with"
    )


@pytest.mark.parametrize("name", ["0.ids", "1.offsets", "header.json"])
def test_damaged_tokens_are_made_anew(run, name):
    file = run / "cache" / "train" / name
    intact = file.read_bytes()
    file.write_bytes(intact[:-1])
    assert train_run(recipe(max_updates=3), run, resume=True, device="cpu").result.state.update == 3
    assert file.read_bytes() == intact


def test_only_the_first_process_makes_tokens(run, monkeypatch):
    prepare(recipe(), RunFolder(run), lambda line: None)
    monkeypatch.setattr(distribution, "rank", lambda: 1)
    prepare(recipe(), RunFolder(run), lambda line: None)
    shutil.rmtree(run / "cache" / "valid")
    with pytest.raises(DamagedError, match="cache: changed while the processes of the run started"):
        prepare(recipe(), RunFolder(run), lambda line: None)
    assert not (run / "cache" / "valid").exists()


@pytest.mark.parametrize("changed", ["a b\nb a c\nd\n", "a b\nc\nb a c\n"])
def test_other_data_are_noticed_where_tokens_are_made_anew(run, changed):
    before = (run / "data.json").read_bytes()
    shutil.rmtree(run / "cache")
    (run.parent / "text").write_text(changed)
    for _ in range(2):
        with pytest.raises(DataError, match=r"data\.valid: the rows have changed"):
            train_run(recipe(max_updates=3), run, resume=True, device="cpu")
    assert (run / "data.json").read_bytes() == before
    (run.parent / "text").write_text("a b\nb a c\nc\n")
    assert train_run(recipe(max_updates=3), run, resume=True, device="cpu").result.state.update == 3


@pytest.mark.parametrize(
    "limits, message",
    [
        (
            {},
            "the run already has 2 updates, and training.max_updates is 2: nothing to do; raise",
        ),
        ({"max_updates": 1}, "the run already has 2 updates, and training.max_updates is 1: nothing to do\n"),
        ({"max_updates": 3}, "stopped after 3 updates (max_updates reached)"),
    ],
)
def test_a_resumed_run_that_is_at_its_end_says_so(run, capsys, limits, message):
    settings = recipe(**limits).model_copy(update={"root": str(run.parent)})
    report(run, settings, train_into(settings, run, resume=True, device="cpu"), as_json=False)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "reason, best, hint", [("updates", 4, True), ("updates", 3, False), ("patience", 4, False)]
)
def test_a_training_whose_last_validation_was_the_best_may_be_continued(tmp_path, capsys, reason, best, hint):
    state = TrainingState(update=4, best=[ScoredCheckpoint(best, 0.5)])
    log_result(tmp_path, recipe(), TrainingResult(reason, state))
    assert ("training.max_updates=8" in capsys.readouterr().err) == hint


@pytest.mark.parametrize(
    ("losses", "noted"),
    [
        ([1.07, 1.46, 1.60, 1.74], "lowest at update 100 (1.07) and rose to 1.74"),
        ([1.2, 1.0, 1.1, 1.2], "training.max_updates=400"),
        ([1.0, 1.02, 1.05, 1.04], None),  # it did not rise clearly
        ([1.2, 1.1, 1.0, 1.3], None),  # not long before the end
        ([1.0], None),
        ([None, None], None),
        ([], None),
    ],
)
def test_a_training_whose_validation_loss_rose_again_may_be_shorter(tmp_path, capsys, losses, noted):
    lines = [
        {"event": "validated", "update": 100 * n, "metrics": {"loss": loss}, "best": n == 1, "elapsed": n}
        for n, loss in enumerate(losses, 1)
    ]
    text = "".join(json.dumps({"version": 1, **line}) + "\n" for line in lines)
    (tmp_path / "metrics.jsonl").write_text(text)
    state = TrainingState(update=100 * len(losses), best=[ScoredCheckpoint(100, 0.5)] if losses else [])
    log_result(tmp_path, recipe(), TrainingResult("patience", state))
    written = capsys.readouterr().err
    assert ("overfits" in written) == (noted is not None)
    assert (noted or "") in written


@pytest.mark.parametrize(
    "metric, value, hint",
    [
        ("accuracy", 1.0, False),
        ("accuracy", 0.999, True),
        ("macro-f1", 1.0, False),
        ("bleu", 100.00000000000004, False),
        ("bleu", 1.0, True),
        ("perplexity", 1.0, False),
        ("loss", 0.0, False),
        ("loss", 1.0, True),
        ("of-a-plugin", 1.0, True),
    ],
)
def test_a_training_that_cannot_become_better_is_not_continued(tmp_path, capsys, metric, value, hint):
    state = TrainingState(update=4, best=[ScoredCheckpoint(4, value)])
    settings = recipe()
    training = settings.training.model_copy(update={"metric": metric})
    log_result(tmp_path, settings.model_copy(update={"training": training}), TrainingResult("updates", state))
    assert ("training.max_updates=8" in capsys.readouterr().err) == hint


@pytest.mark.parametrize(
    ("test", "command"),
    [({}, "evaluate {} FILE (test data), or --split valid\n"), ({"news": None}, "evaluate {}\n")],
)
def test_the_command_that_evaluates_a_run_names_data_if_the_recipe_has_no_test_set(
    tmp_path, capsys, test, command
):
    settings = recipe()
    data = settings.data.model_copy(update={"test": dict.fromkeys(test, settings.data.train)})
    log_result(
        tmp_path,
        settings.model_copy(update={"data": data}),
        TrainingResult("updates", TrainingState(update=4)),
    )
    assert command.format(tmp_path) in capsys.readouterr().err


@pytest.fixture
def resumed(run):
    """Resumes the run with some changes, given as the command takes them; what is said."""
    saved = saved_tree(run)

    def go_on(*changes):
        settings = recipe_from(merge(saved, overrides_tree(changes)))
        return train_run(settings, run, resume=True, device="cpu").result

    return go_on


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "changes",
    [(), ("training.max_updates=1",), ("training.max_epochs=1", "training.log_every=7")],
)
def test_where_nothing_is_to_be_done_nothing_is_changed(run, resumed, changes):
    before = contents(run)
    assert resumed(*changes).state.update == 2
    assert contents(run) == before


@pytest.mark.parametrize(
    "change, section", [("decoding.max_length.cap=7", "decoding"), ("training.average=1", "training")]
)
def test_what_changes_the_run_itself_is_done_without_updates(run, resumed, change, section):
    before = load(run, device="cpu").recipe
    assert resumed(change).state.update == 2
    after = load(run, device="cpu").recipe
    assert {key for key in type(before).model_fields if getattr(before, key) != getattr(after, key)} == {
        section
    }


@pytest.mark.parametrize("name", ["weights.safetensors", "run.json"])
def test_a_run_at_its_end_that_is_not_whole_is_made_whole(run, resumed, name):
    before = (run / "weights.safetensors").read_bytes()
    (run / name).unlink()
    assert resumed().state.update == 2
    load(run, device="cpu")
    assert (run / "weights.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    "stopped, message",
    [
        ("epochs", "has 3 epochs, and training.max_epochs is 3: nothing to do; raise training.max_epochs"),
        (
            "minutes",
            "has 1.5 minutes, and training.max_minutes is 0.5: nothing to do; raise training.max_minutes",
        ),
        (
            "patience",
            "has 4 validations without improvement, and training.patience is 4: nothing to do; raise",
        ),
        ("signal", None),
        ("data", None),
    ],
)
def test_what_ends_a_run_is_named(stopped, message):
    settings = recipe(max_epochs=3, max_minutes=0.5, patience=4).training
    state = TrainingState(update=7, cursor={"epoch": 3}, bad_validations=4, seconds=90.0)
    said = nothing_to_do(settings, TrainingResult(stopped, state, resumed_at=7))
    assert said is None if message is None else message in said
    assert nothing_to_do(settings, TrainingResult(stopped, state, resumed_at=6)) is None


def test_a_folder_without_a_checkpoint_says_so(run):
    for name in ("run.json", "weights.safetensors"):
        (run / name).unlink()
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(RequestError, match="has not written its first checkpoint"):
        load(run, device="cpu")


def test_the_cache_takes_a_byte_for_each_token_of_a_tiny_vocabulary(run):
    sizes = [path.stat().st_size for path in (run / "cache" / "train").glob("*.ids")]
    assert sizes == [len("a bb a cc")] * 2


# What is logged -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("is_first", [True, False])
def test_one_process_alone_tells_the_outcome(tmp_path, capsys, as_json, is_first):
    ended = TrainingResult("updates", TrainingState(update=2))
    report(tmp_path / "run", recipe(), module.Trained(None, ended, is_first), as_json)
    assert bool(capsys.readouterr().out) == is_first


@pytest.mark.parametrize(("log_every", "logged"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4])])
def test_figures_are_written_as_often_as_the_recipe_says(corpus, log_every, logged):
    from heedful.training.callbacks import read_metrics

    train_into(recipe(max_updates=5, log_every=log_every), corpus / "run", device="cpu")
    lines = read_metrics(corpus / "run" / "metrics.jsonl")
    assert [line["update"] for line in lines if line["event"] == "updated"] == logged


# Pretrained vectors ---------------------------------------------------------------------------------------


def test_pretrained_vectors_fill_their_rows_at_the_start_and_are_not_needed_to_go_on(corpus):
    (corpus / "v.txt").write_text("2 4\nword 1 2 3 4\nunheard 5 6 7 8\n")
    (corpus / "text").write_text("a word\nword a other\nother\n")
    settings = recipe()
    changes = {
        "tokenizer": settings.tokenizer.model_copy(update={"subwords": WordConfig(kind="word")}),
        "pretrained": PretrainedConfig(source="v.txt"),
    }
    settings = settings.model_copy(update=changes)
    logged = []
    trained = train_run(settings, corpus / "run", device="cpu", log=logged.append)
    assert [line for line in logged if line.startswith("pretrained.source: 1 of")]
    tokenizers = load(trained.folder.path).processor
    first = module.build_module(
        Translation(settings, tokenizers), torch.device("cpu"), lambda line: None
    ).model
    plain = module.build_module(Translation(settings, tokenizers), torch.device("cpu")).model
    row = tokenizers.source.whole_words()["word"]
    filled = first.source_embedding.weight
    assert (filled[row] * first.source_embedding.scale).tolist() == [1, 2, 3, 4]
    others = [i for i in range(len(filled)) if i != row]
    assert torch.equal(filled[others], plain.source_embedding.weight[others])
    (corpus / "v.txt").unlink()
    more = settings.model_copy(update={"training": recipe(max_updates=3).training})
    assert train_run(more, corpus / "run", resume=True, device="cpu").result.state.update == 3
