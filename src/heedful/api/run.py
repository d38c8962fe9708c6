"""A run as Python sees it: predict, stream, score, embed, evaluate, explain, export."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, SupportsFloat, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.api.checks import check_split, folder_of, names_in_rows
from heedful.api.given import memory_names, paths_in, rows_source
from heedful.api.progress import Progress, counting
from heedful.checks import check_text, texts, whole_number
from heedful.data.memory import HeldRows, RowsLike
from heedful.decoding.config import DecodingConfig
from heedful.errors import DataError, RequestError, type_name
from heedful.models.ensemble import EnsembleModel
from heedful.nn.modes import evaluating
from heedful.runs.arguments import (
    at_least_one,
    decoding_of,
    indices,
    inputs_of,
    scored_inputs_of,
    streaming,
    text_scoring,
    with_beam,
)
from heedful.runs.ensembles import ensemble_of
from heedful.runs.evaluate import chosen_splits, evaluate
from heedful.runs.loading import LoadedRun, load_run
from heedful.runs.output_constraints import OutputOptions, constraints_of, run_options
from heedful.runs.prepare import check_rows
from heedful.tasks.abstaining import Abstaining
from heedful.tasks.base import Log
from heedful.tasks.embedding import Embedding, embed, hidden_states
from heedful.tasks.evaluation import Evaluation, EvaluationOptions
from heedful.tasks.generation.output_constraints import NO_CONSTRAINTS, arguments_of
from heedful.tasks.generation.streaming import Pieces
from heedful.tasks.inputs.processor import TaskProcessor
from heedful.tasks.model_input import AnswerOptions
from heedful.tasks.prediction import BATCH_TOKENS, Prediction, Predictor, TaskInput
from heedful.typing import JsonMapping

if TYPE_CHECKING:
    from heedful.data.lines import Source
    from heedful.explain.alignment.predictions import AligningPredictor, Head
    from heedful.explain.attribution.faithfulness import FaithfulnessEvaluation
    from heedful.explain.explanation import Explanation

TEXTS_AT_ONCE, IMAGES_AT_ONCE = 1 << 14, 64
"""Number of inputs that `Run.embed` reads and sorts by length at a time."""


class Run(LoadedRun):
    """A trained run: its model, task and files. Several threads may use it at the same time.

    ``run.model`` is a plain ``torch.nn.Module``, ``run.processor`` encodes inputs and decodes outputs,
    ``run.recipe`` has all settings, and ``run.folder`` the paths of its files. All methods compute in
    evaluation mode; afterwards the model has the modes that it had before.
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

    def predict(
        self,
        inputs: Iterable[TaskInput],
        *,
        alignment: bool = False,
        alignment_head: "Head | None" = None,
        attention: bool = False,
        first: int = 0,
        progress: Progress = False,
        threshold: SupportsFloat | None = None,
        otherwise: str | None = None,
        **options: Unpack[OutputOptions],
    ) -> list[Prediction]:
        """Predict for each input; return as many predictions as inputs, in order.

        Args:
            inputs: texts, in any iterable; for a task that reads pairs, a tuple of both for each; for
                images, paths, arrays (`heedful.data.images.LazyImage`) or Pillow images.
            alignment: whether to return the word alignment of each output, for tasks that generate a text for
                a text (`heedful.explain.alignment.predictions`).
            alignment_head: the head that aligns: ``(layer, head)``, counted from 0; None: the best known one,
                or the one that agrees best with occlusion, selected once per process.
            attention: whether to return the attention over the source of every layer and head.
            first: number of the first input, if others were predicted before; each number has its own
                samples.
            progress: whether to show progress; or a function, called with the number of inputs just
                predicted.
            threshold: hold an answer back whose probability is less (labels, tags, spans); its ``text`` is
                then ``otherwise``, and the notes have the answer. A number, or the result of
                `heedful.tasks.evaluation.Evaluation.threshold_for`.
            otherwise: the text in place of an answer that is held back, also that of an empty input.
            **options: ``beam``, the beam size (1 is greedy; default: that of the recipe); ``n_best``, the
                number of answers per input (those after the first are ``alternatives``); ``decoding``, a
                complete configuration that replaces the recipe's, or a map as in recipes; ``precision`` of
                the weights during decoding: fp32, bf16, int8, or auto, which is fp32
                (`heedful.engine.choosing`). For texts that are generated, ``must`` and ``must_not``: phrases
                for all outputs, or a list of them for each; ``target_prefix``, a text or one for each; and
                ``terminology`` (`heedful.tasks.generation.output_constraints`). For a language model,
                ``max_new_tokens``, ``stop`` (a list of texts), ``prefix``, a text before every prompt, and
                ``regex`` or ``json_schema`` (a mapping, or the path of a file), which completions match; for
                a masked one ``gap``, the text for a mask. For a tagger ``words="raw"``, to split texts into
                words and punctuation marks, not at blanks (`heedful.tasks.inputs.words.split_text`).

        The answer of a classifier is a label, with its log-probability as the score; that of a tagger also
        has ``words`` and ``tags`` (its input may be a list of words), that of a regression a ``value``, and
        an answer from a passage the indices ``start`` and ``end`` of its characters.

        Raises:
            RequestError: the task does not support an option, or an input has the wrong type; then nothing is
                predicted. For an image that cannot be read, and constraints that no output can hold, the
                prediction has an ``error`` instead.
        """
        if alignment_head is not None and not alignment:
            raise RequestError("alignment_head: requires alignment=True")
        checked, first = inputs_of(self.task.columns, inputs), whole_number("first", first, least=0)
        constraints = constraints_of(self.task, checked, options)
        with counting(progress, "inputs", len(checked)) as count:
            predictor = self.predictor(attention=attention, progress=count, **run_options(options))
            if alignment:
                predictor = self.aligning(predictor, alignment_head)
            abstaining = Abstaining.of(self.task, predictor, threshold, otherwise)
            return abstaining.predict(checked, first=first, **arguments_of(constraints))

    def _refuse_ensemble(self, what: str) -> None:
        """Raise `RequestError` for what an ensemble does not have."""
        if isinstance(self.model, EnsembleModel):
            raise RequestError(f"{what}: not supported for an ensemble; use one of its runs")

    def aligning(self, predictor: Predictor, head: "Head | None" = None) -> "AligningPredictor":
        """Return a predictor that adds word alignments; its ``head`` is the one that aligns, and why.

        Args:
            predictor: of this run (`predictor`).
            head: as ``alignment_head`` of `predict`.

        Raises:
            RequestError: the task generates no text for a text, or there is no head that aligns.
        """
        from heedful.explain.alignment.predictions import aligning

        self._refuse_ensemble("alignment")
        return aligning(self, predictor, head)

    def stream(self, input: TaskInput, *, first: int = 0, **options: Unpack[OutputOptions]) -> Pieces:
        """Yield the answer to one input piece by piece, as soon as each is generated.

        The pieces together are the text of `predict`; at the end, the generator returns the whole prediction.

        Args:
            input: as `predict` takes it.
            first: its number; see `predict`.
            **options: as of `predict`; a beam search needs ``beam=1``.

        Raises:
            RequestError: the task or the decoding does not support streaming.
            DataError: the input is an image that cannot be read.
        """
        (checked,), first = inputs_of(self.task.columns, [input]), whole_number("first", first, least=0)
        if (n_best := at_least_one("n_best", options.get("n_best"))) is not None and n_best > 1:
            raise RequestError(f"n_best={n_best}: streaming gives one answer; use predict for several")
        predictor = streaming(self.predictor(**run_options(options)), self.recipe.task.kind)
        constraints = constraints_of(self.task, [checked], options)
        return predictor.stream(checked, ordinal=first, constraints=(constraints or [NO_CONSTRAINTS])[0])

    def score(self, inputs: Iterable[TaskInput], *, progress: Progress = False) -> list[Prediction]:
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
            progress: as of `predict`.

        Raises:
            RequestError: the task gives texts no probability, or an input has the wrong type. For an image
                that cannot be read, and a target that is too long for the model, the prediction has an
                ``error`` instead.
        """
        task = text_scoring(self.task)
        checked = scored_inputs_of(task.scored, inputs)
        with evaluating(self.model), counting(progress, "inputs", len(checked)) as count:
            return task.score(self.model, checked, count)

    def embed(
        self,
        inputs: Iterable[TaskInput],
        *,
        pooling: str | None = None,
        layer: int | None = None,
        batch_tokens: int = BATCH_TOKENS,
        progress: Progress = False,
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
            progress: as of `predict`.

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
            first = "; ".join(embeddings[truncated[0] - 1].notes)
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
        progress: Progress = False,
    ) -> list[Embedding]:
        """Compute the vector of each input, with notes and errors; the arguments are those of `embed`.

        Raises:
            RequestError: as of `embed`.
        """
        self._refuse_ensemble("embed")
        columns = self.task.embedded_columns
        checked, size = inputs_of(columns, inputs), IMAGES_AT_ONCE if columns.images else TEXTS_AT_ONCE
        batch_tokens = whole_number("batch_tokens", batch_tokens, least=1)
        layer = None if layer is None else whole_number("layer", layer)
        found: list[Embedding] = []
        with counting(progress, "inputs", len(checked)) as count:
            for start in range(0, max(1, len(checked)), size):
                prepared = self.task.embedding_inputs(checked[start : start + size])
                with evaluating(self.model):
                    found += embed(
                        self.model, prepared, pooling, layer, batch_tokens=batch_tokens, progress=count
                    )
        return found

    @property
    def embedding_width(self) -> int:
        """The number of features of the vectors of `embed`."""
        batch = self.task.synthetic_batch(self.task.processor.sizes, 1, 8, 8)
        inputs = batch.inputs if batch.source is None else batch.source
        with evaluating(self.model), torch.inference_mode():
            return hidden_states(self.model, inputs.to(next(self.model.parameters()).device)).shape[1]

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
        progress: Progress = False,
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
            progress: whether to show progress; or a function, called with the number of rows just scored.

        Returns:
            The scores, with the signatures needed to compare them; ``float(evaluation["BLEU"])``.

        Raises:
            RequestError: there is no such data set, or several test sets; or an option is not supported.
            DataError: there is nothing to score, or rows that were given in Python have changed since the
                training.
        """
        limit, stride = at_least_one("limit", limit), at_least_one("stride", stride)
        name, source, held = self._data_set(split, data, columns)
        settings = with_beam(decoding_of(decoding, self.recipe.decoding), beam, None)
        with counting(progress, "rows", limit) as count:
            options = EvaluationOptions(settings, limit, stride, count, precision)
            evaluation = evaluate(self, name, source, options)
        del held  # it was needed until here
        return evaluation

    def faithfulness(
        self,
        split: str = "test",
        *,
        data: RowsLike | None = None,
        columns: Mapping[str, str | int] | None = None,
        limit: int | None = None,
        progress: Progress = False,
    ) -> "FaithfulnessEvaluation":
        """Score the views that say which words decided, by what the answer does without these words.

        Each view is judged by another way to remove words than its own
        (`heedful.explain.attribution.faithfulness`).

        Args:
            split: as of `evaluate`.
            data: as of `evaluate`.
            columns: as of `evaluate`.
            limit: use only this many leading rows; each takes some hundred predictions.
            progress: as of `evaluate`.

        Returns:
            A score for each view: its comprehensiveness, with further measures in ``details``.

        Raises:
            RequestError: as of `evaluate`.
            DataError: no input has at least two words and an answer.
        """
        from heedful.explain.attribution.faithfulness import evaluate_faithfulness

        self._refuse_ensemble("faithfulness")
        limit = at_least_one("limit", limit)
        name, source, held = self._data_set(split, data, columns)
        with counting(progress, "rows", limit) as count:
            evaluation = evaluate_faithfulness(self, name, source, limit=limit, progress=count)
        del held  # it was needed until here
        return evaluation

    def _data_set(
        self, split: str, data: RowsLike | None, columns: Mapping[str, str | int] | None
    ) -> "tuple[str, Source, object]":
        """Return the name and the source of the data set to evaluate, and what must live as long as it.

        Raises:
            RequestError: as of `evaluate`.
            DataError: rows that were given in Python have changed since the training.
        """
        check_split(split)
        names, paths = names_in_rows(columns), paths_in(data)
        if data is None and names is not None:
            raise RequestError("columns: names the columns of data, which is not given")
        if data is not None and not paths:
            return "data", *rows_source(data, self.recipe.data.train, self.task.columns.names, names)
        sources = self.data_sets(split, paths, names)
        if len(sources) > 1:
            raise RequestError(
                f"{split}: the run has several test sets; expected one of {', '.join(sources)}"
            )
        ((name, source),) = sources.items()
        return name, source, None

    def data_sets(
        self, split: str, paths: Sequence[Path] | None = None, columns: Mapping[str, str] | None = None
    ) -> "dict[str, Source]":
        """Return the sources of the data sets that ``split`` names, or of files, by name.

        Raises:
            RequestError: there is no such data set.
            DataError: rows that were given in Python have changed since the training.
        """
        sources = chosen_splits(self, split, paths, columns)
        for name, source in sources.items():
            if name in ("train", "valid") and [*memory_names(source)]:
                check_rows(self.recipe, self.folder, name)
        return sources

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
        limit: int | None = None,
    ) -> "Explanation":
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
            limit: maximum bytes of attention weights; None: 1 GiB.

        Raises:
            RequestError: the input is empty or too long, or the model has no such layer, head, kind or view.
        """
        from heedful.explain.attention_sites import Selection
        from heedful.explain.capture import LIMIT, explain_input

        self._refuse_ensemble("explain")
        settings = decoding_of(decoding, self.recipe.decoding)
        if target is not None:
            check_text("target", target)
        if isinstance(others, str | bytes | Mapping) or not isinstance(others, Iterable):
            raise RequestError(f"others: expected a list of inputs, got {type_name(others)}")
        kinds = None if kinds is None else texts("kinds", kinds)
        with evaluating(self.model), torch.inference_mode(False):  # views compute gradients
            return explain_input(
                self,
                input,
                maps=Selection(indices("layers", layers), indices("heads", heads), kinds),
                options=AnswerOptions(settings, target, whole_number("alternative", alternative, least=0)),
                views=texts("views", views),
                others=others,
                limit=LIMIT if limit is None else whole_number("limit", limit, least=0),
            )

    def export(self, to: str, out: Path | str | None = None, *, log: Log = lambda line: None) -> Path:
        """Export the run to a folder that ``transformers`` loads; see `heedful.export`."""
        from heedful.interop.conversion import export_run

        self._refuse_ensemble("export")
        return export_run(self.folder.path, to, None if out is None else folder_of(out, "out"), log)

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
    if isinstance(path, LoadedRun):
        raise RequestError(f"{path.folder.path} is loaded already; use the run itself")
    loaded = load_run(folder_of(path, "path"), device=device, verify=verify, plugins=plugins)
    return Run(loaded.folder, loaded.task, loaded.model)


def ensemble(runs: Sequence[Run]) -> Run:
    """Return a run that predicts with several runs: the mean of their probabilities of each token.

    For tasks that generate text. It predicts, streams, scores and evaluates; its settings and data are those
    of the first run. It has no explanations, vectors or files of its own.

    Args:
        runs: at least two, of the same task and with the same vocabulary: trained with several seeds
            (``heedful train --seeds``), for example.

    Raises:
        RequestError: they are fewer, or differ in their task, vocabulary or device.
    """
    members = [*runs]
    if wrong := next((run for run in members if not isinstance(run, LoadedRun)), None):
        raise RequestError(f"runs: expected loaded runs (heedful.load), got {type_name(wrong)}")
    made = ensemble_of(members)
    return Run(made.folder, made.task, made.model)
