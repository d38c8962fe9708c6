"""Going on from another run: tokenizers, weights, what stays, what moves slowly."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from heedful.api.run import load
from heedful.errors import RequestError
from heedful.models.transformer import TransformerConfig
from heedful.models.vision import VisionConfig
from heedful.runs.reading import read_recipe
from heedful.runs.train import train_run
from heedful.runs.warm_start import freeze, rate_shares
from heedful.tasks.pretrained import start_tokenizer
from heedful.tasks.registry import task_for
from heedful.training.checkpoints import path_of
from heedful.training.optimizers import (
    AdamConfig,
    AdamWConfig,
    MuonConfig,
    SGDConfig,
    build_optimizer,
    set_lr,
)

TEXT = "the cat sat on the mat while the dog lay on the log\n" * 9
ROWS = "".join(f"{label}\t{text}\n" for label, text in [("cat", "the cat sat"), ("dog", "the dog lay")] * 9)

PRETRAINING = """
task: {kind: masked-language-modelling}
data:
  train: {kind: text, paths: text}
  valid: {kind: text, paths: text}
tokenizer: {subwords: {kind: bpe, merges: 20}}
model:
  kind: encoder
  d_model: 12
  n_layers: 2
  max_length: 15
  dropout: 0.1
  layer: {mixer: {n_heads: 3}, channels: {d_ff: 17}}
schedule: {kind: constant, peak: 1e-2}
training: {max_updates: 4, tokens_per_update: 90, validate_every: 4, save_every: 2, precision: fp32}
"""
TUNING = """
task: {kind: classification}
start: {run: pretrained}
data:
  train: {kind: tsv, paths: rows, columns: {label: 0, text: 1}}
  valid: {kind: tsv, paths: rows, columns: {label: 0, text: 1}}
schedule: {kind: constant, peak: 1e-2}
training: {max_updates: 4, tokens_per_update: 60, validate_every: 4, save_every: 2, precision: fp32}
"""


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    files = {"text": TEXT, "rows": ROWS, "pretraining.yaml": PRETRAINING, "tuning.yaml": TUNING}
    return folder_with(tmp_path_factory.mktemp("pretrained"), files, "pretraining.yaml", "pretrained")


def folder_with(folder, files, recipe, run):
    """The folder with these files, and with the run that one of them is the recipe of."""
    for name, text in files.items():
        (folder / name).write_text(text)
    train_run(read_recipe(str(folder / recipe))[0], folder / run, device="cpu")
    return folder


def tuning(folder, *overrides):
    return read_recipe(str(folder / "tuning.yaml"), list(overrides))[0]


def test_model_and_tokenizer_are_those_of_the_run_it_starts_from(pretrained):
    recipe, before = tuning(pretrained), read_recipe(str(pretrained / "pretraining.yaml"))[0]
    assert recipe.model == before.model
    assert recipe.tokenizer.model_dump() == before.tokenizer.model_dump()
    assert tuning(pretrained, "model.dropout=0.3", "model.pooling=mean").model.dropout == 0.3


def test_a_start_from_an_encoder_without_a_pooler_gets_one(pretrained, tmp_path):
    """So that BERT's layout has a place for the classifier; unless the recipe says no."""
    bare = read_recipe(str(pretrained / "pretraining.yaml"), ["model.pooler=false"])[0]
    train_run(bare, tmp_path / "bare", device="cpu")
    start = f"start.run={tmp_path / 'bare'}"
    recipe = tuning(pretrained, start)
    assert recipe.model == bare.model.model_copy(update={"pooler": True})
    assert tuning(pretrained, start, "model.pooler=false").model == bare.model
    said = []
    train_run(recipe, tmp_path / "tuned", device="cpu", log=said.append)
    assert any("newly initialised heads: class, pooled" in line for line in said)


