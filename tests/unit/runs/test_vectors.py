"""Embeddings of readers that begin with word vectors from elsewhere."""

import numpy as np
import pytest
import torch

from heedful.errors import DataError
from heedful.runs.reading import recipe_from
from heedful.runs.run import load
from heedful.runs.train import build_step, train_run
from heedful.runs.trees import Mark, Tree

D = 12
ENCODER = {"kind": "encoder", "d_model": D, "d_ff": 17, "n_heads": 3, "n_layers": 1, "max_length": 13}
LANGUAGE_MODEL = {
    "kind": "language-model",
    "d_model": D,
    "d_ff": 17,
    "n_heads": 3,
    "n_layers": 1,
    "context": 13,
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
    recipe, told = settings(tmp_path, task, model), []
    trained = train_run(recipe, tmp_path / "run", device="cpu", say=told.append)
    n_words = len({word for text in TEXTS for word in text.split()})
    assert f"pretrained.text: 2 of {n_words} words have a pretrained vector ({2 / n_words:.1%})" in told
    codec = load(trained.folder.path, device="cpu").codec
    filled = build_step(recipe, codec, torch.device("cpu"), told.append).model.embedding.weight
    plain = build_step(recipe, codec, torch.device("cpu")).model.embedding.weight
    ids = [codec.tokenizer.whole_words()[word] for word in ("cake", "sea")]
    assert torch.equal(filled[ids], wanted[:2])
    others = [i for i in range(len(plain)) if i not in ids]
    assert torch.equal(filled[others], plain[others])
    # Whoever goes on needs the file no more.
    (tmp_path / "v.txt").unlink()
    more = recipe.model_copy(update={"training": recipe.training.model_copy(update={"max_updates": 3})})
    assert train_run(more, tmp_path / "run", resume=True, device="cpu").result.state.update == 3


def test_vectors_of_another_width_are_refused_and_nothing_is_left(tmp_path):
    vectors_of(tmp_path, ["cake"], d=5)
    with pytest.raises(DataError, match="the pretrained vectors have width 5, the embedding 12"):
        train_run(settings(tmp_path, "classification", ENCODER), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_file_that_is_not_there_is_named(tmp_path):
    recipe = settings(tmp_path, "classification", ENCODER, vectors="glove.6B.300d.txt")
    with pytest.raises(DataError, match=r"glove\.6B\.300d\.txt: cannot be read"):
        train_run(recipe, tmp_path / "run", device="cpu")
