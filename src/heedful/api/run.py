"""A run as Python sees it: predict, evaluate, explain, export."""

import html
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch

from heedful.api.checks import check_runs, check_split, folder_of, names_in_rows, run_folder
from heedful.api.given import memory_names, paths_in, rows_source
from heedful.checks import check_function, check_text, texts, whole_number
from heedful.data.memory import HeldRows, RowsLike
from heedful.decoding.config import DecodingConfig
from heedful.errors import RequestError, nearest, type_name
from heedful.explain import explanation as explained
from heedful.explain.attention_sites import Selection
from heedful.explain.capture import LIMIT, explain_input
from heedful.explain.explanation import Weights
from heedful.explain.json_format import json_pieces
from heedful.explain.views import PAGE, SUFFIXES
from heedful.files import IMAGES, whole_file
from heedful.interop.conversion import export_run, import_run
from heedful.nn.modes import evaluating
from heedful.runs import comparing
from heedful.runs import run as runs
from heedful.runs.arguments import at_least_one, decoding_of, indices, with_beam
from heedful.runs.evaluate import chosen_splits, evaluate
from heedful.runs.prepare import check_rows
from heedful.tasks.base import Log
from heedful.tasks.evaluation import Evaluation, EvaluationOptions
from heedful.tasks.inputs.processor import TaskProcessor
from heedful.tasks.model_input import AnswerOptions
from heedful.tasks.prediction import Progress, TaskInput
from heedful.typing import JsonMapping


@dataclass(frozen=True, repr=False, eq=False)
class Explanation(explained.Explanation):
    """The attention, answer and views of one input; ``explanation["NAME"]`` is the weights of a tap."""

    def __getitem__(self, tap: str) -> Weights:
        """Return the attention weights of a tap, ``[heads, queries, keys]``.

        Raises:
            KeyError: the explanation has no such tap; the message names those that it has.
        """
        names = self.keys()
        if tap not in names:
            raise KeyError(f"no tap {tap!r}{nearest(tap, names)}; expected one of {', '.join(names)}")
        return self.maps[names.index(tap)].weights

    def keys(self) -> list[str]:
        """Return the names of the taps."""
        return [attention_map.tap for attention_map in self.maps]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.maps)

    def __bool__(self) -> bool:
        """Return True, also without maps."""
        return True

    def page(self, exact: Sequence[tuple[str, int]] = ()) -> str:
        """Return the explanation as a self-contained HTML document.

        Args:
            exact: tap and head of those whose weights are all included, also of long inputs.
        """
        from heedful.explain.page import page

        return page(self, exact=list(exact))

    def save(self, path: Path | str, *, tokens: bool = False, exact: Sequence[tuple[str, int]] = ()) -> None:
        """Write a page (``.html``), an image (``.svg``, ``.png``) or data (``.json``).

        Args:
            path: the file; its suffix is the format.
            tokens: whether an image, which shows a view or else attention, has tokens instead of words.
            exact: as of `page`.

        Raises:
            RequestError: the suffix is none of these.
        """
        path, suffix = Path(path), Path(path).suffix.lower()
        if suffix not in SUFFIXES:
            raise RequestError(f"{path}: expected a name that ends in {', '.join(SUFFIXES)}")
        if suffix in IMAGES:
            from heedful.explain.drawing.heat_map import figure_of, save

            save(figure_of(self, tokens=tokens), path)
            return
        pieces = [self.page(exact)] if suffix == PAGE else chain(json_pieces(self), "\n")
        with whole_file(path) as file:
            file.writelines(pieces)

    def _repr_html_(self) -> str:
        """Show the page in a notebook."""
        return (
            f'<iframe srcdoc="{html.escape(self.page())}" sandbox="allow-scripts" '
            'style="width: 100%; height: 40em; border: 0"></iframe>'
        )


