"""A run: a folder with everything needed to predict, score and explain, on any machine."""

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence, Set
from operator import index
from pathlib import Path
from threading import Lock
from typing import Any, SupportsIndex, TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.artifacts.environment import choose_device
from heedful.artifacts.run_folder import RunFolder
from heedful.artifacts.weights import load_tensors, load_weights
from heedful.config import Config
from heedful.decoding.config import BeamConfig, DecodingConfig, GreedyConfig, SampleConfig, check_streaming
from heedful.engine.choosing import Inference
from heedful.errors import DamagedError, DataError, RequestError
from heedful.files import is_unicode
from heedful.memory import memory_errors_as
from heedful.models.base import Model
from heedful.plugins import allow_plugins
from heedful.recipes.problems import validate
from heedful.recipes.schema import Recipe
from heedful.recipes.trees import Mark, Tree
from heedful.runs.reading import saved_recipe
from heedful.tasks.base import Task
from heedful.tasks.embedding import BATCH_TOKENS, Embedding, embed, hidden_states
from heedful.tasks.generation.streaming import Pieces, Streaming
from heedful.tasks.prediction import Prediction, PredictOptions, Predictor, Progress, TaskInput
from heedful.tasks.registry import task_for
from heedful.tasks.task_info import Columns
from heedful.training import checkpoints
from heedful.training.checkpoints import final_weights
from heedful.typing import JsonMapping, JsonObject

_preparing = Lock()
"""Held while an `Inference` is prepared: one thread prepares it for all."""

TEXTS_AT_ONCE, IMAGES_AT_ONCE = 1 << 14, 64
"""Number of inputs that `Run.embed` reads and sorts by length at a time."""

_is_used = False
"""Whether this process has created a run."""


def _after_fork() -> None:
    """Make a process that was forked from one with a run compute on one thread.

    The threads of torch and of the native engine do not exist in the new process, so work that is divided
    among several would wait for them forever.
    """
    global _preparing
    _preparing = Lock()
    if _is_used:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class TaskOptions(TypedDict, total=False):
    """Keywords of `Run.predict` that only some tasks support; None: not given."""

    max_new_tokens: int | None
    stop: Sequence[str] | None
    prefix: str | None
    gap: str | None


class RunOptions(TaskOptions, total=False):
    """Keywords of `Run.predict` that determine the predictor."""

    beam: int | None
    n_best: int | None
    decoding: DecodingConfig | JsonMapping | None
    precision: str


