"""Generation settings of transformers as decodings, and back."""

import json

import pytest
from pydantic import TypeAdapter

from heedful.decoding.config import (
    BeamConfig,
    DecodingConfig,
    DiverseBeamConfig,
    GreedyConfig,
    MbrConfig,
    SampleConfig,
)
from heedful.decoding.scoring import AverageLength, GnmtLength, NoPenalty
from heedful.errors import RequestError
from heedful.interop.checkpoint import Checkpoint
from heedful.interop.generation import read_generation, write_generation

DECODINGS = {
    "greedy": GreedyConfig(),
    "beam, average": BeamConfig(beam=3, length_penalty=AverageLength(alpha=0.7), unfinished="keep"),
    "beam, no penalty": BeamConfig(beam=5, length_penalty=NoPenalty(), unfinished="keep"),
    "sample": SampleConfig(temperature=0.7, top_k=11, top_p=0.9, min_p=0.1, epsilon=0.02),
    "sample from all": SampleConfig(),
}


def read(folder, content, name="generation_config.json"):
    (folder / "config.json").write_text("{}", "utf-8")
    (folder / name).write_text(json.dumps(content), "utf-8")
    return read_generation(Checkpoint(folder))


def scores(config):
    """What decides between texts: the same for penalties of other kinds that divide by the same numbers."""
    section = config.model_dump()
    if isinstance(config, BeamConfig):
        section["length_penalty"] = [config.length_penalty.divisor(length) for length in (1, 2, 25)]
    return section


@pytest.mark.parametrize("config", DECODINGS.values(), ids=DECODINGS)
def test_what_is_written_is_read_again(tmp_path, config):
    content, notes = write_generation(config)
    assert notes == []
    again = read(tmp_path, content)
    assert again.notes == []
    assert scores(TypeAdapter(DecodingConfig).validate_python(again.decoding)) == scores(config)


@pytest.mark.parametrize("config", [BeamConfig(beam=1), SampleConfig(temperature=0.0)])
def test_searches_that_take_the_best_token_are_greedy(config):
    assert write_generation(config).content == {"do_sample": False, "num_beams": 1}


def test_the_penalty_of_gnmt_is_fitted_at_25_tokens_and_named():
    content, (note,) = write_generation(BeamConfig(length_penalty=GnmtLength(alpha=0.6)))
    assert content["length_penalty"] == 0.5  # 0.6 * 25 / 30
    assert "no penalty of the kind gnmt" in note
    # Both divisors grow alike from 24 to 26 tokens.
    exact, fitted = GnmtLength(alpha=0.6), AverageLength(alpha=0.5)
    growth = [each.divisor(26) / each.divisor(24) for each in (exact, fitted)]
    assert growth[0] == pytest.approx(growth[1], rel=1e-4)


def test_coverage_is_named():
    assert "coverage" in write_generation(BeamConfig(coverage=0.2, length_penalty=NoPenalty())).notes[0]


def test_the_groups_of_a_diverse_beam_search_are_named():
    shared = {"beam": 6, "length_penalty": NoPenalty()}
    content, (note,) = write_generation(DiverseBeamConfig(groups=3, **shared))
    assert content == write_generation(BeamConfig(**shared)).content
    assert note.startswith("decoding.groups, decoding.diversity: not exported")


def test_minimum_bayes_risk_decoding_is_written_as_its_samples():
    content, (note,) = write_generation(MbrConfig(temperature=0.5))
    assert content == write_generation(SampleConfig(temperature=0.5, epsilon=0.02)).content
    assert note.startswith("decoding.kind=mbr: not exported")


def test_what_transformers_does_without_keys_is_applied(tmp_path):
    assert read(tmp_path, {"num_beams": 4}).decoding == {
        "kind": "beam",
        "beam": 4,
        "length_penalty": {"kind": "average", "alpha": 1.0},
        "unfinished": "keep",
    }
    sampled = read(tmp_path, {"do_sample": True}).decoding
    assert (sampled["temperature"], sampled["top_k"], sampled["top_p"]) == (1.0, 50, 1.0)
    assert read(tmp_path, {"max_length": 9, "max_new_tokens": 8})[:3] == (None, 9, 8)


def test_another_rule_of_stopping_is_named(tmp_path):
    (note,) = read(tmp_path, {"num_beams": 4, "early_stopping": True}).notes
    assert "early_stopping=true" in note
    assert read(tmp_path, {"num_beams": 1, "early_stopping": True}).notes == []
    assert "heedful samples without a beam" in read(tmp_path, {"num_beams": 4, "do_sample": True}).notes[0]


@pytest.mark.parametrize(
    "content, key",
    [
        ({"num_beams": 0}, "num_beams"),
        ({"num_beams": 2, "length_penalty": -1.0}, "length_penalty"),
        ({"do_sample": True, "temperature": 0.0}, "temperature"),
        ({"do_sample": True, "top_p": 1.5}, "top_p"),
        ({"do_sample": True, "top_k": -1}, "top_k"),
        ({"max_length": "20"}, "max_length"),
    ],
)
def test_invalid_values_are_refused_with_their_key(tmp_path, content, key):
    with pytest.raises(RequestError, match=f"generation_config.json: {key}"):
        read(tmp_path, content)