class Run(runs.Run):
    """A trained run: its model, task and files. Several threads may use it at the same time.

    ``run.model`` is a plain ``torch.nn.Module``, ``run.processor`` encodes inputs and decodes outputs,
    ``run.recipe`` has all settings, and ``run.folder`` the paths of its files.
    """

    held: Sequence[HeldRows] = ()
    """Rows from Python that the recipe refers to."""

    @property
    def processor(self) -> TaskProcessor:
        """What encodes inputs and decodes outputs: tokenizers, labels, scales."""
        processor: TaskProcessor = self.task.processor
        return processor

    @property
    def labels(self) -> list[str]:
        """The names of classes or tags, in the order of the model's outputs; empty if the task has none."""
        return [*getattr(self.processor, "labels", ())]

    def evaluate(
        self,
        split: str = "test",
        *,
        data: RowsLike | None = None,
        columns: Mapping[str, str | int] | None = None,
        limit: int | None = None,
        beam: int | None = None,
        decoding: DecodingConfig | JsonMapping | None = None,
        stride: int | None = None,
        precision: str = "auto",
        progress: Progress = lambda n: None,
    ) -> Evaluation:
        """Score the run on a data set.

        Args:
            split: ``test``, ``valid``, ``train``, or the name of a test set of the recipe.
            data: instead of a data set of the recipe, rows (as of `heedful.train`), or the path of a file, or
                of several that belong together, such as source and target.
            columns: names in the rows, or in the table, of the task's columns, where they differ:
                ``{"source": "en", "target": "de"}``.
            limit: score only this many leading rows.
            beam: beam size (1 is greedy); by default that of the recipe.
            decoding: a configuration that replaces the recipe's, or a mapping as in recipes.
            stride: also score with sliding windows of this stride in tokens (language models).
            precision: of the weights during decoding: fp32, bf16, int8 or auto.
            progress: called with the number of rows just scored.

        Returns:
            The scores, with the signatures needed to compare them; ``evaluation["BLEU"].value``.

        Raises:
            RequestError: there is no such data set, or several test sets; or an option is not supported.
            DataError: there is nothing to score, or rows that were given in Python have changed since the
                training.
        """
        check_split(split)
        check_function("progress", progress)
        limit, stride = at_least_one("limit", limit), at_least_one("stride", stride)
        columns = names_in_rows(columns)
        held = None
        paths = paths_in(data)
        if data is None and columns is not None:
            raise RequestError("columns: names the columns of data, which is not given")
        if data is None or paths:
            sources = chosen_splits(self, split, paths, columns)
            if len(sources) > 1:
                names = ", ".join(sources)
                raise RequestError(f"{split}: the run has several test sets; expected one of {names}")
            ((name, source),) = sources.items()
            if name in ("train", "valid") and [*memory_names(source)]:
                check_rows(self.recipe, self.folder, name)
        else:
            name = "data"
            source, held = rows_source(data, self.recipe.data.train, self.task.columns.names, columns)
        settings = with_beam(decoding_of(decoding, self.recipe.decoding), beam, None)
        options = EvaluationOptions(settings, limit, stride, progress, precision)
        evaluation = evaluate(self, name, source, options)
        del held  # it was needed until here
        return evaluation

    def explain(
        self,
        input: TaskInput,
        *,
        layers: int | Sequence[int] | None = None,
        heads: int | Sequence[int] | None = None,
        kinds: Sequence[str] | None = None,
        views: Sequence[str] = (),
        target: str | None = None,
        alternative: int = 0,
        decoding: DecodingConfig | JsonMapping | None = None,
        others: Iterable[TaskInput] = (),
        limit: int = LIMIT,
    ) -> Explanation:
        """Explain how the run answers one input: attention of every layer and head, and further views.

        Args:
            input: as `predict` takes it.
            layers: index of a layer, or several, from 0; None: all.
            heads: index of a head in each layer, or several, from 0; None: all.
            kinds: kinds of attention: ``self``, ``causal``, ``cross``; None: all.
            views: names of views (``heedful explain --help`` lists them), or ``all``.
            target: explain this answer (text or label) instead of the predicted one.
            alternative: rank of the answer to explain; 0 is the best.
            decoding: as of `predict`.
            others: further inputs, for views over several inputs.
            limit: maximum bytes of attention weights.

        Raises:
            RequestError: the input is empty or too long, or the model has no such layer, head, kind or view.
        """
        settings = decoding_of(decoding, self.recipe.decoding)
        if target is not None:
            check_text("target", target)
        if isinstance(others, str | bytes | Mapping) or not isinstance(others, Iterable):
            raise RequestError(f"others: expected a list of inputs, got {type_name(others)}")
        kinds = None if kinds is None else texts("kinds", kinds)
        with evaluating(self.model), torch.inference_mode(False):  # views compute gradients
            explanation = explain_input(
                self,
                input,
                maps=Selection(indices("layers", layers), indices("heads", heads), kinds),
                options=AnswerOptions(settings, target, whole_number("alternative", alternative, least=0)),
                views=texts("views", views),
                others=others,
                limit=whole_number("limit", limit, least=0),
            )
        return Explanation(**vars(explanation))

    def export(self, to: str, out: Path | str | None = None, *, log: Log = lambda line: None) -> Path:
        """Export the run to a folder that ``transformers`` loads; see `heedful.export`."""
        return export(self, to, out, log=log)

    def __repr__(self) -> str:
        n_parameters = sum(parameter.numel() for parameter in self.model.parameters())
        return f"<heedful.Run {self.folder.path}: {self.recipe.task.kind}, {n_parameters:,} parameters>"


