"""A run: a folder with everything needed to predict, score and explain, on any machine."""

import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, NoReturn, Self, SupportsIndex, TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.artifacts.environment import choose_device
from heedful.artifacts.run_folder import RunFolder
from heedful.artifacts.weights import load_tensors, load_weights
from heedful.checks import check_function, check_text, whole_number
from heedful.decoding.config import DecodingConfig
from heedful.engine.choosing import Inference
from heedful.errors import DamagedError, DataError, RequestError
from heedful.forks import PerProcess
from heedful.memory import memory_errors_as
from heedful.models.base import Model
from heedful.nn.modes import evaluating
from heedful.plugins import allow_plugins
from heedful.recipes.schema import Recipe
from heedful.runs.arguments import (
    at_least_one,
    checked_options,
    decoding_of,
    inputs_of,
    refuse_options,
    scored_inputs_of,
    streaming,
    text_scoring,
    with_beam,
)
from heedful.runs.reading import saved_recipe
from heedful.tasks.base import Task
from heedful.tasks.embedding import Embedding, embed, hidden_states
from heedful.tasks.generation.streaming import Pieces
from heedful.tasks.prediction import BATCH_TOKENS, Prediction, PredictOptions, Predictor, Progress, TaskInput
from heedful.tasks.registry import task_for
from heedful.training import checkpoints
from heedful.training.checkpoints import final_weights
from heedful.typing import JsonMapping

_preparing = PerProcess(Lock)
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

    All methods compute in evaluation mode; afterwards the model has the modes that it had before.

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

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse to be pickled or deep-copied.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            "a Run cannot be pickled or deep-copied; load it again, in each process: "
            f"heedful.load({str(self.folder.path)!r})"
        )

    def __copy__(self) -> Self:
        """Return a run with the same model and task."""
        copied = object.__new__(type(self))
        vars(copied).update(vars(self))
        return copied

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
        inputs, first = inputs_of(self.task.columns, texts), whole_number("first", first, least=0)
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
        check_function("progress", progress)
        given = {name: value for name, value in options.items() if value is not None}
        refuse_options(given, supported, self.task)
        predict_options = PredictOptions(
            task_n_best, decoding=settings, alignment=alignment, progress=progress, **checked_options(given)
        )
        return self.task.predictor(self.inference(precision), predict_options)

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
        (text,), first = inputs_of(self.task.columns, [text]), whole_number("first", first, least=0)
        if (n_best := at_least_one("n_best", options.get("n_best"))) is not None and n_best > 1:
            raise RequestError(f"n_best={n_best}: streaming gives one answer; use predict for several")
        predictor = streaming(self.predictor(**options), self.recipe.task.kind)
        return predictor.stream(text, ordinal=first)

    def score(self, inputs: Iterable[TaskInput], *, progress: Progress = lambda n: None) -> list[Prediction]:
        """Return the log-probability of each token of given texts; as many predictions as inputs, in order.

        | task | input | the probability of a token is given |
        |---|---|---|
        | language modelling | text | the tokens before it; of the first one, the end of another document |
        | translation, summarisation | (source, target) | the source and the tokens before it |
        | captioning | (image, caption) | the image and the tokens before it |
        | masked language modelling | text | all other tokens, while it alone is masked |

        In the first three, the end token is scored too: ``log_probs`` has one more value than ``tokens``. The
        last is the pseudo-log-likelihood of Salazar et al. 2020, which takes a pass over the text for each
        token. ``score`` is the sum of ``log_probs``, in nats.

        A text longer than the context of a (masked) language model is read in windows that do not overlap,
        as `evaluate` does, so that the first tokens of a window have few tokens before them. Sources are
        truncated as by `predict`, with a note.

        Args:
            inputs: as in the table; images as of `predict`.
            progress: called with the number of inputs just scored.

        Raises:
            RequestError: the task gives texts no probability, or an input has the wrong type. For an image
                that cannot be read, and a target that is too long for the model, the prediction has an
                ``error`` instead.
        """
        check_function("progress", progress)
        task = text_scoring(self.task)
        with evaluating(self.model):
            return task.score(self.model, scored_inputs_of(task.scored, inputs), progress)

    def embed(
        self,
        inputs: Iterable[TaskInput],
        *,
        pooling: str | None = None,
        layer: int | None = None,
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
            layer: index of the Transformer layer whose output is pooled, from 0, or negative from the end; by
                default then by the mean. None: the last hidden states, after the last norm.
            batch_tokens: maximum number of tokens of a batch, with padding.
            progress: called with the number of inputs that were just embedded.

        Raises:
            RequestError: the task does not support embeddings or the model not this pooling or layer, or an
                input has the wrong type.
            DataError: an image cannot be read.
        """
        embeddings = self.embeddings(
            inputs, pooling=pooling, layer=layer, batch_tokens=batch_tokens, progress=progress
        )
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
        layer: int | None = None,
        batch_tokens: int = BATCH_TOKENS,
        progress: Progress = lambda n: None,
    ) -> list[Embedding]:
        """Compute the vector of each input, with notes and errors; the arguments are those of `embed`.

        Raises:
            RequestError: as of `embed`.
        """
        columns = self.task.embedded_columns
        checked, size = inputs_of(columns, inputs), IMAGES_AT_ONCE if columns.images else TEXTS_AT_ONCE
        batch_tokens = whole_number("batch_tokens", batch_tokens, least=1)
        layer = None if layer is None else whole_number("layer", layer)
        check_function("progress", progress)
        embeddings: list[Embedding] = []
        for start in range(0, max(1, len(checked)), size):
            prepared = self.task.embedding_inputs(checked[start : start + size])
            with evaluating(self.model):
                embeddings += embed(
                    self.model, prepared, pooling, layer, batch_tokens=batch_tokens, progress=progress
                )
        return embeddings

    @property
    def embedding_width(self) -> int:
        """The number of features of the vectors of `embed`."""
        batch = self.task.synthetic_batch(self.task.processor.sizes, 1, 8, 8)
        inputs = batch.inputs if batch.source is None else batch.source
        with evaluating(self.model), torch.inference_mode():
            return hidden_states(self.model, inputs.to(next(self.model.parameters()).device)).shape[1]

    def inference(self, precision: str = "auto") -> Inference:
        """Return the model prepared for decoding, which is kept for further calls.

        Raises:
            RequestError: the precision is not available for this model on this machine.
        """
        check_text("precision", precision)
        with _preparing.value:
            if precision not in self._inferences:
                self._inferences[precision] = Inference(self.model, precision)
            return self._inferences[precision]


@torch.inference_mode(False)  # parameters need gradients and versions, also if they are loaded in this mode
def load(path: Path | str, *, device: str = "auto", verify: bool = True, plugins: Sequence[str] = ()) -> Run:
    """Load a run.

    Args:
        path: its folder.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        verify: whether to compare the hashes of the files with those on the run's card.
        plugins: packages and files whose classes the run's recipe may name (`heedful.plugins`).

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
        task.load_tuned(folder)
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
            f"{damaged[0]}; `heedful train {folder.path} --resume` (in Python, heedful.resume) continues "
            f"from {intact.path}"
        )
    if damaged:
        raise DamagedError(f"{damaged[0]}; there is no other good checkpoint")