class Run:
    """A trained run. Several threads may use it at the same time; a forked process computes on one thread.

    Args:
        folder: its folder.
        task: its task, with recipe and processor.
        model: its model, with weights; set to evaluation mode.
    """

    def __init__(self, folder: RunFolder, task: Task, model: Model) -> None:
        self.folder, self.task, self.model = folder, task, model.eval()
        global _is_used
        _is_used = True
        self._inferences: dict[str, Inference] = {}

    @property
    def recipe(self) -> Recipe:
        """Return the recipe of the run."""
        return self.task.recipe

    @property
    def processor(self) -> Any:
        """Return the processor, which encodes inputs and decodes outputs."""
        return self.task.processor

    def predict(
        self,
        texts: Iterable[TaskInput],
        *,
        alignment: bool = False,
        first: int = 0,
        progress: Progress = lambda n: None,
        **options: Unpack[RunOptions],
    ) -> list[Prediction]:
        """Predict for each text; return as many predictions as texts, in order.

        Args:
            texts: the inputs, in any iterable; for a task that reads pairs, a tuple of both for each; for
                images, paths, arrays (`heedful.data.images.LazyImage`) or Pillow images.
            alignment: whether to return the attention over the source.
            first: number of the first text, if others were predicted before; each number has its own samples.
            progress: called with the number of texts that were just predicted.
            **options: ``beam``, the beam size (1 is greedy; default: that of the recipe); ``n_best``, the
                number of answers per text (those after the first are ``alternatives``); ``decoding``, a
                complete configuration that replaces the recipe's, or a map as in recipes; ``precision`` of
                the weights during decoding: fp32, bf16, int8, or auto, which is fp32
                (`heedful.engine.choosing`). For a language model, ``max_new_tokens``, ``stop`` (a list of
                texts) and ``prefix``, a text before every prompt; for a masked one ``gap``, the text for a
                mask.

        The answer of a classifier is a label, with its log-probability as the score; that of a tagger also
        has ``words`` and ``tags`` (its input may be a list of words), that of a regression a ``value``, and
        an answer from a passage the indices ``start`` and ``end`` of its characters.

        Raises:
            RequestError: the task does not support an option, or an input has the wrong type; then nothing is
                predicted. For an image that cannot be read, the prediction has an ``error`` instead.
        """
        inputs = inputs_of(self.task.columns, texts)
        predictor = self.predictor(alignment=alignment, progress=progress, **options)
        return predictor.predict(inputs, first=first)

    def predictor(
        self,
        *,
        beam: int | None = None,
        n_best: int | None = None,
        decoding: DecodingConfig | JsonMapping | None = None,
        precision: str = "auto",
        alignment: bool = False,
        progress: Progress = lambda n: None,
        **options: Unpack[TaskOptions],
    ) -> Predictor:
        """Return a predictor for many calls; the arguments are those of `predict`.

        Raises:
            RequestError: the task does not support an option.
        """
        beam, n_best = at_least_one("beam", beam), at_least_one("n_best", n_best)
        supported = self.task.info.options
        # Some tasks have several answers without a search.
        search_n_best, task_n_best = (None, n_best) if "n_best" in supported else (n_best, None)
        settings = with_beam(decoding_of(decoding, self.recipe.decoding), beam, search_n_best)
        option_names = [name for name, value in options.items() if value is not None]
        if unsupported := [name for name in option_names if name not in supported]:
            raise RequestError(f"{unsupported[0]}: not supported for task {self.recipe.task.kind}")
        return self.task.predictor(
            self.model,
            settings,
            self.inference(precision),
            PredictOptions(task_n_best, alignment=alignment, progress=progress, **options),
        )

    def stream(self, text: TaskInput, *, first: int = 0, **options: Unpack[RunOptions]) -> Pieces:
        """Yield the answer to one input piece by piece, as soon as each is generated.

        The pieces together are the text of `predict`; at the end, the generator returns the whole prediction.

        Args:
            text: the input.
            first: its number; see `predict`.
            **options: as of `predict`; a beam search needs ``beam=1``.

        Raises:
            RequestError: the task or the decoding does not support streaming.
            DataError: the input is an image that cannot be read.
        """
        (text,) = inputs_of(self.task.columns, [text])
        predictor = streaming(self.predictor(**options), self.recipe.task.kind)
        return predictor.stream(text, ordinal=first)

    def embed(
        self,
        inputs: Iterable[TaskInput],
        *,
        pooling: str | None = None,
        batch_tokens: int = BATCH_TOKENS,
        progress: Progress = lambda n: None,
    ) -> NDArray[np.float32]:
        """Compute a vector of each input, an embedding: ``[n, d]``, in order; ``[0, d]`` of no inputs.

        A vector is pooled from the last hidden states; those of an encoder-decoder are its encoder's. By
        default, the pooling is the model's own if it was trained (for classes, numbers, sentence embeddings
        and classes of images), otherwise the mean over all tokens (tagging, question answering, segmentation,
        masked and other language models, translation, summarisation, captioning). See
        `heedful.tasks.embedding`.

        Args:
            inputs: texts, or images as of `predict`. For a task that reads pairs of texts, a text, or a tuple
                of both, which are read together. Long texts are truncated as in `predict`, with a warning: a
                language model reads the last tokens of a text, other models the first.
            pooling: ``mean``, ``first``, ``last`` or ``max``, over all tokens of the input, including special
                tokens; ``first`` is not available for language models, nor ``first`` and ``last`` for images.
            batch_tokens: maximum number of tokens of a batch, with padding.
            progress: called with the number of inputs that were just embedded.

        Raises:
            RequestError: the task does not support embeddings or the model not this pooling, or an input has
                the wrong type.
            DataError: an image cannot be read.
        """
        embeddings = self.embeddings(inputs, pooling=pooling, batch_tokens=batch_tokens, progress=progress)
        if errors := [embedding.error for embedding in embeddings if embedding.error]:
            raise DataError(errors[0])
        if truncated := [number for number, embedding in enumerate(embeddings, 1) if embedding.cut]:
            first = embeddings[truncated[0] - 1].note
            warnings.warn(
                f"{len(truncated)} of {len(embeddings)} inputs were truncated; the first is input "
                f"{truncated[0]}: {first}",
                stacklevel=2,
            )
        if not embeddings:
            return np.zeros((0, self.embedding_width), dtype=np.float32)
        return np.stack([embedding.vector for embedding in embeddings if embedding.vector is not None])

    def embeddings(
        self,
        inputs: Iterable[TaskInput],
        *,
        pooling: str | None = None,
        batch_tokens: int = BATCH_TOKENS,
        progress: Progress = lambda n: None,
    ) -> list[Embedding]:
        """Compute the vector of each input, with notes and errors; the arguments are those of `embed`.

        Raises:
            RequestError: as of `embed`.
        """
        columns = self.task.embedded_columns
        checked, size = inputs_of(columns, inputs), IMAGES_AT_ONCE if columns.images else TEXTS_AT_ONCE
        if at_least_one("batch_tokens", batch_tokens) is None:
            raise RequestError("batch_tokens: expected a whole number of at least 1, got None")
        embeddings: list[Embedding] = []
        for start in range(0, max(1, len(checked)), size):
            prepared = self.task.embedding_inputs(checked[start : start + size])
            embeddings += embed(self.model, prepared, pooling, batch_tokens=batch_tokens, progress=progress)
        return embeddings

    @property
    def embedding_width(self) -> int:
        """The number of features of the vectors of `embed`."""
        batch = self.task.synthetic_batch(self.task.processor.sizes, 1, 8, 8)
        inputs = batch.inputs if batch.source is None else batch.source
        with torch.inference_mode():
            return hidden_states(self.model, inputs.to(next(self.model.parameters()).device)).shape[1]

    def inference(self, precision: str = "auto") -> Inference:
        """Return the model prepared for decoding, which is kept for further calls.

        Raises:
            RequestError: the precision is not available for this model on this machine.
        """
        with _preparing:
            if precision not in self._inferences:
                self._inferences[precision] = Inference(self.model, precision)
            return self._inferences[precision]


