"""Options and fixtures of all tests; in those of blocks, shapes and types are checked at run time."""

from jaxtyping import install_import_hook

install_import_hook(
    ["heedful.nn", "heedful.models", "heedful.objectives", "heedful.decoding"], "beartype.beartype"
)

import gc  # noqa: E402
from collections.abc import Callable, Iterator, Mapping, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import jaxtyping  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import settings  # noqa: E402

# No deadline: slow examples do not fail. `make test` draws the same examples each time, so a failure is
# caused by the change; the whole sweep draws fresh ones and keeps failures in `.hypothesis`.
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("fresh", deadline=None, print_blob=True)

jaxtyping.config.update("jaxtyping_disable", True)

FULL_TIMEOUT = 3600
"""Seconds for a test of the whole sweep; without ``--full``, those of the project's configuration."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full", action="store_true", help="the whole sweep: tests marked `full`, larger amounts"
    )
    parser.addoption("--seed", type=int, help="seed of attacks; default 0, or a fresh one with --full")
    parser.addoption("--threads", type=int, default=1, help="threads of torch")


@pytest.hookimpl(tryfirst=True)  # before the plugin of timeouts reads its option
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--full") and config.getoption("timeout", None) is None:
        config.option.timeout = FULL_TIMEOUT
    torch.set_num_threads(config.getoption("--threads"))
    settings.load_profile("fresh" if config.getoption("--full") else "fixed")


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.freeze()  # else each search for garbage goes through all tests and modules: a second
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--full"):
        deselected = [item for item in items if item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


@pytest.fixture(scope="session")
def amount(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """Return ``amount(bounded, full)``: the number of trials in `make test`, and with ``--full``."""
    full = request.config.getoption("--full")
    return lambda bounded, whole: whole if full else bounded


@pytest.fixture
def shape_checks() -> Iterator[None]:
    """Check the shapes and types of arguments and results of the blocks, which takes a third of the time."""
    jaxtyping.config.update("jaxtyping_disable", False)
    yield
    jaxtyping.config.update("jaxtyping_disable", True)


def _run(folder: Path, recipe: Mapping[str, Any], rows: Sequence[Mapping[str, str]]) -> Path:
    """Write a run folder as training does, with perturbed initial weights; return its path."""
    from heedful.artifacts.run_folder import RunFolder, write_json, write_text
    from heedful.data.sources import LocatedRow, Location
    from heedful.recipes.trees import Mark, Tree
    from heedful.recipes.yaml import dump_yaml
    from heedful.runs.reading import recipe_from
    from heedful.runs.train import seal
    from heedful.tasks.registry import task_for

    columns = dict.fromkeys(rows[0], "x")
    data = {part: {"kind": "jsonl", "paths": "x", "columns": columns} for part in ("train", "valid")}
    tree = {"data": data, "training": {"max_updates": 1}, **recipe}
    parsed = recipe_from(Tree.of(tree, Mark("here")))
    task, run = task_for(parsed), RunFolder(folder)
    task.fit_processor(lambda: (LocatedRow(dict(row), Location("x", 1)) for row in rows))
    folder.mkdir(parents=True)
    write_json(run.environment, {})
    write_text(run.recipe, dump_yaml(parsed.model_dump(mode="json")))
    task.save(run)
    torch.manual_seed(3)
    model = task.build_model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    seal(run, parsed, model, {})
    return folder


@pytest.fixture(scope="session")
def make_run() -> Callable[..., Path]:
    """Return `_run`."""
    return _run


@pytest.fixture(scope="session")
def published() -> Callable[[str, Any], None]:
    """Return ``check(name, value)``, which validates a JSON value against a published schema."""
    import json

    from jsonschema import Draft202012Validator
    from referencing import Registry, Resource

    folder = Path(__file__).parents[1] / "docs" / "schemas"
    schemas = {path.name: json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")}
    pairs = [(name, Resource.from_contents(schema)) for name, schema in schemas.items()]
    registry = Registry().with_resources(pairs)

    def check(name: str, value: Any) -> None:
        json_value = json.loads(json.dumps(value, allow_nan=False))
        Draft202012Validator(schemas[f"{name}.schema.json"], registry=registry).validate(json_value)

    return check
