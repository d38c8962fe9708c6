"""Option groups: each field is an option, and the command receives the groups."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from heedful.cli.options import Beam, Decoding, Device, Json, changed_decoding, expand_option_groups
from heedful.decoding.config import BeamConfig, GreedyConfig
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