def load(path: Path | str, *, device: str = "auto", verify: bool = True, plugins: Sequence[str] = ()) -> Run:
    """Load a run.

    Args:
        path: its folder.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        verify: whether to compare the hashes of the files with those on the run's card.
        plugins: packages and files (``./my_parts.py``) whose classes the run's recipe may name.

    Raises:
        RequestError: the folder is not a run.
        DamagedError: a file is damaged.
    """
    if isinstance(path, runs.Run):
        raise RequestError(f"{path.folder.path} is loaded already; use the run itself")
    loaded = runs.load(folder_of(path, "path"), device=device, verify=verify, plugins=plugins)
    return Run(loaded.folder, loaded.task, loaded.model)


def import_model(source: Path | str, out: Path | str, *, log: Log = lambda line: None) -> Run:
    """Convert a GPT-2, BERT, ViT or Marian model saved by ``transformers`` to a run, and load it.

    Args:
        source: a folder with ``config.json``, ``model.safetensors`` and the files of the tokenizer.
        out: the run's folder, which must be new or empty.
        log: called with lines about what is converted.

    Raises:
        RequestError: something cannot be converted; the message has its key or file.
    """
    return load(import_run(Path(os.path.expanduser(source)), folder_of(out, "out"), log).path)


def export(
    run: "runs.Run | Path | str", to: str, out: Path | str | None = None, *, log: Log = lambda line: None
) -> Path:
    """Export a run to a folder that ``transformers`` loads; return the folder.

    Args:
        run: a run, or its folder.
        to: ``gpt2``, ``marian``, ``bert`` or ``vit``.
        out: the folder; by default next to the run, for example ``runs/lm-gpt2``.
        log: called with lines about what is converted.

    Raises:
        RequestError: the run cannot be converted; the message has the key of the recipe.
    """
    return export_run(run_folder(run), to, None if out is None else folder_of(out, "out"), log)


def compare(runs: Sequence[Run | Path | str]) -> comparing.Comparison:
    """Compare runs, also those that still train: their settings, scores of validations and learning curves.

    A notebook shows the comparison as tables. ``comparison.runs[0].curve`` has the validations of the first
    run, each with its ``update``, ``seconds`` and ``metrics``.

    Args:
        runs: runs, or their folders.

    Raises:
        RequestError: a folder is not a run, or a run is given twice.
        DamagedError: a file of a run is damaged.
    """
    check_runs(runs)
    return comparing.compare([run_folder(run, f"runs[{number}]") for number, run in enumerate(runs)])
