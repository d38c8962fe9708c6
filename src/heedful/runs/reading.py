"""Read recipes: from a tree, a name or a path to the validated recipe of its task."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ConfigDict, Field, create_model

from heedful.artifacts.run_folder import RunFolder, missing_run, other_runs
from heedful.data.sources import open_source
from heedful.errors import RequestError, nearest
from heedful.files import is_unicode
from heedful.models.registry import preset_trees
from heedful.parts import is_reference
from heedful.recipes.problems import kinds_of, validate
from heedful.recipes.resolve import (
    Overrides,
    RecipeInput,
    overrides_tree,
    resolve,
    resolve_path,
    resolve_without_presets,
    root_of,
    sizes_of,
)
from heedful.recipes.schema import Recipe
from heedful.recipes.sizes import SIZES, Amount, Limits, SizeEntry, count_rows, fitting_entry, without_sizes
from heedful.recipes.trees import OVERRIDES, Part, Tree, dotted, merge, with_preset, with_task
from heedful.recipes.trees import Path as KeyPath
from heedful.recipes.yaml import read_yaml, show
from heedful.records import read_text
from heedful.runs.required_files import training_source_from
from heedful.tasks.base import Log, Task
from heedful.tasks.registry import TASKS, any_task, task_class, task_for
from heedful.tasks.task_info import reads
from heedful.typing import JsonObject


def recipe_from(tree: Tree, *, for_training: bool = False) -> Recipe:
    """Return the recipe that a tree describes, of the class of its task.

    Args:
        tree: the merged tree.
        for_training: whether the recipe is about to be trained, so that columns of sources which the task
            never reads are errors too; a run with such a recipe is still loaded.

    Raises:
        RequestError: lists every problem with file and line.
    """
    tree = with_task(tree)
    recipe = validate(tree, _task_class(tree).Recipe)
    columns = task_for(recipe).columns
    messages = list(_limits_of_unknown_columns(tree, columns.required))
    if for_training:
        messages += [*_columns_that_nobody_reads(tree, columns.names), *_untrainable_tokenizers(tree)]
    if messages:
        raise RequestError("\n".join(messages))
    return recipe


def _limits_of_unknown_columns(tree: Tree, columns: Sequence[str]) -> Iterator[str]:
    """Yield a message for each length limit of a column that does not exist, which would have no effect."""
    for column, limit in _entries(tree.find(("data", "filter", "max_length"))):
        if column not in columns:
            yield (
                f"{limit.mark}: data.filter.max_length: unknown column {column!r}"
                f"{nearest(str(column), columns)}; expected one of {', '.join(columns)}"
            )


def _columns_that_nobody_reads(tree: Tree, columns: Sequence[str]) -> Iterator[str]:
    """Yield a message for each column of a source that the task never reads: most often a misspelt name."""
    accepted = reads(tree.data["task"]["kind"], columns)
    for path, entry in _columns_of(tree):
        if path[-1] not in columns:
            yield f"{entry.mark}: {dotted(path)}: no such column{nearest(str(path[-1]), columns)}; {accepted}"


def _untrainable_tokenizers(tree: Tree) -> Iterator[str]:
    """Yield a message for each tokenizer that can only be imported, unless the recipe starts from a run."""
    tokenizer = tree.find(("tokenizer",)) if "start" not in tree.value else None
    for path, item in tokenizer.walk(("tokenizer",)) if tokenizer is not None else ():
        if path[-1] == "kind" and item.value == "sentencepiece":
            yield (
                f"{item.mark}: {dotted(path)}: sentencepiece cannot be trained, only imported (heedful "
                "import); use unigram, which is trained in the same way"
            )


def _columns_of(tree: Tree) -> Iterator[tuple[KeyPath, Tree]]:
    """Yield every column that the recipe names for a source of the data, with its key in the recipe."""
    tests = tree.find(("data", "test"))
    paths: list[KeyPath] = [("data", "train"), ("data", "valid")]
    if tests is not None and isinstance(tests.value, dict):
        paths += [("data", "test", name) for name in tests.value]
    while paths:
        path = paths.pop(0)
        for part, subtree in _entries(tree.find(path)):
            if part in ("columns", "lists"):
                yield from (((*path, part, column), entry) for column, entry in _entries(subtree))
            elif part == "sources":
                paths += [(*path, part, number) for number, _ in _entries(subtree)]


def _entries(tree: Tree | None) -> Iterator[tuple[Part, Tree]]:
    """Return the entries of a map or a list, by key or index."""
    if tree is not None and isinstance(tree.value, dict):
        yield from tree.value.items()
    elif tree is not None and isinstance(tree.value, list):
        yield from enumerate(tree.value)


def _task_class(tree: Tree) -> type[Task]:
    """Return the class of the task that a tree names.

    Raises:
        RequestError: it names none.
    """
    kind = tree.find(("task", "kind"))
    if kind is None or not (is_reference(kind.value) or kind.value in [*TASKS]):
        task = (any_task(), Field(discriminator="kind"))
        root = create_model("Root", __config__=ConfigDict(strict=True, extra="ignore"), task=task)
        validate(tree, root)  # says what is wrong
    try:
        return task_class(tree.data["task"]["kind"])
    except ValueError as error:
        raise RequestError(f"{tree.mark_of(('task', 'kind'))}: task.kind: {error}") from None


def read_recipe(
    recipe: RecipeInput,
    overrides: Overrides = (),
    log: Log = lambda line: None,
    *,
    resumed: RunFolder | None = None,
) -> tuple[Recipe, Tree]:
    """Return the validated recipe and its merged tree.

    Relative paths of the data start at the folder of the recipe's file; those of a shipped recipe at
    the current folder, unless ``root`` (relative to the same folder) is set.

    A recipe with ``sizes`` (`heedful.recipes.sizes`) gets the settings for its training data, if these can be
    read; a resumed run keeps those that it was started with.

    Args:
        recipe: the path or name of a recipe, or its settings.
        overrides: ``key=value`` texts.
        log: called with a line about the choice of settings.
        resumed: the run that the recipe resumes, if there is one.

    Raises:
        RequestError: lists every problem with file and line; with ``sizes``, also in entries that are not
            chosen.
    """
    entries = sizes_of(recipe, overrides)
    if not entries:
        return _read(recipe, overrides)
    if resumed is not None and resumed.recipe.is_file():
        entry = saved_tree(resumed.path).find(("size",))
        return _read(recipe, overrides, None if entry is None else entry.data)
    amount = _amount_of_data(recipe, overrides, entries)
    chosen = None if amount is None else fitting_entry(entries, amount)
    validated, tree = _read(recipe, overrides, chosen)
    _check_other_entries(recipe, [number for number in range(len(entries)) if number != chosen])
    if amount is not None and chosen is not None:
        limits, settings = entries[chosen].limits, entries[chosen].settings
        if applied := _without(settings.data, overrides_tree(overrides).data):
            log(f"{settings.mark}: settings for {_amount_text(amount, limits)}: {show(applied)}")
    return validated, tree


def _without(settings: JsonObject, overrides: JsonObject) -> JsonObject:
    """Return the settings that no override replaces."""
    kept: JsonObject = {}
    for key, value in settings.items():
        other = overrides.get(key)
        if key not in overrides:
            kept[key] = value
        elif isinstance(value, dict) and isinstance(other, dict) and (inner := _without(value, other)):
            kept[key] = inner
    return kept


def _amount_of_data(recipe: RecipeInput, overrides: Overrides, entries: Sequence[SizeEntry]) -> Amount | None:
    """Return the amount of training data, or None if they cannot be read: a training reports that later."""
    tree = resolve_without_presets(recipe, overrides)
    source = training_source_from(tree)
    if source is None:
        return None
    try:
        rows = open_source(source, root_of(tree, recipe))
        return count_rows((row.row for row in rows), entries)
    except RequestError:
        return None


def _check_other_entries(recipe: RecipeInput, numbers: Sequence[int]) -> None:
    """Check the entries of ``sizes`` that are not chosen, without overrides, which are for the chosen one.

    Raises:
        RequestError: lists every problem of the first that is invalid, if the recipe is valid without it.
    """
    try:
        _read(recipe)
    except RequestError:
        return
    for number in numbers:
        _read(recipe, size=number)


def _amount_text(amount: Amount, limits: Limits) -> str:
    """Return the amount that chose an entry; what has no limit was not counted to its end."""
    if limits.max_rows is not None:
        return f"{amount.rows:,} rows of training data (at most {limits.max_rows:,})"
    if limits.max_characters is not None:
        return f"{amount.characters:,} characters of training data (at most {limits.max_characters:,})"
    return "larger training data"


def _read(recipe: RecipeInput, overrides: Overrides = (), size: int | None = None) -> tuple[Recipe, Tree]:
    presets = preset_trees()
    tree = with_task(resolve(recipe, overrides, presets=presets, size=size))
    if (start := _start_of(tree, recipe)) is not None:
        start_run, inherited = start
        if start_run.mark.source in OVERRIDES:
            # Overrides replace the file: these sections replace its own.
            override_layer = overrides_tree(overrides)
            own_sizes = size if SIZES not in override_layer.value else None
            file = resolve(recipe, presets=presets, size=own_sizes)
            replaced = Tree({**file.value, **inherited}, file.mark)
            tree = with_task(merge(replaced, with_preset(without_sizes(override_layer), presets)))
        else:
            tree = merge(Tree(inherited, start_run.mark), tree)
        _refuse_another_family(tree, inherited, start_run)
        _refuse_another_tokenizer(tree, inherited, start_run)
    try:
        validated = recipe_from(tree, for_training=True)
    except RequestError as error:
        raise RequestError(_with_overrides(str(error), recipe, overrides, size)) from None
    root = root_of(tree, recipe)
    if not is_unicode(str(root)):
        raise RequestError(
            f"{root}: the folder name must be UTF-8, since the run's recipe contains it; rename the folder"
        )
    return validated.model_copy(update={"root": str(root), "size": size}), tree


def _with_overrides(message: str, recipe: RecipeInput, overrides: Overrides, size: int | None) -> str:
    """Return the errors of a recipe, below the overrides if these cause errors in lines of its files."""
    layer = overrides_tree(overrides)
    if not layer.value or all(line.startswith(layer.mark.source) for line in message.split("\n")):
        return message
    try:
        tree = resolve(recipe, presets=preset_trees(), size=size)
        recipe_from(tree, for_training=True)
    except RequestError:
        return message
    name = recipe.mark if isinstance(recipe, Tree) else recipe
    texts = [f"{key}=…" for key in layer.value] if isinstance(overrides, Tree) else overrides
    names, it = ("this override does", "it") if len(texts) == 1 else ("these overrides do", "them")
    return (
        f"{layer.mark}: {' '.join(texts)}: {names} not fit the recipe {name}, which is valid without "
        f"{it}:\n{message}"
    )


def _start_of(tree: Tree, recipe: RecipeInput) -> tuple[Tree, dict[str, Tree]] | None:
    """Return the entry ``start.run``, and model and tokenizer of that run, adapted to the recipe's task.

    None if the recipe does not start from a run.

    Raises:
        RequestError: there is no such run.
    """
    start = tree.find(("start", "run"))
    if start is None or not isinstance(start.value, str):
        return None
    root = root_of(tree, recipe)
    folder = resolve_path(root, start.value)
    path = RunFolder(folder).recipe
    if not folder.exists():
        base = Path.cwd() if start.mark.source in OVERRIDES else root
        raise RequestError(
            f"{start.mark}: start.run: {folder}: no such folder{other_runs(folder)}; relative paths start at "
            f"{base}"
        )
    if not path.is_file():
        raise RequestError(f"{start.mark}: start.run: {RunFolder(folder).not_a_run(path)}")
    start_recipe = read_yaml(read_text(path), str(path))
    inherited = {
        key: part for key in ("model", "tokenizer") if (part := start_recipe.find((key,))) is not None
    }
    warm_start = _task_class(tree).warm_start
    if "tokenizer" in inherited:
        inherited["tokenizer"] = warm_start.tokenizer(inherited["tokenizer"])
    try:
        inherited["model"] = warm_start.model(inherited["model"])
    except ValueError as error:
        raise RequestError(f"{start.mark}: start.run: the model of {start.value} {error}") from None
    return start, inherited


def _refuse_another_family(tree: Tree, inherited: dict[str, Tree], start: Tree) -> None:
    """Refuse a run whose model does not suit the task; else each of its settings would be unknown."""
    model_kind, start_kind = tree.find(("model", "kind")), inherited["model"].find(("kind",))
    task = _task_class(tree)
    supported_kinds = {*kinds_of(task.Recipe, "model"), *task.warm_start.kinds}
    if model_kind is None or start_kind is None:
        return
    if model_kind.data != start_kind.data or model_kind.data in supported_kinds:
        return
    raise RequestError(
        f"{start.mark}: start.run: the model of {start.value} is of the kind {model_kind.data}, and "
        f"{tree.data['task']['kind']} needs one of the kind {' or '.join(sorted(supported_kinds))}"
    )


def _refuse_another_tokenizer(tree: Tree, inherited: dict[str, Tree], start: Tree) -> None:
    tokenizer, start_tokenizer = tree.find(("tokenizer",)), inherited.get("tokenizer")
    if tokenizer is not None and start_tokenizer is not None and tokenizer.data != start_tokenizer.data:
        raise RequestError(
            f"{start.mark}: start.run: the tokenizer of {start.value} is used, and the section tokenizer "
            "differs from it; remove the section"
        )


def saved_tree(path: Path | str) -> Tree:
    """Return the recipe that a run was made from, as a tree."""
    folder = RunFolder(path)
    if not folder.path.exists():
        raise missing_run(folder.path)
    if not folder.recipe.exists():
        raise folder.not_a_run(folder.recipe)
    return read_yaml(read_text(folder.recipe), str(folder.recipe))


def saved_recipe(folder: RunFolder, overrides: Overrides = ()) -> Recipe:
    """Return the recipe that a run was made from, with overrides."""
    return recipe_from(merge(saved_tree(folder.path), overrides_tree(overrides)))
