"""What a target looks at in the source of the same text: an independent loop, and the shift."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from heedful.errors import RequestError
from heedful.explain.alignment.best_head import best_head, store_best_head
from heedful.explain.alignment.word_alignment import HeadChoice, attention_between_ids
from heedful.explain.attention_map import BestHead
from heedful.explain.attention_sites import (
    Selection,
    capture_memory,
    find_sites,
    part_sites,
    sites_of,
    source_part,
)
from heedful.explain.capture import explain_input
from heedful.explain.json_format import json_pieces
from heedful.explain.page.build import page_data
from heedful.explain.summary import summary_matrix, word_alignment
from heedful.explain.views import views_of
from heedful.tasks.model_input import AnswerOptions
from heedful.text.specials import SPECIALS


def jsonable(seen):
    return json.loads("".join(json_pieces(seen)))


def loop(whole, n_source):
    """Row by row, by what a row foretells: the tokens behind the separator."""
    n = len(whole)
    found = []
    for place in range(n_source + 2, n):  # of the token that is foretold
        row = [whole[place - 1][column] for column in range(1, n_source + 2)]
        total = sum(row)
        found.append([weight / total for weight in row])
    return found


def test_a_part_is_that_of_the_loop():
    rng = np.random.default_rng(2)
    whole = np.tril(rng.random((2, 3, 11, 11))).astype(np.float32)
    whole /= whole.sum(-1, keepdims=True)
    # <s> x x x x <sep> y y y y </s>: S is 4, T is 4.
    part = source_part(whole, 4, 4)
    assert part.shape == (2, 3, 5, 5)
    for i, j in np.ndindex(2, 3):
        np.testing.assert_allclose(part[i, j], loop(whole[i, j].tolist(), 4), rtol=1e-6)
    np.testing.assert_allclose(part.sum(-1), 1, rtol=1e-6)
    # The end token's own row, that a text which is read whole has, says nothing.
    np.testing.assert_array_equal(source_part(whole[..., :10, :10], 4, 4), part)


def test_a_row_that_sees_nothing_of_the_source_is_at_its_end():
    part = source_part(np.eye(7, dtype=np.float32), 2, 2)
    # <s> x x <sep> y y </s>: the separator looks at itself, the others at themselves.
    np.testing.assert_array_equal(part, [[0, 0, 1]] * 3)


@pytest.fixture
def translator(explained):
    run, given = explained("one text")
    source, target = (run.processor.source.encode(text) for text in (given, "RUNS DOG RED"))
    return run, given, source, target


def test_every_layer_and_head_has_its_part(translator):
    run, given, source, target = translator
    seen = explain_input(run, given, options=AnswerOptions(target="RUNS DOG RED"))
    text = [SPECIALS.start, *source, SPECIALS.separate, *target, SPECIALS.end]
    assert seen.axes["source"].tokens == tuple(run.processor.source.tokens([*source, SPECIALS.separate]))
    assert seen.axes["target"].tokens == tuple(run.processor.target.tokens([*target, SPECIALS.end]))
    found = [each for each in seen.maps if each.is_part]
    whole = [each for each in seen.maps if not each.is_part]
    assert [(each.kind, each.queries, each.keys) for each in found] == [("cross", "target", "source")] * 2
    assert [each.kind for each in whole] == ["causal"] * 2
    assert len({each.tap for each in seen.maps}) == 4
    for part, own in zip(found, whole, strict=True):
        assert part.tap == f"{own.tap}[target, source]"
        assert (part.layer, part.heads) == (own.layer, own.heads)
        assert own.weights.shape[1] == len(text)
        for head, matrix in zip(part.weights, own.weights, strict=True):
            np.testing.assert_allclose(head, loop(matrix.tolist(), len(source)), atol=1e-5)


def test_a_row_hangs_on_the_token_before_and_not_on_its_own(translator):
    """Teacher forced: another second token changes the rows after its own, and that alone."""
    run, _, source, target = translator
    other = [target[0], source[0], *target[2:]]
    pairs = attention_between_ids(run.model, [source] * 2, [target, other], run.recipe.sequence_format)
    one, two = pairs
    same = [np.allclose(one[:, :, row], two[:, :, row], atol=1e-6) for row in range(len(target) + 1)]
    assert same[:3] == [True, True, False]


def test_pairs_of_several_lengths_in_one_batch_are_as_alone(translator):
    run, _, source, target = translator
    sources, targets = [source, source[:1], source[:2]], [target[:1], target, target]
    together = list(attention_between_ids(run.model, sources, targets, run.recipe.sequence_format))
    for found, *pair in zip(together, sources, targets, strict=True):
        (alone,) = attention_between_ids(run.model, *([ids] for ids in pair), run.recipe.sequence_format)
        assert found.shape == (2, 3, len(pair[1]) + 1, len(pair[0]) + 1)
        np.testing.assert_allclose(found, alone, atol=1e-5)


def test_the_links_are_shown_and_it_is_said_what_they_are_of(translator):
    run, given, *_ = translator
    seen = explain_input(run, given)
    shown = summary_matrix(seen)
    assert shown.queries is seen.axes["target"]
    assert "from target to source, rows rescaled to sum 1" in shown.title
    plain = jsonable(seen)
    assert plain["alignment"] == word_alignment(shown)
    assert [each.get("part", False) for each in plain["maps"]] == [False, False, True, True]
    drawn = page_data(seen)["maps"]
    assert [each.get("part", False) for each in drawn] == [False, False, True, True]


def test_kinds_layers_and_heads_are_chosen_as_elsewhere(translator):
    run, given, *_ = translator
    (only,) = explain_input(run, given, maps=Selection(kinds=["cross"], layers=[1], heads=[2, 0])).maps
    assert (only.is_part, only.layer, only.heads) == (True, 1, (0, 2))
    whole = {each.tap: each for each in explain_input(run, given).maps}
    np.testing.assert_array_equal(only.weights, whole[only.tap].weights[[0, 2]])
    assert not any(each.is_part for each in explain_input(run, given, maps=Selection(kinds=["causal"])).maps)


def test_views_are_of_whole_maps(translator):
    run, given, *_ = translator
    seen = explain_input(run, given, views=views_of(run), others=["red cat runs"])
    assert {head["kind"] for head in seen.views["census"]["heads"]} == {"causal"}
    assert [stack["kind"] for stack in seen.views["heads"]["stacks"]] == ["causal"]
    json.dumps(jsonable(seen), allow_nan=False)


def test_memory_is_that_of_the_texts_and_the_parts(translator):
    run, given, *_ = translator
    sides = explain_input(run, given).axes
    n, s, t = (len(sides[name].tokens) for name in ("input", "source", "target"))
    found = sites_of(run)
    assert found == [*find_sites(run.model), *part_sites(found)]
    assert capture_memory(found, sides) == 4 * 3 * (2 * n * n + 2 * s * t + 3 * n * n)
    assert capture_memory(part_sites(found), sides) == capture_memory(found, sides)


def test_the_head_that_gold_alignments_chose_is_shown_first(translator):
    run, given, *_ = translator
    assert best_head(run) is None
    if not store_best_head(run, [SimpleNamespace(choice=HeadChoice(1, 2), rate=0.5)], 3):
        pytest.skip("this run has no card")
    try:
        seen = explain_input(run, given)
        assert seen.best == BestHead(seen.maps[3].tap, 2)
        assert summary_matrix(seen).title.endswith("layer 2, head 3 (best known alignment)")
    finally:
        (run.folder.path / "alignment.json").unlink()


def test_of_slots_there_is_no_part(explained, translator):
    pairing = translator[0].recipe.sequence_format
    run, _ = explained("local and compressed")
    sites = find_sites(run.model)
    assert 0 < len(part_sites(sites)) < len(sites)
    with pytest.raises(RequestError, match="attention between tokens"):
        next(attention_between_ids(run.model, [[7]], [[7]], pairing))
