"""Options shared by several commands, and support for option groups.

An option group is a frozen dataclass whose fields are options; functions take the group as one argument.
"""

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_type_hints

import typer

from heedful.typing import JsonObject

if TYPE_CHECKING:
    from heedful.api.run import Run as ApiRun
    from heedful.decoding.config import DecodingConfig


def complete_recipe(incomplete: str) -> list[str]:
    """Return the shipped recipes whose names begin with a text, for completions in a shell."""
    from heedful.recipes.resolve import shipped_recipes

    return [name for name in shipped_recipes() if name.startswith(incomplete)]


Run = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")]
Beam = Annotated[int | None, typer.Option(min=1, help="Beam size; 1 is greedy decoding.")]
Precision = Annotated[
    str, typer.Option(help="Weight precision for decoding: auto (fp32), fp32, bf16 or int8.")
]
Device = Annotated[str, typer.Option(help="Device: auto, cpu, cuda or cuda:N.")]
Ensemble = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="RUN",
        help="Average the probabilities with those of this run, of the same task and vocabulary; may be "
        "repeated (tasks that generate text).",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def probability(text: str) -> float:
    """Return the number from 0 to 1 that a text says.

    Raises:
        typer.BadParameter: it is none; the message says how a percentage, or a decimal comma, is written.
    """
    from heedful.checks import percent_hint

    number, is_percent = text.strip().removesuffix("%").replace(",", "."), text.strip().endswith("%")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if text.strip() == number and 0 <= value <= 1:
        return value
    if is_percent:
        hint = f"; write {value / 100:g}"
    else:
        hint = f"; write {number}" if 0 <= value <= 1 else percent_hint(value)
    raise typer.BadParameter(f"expected a number from 0 to 1, got {text!r}{hint}")


def load_runs(run: Path, others: list[Path] | None, device: str) -> "ApiRun":
    """Load a run, or the ensemble of it with others.

    Raises:
        RequestError: one is not a run, or they do not fit together.
    """
    from heedful.api.run import ensemble, load

    runs = [load(each, device=device) for each in (run, *(others or ()))]
    return ensemble(runs) if others else runs[0]


@dataclass(frozen=True)
class DecodingChanges:
    """Options that change the decoding settings of a recipe.

    ``--temperature``, ``--top-p`` and ``--top-k`` are short for ``--decoding kind=sample temperature=…``.
    """

    decoding: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Override a decoding setting, e.g. kind=sample; may be repeated."
        ),
    ] = None
    temperature: Annotated[
        float | None,
        typer.Option(min=0, help="Sample with this temperature; 0 selects the most probable token."),
    ] = None
    top_p: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Sample from the most probable tokens with this total probability."),
    ] = None
    top_k: Annotated[int | None, typer.Option(min=1, help="Sample from this many most probable tokens.")] = (
        None
    )

    @property
    def sampling(self) -> dict[str, float]:
        """The given settings of sampling, by their keys in ``decoding``."""
        values = {name: getattr(self, name) for name in ("temperature", "top_p", "top_k")}
        return {name: value for name, value in values.items() if value is not None}

    def changed(
        self, recipe_decoding: "DecodingConfig | None", beam: int | None = None
    ) -> "DecodingConfig | None":
        """Return the recipe's decoding settings with the overrides applied.

        Args:
            recipe_decoding: the settings of the recipe; None: the run generates no text.
            beam: the beam size of the request, if any; only checked here.

        Raises:
            RequestError: the run generates no text, or sampling is combined with a search.
        """
        from heedful.errors import RequestError

        overrides = list(self.decoding or ())
        if not self.sampling:
            return changed_decoding(recipe_decoding, overrides)
        name, value = next(iter(self.sampling.items()))
        option = f"--{name.replace('_', '-')}"
        if recipe_decoding is None:
            raise RequestError(f"{option} {value:g}: not supported, since this run generates no text")
        if beam is not None:
            raise RequestError(f"{option} and --beam exclude each other: sampling has no beam; remove one")
        kind = _kind(overrides)
        if kind not in (None, "sample", "mbr"):
            raise RequestError(f"{option} and --decoding kind={kind} exclude each other; remove one")
        if kind is None:
            overrides = [f"kind={'mbr' if recipe_decoding.kind == 'mbr' else 'sample'}", *overrides]
        settings = [f"{name}={value}" for name, value in self.sampling.items()]
        return changed_decoding(recipe_decoding, [*overrides, *settings])


@dataclass(frozen=True)
class Decoding(DecodingChanges):
    """Options for decoding."""

    beam: Beam = None
    precision: Precision = "auto"

    def settings(self, recipe_decoding: "DecodingConfig | None") -> "DecodingConfig | None":
        """Return the recipe's decoding settings `recipe_decoding` with the overrides applied."""
        from heedful.runs.arguments import with_beam

        return with_beam(self.changed(recipe_decoding, self.beam), self.beam, None)


def _kind(overrides: list[str]) -> object:
    """Return the kind of decoding that overrides select, or None."""
    from heedful.recipes.resolve import overrides_tree

    return overrides_tree(overrides).data.get("kind")


def from_command_line(text: str) -> str:
    """Decode a command-line argument as UTF-8 even if the locale is not UTF-8 (``LC_ALL=C``).

    Bytes that are not UTF-8 stay surrogate-escaped; later checks reject them.
    """
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def changed_decoding(base: "DecodingConfig | None", overrides: list[str] | None) -> "DecodingConfig | None":
    """Return the recipe's decoding settings with ``key=value`` overrides."""
    if not overrides:
        return base
    from heedful.errors import RequestError

    if base is None:
        raise RequestError(f"--decoding {overrides[0]}: not supported, since this run generates no text")
    from heedful.recipes.resolve import overrides_tree
    from heedful.recipes.trees import COMMAND_LINE, Mark, Tree, merge
    from heedful.runs.arguments import decoding_from

    base_tree = Tree.of({"decoding": base.model_dump(mode="json")}, Mark("the run's recipe"))
    override_tree = overrides_tree([f"decoding.{text}" for text in overrides])
    assert override_tree.mark == Mark(COMMAND_LINE)
    return decoding_from(merge(base_tree, override_tree))


def expand_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return `command` for typer, with each option group expanded to one option per field."""
    original = inspect.signature(command, eval_str=True).parameters
    annotations: JsonObject = {name: parameter.annotation for name, parameter in original.items()}
    groups: JsonObject = {
        name: annotation for name, annotation in annotations.items() if is_dataclass(annotation)
    }

    @wraps(command)
    def flat(**values: object) -> None:
        instances = {
            name: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**instances, **values)

    parameters = [option for parameter in original.values() for option in _expand(parameter, groups)]
    flat.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _expand(parameter: Parameter, groups: JsonObject) -> Iterator[Parameter]:
    """Yield the parameter itself, or one parameter per field of its group."""
    if parameter.name not in groups:
        yield parameter.replace(kind=Parameter.KEYWORD_ONLY)
        return
    group = groups[parameter.name]
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        default = Parameter.empty if field.default is MISSING else field.default
        yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[field.name])
