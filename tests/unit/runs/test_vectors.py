"""Embeddings that begin with word vectors from elsewhere: their size, and how long they are frozen."""

import json
import math

import numpy as np
import pytest
import torch
from PIL import Image

from heedful.api.run import load
from heedful.artifacts.run_folder import RunFolder
from heedful.artifacts.weights import read_tensors
from heedful.config import merged
from heedful.errors import DataError, RequestError
from heedful.nn.layout import Tokens
from heedful.recipes.schema import TextVectorsConfig
from heedful.recipes.trees import Mark, Tree
from heedful.runs.prepare import prepare
from heedful.runs.reading import recipe_from
from heedful.runs.train import build_module, train_run
from heedful.tasks.registry import task_for
from heedful.training.checkpoints import path_of
from heedful.training.optimizers import AdamWConfig, MuonConfig, SGDConfig

D = 12
ENCODER = {
    "kind": "encoder",
    "d_model": D,
    "n_layers": 1,
    "max_length": 13,
    "layer": {"mixer": {"kind": "attention", "n_heads": 3}, "channels": {"kind": "feed-forward", "d_ff": 17}},
}
LANGUAGE_MODEL = {
    "kind": "language-model",
    "d_model": D,
    "n_layers": 1,
    "context": 13,
    "layer": {"mixer": {"kind": "attention", "n_heads": 3}, "channels": {"kind": "feed-forward", "d_ff": 17}},
}
TEXTS = ["the sea is salt", "the cake is sweet", "a cake is sweet", "a sea the cake"]
TASKS = {
    "classification": (("text", "label"), ["salt", "sweet", "sweet", "both"]),
    "regression": (("text", "label"), ["0.5", "1", "2", "3.5"]),
    "tagging": (("words", "tags"), ["D N V A", "D N V A", "D N V A", "D N D N"]),
}


def settings(folder, task, model, vectors="v.txt"):
    rows = [f"{text}\t{answer}" for text, answer in zip(TEXTS, TASKS[task][1], strict=True)]
    (folder / "rows.tsv").write_text("".join(row + "\n" for row in rows * 5))
    text, answer = TASKS[task][0]
    source = {"kind": "tsv", "paths": "rows.tsv", "columns": {text: 0, answer: 1}}
    tree = {
        "task": {"kind": task},
        "data": {"train": source, "valid": source},
        "tokenizer": {"subwords": {"kind": "word", "split": "space"}},
        "pretrained": {"text": vectors},
        "model": model,
        "schedule": {"kind": "constant", "peak": 1e-2},
        "training": {"max_updates": 2, "tokens_per_update": 60, "validate_every": 1, "precision": "fp32"},
    }
    return recipe_from(Tree.of(tree, Mark("r"))).model_copy(update={"root": str(folder)})


def vectors_of(folder, words, d=D):
    drawn = np.random.default_rng(7).normal(size=(len(words), d)).astype(np.float32)
    lines = (" ".join([word, *map(repr, map(float, row))]) for word, row in zip(words, drawn, strict=True))
    (folder / "v.txt").write_text("".join(line + "\n" for line in lines))
    return torch.from_numpy(drawn)


@pytest.mark.parametrize(
    ("task", "model"),
    [
        ("classification", ENCODER),
        ("classification", LANGUAGE_MODEL),
        ("regression", ENCODER),
        ("tagging", ENCODER),
    ],
)
def test_rows_of_the_words_that_are_known_are_filled_and_no_others(tmp_path, task, model):
    wanted = vectors_of(tmp_path, ["cake", "sea", "unheard"])
    recipe, logged = settings(tmp_path, task, model), []
    trained = train_run(recipe, tmp_path / "run", device="cpu", log=logged.append)
    n_words = len({word for text in TEXTS for word in text.split()})
    assert f"pretrained.text: 2 of {n_words} words have a pretrained vector ({2 / n_words:.1%})" in logged
    processor = load(trained.folder.path, device="cpu").processor
    filled = build_module(
        task_for(recipe, processor), torch.device("cpu"), logged.append
    ).model.embedding.weight
    plain = build_module(task_for(recipe, processor), torch.device("cpu")).model.embedding.weight
    ids = [processor.text.whole_words()[word] for word in ("cake", "sea")]
    assert torch.equal(filled[ids], wanted[:2])
    others = [i for i in range(len(plain)) if i not in ids]
    assert torch.equal(filled[others], plain[others])
    # Whoever goes on needs the file no more.
    (tmp_path / "v.txt").unlink()
    more = recipe.model_copy(update={"training": recipe.training.model_copy(update={"max_updates": 3})})
    assert train_run(more, tmp_path / "run", resume=True, device="cpu").result.state.update == 3


