"""Options that several verbs have, and how a verb takes those that belong together.

A group is a frozen dataclass whose fields are options; what a verb calls takes the group as it is.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")]
Beam = Annotated[int | None, typer.Option(min=1, help="Hypotheses kept in the search; 1 is greedy.")]
Precision = Annotated[str, typer.Option(help="Weights while decoding: auto (fp32), fp32, bf16 or int8.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@dataclass(frozen=True)
class Decoding:
    """How answers are written."""

    beam: Beam = None
    decoding: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Change the decoding; may be repeated.")
    ] = None
    precision: Precision = "auto"

    def settings(self, own: Any) -> Any:
        """The recipe's ``own`` decoding, changed as it is asked for."""
        from heedful.runs.questions import with_beam

        return with_beam(changed_decoding(own, self.decoding), self.beam, None)


def from_command_line(text: str) -> str:
    """A text of the command line: bytes that the locale does not know (``LC_ALL=C``) are read as UTF-8.

    What is not UTF-8 either stays as it is, for whoever uses the text to refuse.
    """
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def changed_decoding(base: Any, overrides: list[str] | None) -> Any:
    """The recipe's decoding with ``key=value`` changes."""
    if not overrides:
        return base
    from heedful.errors import RequestError

    if base is None:
        raise RequestError(f"--decoding {overrides[0]}: this run writes nothing, so nothing is decoded")
    from heedful.recipes.resolve import overrides_tree
    from heedful.recipes.trees import COMMAND_LINE, Mark, Tree, merge
    from heedful.runs.questions import decoding_from

    own = Tree.of({"decoding": base.model_dump(mode="json")}, Mark("the run's recipe"))
    over = overrides_tree([f"decoding.{text}" for text in overrides])
    assert over.mark == Mark(COMMAND_LINE)
    return decoding_from(merge(own, over))


def grouped(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb as typer reads it: where it takes a group, each field of that is an option of its own."""
    own = inspect.signature(verb, eval_str=True).parameters
    of: dict[str, Any] = {name: each.annotation for name, each in own.items()}
    groups: dict[str, Any] = {name: each for name, each in of.items() if is_dataclass(each)}

    @wraps(verb)
    def flat(**given: Any) -> None:
        made = {name: group(**_taken(group, given)) for name, group in groups.items()}
        verb(**made, **given)

    parameters = [one for each in own.values() for one in _flat(each, groups)]
    flat.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {each.name: each.annotation for each in parameters}
    return flat


def _flat(parameter: Parameter, groups: dict[str, Any]) -> Iterator[Parameter]:
    """The parameter itself, or those that its group stands for."""
    if parameter.name not in groups:
        yield parameter.replace(kind=Parameter.KEYWORD_ONLY)
        return
    group = groups[parameter.name]
    hints = get_type_hints(group, include_extras=True)
    for each in fields(group):
        default = Parameter.empty if each.default is MISSING else each.default
        yield Parameter(each.name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[each.name])


def _taken(group: Any, given: dict[str, Any]) -> dict[str, Any]:
    """What belongs to the group, taken out of all that was given."""
    return {each.name: given.pop(each.name) for each in fields(group)}
