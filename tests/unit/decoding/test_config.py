import pytest
from pydantic import TypeAdapter, ValidationError

from heedful.decoding.beam import BeamConfig, beam_search
from heedful.decoding.config import DecodingConfig, MaxLength, decode
from heedful.decoding.greedy import greedy
from heedful.decoding.sampling import SampleConfig, sample
from heedful.decoding.scoring import AverageLength, GnmtLength
from heedful.errors import RequestError

READ = TypeAdapter(DecodingConfig).validate_python


@pytest.mark.parametrize("source, expected", [(0, 3), (1, 4), (3, 7), (4, 9), (5, 10), (99, 10)])
def test_maximum_lengths_by_hand(source, expected):
    assert MaxLength(ratio=1.5, extra=3, cap=10).of(source) == expected


def test_every_kind_is_carried_out(toy):
    model, keys, most = toy(7, 3), [0, 1, 2], [5, 7, 6]
    request = model.request(keys, most, forbidden=[0], ordinals=[7, 8, 9])
    assert decode(READ({"kind": "greedy"}), request) == [[h] for h in greedy(request)]
    beams = {"kind": "beam", "beam": 3, "n_best": 2, "coverage": 0.2}
    penalty = {"length_penalty": {"kind": "average", "alpha": 0.5}}
    assert decode(READ({**beams, **penalty}), request) == beam_search(
        request, BeamConfig(beam=3, n_best=2, length_penalty=AverageLength(alpha=0.5), coverage=0.2)
    )
    drawn = {"temperature": 0.8, "top_k": 5, "top_p": 0.9, "min_p": 0.01, "seed": 4, "n": 2}
    assert decode(READ({"kind": "sample", **drawn}), request) == sample(request, SampleConfig(**drawn))


def test_the_default_beam_is_the_papers(toy):
    request = toy(7, 3).request([0, 1], [5, 7])
    assert decode(READ({"kind": "beam"}), request) == beam_search(
        request, BeamConfig(beam=4, length_penalty=GnmtLength(alpha=0.6))
    )


def test_coverage_of_zero_needs_no_attention(toy):
    request = toy(5, attends=False).request([1], [4])
    assert len(decode(READ({"kind": "beam", "coverage": 0}), request)) == 1
    with pytest.raises(RequestError, match="coverage"):
        decode(READ({"kind": "beam", "coverage": 0.1}), request)


def test_streaming_where_it_makes_sense(toy):
    model, told = toy(7, 3), []
    request = model.request([1], [6], on_token=lambda s, i: told.append(i))
    for config in ({"kind": "greedy"}, {"kind": "sample"}, {"kind": "beam", "beam": 1}):
        told.clear()
        assert tuple(told) != decode(READ(config), request)[0][0].ids == tuple(told)
    with pytest.raises(RequestError, match=r"set beam to 1"):
        decode(READ({"kind": "beam"}), request)
    with pytest.raises(RequestError, match="'n' to 1"):
        decode(READ({"kind": "sample", "n": 2}), request)


@pytest.mark.parametrize(
    "wrong, key",
    [
        ({"kind": "beams"}, "kind"),
        ({"kind": "greedy", "beam": 2}, "beam"),
        ({"kind": "beam", "beam": 0}, "beam"),
        ({"kind": "beam", "beam": 2, "n_best": 3}, "n_best"),
        ({"kind": "beam", "coverage": -0.1}, "coverage"),
        ({"kind": "beam", "coverage": float("inf")}, "coverage"),
        ({"kind": "beam", "length_penalty": {"kind": "none", "alpha": 1.0}}, "alpha"),
        ({"kind": "beam", "length_penalty": {"kind": "gnmt", "alpha": -1.0}}, "alpha"),
        ({"kind": "sample", "top_p": 1.5}, "top_p"),
        ({"kind": "sample", "min_p": float("nan")}, "min_p"),
        ({"kind": "sample", "top_k": 0}, "top_k"),
        ({"kind": "sample", "temperature": -1.0}, "temperature"),
        ({"kind": "sample", "seed": -1}, "seed"),
        ({"kind": "greedy", "max_length": {"extra": -1}}, "extra"),
    ],
)
def test_wrong_settings_are_refused_by_name(wrong, key):
    with pytest.raises(ValidationError, match=key):
        READ(wrong)


@pytest.mark.parametrize("kind", ["greedy", "beam", "sample"])
def test_settings_survive_being_written_down(kind):
    config = READ({"kind": kind})
    assert READ(config.model_dump()) == config
