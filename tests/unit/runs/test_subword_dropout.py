"""BPE-dropout from recipe to batch: other pieces in every epoch, the same whenever they are asked for."""

import pytest

from heedful.artifacts.run_folder import RunFolder
from heedful.errors import RequestError
from heedful.recipes.trees import Mark, Tree
from heedful.runs.prepare import prepare
from heedful.runs.reading import recipe_from
from heedful.runs.train import train_run

TEXTS = ["the lower the newer", "lower and wider", "newest of the lowest", "the wider the lower"] * 4
MODEL = {
    "kind": "transformer",
    "d_model": 12,
    "n_layers": 1,
    "dropout": 0.0,
    "layer": {"mixer": {"kind": "attention", "n_heads": 3}, "channels": {"kind": "feed-forward", "d_ff": 17}},
}


def recipe(dropout=0.4, subwords=None, model=MODEL, **sections):
    files = {"kind": "files", "columns": {"source": "source", "target": "target"}}
    plain = {
        "task": {"kind": "translation"},
        "data": {"train": files, "valid": files, "bpe_dropout": dropout},
        "tokenizer": {"subwords": subwords or {"kind": "bpe", "merges": 40}},
        "model": model,
        "schedule": {"kind": "constant", "peak": 1e-2},
        "training": {"max_updates": 3, "tokens_per_update": 60, "precision": "fp32"},
        **sections,
    }
    return recipe_from(Tree.of(plain, Mark("r")))


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "source").write_text("".join(text + "\n" for text in TEXTS))
    (tmp_path / "target").write_text("".join(" ".join(text.split()[::-1]) + "\n" for text in TEXTS))
    return tmp_path


def fed(corpus, **given):
    settings = recipe(**given).model_copy(update={"root": str(corpus)})
    folder = RunFolder(corpus / f"run-{settings.training.seed}")
    folder.path.mkdir()
    prepared = prepare(settings, folder, lambda said: None)
    return prepared, prepared.task.training_data(prepared).make


def source_texts(prepared, batch):
    """What the batch's sources spell, without their end tokens, and their ids."""
    found = [ids.tolist()[:-1] for ids in batch.source.ids.split(list(batch.source.layout.lengths))]
    return [prepared.task.processor.source.decode(ids) for ids in found], found


def test_every_epoch_cuts_the_same_texts_in_another_way(corpus):
    prepared, make = fed(corpus)
    seen = []
    for epoch in range(5):
        texts, ids = source_texts(prepared, make([0, 1, 2], epoch))
        assert texts == TEXTS[:3]
        seen.append(ids)
    assert len({str(ids) for ids in seen}) == 5
    # A function of the sample, wherever it stands in a batch, and of the seed.
    _, again = source_texts(prepared, make([2, 7, 1], 3))
    assert (again[0], again[2]) == (seen[3][2], seen[3][1])
    other_prepared, other = fed(corpus, training={"max_updates": 3, "seed": 2, "tokens_per_update": 60})
    assert source_texts(other_prepared, other([0, 1, 2], 3))[1] != seen[3]


def test_without_it_pieces_stay(corpus):
    prepared, make = fed(corpus, dropout=0.0)
    usual = prepared.task.processor.source.encode_batch(TEXTS[:3])
    assert source_texts(prepared, make([0, 1, 2], 4))[1] == usual


def test_validation_reads_the_usual_pieces(corpus):
    prepared, _ = fed(corpus)
    rows = prepared.valid.gather([0, 1, 2])["source"]
    assert [r.tolist() for r in rows] == prepared.task.processor.source.encode_batch(TEXTS[:3])


def test_it_trains(corpus):
    run = corpus / "run"
    train_run(recipe().model_copy(update={"root": str(corpus)}), run, device="cpu")
    assert RunFolder(run).weights.is_file()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subwords": {"kind": "unigram", "vocab_size": 400}}, "unigram, which has no merges"),
        ({"model": {**MODEL, "positions": "learned"}}, "positions without a maximum"),
        ({"objective": {"guided": {}}}, "links refer to pieces"),
        ({"dropout": 1.0}, "less than 1"),
    ],
)
def test_what_does_not_go_together(given, said):
    with pytest.raises(RequestError, match=said):
        recipe(**given)