def load(path: Path | str, *, device: str = "auto", verify: bool = True, plugins: Sequence[str] = ()) -> Run:
    """Load a run.

    Args:
        path: its folder.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        verify: whether to compare the hashes of the files with those on the run's card.
        plugins: packages from which classes in the run's recipe may be imported (`heedful.plugins`).

    Raises:
        RequestError: the folder is not a run.
        DamagedError: a file is damaged.
    """
    allow_plugins(plugins)
    folder = RunFolder(path)
    torch_device = choose_device(device)
    unfinished = not folder.has_ended and folder.has_checkpoints
    card = None if unfinished else folder.read_card()
    if verify:
        folder.check_started()
        if card is not None:
            folder.check_files(card)
    recipe = saved_recipe(folder)
    task = task_for(recipe)
    task.load(folder)
    with memory_errors_as(f"{folder.recipe}: the model does not fit in memory"):
        model = task.build_model()
    if unfinished:
        _refuse_damaged_checkpoints(folder)
        load_tensors(*final_weights(folder.path, recipe.training), model, str(folder.path))
    else:
        load_weights(folder.weights, model)
    return Run(folder, task, model.to(torch_device))


def _refuse_damaged_checkpoints(folder: RunFolder) -> None:
    """Refuse to predict with an older checkpoint than the newest.

    Raises:
        DamagedError: the newest is damaged.
    """
    intact, damaged = checkpoints.latest_intact(folder.path)
    if damaged and intact is not None:
        raise DamagedError(
            f"{damaged[0]}; `heedful train {folder.path} --resume` continues from {intact.path}"
        )
    if damaged:
        raise DamagedError(f"{damaged[0]}; there is no other good checkpoint")


# Arguments of predictions -----------------------------------------------------------------------------------


def inputs_of(columns: Columns, iterable: object) -> list[TaskInput]:
    """Return the inputs after checking that a task with these columns reads them.

    Images are not checked here; if one cannot be read, its prediction has an error.

    Raises:
        RequestError: they are not a list, or one has the wrong type; the message has its number, from 1.
    """
    images = bool(columns.images)
    if isinstance(iterable, str | bytes | Mapping | Set) or not isinstance(iterable, Iterable):
        noun = "image" if images else "text"
        raise RequestError(
            f"expected a list of {noun}s, got {_describe(iterable)}; pass a single {noun} as a list of one"
        )
    inputs = list(iterable)
    if not images:
        names, optional = columns.inputs, columns.optional_inputs
        for number, task_input in enumerate(inputs, 1):
            expected = (*names, *optional) if optional and isinstance(task_input, list | tuple) else names
            _check(task_input, expected, f"input {number}", words=columns.input_lists)
    return inputs