def test_vectors_of_another_width_are_refused_and_nothing_is_left(tmp_path):
    vectors_of(tmp_path, ["cake"], d=5)
    with pytest.raises(DataError, match=r"pretrained\.text: v\.txt: .* width 5, .* has 12"):
        train_run(settings(tmp_path, "classification", ENCODER), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_file_that_is_not_there_is_named(tmp_path):
    recipe = settings(tmp_path, "classification", ENCODER, vectors="glove.6B.300d.txt")
    with pytest.raises(DataError, match=r"glove\.6B\.300d\.txt: cannot be read"):
        train_run(recipe, tmp_path / "run", device="cpu")


# What the model reads, in every task with a table of tokens ------------------------------------------------

WIDE = 64
STACK = {"d_model": WIDE, "n_layers": 1, "layer": {"mixer": {"n_heads": 4}, "channels": {"d_ff": 32}}}
WORDS = [f"{a}{b}" for a in "bcdfghjklm" for b in "aeiou"]
SIZE = 0.4
"""Root mean square of the vectors, as of GloVe's."""

SCALED_LM = {**STACK, "kind": "language-model", "context": 8, "scale_embedding": True}
MODELS = {
    "translation": {**STACK, "kind": "transformer", "tie": "three-way"},
    "summarisation": {**STACK, "kind": "transformer", "tie": "target"},
    "translation, concatenated": {
        **STACK, "kind": "transformer", "tie": "none", "combine": "concat", "d_positions": 8
    },
    "translation, recurrent": {
        "kind": "recurrent", "d_embedding": WIDE, "d_hidden": WIDE, "d_readout": WIDE, "tie": "target",
        "scale_embedding": True,
    },
    "language-modelling": SCALED_LM,
    "language-modelling, sinusoidal": merged(
        SCALED_LM,
        {"scale_embedding": None, "positions": "sinusoidal", "layer": {"norm_placement": "post"}},
    ),
    "language-modelling, untied": {**SCALED_LM, "scale_embedding": None, "tie": False},
    "masked-language-modelling": {**STACK, "kind": "encoder", "max_length": 8, "scale_embedding": True},
    "classification": {**STACK, "kind": "encoder", "max_length": 8},
    "question-answering": {**STACK, "kind": "encoder", "max_length": 8},
    "captioning": {**STACK, "kind": "captioner", "image_size": 8, "patch_size": 4, "tie": True},
}  # fmt: skip
COLUMNS = {
    "translation": ("source", "target"),
    "summarisation": ("source", "target"),
    "captioning": ("image", "caption"),
    "classification": ("text", "label"),
    "question-answering": ("question", "passage", "answer"),
}


def wide(folder, name, model=None, **pretrained):
    """The recipe of a task whose words all have vectors, beside its rows."""
    task, draw = name.partition(",")[0], np.random.default_rng(3)
    columns = COLUMNS.get(task, ("text",))
    texts = [" ".join(draw.choice(WORDS, 4)) for _ in range(40)]
    texts += [" ".join(WORDS[i : i + 4]) for i in range(len(WORDS) - 3)]  # all of them occur
    given = {"image": lambda t: "image.png", "label": lambda t: t[0], "answer": lambda t: t.split()[0]}
    rows = [{column: given.get(column, str)(text) for column in columns} for text in texts]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(folder / "image.png")
    sides = [column for column in columns if column in ("source", "target", "caption")] or ["text"]
    width = WIDE - (model or MODELS[name]).get("d_positions", 0)
    matrix = draw.normal(scale=SIZE, size=(len(WORDS), width)).astype(np.float32)
    lines = (" ".join([word, *map(repr, map(float, row))]) for word, row in zip(WORDS, matrix, strict=True))
    (folder / "v.txt").write_text("".join(line + "\n" for line in lines))
    source = {"kind": "jsonl", "paths": "rows.jsonl", "columns": {column: column for column in columns}}
    tree = {
        "task": {"kind": task},
        "data": {"train": source, "valid": source},
        "tokenizer": {"subwords": {"kind": "word"}},
        "pretrained": {**dict.fromkeys(sides, "v.txt"), **pretrained},
        "model": model or MODELS[name],
        "schedule": {"kind": "constant", "peak": 1e-2},
        "training": {
            "max_updates": 1, "tokens_per_update": 400, "validate_every": 1, "save_every": 1,
            "precision": "fp32",
        },
        **({"windows": {"longest_question": 2}} if task == "question-answering" else {}),
    }  # fmt: skip
    recipe = recipe_from(Tree.of(tree, Mark("r"))).model_copy(update={"root": str(folder)})
    return recipe, sides, torch.from_numpy(matrix)


EMBEDDINGS = {"source": "source_embedding", "text": "embedding"}


def begun(folder, recipe):
    """The first model, and its processor."""
    run = RunFolder(folder / "run")
    run.path.mkdir()
    prepared = prepare(recipe, run, lambda line: None)
    return build_module(prepared.task, torch.device("cpu"), lambda line: None), prepared


@pytest.mark.parametrize("name", MODELS)
def test_the_model_reads_vectors_at_their_own_size(tmp_path, name):
    recipe, sides, matrix = wide(tmp_path, name)
    step, prepared = begun(tmp_path, recipe)
    processor = prepared.task.processor
    for side in sides:
        tokenizer = next(getattr(processor, n) for n in (side, "tokenizer", "text") if hasattr(processor, n))
        ids = [tokenizer.whole_words()[word] for word in WORDS]
        embedding = getattr(step.model, EMBEDDINGS.get(side, "target_embedding"))
        entered = []
        embedding.positions.register_forward_pre_hook(lambda module, args, into=entered: into.append(args[0]))
        embedding(Tokens.of([ids[:7]]))
        torch.testing.assert_close(entered[0], matrix[:7], rtol=1e-5, atol=1e-6)
        size = (embedding.weight[ids] * embedding.scale).square().mean()
        assert size.sqrt().item() == pytest.approx(SIZE, rel=0.05)


TIED = [name for name, model in MODELS.items() if "tie" in model or "masked" in name or "language-m" in name]


@pytest.mark.parametrize("name", [n for n in TIED if "concatenated" not in n and "untied" not in n])
def test_the_first_loss_of_a_tied_model_is_near_that_of_a_uniform_guess(tmp_path, name):
    recipe, _, _ = wide(tmp_path, name)
    step, prepared = begun(tmp_path, recipe)
    step.eval()
    found = prepared.task.validator(prepared, step)(step.model)
    assert math.log(found["perplexity"]) == pytest.approx(
        math.log(prepared.task.processor.sizes[-1]), abs=0.5
    )


@pytest.mark.parametrize(
    "name", ["language-modelling", "masked-language-modelling", "translation, recurrent"]
)
def test_a_shared_table_that_is_not_multiplied_is_refused(tmp_path, name):
    model = {key: value for key, value in MODELS[name].items() if key != "scale_embedding"}
    recipe, _, _ = wide(tmp_path, name, model)
    with pytest.raises(RequestError, match=r"^pretrained\.(text|target): the output .*scale_embedding=true"):
        train_run(recipe, tmp_path / "run", device="cpu")


# Frozen ----------------------------------------------------------------------------------------------------

FROZEN = ["translation", "language-modelling", "captioning", "classification"]


def weights_after(folder, recipe, updates, out, resume=False):
    settings = recipe.training.model_copy(update={"max_updates": updates})
    trained = recipe.model_copy(update={"training": settings})
    train_run(trained, folder / out, device="cpu", resume=resume)
    tensors, _ = read_tensors(path_of(folder / out, updates) / "model.safetensors")
    return tensors


def first_table(recipe, tensors):
    sides = {"translation": "target_embedding", "captioning": "target_embedding"}
    own = [n for n in tensors if n.endswith("embedding.weight")]
    wanted = [n for n in own if n.startswith(sides.get(recipe.task.kind, "embedding"))]
    return (wanted or own)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "optimizer"),
    [*((name, "adamw") for name in FROZEN), ("translation", "sgd"), ("language-modelling", "muon")],
)
def test_a_frozen_table_moves_after_its_updates_and_resumes_bit_for_bit(tmp_path, name, optimizer):
    recipe, _, _ = wide(tmp_path, name, frozen=2)
    config = {"adamw": AdamWConfig(), "sgd": SGDConfig(momentum=0.9), "muon": MuonConfig()}[optimizer]
    recipe = recipe.model_copy(update={"optimizer": config})
    step, _ = begun(tmp_path, recipe)
    before = {n: p.detach().clone() for n, p in step.model.named_parameters()}
    after = {n: weights_after(tmp_path, recipe, n, "part", resume=n > 1) for n in (1, 2, 3, 4)}
    table = first_table(recipe, before)
    assert torch.equal(after[1][table], before[table])
    assert torch.equal(after[2][table], before[table])
    assert not torch.equal(after[3][table], before[table])
    others = [n for n in after[1] if n != table and not torch.equal(after[1][n], before[n])]
    assert others
    whole = weights_after(tmp_path, recipe, 4, "whole")
    assert all(torch.equal(tensor, after[4][n]) for n, tensor in whole.items())


@pytest.mark.parametrize("name", FROZEN)
def test_a_table_that_is_always_frozen_never_moves(tmp_path, name):
    recipe, _, _ = wide(tmp_path, name, frozen="always")
    step, _ = begun(tmp_path, recipe)
    before = {n: p.detach().clone() for n, p in step.model.named_parameters()}
    after = weights_after(tmp_path, recipe, 3, "long")
    table = first_table(recipe, before)
    assert torch.equal(after[table], before[table])
    assert any(not torch.equal(after[n], before[n]) for n in after)


def test_freezing_needs_vectors():
    with pytest.raises(ValueError, match="frozen=3 requires a file of vectors"):
        TextVectorsConfig(frozen=3)
