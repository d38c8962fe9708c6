"""The head that aligns best: what is kept in a run's folder, when it counts, and what shows it."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from heedful.cli.evaluate import Judging
from heedful.errors import DamagedError
from heedful.explain.alignment import Choice
from heedful.explain.best_head import FILE, Kept, best_head, keep
from heedful.explain.jsonable import jsonable
from heedful.explain.look import look
from heedful.explain.page.build import numbers_of
from heedful.explain.summary import mean_of
from heedful.explain.view import Best
from heedful.runs.run import load


@pytest.fixture
def own(explained, tmp_path):
    """A copy of the translator, whose folder may be written."""
    run, given = explained("translation")
    folder = shutil.copytree(run.folder.path, tmp_path / "run")
    return load(folder, device="cpu"), given


def test_nothing_is_known_at_first(own):
    run, given = own
    assert best_head(run) is None
    seen = look(run, given)
    assert seen.best is None
    assert "best" not in jsonable(seen)
    assert "mean of" in mean_of(seen).title


def test_what_was_kept_is_shown_and_told(own, published):
    run, given = own
    assert keep(run, Choice(0, 2), rate=0.25, pairs=100)
    assert json.loads((run.folder.path / FILE).read_text("utf-8")).keys() == {
        "version", "layer", "head", "step", "rate", "pairs", "weights",
    }  # fmt: skip
    assert best_head(load(run.folder.path, device="cpu")) == Choice(0, 2)
    seen = look(run, given)
    cross = seen.map("cross", 0)
    assert seen.best == Best(cross.tap, 2)
    shown = mean_of(seen)
    np.testing.assert_array_equal(shown.weights, cross.head(2))
    assert shown.title == "cross-attention: layer 1, head 3 (known to align best)"
    plain = jsonable(seen)
    published("explanation", plain)
    assert plain["best"] == {"tap": cross.tap, "head": 3, "step": "output"}
    assert numbers_of(seen)["best"] == {"tap": cross.tap, "head": 2}


def test_a_head_that_aligns_where_it_reads_is_shown_so(own, published):
    run, given = own
    assert keep(run, Choice(0, 2, "input"), rate=0.25, pairs=100)
    assert best_head(run) == Choice(0, 2, "input")
    seen = look(run, given)
    rows = seen.map("cross", 0).head(2)
    shown = mean_of(seen)
    np.testing.assert_array_equal(shown.weights[:-1], rows[1:])
    assert shown.title == "cross-attention: layer 1, head 3, where words are read (known to align best)"
    plain = jsonable(seen)
    published("explanation", plain)
    assert plain["best"]["step"] == "input"
    end = len(seen.sides["source"].tokens) - 1
    found = {(int(row.argmax()), t) for t, row in enumerate(rows[1:].astype(float)) if row.argmax() != end}
    if all(len(set(side.words[:-1])) == len(side.words) - 1 for side in seen.sides.values()):
        assert plain["alignment"] == " ".join(f"{i}-{j}" for i, j in sorted(found))


def test_what_was_kept_before_there_were_steps_counts(own):
    run, _ = own
    keep(run, Choice(0, 2), rate=0.25, pairs=100)
    path = run.folder.path / FILE
    value = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({key: value[key] for key in value if key != "step"}), "utf-8")
    assert best_head(run) == Choice(0, 2)
    path.write_text(json.dumps({**value, "step": "sideways"}), "utf-8")
    with pytest.raises(DamagedError, match=r"alignment\.json: damaged"):
        best_head(run)


def test_it_may_be_the_mean_of_a_layer(own, published):
    run, given = own
    assert keep(run, Choice(0), rate=0.25, pairs=100)
    seen = look(run, given)
    np.testing.assert_allclose(mean_of(seen).weights, seen.map("cross", 0).weights.mean(axis=0), atol=1e-7)
    published("explanation", jsonable(seen))
    assert jsonable(seen)["best"]["head"] is None


def test_who_chooses_sees_what_was_chosen(own):
    run, given = own
    keep(run, Choice(0, 2), rate=0.25, pairs=100)
    assert look(run, given, heads=[0, 1]).best is None
    assert look(run, given, layers=[0]).best is None
    assert look(run, given, kinds=["self"]).best is None
    seen = look(run, given)
    assert "self-attention" in mean_of(seen, "self").title
    assert "mean of" in mean_of(seen, "cross").title


def test_with_other_weights_it_counts_no_more(own):
    run, _ = own
    keep(run, Choice(0, 2), rate=0.25, pairs=100)
    path = run.folder.path / FILE
    value = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**value, "weights": "0" * 64}), "utf-8")
    assert best_head(run) is None
    path.write_text(json.dumps({"version": 1}), "utf-8")
    with pytest.raises(DamagedError, match=r"alignment\.json: damaged"):
        best_head(run)


def test_a_head_that_fewer_pairs_chose_does_not_take_its_place(own):
    run, _ = own
    assert keep(run, Choice(0, 2), rate=0.25, pairs=100) == Kept(Choice(0, 2), 100)
    assert keep(run, Choice(0, 1), rate=0.0, pairs=99) == Kept(Choice(0, 2), 100)
    assert best_head(run) == Choice(0, 2)
    assert keep(run, Choice(0, 1), rate=0.5, pairs=100) == Kept(Choice(0, 1), 100)
    assert best_head(run) == Choice(0, 1)


@pytest.mark.parametrize("change", [{"weights": "0" * 64}, {"layer": None}, {"pairs": "many"}])
def test_one_of_other_weights_or_a_damaged_one_keeps_no_place(own, change):
    run, _ = own
    keep(run, Choice(0, 2), rate=0.25, pairs=100)
    path = run.folder.path / FILE
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **change}), "utf-8")
    assert keep(run, Choice(0, 1), rate=0.5, pairs=1) == Kept(Choice(0, 1), 1)
    assert best_head(run) == Choice(0, 1)


def test_a_head_that_was_taught_is_the_best_until_another_is_measured(own):
    run, _ = own

    class Guided:
        head, step = 2, "input"

        def place(self, n_layers):
            assert n_layers == 1
            return 0

    run.recipe = run.recipe.model_copy(
        update={"objective": run.recipe.objective.model_copy(update={"guided": Guided()})}
    )
    assert best_head(run) == Choice(0, 1, "input")
    keep(run, Choice(0, 2), rate=0.25, pairs=100)
    assert best_head(run) == Choice(0, 2)


def test_where_nothing_can_be_written_nothing_is_kept(own, monkeypatch):
    run, _ = own

    def refuse(path, value):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("heedful.explain.best_head.write_json", refuse)
    assert not keep(run, Choice(0, 2), rate=0.25, pairs=100)
    assert not (run.folder.path / FILE).exists()
    (run.folder.card).unlink()
    monkeypatch.undo()
    assert not keep(run, Choice(0, 2), rate=0.25, pairs=100)


@pytest.mark.parametrize(
    "name", ["classification", "language model", "fourier", "recurrent without attention"]
)
def test_what_looks_at_no_source_has_none(explained, name):
    assert best_head(explained(name)[0]) is None


def test_who_measures_is_told_which_head_stays_and_why(own, capsys):
    run, _ = own
    for choice, pairs, told in [
        (
            Choice(0, 2),
            3,
            "layer 1, head 3 is now the one that heedful explain shows first: 3 pairs chose it",
        ),
        (
            Choice(0, 1),
            1,
            "layer 1, head 3 stays the one that heedful explain shows first: "
            "3 pairs chose it, and 1 pair chose layer 1, head 2",
        ),
    ]:
        chosen = SimpleNamespace(choice=choice, rate=0.5)
        Judging().remember(run, SimpleNamespace(chosen=chosen, development=0, found=[frozenset()] * pairs))
        assert capsys.readouterr().err.strip() == told