def test_a_run_named_on_the_command_line_stands_above_the_file(pretrained, monkeypatch):
    """And other overrides above that."""
    monkeypatch.chdir(pretrained)
    file = pretrained / "scratch.yaml"
    own = (
        "tokenizer: {subwords: {kind: word}}\n"
        "model: {kind: encoder, d_model: 6, layer: {mixer: {n_heads: 2}}, pooling: max}\n"
    )
    file.write_text(TUNING.replace("start: {run: pretrained}\n", own))
    recipe, _ = read_recipe(str(file), ["start.run=pretrained", "model.dropout=0.3"])
    before = read_recipe(str(pretrained / "pretraining.yaml"))[0]
    assert recipe.model == before.model.model_copy(update={"dropout": 0.3})
    assert recipe.tokenizer.model_dump() == before.tokenizer.model_dump()
    plain, _ = read_recipe(str(file))
    assert plain.model.d_model == 6


def test_training_begins_with_its_weights_and_ends_elsewhere(pretrained, tmp_path):
    said = []
    recipe = tuning(pretrained, "schedule.peak=1e-9", "training.max_updates=1")
    train_run(recipe, tmp_path / "run", device="cpu", log=said.append)
    assert said[0] == "starting from pretrained"
    begun = "starting from the weights of pretrained; newly initialised heads: class; not used: "
    assert f"{begun}token" in said
    before, after = load(pretrained / "pretrained", device="cpu"), load(tmp_path / "run", device="cpu")
    own = after.model.state_dict()
    shared = [name for name in before.model.state_dict() if name in own]
    assert "heads.pooled.dense.weight" in shared
    for name in shared:
        torch.testing.assert_close(own[name], before.model.state_dict()[name], rtol=0, atol=1e-6)
    assert after.processor.text.fingerprint == before.processor.text.fingerprint
    train_run(tuning(pretrained), tmp_path / "longer", device="cpu")
    moved = load(tmp_path / "longer", device="cpu").model.state_dict()
    assert not torch.equal(
        moved["stack.blocks.0.mixer.part.qkv.weight"], own["stack.blocks.0.mixer.part.qkv.weight"]
    )


@pytest.mark.parametrize("frozen, moves", [("body", ["heads"]), ("embedding", ["heads", "stack"])])
def test_what_is_frozen_stays_to_the_last_bit(pretrained, tmp_path, frozen, moves):
    train_run(tuning(pretrained, f"start.frozen={frozen}"), tmp_path / "run", device="cpu")
    before = load(pretrained / "pretrained", device="cpu").model.state_dict()
    after = load(tmp_path / "run", device="cpu").model.state_dict()
    changed = {
        name.split(".")[0] for name, x in after.items() if name in before and not torch.equal(x, before[name])
    }
    assert changed == set(moves)


def test_a_tuned_run_needs_the_first_no_more_and_resumes(pretrained, tmp_path):
    shutil.copytree(pretrained, tmp_path / "copy")
    folder, settings = tmp_path / "copy", ["start.frozen=embedding", "training.validate_every=100"]
    for name, n in (("straight", 5), ("stopped", 3)):
        train_run(tuning(folder, f"training.max_updates={n}", *settings), folder / name, device="cpu")
    longer = tuning(folder, "training.max_updates=5", *settings)
    shutil.rmtree(folder / "pretrained")
    train_run(longer, folder / "stopped", device="cpu", resume=True)
    # The last weights, and those that were kept, though the stopped run was validated once more.
    for file in (path_of(Path(), 5) / "model.safetensors", "weights.safetensors"):
        one, other = (load_file(folder / name / file) for name in ("straight", "stopped"))
        assert all(torch.equal(value, other[name]) for name, value in one.items())
    assert load(folder / "stopped", device="cpu").predict(["the cat sat"])[0].text in {"cat", "dog"}


def model_of(recipe):
    return task_for(recipe).build_model((37, 2))


