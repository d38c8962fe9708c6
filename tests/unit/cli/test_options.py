"""Option groups: each field is an option, and the command receives the groups."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from heedful.cli.main import app
from heedful.cli.options import Beam, Decoding, Device, Json, changed_decoding, expand_option_groups
from heedful.decoding.config import BeamConfig, GreedyConfig, MbrConfig, SampleConfig
from heedful.errors import RequestError


@dataclass(frozen=True)
class Inputs:
    """An argument without a default, and options in its names."""

    name: Annotated[str, typer.Argument()]
    more: Annotated[list[int] | None, typer.Option(min=1)] = None
    loud: Annotated[bool, typer.Option("--loud")] = False


def invoke(*arguments):
    """Return the result of the command and the arguments that it received."""
    found = []
    app = typer.Typer(rich_markup_mode=None)

    def verb(inputs: Inputs, beam: Beam = None, device: Device = "auto") -> None:
        """What it does."""
        found.append((inputs, beam, device))

    def other(first: Annotated[str, typer.Argument()], inputs: Inputs, as_json: Json = False) -> None:
        found.append((first, inputs, as_json))

    app.command("other")(expand_option_groups(other))
    app.command("verb")(expand_option_groups(verb))
    return CliRunner().invoke(app, list(arguments)), found


def test_a_command_receives_groups_and_single_options():
    done, found = invoke("verb", "a", "--more", "3", "--more", "1", "--beam", "2")
    assert done.exit_code == 0, done.output
    assert found == [(Inputs("a", [3, 1]), 2, "auto")]
    done, found = invoke("other", "a", "b", "--loud", "--json")
    assert found == [("a", Inputs("b", found[0][1].more, loud=True), True)]
    assert not found[0][1].more


@pytest.mark.parametrize("wrong", [["verb"], ["verb", "a", "--more", "0"], ["verb", "a", "--inputs", "b"]])
def test_invalid_fields_are_rejected_like_any_option(wrong):
    done, found = invoke(*wrong)
    assert (done.exit_code, found) == (2, [])


def test_help_lists_the_options_of_a_group_in_place():
    done, _ = invoke("verb", "--help")
    places = [done.output.index(name) for name in ("What it does", "--more", "--loud", "--beam", "--device")]
    assert places == sorted(places)


def test_decoding_overrides_the_recipe():
    own = GreedyConfig()
    assert Decoding().settings(own) is own
    assert Decoding(beam=3).settings(own) == BeamConfig(beam=3)
    assert Decoding(beam=3, decoding=["kind=beam", "coverage=0.5"]).settings(own) == BeamConfig(
        beam=3, coverage=0.5
    )
    assert changed_decoding(None, None) is None
    with pytest.raises(RequestError, match="--decoding a=1: not supported, since this run generates no text"):
        changed_decoding(None, ["a=1"])


SAMPLING = {"temperature": 0.7, "top_p": 0.9, "top_k": 3}


@pytest.mark.parametrize("own", [GreedyConfig(), BeamConfig(beam=7), SampleConfig()])
@pytest.mark.parametrize("name", SAMPLING)
def test_options_of_sampling_are_short_for_overrides(own, name):
    value = SAMPLING[name]
    expected = changed_decoding(own, ["kind=sample", f"{name}={value}"])
    assert Decoding(**{name: value}).settings(own) == expected
    assert getattr(expected, name) == value


def test_zero_is_a_temperature():
    assert Decoding(temperature=0.0).settings(GreedyConfig()) == SampleConfig(temperature=0)


def test_minimum_bayes_risk_decoding_samples():
    own = MbrConfig(n=9, epsilon=0.1)
    assert Decoding(temperature=0.5).settings(own) == own.model_copy(update={"temperature": 0.5})
    changed = Decoding(top_k=4, decoding=["kind=mbr", "n=5"]).settings(BeamConfig())
    assert changed == MbrConfig(top_k=4, n=5)


def test_other_settings_of_a_recipe_that_samples_are_kept():
    own = SampleConfig(min_p=0.1, seed=5, top_k=9, n=2)
    assert Decoding(temperature=0.5).settings(own) == own.model_copy(update={"temperature": 0.5})
    changed = Decoding(top_k=4, decoding=["seed=6"]).settings(own)
    assert changed == own.model_copy(update={"top_k": 4, "seed": 6})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0, "beam": 1}, "--temperature and --beam exclude each other"),
        ({"top_p": 0.5, "beam": 4}, "--top-p and --beam exclude each other"),
        ({"top_k": 2, "decoding": ["kind=greedy"]}, "--top-k and --decoding kind=greedy exclude each other"),
    ],
)
def test_sampling_and_searching_exclude_each_other(options, message):
    with pytest.raises(RequestError, match=message):
        Decoding(**options).settings(BeamConfig())


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["predict", "evaluate", "explain"])
def test_a_run_that_generates_no_text_does_not_sample(letters, tmp_path, verb):
    (tmp_path / "lines.txt").write_text("a\n", "utf-8")
    rest = {"predict": [str(tmp_path / "lines.txt")], "evaluate": ["--split", "valid"], "explain": ["a"]}
    command = [verb, str(letters), *rest[verb], "--device", "cpu", "--top-k", "3"]
    with pytest.raises(RequestError, match="--top-k 3: not supported, since this run generates no text"):
        CliRunner().invoke(app, command, catch_exceptions=False)
