import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import RequestError
from heedful.recipes.trees import (
    COMMAND_LINE,
    Mark,
    Tree,
    check_indices,
    combine,
    merge,
    with_preset,
)


def tree(data, source="r.yaml"):
    return Tree.of(data, Mark(source))


def merged(*layers):
    result = tree(layers[0])
    for layer in layers[1:]:
        result = merge(result, tree(layer))
    return result.data


names = st.sampled_from("abc")
leaves = st.none() | st.integers() | st.lists(st.integers(), max_size=2)
anything = st.recursive(leaves, lambda inner: st.dictionaries(names, inner, max_size=3), max_leaves=8)
maps = st.dictionaries(names, anything, max_size=3)
# Maps that agree on what is a map: below an upper-case key always, below a lower-case one never.
alike = st.recursive(
    st.dictionaries(names, leaves, max_size=3),
    lambda inner: st.builds(
        lambda low, high: {**low, **high},
        st.dictionaries(names, leaves, max_size=2),
        st.dictionaries(st.sampled_from("XY"), inner, max_size=2),
    ),
    max_leaves=6,
)


def paths(data, path=()):
    """Every path to something that is not a map with entries, and what stands there."""
    if isinstance(data, dict) and data:
        return [found for key, item in data.items() for found in paths(item, (*path, key))]
    return [(path, data)]


@given(maps, maps)
def test_whatever_lies_on_top_is_in_the_result(base, over):
    result = merge(tree(base), tree(over))
    for path, value in paths(over):
        if value != {}:
            assert result.find(path).data == value


@given(maps, maps)
def test_nothing_is_in_the_result_that_was_in_neither(base, over):
    known = [*paths(base), *paths(over)]
    for path, value in paths(merge(tree(base), tree(over)).data):
        assert value == {} or (path, value) in known


@given(maps)
def test_an_empty_map_and_a_tree_itself_change_nothing(data):
    assert merged(data, {}) == merged({}, data) == merged(data, data) == data


@given(alike, alike, alike)
def test_grouping_does_not_matter_where_the_shapes_agree(a, b, c):
    a, b, c = tree(a), tree(b), tree(c)
    assert merge(merge(a, b), c).data == merge(a, merge(b, c)).data


@given(maps, maps)
def test_merging_changes_neither_of_its_arguments(base, over):
    a, b = tree(base), tree(over)
    merge(a, b)
    assert (a.data, b.data) == (base, over)


def test_maps_merge_and_lists_scalars_and_nulls_replace():
    base = {"a": {"x": 1, "y": 2}, "b": [1, 2, 3], "c": {"z": 1}, "d": 4}
    over = {"a": {"y": 5}, "b": [9], "c": None, "d": {"w": 6}}
    assert merged(base, over) == {"a": {"x": 1, "y": 5}, "b": [9], "c": None, "d": {"w": 6}}


def test_another_kind_drops_its_siblings():
    base = {"model": {"kind": "transformer", "d_model": 128, "norm": {"kind": "layer"}}, "seed": 1}
    assert merged(base, {"model": {"kind": "rnn"}}) == {"model": {"kind": "rnn"}, "seed": 1}
    assert merged(base, {"model": {"kind": "rnn", "cell": "gru"}})["model"] == {"kind": "rnn", "cell": "gru"}


def test_text_in_place_of_a_section_is_its_kind():
    base = {"model": {"kind": "recurrent", "attention": {"kind": "additive", "d_attention": 7}}}
    changed = merged(base, {"model": {"attention": {"kind": "dot"}}})
    assert changed == {"model": {"kind": "recurrent", "attention": {"kind": "dot"}}}
    assert merged(base, {"model": {"attention": {"kind": "additive"}}}) == base
    short = {"model": {"kind": "recurrent", "attention": "additive"}}
    assert merged(short, {"model": {"attention": {"d_attention": 7}}}) == base
    assert merged(short, {"model": {"attention": {"kind": "dot", "d_k": 3}}})["model"]["attention"] == {
        "kind": "dot",
        "d_k": 3,
    }


def test_text_above_a_section_is_its_kind():
    base = {"optimizer": {"kind": "adam", "beta1": 0.8}}
    assert merged(base, {"optimizer": "muon"}) == {"optimizer": {"kind": "muon"}}
    assert merged(base, {"optimizer": "adam"}) == base
    assert merged({"names": {"a": 1}}, {"names": "adam"}) == {"names": "adam"}  # a map, but no section


def test_the_same_kind_and_no_kind_keep_the_siblings():
    base = {"model": {"kind": "transformer", "d_model": 128}}
    whole = {"model": {"kind": "transformer", "d_model": 128, "d_ff": 7}}
    assert merged(base, {"model": {"kind": "transformer", "d_ff": 7}}) == whole
    assert merged(base, {"model": {"d_ff": 7}}) == whole
    assert merged({"model": {"d_ff": 7}}, base) == whole


def test_a_kind_that_changes_and_changes_back_starts_afresh():
    first = {"model": {"kind": "a", "x": 1}}
    assert merged(first, {"model": {"kind": "b"}}, first) == first
    assert merged(first, {"model": {"kind": "b"}}, {"model": {"kind": "a"}}) == {"model": {"kind": "a"}}


def test_a_preset_on_top_replaces_the_model():
    model, preset = {"kind": "a", "x": 1}, {"preset": "p"}
    assert merged({"model": model}, {"model": preset}) == {"model": preset}
    assert merged({"other": model}, {"other": preset}) == {"other": model | preset}


