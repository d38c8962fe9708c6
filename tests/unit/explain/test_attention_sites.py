"""Where models attend: names, kinds and sides, found from the model alone."""

import pytest

from heedful.errors import RequestError
from heedful.explain.attention_sites import AttentionSite, Selection, find_sites, select_sites
from heedful.nn.taps import taps


def told(run):
    return [(p.tap, p.kind, p.layer, p.n_heads, p.queries, p.keys) for p in find_sites(run.model)]


def test_an_encoder_decoder_has_three_kinds(explained):
    mixer, cross = "blocks.{}.mixer.part.weights", "blocks.{}.cross_attention.part.weights"
    assert told(explained("translation")[0]) == [
        (f"encoder.{mixer.format(0)}", "self", 0, 3, "source", "source"),
        (f"encoder.{mixer.format(1)}", "self", 1, 3, "source", "source"),
        (f"decoder.{mixer.format(0)}", "causal", 0, 3, "prefix", "prefix"),
        (f"decoder.{cross.format(0)}", "cross", 0, 3, "target", "source"),
    ]


def test_recurrent_decoders_have_one_point(explained):
    assert told(explained("recurrent")[0]) == [("decoder.weights", "cross", 0, 3, "target", "source")]
    assert told(explained("recurrent, one head")[0])[0][3] == 1


@pytest.mark.parametrize(
    "name", ["recurrent without attention", "recurrent language model", "fourier", "resnet"]
)
def test_models_without_attention_have_none(explained, name):
    assert find_sites(explained(name)[0].model) == []


def test_every_point_is_a_tap(explained, every):
    model = explained(every)[0].model
    assert {point.tap for point in find_sites(model)} <= taps(model).keys()


def point(kind, layer, n_heads):
    return AttentionSite(f"{kind}{layer}", kind, layer, tuple(range(n_heads)), n_heads, "a", "b")


ALL = [point("self", 0, 4), point("self", 1, 4), point("cross", 0, 2)]


@pytest.mark.parametrize(
    ("wanted", "taps_and_heads"),
    [
        ({}, [("self0", 4), ("self1", 4), ("cross0", 2)]),
        ({"layers": [1]}, [("self1", 4)]),
        ({"layers": [0, 0]}, [("self0", 4), ("cross0", 2)]),
        ({"heads": [3]}, [("self0", 1), ("self1", 1)]),
        ({"heads": [0, 3], "kinds": ["cross"]}, None),
        ({"heads": [1, 0], "kinds": ["cross", "self"], "layers": [0]}, [("self0", 2), ("cross0", 2)]),
    ],
)
def test_what_is_there_is_chosen_where_it_is(wanted, taps_and_heads):
    if taps_and_heads is None:
        with pytest.raises(RequestError, match="heads: expected indices from 0 to 1, got 3"):
            select_sites(ALL, Selection(**wanted))
        return
    assert [(p.tap, len(p.heads)) for p in select_sites(ALL, Selection(**wanted))] == taps_and_heads


def test_heads_are_in_their_order():
    (first, *_) = select_sites(ALL, Selection(heads=[2, 0]))
    assert first.heads == (0, 2)
    assert first.n_heads == 4