@pytest.mark.parametrize("config", [AdamConfig(), AdamWConfig(weight_decay=0.1), SGDConfig()])
def test_lower_blocks_learn_more_slowly(pretrained, config):
    recipe = tuning(pretrained, "start.layer_share=0.5")
    model = model_of(recipe)
    optimizer = build_optimizer(config, model, rate_shares(recipe, model))
    set_lr(optimizer, 0.8)
    rates = {p: group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert len(rates) == len(list(model.parameters()))
    expected = {"heads": 0.8, "stack.blocks.1": 0.4, "stack.blocks.0": 0.2, "embedding": 0.1}
    for name, parameter in model.named_parameters():
        wanted = next(rate for prefix, rate in expected.items() if name.startswith(prefix))
        assert rates[parameter] == pytest.approx(wanted), name


def test_muon_has_one_rate(pretrained):
    recipe = tuning(pretrained, "start.layer_share=0.5")
    model = model_of(recipe)
    with pytest.raises(RequestError, match=r"not supported by muon .one rate for all blocks"):
        build_optimizer(MuonConfig(), model, rate_shares(recipe, model))


def test_without_a_start_everything_is_trained_at_one_rate(pretrained):
    recipe = read_recipe(str(pretrained / "pretraining.yaml"))[0]
    model = task_for(recipe).build_model((37,))
    freeze(recipe, model)
    assert all(p.requires_grad for p in model.parameters())
    assert rate_shares(recipe, model) == {}


@pytest.mark.parametrize(
    "override, message",
    [
        ("start.run=nowhere", r"start\.run: /.*/nowhere: no such folder"),
        (
            "tokenizer.subwords.merges=30",
            r"tokenizer of pretrained is used, and the section tokenizer differs",
        ),
        ("start.frozen=all", r"start.frozen"),
    ],
)
def test_what_does_not_go_together_is_refused(pretrained, override, message):
    with pytest.raises(RequestError, match=message):
        tuning(pretrained, override)


@pytest.mark.parametrize("override", ["model.layer.channels.d_ff=18", "model.n_layers=3"])
def test_a_model_of_another_size_is_refused_before_training(pretrained, tmp_path, override):
    with pytest.raises(RequestError, match=r"does not fit: of stack\.blocks"):
        train_run(tuning(pretrained, override), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("where", ["in the file", "on the command line"])
@pytest.mark.parametrize(
    "config, tokenizer",
    [(VisionConfig(), ""), (TransformerConfig(), "tokenizer: {shared: true, subwords: {kind: character}}\n")],
)
def test_a_model_that_the_task_cannot_take_is_refused_in_one_line(
    tmp_path, monkeypatch, where, config, tokenizer
):
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    (other / "recipe.yaml").write_text(f"{tokenizer}model: {json.dumps(config.model_dump(mode='json'))}\n")
    here = where == "in the file"
    (tmp_path / "tuning.yaml").write_text(
        TUNING.replace("run: pretrained", "run: other" if here else "run: x")
    )
    with pytest.raises(RequestError) as refused:
        tuning(tmp_path, *([] if here else ["start.run=other"]))
    place = f"{tmp_path / 'tuning.yaml'}:3" if here else "on the command line"
    assert str(refused.value) == (
        f"{place}: start.run: the model of other is of the kind {config.kind}, and classification needs one "
        "of the kind encoder or language-model"
    )


@pytest.mark.parametrize("tie", [True, False])
def test_a_body_that_is_all_there_is_cannot_be_frozen(read, tmp_path, tie):
    """An output layer of its own is a head, and is left to train; one that is the embedding table is not."""
    settings = ["model.n_layers=2", f"model.tie={tie}".lower(), "start.frozen=body", "schedule.peak=1e-2"]
    recipe = read_recipe(str(read / "going-on.yaml"), settings)[0]
    if tie:
        with pytest.raises(RequestError, match=r"^start\.frozen=body: no parameter would be trained"):
            train_run(recipe, tmp_path / "run", device="cpu")
        assert not (tmp_path / "run").exists()
        return
    train_run(recipe, tmp_path / "run", device="cpu")
    before, after = (load_file(path / "weights.safetensors") for path in (read / "read", tmp_path / "run"))
    assert {name for name, x in after.items() if name not in before or not torch.equal(x, before[name])} == {
        "heads.token.weight"
    }


# From a language model to one that writes one text for another --------------------------------------------

READING = """
task: {kind: language-modelling}
data:
  train: {kind: text, paths: text}
  valid: {kind: text, paths: text}
tokenizer: {subwords: {kind: bpe, merges: 20}, text: {lowercase: true}}
model:
  kind: language-model
  d_model: 12
  n_layers: 2
  context: 97
  dropout: 0.0
  layer: {mixer: {n_heads: 3}, channels: {d_ff: 17}}
schedule: {kind: constant, peak: 1e-2}
training: {max_updates: 4, tokens_per_update: 200, validate_every: 4, save_every: 4, precision: fp32}
"""
SUMMARISING = """
task: {kind: summarisation}
start: {run: read}
data:
  train: {kind: tsv, paths: pairs, columns: {source: 0, target: 1}}
  valid: {kind: tsv, paths: pairs, columns: {source: 0, target: 1}}
  filter: {max_length: {source: 60, target: 30}}
schedule: {kind: constant, peak: 1e-9}
training: {max_updates: 1, tokens_per_update: 200, validate_every: 1, save_every: 1, precision: fp32}
"""
PAIRS = "The cat sat on the mat\tthe cat sat\nThe dog lay on the log\tThe dog\n" * 9


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    going_on = f"{READING}start: {{run: read}}\n"
    files = {
        "text": TEXT,
        "pairs": PAIRS,
        "reading.yaml": READING,
        "going-on.yaml": going_on,
        "summarising.yaml": SUMMARISING,
        "rows": ROWS,
        "tuning.yaml": TUNING.replace("run: pretrained", "run: read"),
    }
    return folder_with(tmp_path_factory.mktemp("read"), files, "reading.yaml", "read")


def summarising(folder, *overrides):
    return read_recipe(str(folder / "summarising.yaml"), list(overrides))[0]


@pytest.mark.parametrize("task", ["summarisation", "translation"])
def test_a_language_models_text_becomes_both_sides(read, task):
    recipe, before = summarising(read, f"task.kind={task}"), read_recipe(str(read / "reading.yaml"))[0]
    assert recipe.model == before.model
    assert recipe.tokenizer.shared
    assert recipe.tokenizer.subwords == before.tokenizer.subwords
    assert recipe.tokenizer.source == recipe.tokenizer.target
    assert recipe.tokenizer.source.model_dump() == before.tokenizer.text.model_dump()
    assert recipe.tokenizer.source.lowercase


def test_a_language_model_goes_on_as_a_summariser(read, tmp_path):
    train_run(summarising(read), tmp_path / "run", device="cpu")
    before, after = load(read / "read", device="cpu"), load(tmp_path / "run", device="cpu")
    own = after.model.state_dict()
    assert own.keys() == before.model.state_dict().keys()
    for name, value in before.model.state_dict().items():
        torch.testing.assert_close(own[name], value, rtol=0, atol=1e-6)
    assert {side.fingerprint for side in (after.processor.source, after.processor.target)} == {
        before.processor.text.fingerprint
    }
    assert len(after.predict(["The cat sat on the mat", ""])) == 2


def test_a_summariser_goes_on_as_a_summariser(read, tmp_path):
    """Whose tokenizers have the names of both sides."""
    train_run(summarising(read), tmp_path / "run", device="cpu")
    recipe = summarising(read, f"start.run={tmp_path / 'run'}")
    assert recipe.tokenizer == summarising(read).tokenizer
    train_run(recipe, tmp_path / "again", device="cpu")
    sizes = [load(tmp_path / name, device="cpu").processor.sizes for name in ("run", "again")]
    assert sizes[0] == sizes[1]


def test_another_vocabulary_than_the_language_models_is_refused(read):
    with pytest.raises(RequestError, match="tokenizer of read is used, and the section tokenizer differs"):
        summarising(read, "tokenizer.source.lowercase=false")


def test_a_run_without_text_has_no_vocabulary_to_give(read, tmp_path):
    shutil.copytree(read / "read", tmp_path / "read")
    (tmp_path / "read" / "text.tokenizer.json").unlink()
    with pytest.raises(RequestError, match="has no tokenizer for source, since its task differs"):
        start_tokenizer(summarising(read, f"start.run={tmp_path / 'read'}"), "source", "text")


# From a language model to one that labels what it has read ------------------------------------------------


def test_a_language_model_goes_on_as_a_classifier(read, tmp_path):
    said = []
    recipe = tuning(read, "schedule.peak=1e-9", "training.max_updates=1")
    assert recipe.model == read_recipe(str(read / "reading.yaml"))[0].model
    train_run(recipe, tmp_path / "run", device="cpu", log=said.append)
    begun = "starting from the weights of read; newly initialised heads: class; not used: token"
    assert begun in said
    before, after = load(read / "read", device="cpu"), load(tmp_path / "run", device="cpu")
    own, theirs = after.model.state_dict(), before.model.state_dict()
    assert theirs.keys() - own.keys() == {"heads.token.weight"}
    assert own.keys() - theirs.keys() == {"heads.class.1.weight", "heads.class.1.bias"}
    for name in own.keys() & theirs.keys():
        torch.testing.assert_close(own[name], theirs[name], rtol=0, atol=1e-6)
    assert after.processor.text.fingerprint == before.processor.text.fingerprint
    assert {answer.text for answer in after.predict(["the cat", "the dog lay"])} <= {"cat", "dog"}


def test_a_classifier_of_one_goes_on_as_a_regression(read, tmp_path):
    """Whose texts it frames in the same way: weights, tokenizer and context are the first run's."""
    train_run(tuning(read), tmp_path / "labelled", device="cpu")
    numbers = ROWS.replace("cat\t", "1\t").replace("dog\t", "2\t")
    (tmp_path / "rows").write_text(numbers)
    recipe = TUNING.replace("classification", "regression").replace("run: pretrained", "run: labelled")
    (tmp_path / "tuning.yaml").write_text(recipe)
    said = []
    train_run(tuning(tmp_path, "training.max_updates=1"), tmp_path / "run", device="cpu", log=said.append)
    begun = "starting from the weights of labelled; newly initialised heads: value; not used: class"
    assert begun in said
    assert load(tmp_path / "run", device="cpu").model.heads.keys() == {"pooled", "value"}


def test_a_language_models_body_may_stay_or_learn_more_slowly(read, tmp_path):
    train_run(tuning(read, "start.frozen=body"), tmp_path / "run", device="cpu")
    before, after = (load_file(path / "weights.safetensors") for path in (read / "read", tmp_path / "run"))
    assert all(torch.equal(x, before[name]) for name, x in after.items() if not name.startswith("heads."))
    recipe = tuning(read, "start.layer_share=0.5")
    model = task_for(recipe).build_model((40, 2))
    shares = {name: rate_shares(recipe, model).get(p, 1.0) for name, p in model.named_parameters()}
    assert shares["stack.blocks.1.mixer.part.qkv.weight"] == 0.5
    assert shares["stack.blocks.0.mixer.part.qkv.weight"] == 0.25
    assert shares["embedding.weight"] == 0.125
    assert shares["heads.class.1.weight"] == 1.0


def test_a_stretch_of_a_passage_is_not_asked_of_a_language_model(read):
    with pytest.raises(RequestError) as refused:
        tuning(read, "task.kind=question-answering")
    needs = "question-answering needs one of the kind encoder"
    assert str(refused.value).endswith(f"the model of read is of the kind language-model, and {needs}")