def _check(task_input: object, names: Sequence[str], label: str, *, words: bool) -> None:
    """Check that an input is a text or, if the run reads these, a list of words or a tuple of texts."""
    if len(names) > 1:
        if not isinstance(task_input, list | tuple) or len(task_input) != len(names):
            expected = f"a tuple of {len(names)} texts ({', '.join(names)})"
            raise RequestError(f"{label}: expected {expected}, got {_describe(task_input)}")
        for name, part in zip(names, task_input, strict=True):
            _check_text(part, f"{label}: {name}", "a text")
    elif words and isinstance(task_input, list | tuple):
        for number, word in enumerate(task_input, 1):
            _check_text(word, f"{label}: word {number}", "a text")
    else:
        _check_text(task_input, label, "a text or a list of words" if words else "a text")


def _check_text(text: object, label: str, expected: str) -> None:
    if not isinstance(text, str):
        raise RequestError(f"{label}: expected {expected}, got {_describe(text)}")
    if not is_unicode(text):
        raise RequestError(f"{label}: not valid Unicode (half of a surrogate pair)")


def _describe(value: object) -> str:
    """Describe a value for messages."""
    if value is None:
        return "None"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return "a text" if isinstance(value, str) else f"a value of type {type(value).__name__}"


def at_least_one(name: str, number: object) -> int | None:
    """Return a number of hypotheses or answers, or None if none is given.

    Raises:
        RequestError: it is not a whole number of at least 1.
    """
    if number is None:
        return None
    if not isinstance(number, SupportsIndex) or isinstance(number, bool) or index(number) < 1:
        raise RequestError(f"{name}: expected a whole number of at least 1, got {number!r}")
    return index(number)


def decoding_of(
    decoding: DecodingConfig | JsonMapping | None, default: DecodingConfig | None
) -> DecodingConfig | None:
    """Return the decoding to use: the given one, a configuration or a map as in recipes, or the run's.

    Raises:
        RequestError: it is invalid, or the run generates no text.
    """
    if decoding is None:
        return default
    if default is None:
        raise RequestError("decoding: not supported for this run, whose task generates no text")
    if isinstance(decoding, Mapping):
        return decoding_from(Tree.of({"decoding": decoding}, Mark("the request")))
    if not isinstance(decoding, GreedyConfig | BeamConfig | SampleConfig):
        raise RequestError(
            "decoding: expected a configuration or a mapping such as {'kind': 'greedy'}, "
            f"got {_describe(decoding)}"
        )
    return decoding


def with_beam(decoding: DecodingConfig | None, beam: int | None, n_best: int | None) -> DecodingConfig | None:
    """Return the decoding with another beam size or number of answers.

    Greedy decoding becomes a beam search; for sampling, ``n_best`` is the number of samples.

    Raises:
        RequestError: there are more answers than the beam size, a beam for sampling, or nothing is decoded.
    """
    if beam is None and n_best is None:
        return decoding
    if decoding is None:
        option = f"n_best={n_best}" if beam is None else f"beam={beam}"
        raise RequestError(f"{option}: not supported for this run, whose task generates no text")
    if decoding.kind == "sample":
        if beam is not None:
            raise RequestError(f"beam={beam} is not supported by sampling; set kind=beam")
        changes: JsonObject = {"n": n_best}
    else:
        changes = {"kind": "beam", "beam": beam, "n_best": n_best}
        if decoding.kind == "greedy":
            changes["beam"] = beam or n_best
    settings = decoding.model_dump(mode="json")
    settings |= {key: value for key, value in changes.items() if value is not None}
    return decoding_from(Tree.of({"decoding": settings}, Mark("the request")))


def streaming(predictor: Predictor, task: str) -> Streaming:
    """Return the predictor as one that streams.

    Raises:
        RequestError: it generates no text, or its decoding knows the text only at the end.
    """
    if not isinstance(predictor, Streaming):
        raise RequestError(f"the task {task} does not support streaming")
    check_streaming(predictor.decoding)
    return predictor


class _Decoding(Config):
    """Root for the validation of a decoding alone."""

    decoding: DecodingConfig


def decoding_from(tree: Tree) -> DecodingConfig:
    """Return the decoding configuration in a tree with the one key ``decoding``."""
    return validate(tree, _Decoding).decoding
