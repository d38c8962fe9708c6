"""The head that aligns best: what is kept in a run's folder, when it counts, and what shows it."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from heedful.api.run import load
from heedful.artifacts.run_folder import write_card
from heedful.cli.evaluate import AlignmentOptions
from heedful.errors import DamagedError
from heedful.explain.alignment.best_head import FILE, MIN_PAIRS, best_head, store_best_head
from heedful.explain.alignment.word_alignment import HeadChoice
from heedful.explain.attention_map import BestHead
from heedful.explain.attention_sites import Selection
from heedful.explain.capture import explain_input
from heedful.explain.json_format import json_pieces
from heedful.explain.page.build import page_data
from heedful.explain.summary import summary_matrix


def jsonable(seen):
    return json.loads("".join(json_pieces(seen)))


def measured(run, pairs, rates):
    """Keeps the best of some heads with these rates; which is shown first then, or None."""
    shown = store_best_head(
        run, [SimpleNamespace(choice=choice, rate=rate) for choice, rate in rates.items()], pairs
    )
    return shown and shown.choice


@pytest.fixture
def own(explained, tmp_path):
    """A copy of the translator, whose folder may be written."""
    run, given = explained("translation")
    folder = shutil.copytree(run.folder.path, tmp_path / "run")
    return load(folder, device="cpu"), given


def test_nothing_is_known_at_first(own):
    run, given = own
    assert best_head(run) is None
    seen = explain_input(run, given)
    assert seen.best is None
    assert "best" not in jsonable(seen)
    assert "mean of" in summary_matrix(seen).title


def test_what_was_kept_is_shown_and_told(own, published):
    run, given = own
    assert measured(run, 100, {HeadChoice(0, 2): 0.25})
    assert json.loads((run.folder.path / FILE).read_text("utf-8")).keys() == {
        "version", "layer", "head", "step", "rate", "pairs", "weights", "sha256",
    }  # fmt: skip
    assert best_head(load(run.folder.path, device="cpu")) == HeadChoice(0, 2)
    seen = explain_input(run, given)
    cross = seen.map("cross", 0)
    assert seen.best == BestHead(cross.tap, 2)
    shown = summary_matrix(seen)
    np.testing.assert_array_equal(shown.weights, cross.head(2))
    assert shown.title == "cross-attention: layer 1, head 3 (best known alignment)"
    plain = jsonable(seen)
    published("explanation", plain)
    assert plain["best"] == {"tap": cross.tap, "head": 2, "step": "output"}
    assert page_data(seen)["best"] == {"tap": cross.tap, "head": 2}


def test_a_head_that_aligns_where_it_reads_is_shown_so(own, published):
    run, given = own
    assert measured(run, 100, {HeadChoice(0, 2, "input"): 0.25})
    assert best_head(run) == HeadChoice(0, 2, "input")
    seen = explain_input(run, given)
    rows = seen.map("cross", 0).head(2)
    shown = summary_matrix(seen)
    np.testing.assert_array_equal(shown.weights[:-1], rows[1:])
    assert shown.title == "cross-attention: layer 1, head 3, at the input step (best known alignment)"
    plain = jsonable(seen)
    published("explanation", plain)
    assert plain["best"]["step"] == "input"
    end = len(seen.axes["source"].tokens) - 1
    found = {(int(row.argmax()), t) for t, row in enumerate(rows[1:].astype(float)) if row.argmax() != end}
    if all(len(set(side.words[:-1])) == len(side.words) - 1 for side in seen.axes.values()):
        assert plain["alignment"] == " ".join(f"{i}-{j}" for i, j in sorted(found))


def test_what_describes_no_head_of_the_model_is_damage(own):
    run, _ = own
    measured(run, 100, {HeadChoice(0, 2): 0.25})
    path = run.folder.path / FILE
    value = json.loads(path.read_text("utf-8"))
    for change in (
        {"step": "sideways"},
        {"layer": 2},
        {"layer": -1},
        {"head": 99},
        {"pairs": -1},
        {"version": 1},
    ):
        write_card(path, {**value, **change})
        with pytest.raises(
            DamagedError, match=r"alignment\.json: damaged: .*; restore it from a copy, or delete it"
        ):
            best_head(run)


def test_a_changed_digit_shows_no_other_head(own):
    run, _ = own
    measured(run, 100, {HeadChoice(0, 2): 0.25})
    path = run.folder.path / FILE
    text = path.read_text("utf-8")
    for key, number in (("head", 1), ("layer", 2), ("pairs", 101), ("rate", 0.15)):
        path.write_text(json.dumps({**json.loads(text), key: number}), "utf-8")
        with pytest.raises(DamagedError, match=r"alignment\.json: damaged: its content does not match"):
            best_head(run)
    path.write_text(text, "utf-8")
    assert best_head(run) == HeadChoice(0, 2)


def test_it_may_be_the_mean_of_a_layer(own, published):
    run, given = own
    assert measured(run, 100, {HeadChoice(0): 0.25})
    seen = explain_input(run, given)
    np.testing.assert_allclose(
        summary_matrix(seen).weights, seen.map("cross", 0).weights.mean(axis=0), atol=1e-7
    )
    published("explanation", jsonable(seen))
    assert jsonable(seen)["best"]["head"] is None


def test_who_chooses_sees_what_was_chosen(own):
    run, given = own
    measured(run, 100, {HeadChoice(0, 2): 0.25})
    assert explain_input(run, given, maps=Selection(heads=[0, 1])).best is None
    assert explain_input(run, given, maps=Selection(layers=[0])).best is None
    assert explain_input(run, given, maps=Selection(kinds=["self"])).best is None
    seen = explain_input(run, given)
    assert "self-attention" in summary_matrix(seen, "self").title
    assert "mean of" in summary_matrix(seen, "cross").title


def test_with_other_weights_it_counts_no_more(own):
    run, _ = own
    measured(run, 100, {HeadChoice(0, 2): 0.25})
    path = run.folder.path / FILE
    value = json.loads(path.read_text("utf-8"))
    write_card(path, {**value, "weights": "0" * 64})
    assert best_head(run) is None
    path.write_text(json.dumps({"version": 1}), "utf-8")
    with pytest.raises(DamagedError, match=r"alignment\.json: damaged"):
        best_head(run)


def test_a_head_that_fewer_pairs_chose_does_not_take_its_place(own):
    run, _ = own
    assert measured(run, 100, {HeadChoice(0, 2): 0.25}) == HeadChoice(0, 2)
    assert measured(run, 99, {HeadChoice(0, 1): 0.0}) == HeadChoice(0, 2)
    assert best_head(run) == HeadChoice(0, 2)
    assert measured(run, 100, {HeadChoice(0, 1): 0.5}) == HeadChoice(0, 1)
    assert best_head(run) == HeadChoice(0, 1)


@pytest.mark.parametrize("change", [{"weights": "0" * 64}, {"layer": None}, {"pairs": "many"}])
def test_one_of_other_weights_or_a_damaged_one_keeps_no_place(own, change):
    run, _ = own
    measured(run, 100, {HeadChoice(0, 2): 0.25})
    path = run.folder.path / FILE
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **change}), "utf-8")
    assert measured(run, 1, {HeadChoice(0, 1): 0.5}) == HeadChoice(0, 1)
    assert best_head(run) == HeadChoice(0, 1)


@pytest.fixture
def guided(own):
    """The translator, as though its second head had been taught alignments where words are read."""
    run, _ = own

    class Guided:
        head, step = 2, "input"

        def layer_index(self, n_layers):
            assert n_layers == 1
            return 0

    run.task.recipe = run.recipe.model_copy(
        update={"objective": run.recipe.objective.model_copy(update={"guided": Guided()})}
    )
    return run


TAUGHT, OTHER = HeadChoice(0, 1, "input"), HeadChoice(0, 2)


@pytest.mark.parametrize(
    ("pairs", "rates", "first"),
    [
        (MIN_PAIRS, {TAUGHT: 0.3, OTHER: 0.2}, OTHER),
        (MIN_PAIRS - 1, {TAUGHT: 0.3, OTHER: 0.2}, TAUGHT),
        (1, {TAUGHT: 0.9, OTHER: 0.0}, TAUGHT),
        (500, {OTHER: 0.2, TAUGHT: 0.2}, TAUGHT),
        (500, {OTHER: 0.2, TAUGHT: float("nan")}, TAUGHT),
        (500, {OTHER: 0.2}, TAUGHT),
        (500, {OTHER: 0.2, TAUGHT: 0.1}, TAUGHT),
        (1, {OTHER: 0.2, TAUGHT: 0.1}, TAUGHT),
    ],
)
def test_a_head_that_was_taught_gives_way_to_one_that_is_better_on_enough_pairs(guided, pairs, rates, first):
    assert best_head(guided) == TAUGHT
    assert measured(guided, pairs, rates) == first
    assert best_head(guided) == first


def test_once_it_gave_way_the_others_are_chosen_as_ever(guided):
    third = HeadChoice(0, 0)
    measured(guided, 50, {TAUGHT: 0.3, OTHER: 0.2})
    assert measured(guided, 49, {TAUGHT: 0.3, OTHER: 0.2, third: 0.1}) == OTHER
    assert measured(guided, 50, {TAUGHT: 0.3, OTHER: 0.2, third: 0.1}) == third
    assert measured(guided, 60, {TAUGHT: 0.1, OTHER: 0.2, third: 0.2}) == TAUGHT


def test_what_too_few_pairs_chose_when_that_was_enough_counts_no_more(guided):
    measured(guided, MIN_PAIRS, {TAUGHT: 0.3, OTHER: 0.2})
    path = guided.folder.path / FILE
    write_card(path, {**json.loads(path.read_text("utf-8")), "pairs": 1})
    assert best_head(guided) == TAUGHT


def test_where_nothing_can_be_written_nothing_is_kept(own, monkeypatch):
    run, _ = own

    def refuse(path, value):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("heedful.explain.alignment.best_head.write_card", refuse)
    assert not measured(run, 100, {HeadChoice(0, 2): 0.25})
    assert not (run.folder.path / FILE).exists()
    (run.folder.card).unlink()
    monkeypatch.undo()
    assert not measured(run, 100, {HeadChoice(0, 2): 0.25})


@pytest.mark.parametrize(
    "name", ["classification", "language model", "fourier", "recurrent without attention"]
)
def test_what_looks_at_no_source_has_none(explained, name):
    assert best_head(explained(name)[0]) is None


def logged(capsys, run, chosen, pairs, rates=()):
    """Return the log if `chosen` was selected on `pairs` pairs and other heads have the given rates."""
    table = [SimpleNamespace(choice=c, rate=r) for c, r in [(chosen, 0.5), *rates]]
    AlignmentOptions().save_best_head(run, SimpleNamespace(table=table, reported=table[0], judged=pairs))
    return capsys.readouterr().err.strip()


def shows(state, head):
    return f"heedful explain {state} shows {head} first: "


def test_who_measures_is_told_which_head_stays_and_why(own, capsys):
    run, _ = own
    assert logged(capsys, run, OTHER, 3) == shows("now", "layer 1, head 3") + "lowest error rate on 3 pairs"
    assert logged(capsys, run, HeadChoice(0, 1), 1) == (
        shows("still", "layer 1, head 3") + "selected on 3 pairs; layer 1, head 2 on only 1 pair"
    )


def test_who_measures_is_told_why_the_head_stays_that_was_taught(guided, capsys):
    stays = shows("still", TAUGHT) + "supervised head; "
    assert logged(capsys, guided, OTHER, 1, [(TAUGHT, 0.9)]) == (
        f"{stays}{OTHER} has the lowest error rate, but on only 1 pair with gold links; "
        f"at least {MIN_PAIRS} are needed"
    )
    assert (
        logged(capsys, guided, OTHER, 99)
        == shows("still", TAUGHT) + "supervised head, not among the evaluated ones"
    )
    assert logged(capsys, guided, OTHER, 99, [(TAUGHT, 0.5)]) == f"{stays}{OTHER} is not better"
    assert (
        logged(capsys, guided, OTHER, 99, [(TAUGHT, 0.6)])
        == shows("now", OTHER) + "lowest error rate on 99 pairs"
    )