def test_combining_drops_nothing():
    first, second = tree({"m": {"kind": "a", "x": 1}}), tree({"m": {"kind": "b", "preset": "p"}})
    assert combine(first, second).data == {"m": {"kind": "b", "x": 1, "preset": "p"}}
    kind, setting = tree({"schedule": "cosine"}), tree({"schedule": {"warmup": 9}})
    whole = {"schedule": {"kind": "cosine", "warmup": 9}}
    assert combine(kind, setting).data == combine(setting, kind).data == whole


@pytest.mark.parametrize("removed", [None, {}])
def test_a_map_that_is_set_after_it_was_removed_replaces_the_one_below(removed):
    below = tree({"data": {"test": {"published": {"kind": "hub"}}}})
    remove, own = tree({"data": {"test": removed}}), tree({"data": {"test": {"own": {"kind": "files"}}}})
    more = tree({"data": {"test": {"more": {"kind": "hub"}}}})
    only_own = {"own": {"kind": "files"}}
    assert merge(below, combine(remove, own)).data["data"]["test"] == only_own
    both = merge(below, combine(combine(remove, own), more)).data["data"]["test"]
    assert both == only_own | {"more": {"kind": "hub"}}
    assert merge(below, combine(own, remove)).data["data"]["test"] == removed
    sections = tree({"model": {"kind": "a", "x": 1}})
    alone = combine(tree({"model": None}), tree({"model": {"y": 2}}))
    assert merge(sections, alone).data == {"model": {"y": 2}}


def test_marks_come_along():
    base, over = (
        tree({"a": {"x": 1, "y": 2}, "l": [1, {"p": 2}]}),
        tree({"a": {"y": 5}, "b": {"z": 3}}, COMMAND_LINE),
    )
    result = merge(merge(base, over), tree({"l": {1: {"p": 9}}}, "third"))
    marks = {path: item.mark.source for path, item in result.walk()}
    below = [(), ("a",), ("a", "x"), ("l",), ("l", 0), ("l", 1)]
    above = [("a", "y"), ("b",), ("b", "z")]
    wanted = dict.fromkeys(below, "r.yaml") | dict.fromkeys(above, COMMAND_LINE) | {("l", 1, "p"): "third"}
    assert marks == wanted


def test_numbers_point_into_lists():
    base = {"train": [{"path": "a", "kind": "text"}, {"path": "b"}]}
    assert merged(base, {"train": {1: {"path": "c"}}}) == {
        "train": [{"path": "a", "kind": "text"}, {"path": "c"}]
    }
    assert merged(base, {"train": {0: {"kind": "hub"}}})["train"][0] == {"kind": "hub"}
    assert merged(base, {"train": {0: 5, 1: 7}}) == {"train": [5, 7]}


def test_numbers_name_keys_of_maps():
    assert merged({"tests": {"2016": "a"}}, {"tests": {2017: "b", 2016: "c"}}) == {
        "tests": {"2016": "c", "2017": "b"}
    }


def test_a_number_beyond_the_list_is_refused():
    with pytest.raises(
        RequestError, match=r"^on the command line: a\.b\.2: index out of range: the list has length 2$"
    ):
        merge(tree({"a": {"b": [1, 2]}}), tree({"a": {"b": {2: 3}}}, COMMAND_LINE))


@pytest.mark.parametrize("base", [{}, {"a": 3}, {"a": None}])
def test_a_number_without_a_list_is_refused(base):
    result = merge(tree(base), tree({"a": {0: {"b": 1}}}, COMMAND_LINE))
    with pytest.raises(
        RequestError, match=r"^on the command line: a\.0: 'a' is not a list, so it has no index$"
    ):
        check_indices(result)


PRESETS = {"tiny": {"kind": "transformer", "d_model": 128, "norm": {"kind": "layer", "eps": 1e-6}}}


def test_a_preset_lies_below_the_model_that_names_it():
    written = {
        "model": {"dropout": 0.3, "preset": "tiny", "norm": {"eps": 1e-5}},
        "data": {"train": [{"path": "x"}], "test": {"preset": {"path": "y"}}},
    }
    result = with_preset(tree(written), PRESETS)
    norm = {"kind": "layer", "eps": 1e-5}
    model = {"kind": "transformer", "d_model": 128, "norm": norm, "dropout": 0.3}
    assert result.data == {**written, "model": model}
    assert str(result.mark_of(("model", "d_model"))) == "preset tiny"
    assert str(result.mark_of(("model", "dropout"))) == "r.yaml"
    assert str(result.mark_of(("model",))) == "r.yaml"


WRONG_PRESETS = {
    "unknown": (
        {"model": {"preset": "tny"}},
        "model.preset: unknown preset 'tny' (did you mean 'tiny'?); expected one of tiny",
    ),
    "far off": ({"model": {"preset": "xxl"}}, "model.preset: unknown preset 'xxl'; expected one of tiny"),
    "no name": ({"model": {"preset": 3}}, "model.preset: expected the name of a preset, got 3"),
    "another kind": (
        {"model": {"preset": "tiny", "kind": "rnn"}},
        "model.kind: 'rnn', but the preset is of kind 'transformer'",
    ),
}


@pytest.mark.parametrize("case", WRONG_PRESETS)
def test_wrong_presets_are_refused(case):
    data, message = WRONG_PRESETS[case]
    with pytest.raises(RequestError) as caught:
        with_preset(tree(data), PRESETS)
    assert str(caught.value) == f"r.yaml: {message}"
