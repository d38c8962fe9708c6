"""Recipe sections that all tasks share. Blocks never see a recipe.

Each task extends `Recipe` (`heedful.tasks`).
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from heedful.config import Config, CustomSection, as_section
from heedful.data.lines import expand
from heedful.data.sources import SourceConfig
from heedful.data.splitting import TRAIN, VALID, DataSets, Share, data_sets
from heedful.errors import RequestError, nearest
from heedful.models.sections import PowerNormConfig
from heedful.models.stacks import DecoderConfig, StackConfig
from heedful.objectives.registry import CLASS, NEXT_TOKEN, Losses
from heedful.objectives.terms import Objective
from heedful.parts import is_reference
from heedful.recipes.problems import SeveralErrors
from heedful.text.configuration import ComposingPreprocessingConfig, PreprocessingConfig, TokenizerConfig
from heedful.training.optimizers import AdamConfig, OptimizerConfig
from heedful.training.schedules import (
    CosineConfig,
    Direction,
    InverseSqrtConfig,
    LinearConfig,
    PlateauConfig,
    ScheduleConfig,
    ends_at_zero,
    ends_with_training,
    last_update,
)
from heedful.training.settings import TrainingConfig


class DataConfig(Config):
    """Sources of the rows.

    Args:
        train: training data.
        valid: validation data; null: a part of the training data, ``split.valid``.
        test: any number of named test sets; ``evaluate`` uses one or all. ``null`` removes one that the base
            recipe has (``data.test.NAME=null``); ``{}`` or ``null`` all of them.
        split: shares of the rows of ``train`` that are taken out of it, for ``valid`` and for test sets:
            ``{valid: 0.05, test: 0.05}``; the training reads the rest. A hash of a row's content selects its
            part, so equal rows are in the same part, in any order of the rows; rows with the same image (or,
            in question answering, the same passage) too. Validation rows that are taken so are left out, with
            a note, if no training row has their label or tags. ``null`` removes an entry of the base recipe;
            ``{}`` or ``null`` all.
    """

    train: SourceConfig
    valid: SourceConfig | None = None
    test: dict[str, SourceConfig] = Field(default_factory=dict)
    split: dict[str, Share] = Field(default_factory=dict)

    @field_validator("test", "split", mode="before")
    @classmethod
    def _without_removed(cls, entries: object) -> object:
        if entries is None:
            return {}
        if not isinstance(entries, dict):
            return entries
        return {name: entry for name, entry in entries.items() if entry is not None}

    @model_validator(mode="after")
    def _has_each_set_once(self) -> Self:
        if self.valid is not None and VALID in self.split:
            raise ValueError(
                "data.valid and data.split.valid are both given; remove one of them (data.valid=null or "
                "data.split.valid=null)"
            )
        if self.valid is None and VALID not in self.split:
            raise ValueError(
                "data.valid is missing; give a source, or a share of data.train (data.split.valid=0.05)"
            )
        if TRAIN in self.split:
            raise ValueError("data.split.train is what the other shares leave; remove it")
        if repeated := self.split.keys() & self.test.keys():
            name = min(repeated)
            raise ValueError(f"data.test.{name} and data.split.{name} are both given; rename one of them")
        if (total := sum(self.split.values())) >= 1:
            raise ValueError(f"data.split leaves no training data: its shares are {total:g} together")
        return self

    @property
    def sets(self) -> DataSets:
        """The data sets, with those that are parts of the training source."""
        return data_sets(self.train, self.valid, self.test, self.split)


class CustomLoss(CustomSection):
    """A custom loss: a class of objectives (`heedful.objectives.terms.Objective`).

    Parameters of the class that have the name of a key of the section ``objective`` get its value.
    """

    sizes: ClassVar[tuple[str, ...]] = ("chunk", "label_smoothing")
    methods: ClassVar[tuple[str, ...]] = ("__call__", "counts")


class CustomMetric(CustomSection):
    """A custom metric: an instance is called as ``metric(rows, predictions)``, with the rows as maps of
    columns, and returns a number or a `heedful.tasks.metrics.score.Score`.
    """

    methods: ClassVar[tuple[str, ...]] = ("__call__",)


def _own_loss(value: object) -> object:
    if isinstance(value, dict) and set(value) == {"kind"} and not is_reference(value["kind"]):
        return value["kind"]
    return {"kind": value} if is_reference(value) else value


class NoValidationConfig(Config):
    """Every validation measures all metrics on all validation rows; there is nothing to choose."""


class NoDecodingConfig(Config):
    """No text is generated from left to right, so there is nothing to decode."""


class NoEvaluationConfig(Config):
    """``evaluate`` reports all metrics of the task; there is nothing to choose."""


class EvaluationConfig(Config):
    """The scoring of predictions.

    Args:
        metrics: custom metrics, in addition to those of the task.
    """

    metrics: list[Annotated[CustomMetric, BeforeValidator(as_section)]] = []  # noqa: RUF012


class ObjectiveConfig(Config):
    """The training objective.

    Args:
        loss: a name in `heedful.objectives.registry` (available: ``cross-entropy``), or a custom class, by
            its import path.
    """

    losses: ClassVar[Losses] = {}
    """Valid values of ``loss``."""

    loss: Annotated[str | CustomLoss, BeforeValidator(_own_loss)] = "cross-entropy"

    @field_validator("loss")
    @classmethod
    def _known(cls, loss: str | CustomLoss) -> str | CustomLoss:
        if isinstance(loss, str) and loss not in cls.losses:
            names = ", ".join(cls.losses)
            raise ValueError(f"unknown loss {loss!r}{nearest(loss, cls.losses)}; expected one of {names}")
        return loss

    def make(self) -> Objective:
        """Return the objective of these settings."""
        if isinstance(self.loss, CustomLoss):
            settings = self.model_dump()
            return self.loss.instance(
                **{name: settings[name] for name in CustomLoss.sizes if name in settings}
            )
        return self.losses[self.loss](self)


class VocabularyObjectiveConfig(ObjectiveConfig):
    """An objective that computes logits over the vocabulary.

    Args:
        chunk: number of tokens whose logits exist at one time; smaller needs less memory.
    """

    chunk: PositiveInt = 1024


class TokenObjectiveConfig(VocabularyObjectiveConfig):
    """The objective of predicting the next token.

    Args:
        label_smoothing: label smoothing of cross-entropy.
    """

    losses: ClassVar[Losses] = NEXT_TOKEN

    label_smoothing: float = Field(default=0.1, ge=0, lt=1)


ClassWeights = Literal["balanced"] | dict[str, PositiveFloat] | None
"""Weights of labels in the loss (`heedful.tasks.class_weights`)."""


class ClassObjectiveConfig(ObjectiveConfig):
    """The objective of predicting the class of a sequence or image.

    Args:
        label_smoothing: label smoothing of cross-entropy.
        class_weights: weights of the labels in the loss: ``balanced`` (rare labels weigh more, so that all
            weigh the same in sum), or a map of labels to weights, 1 for others; null: none.
    """

    losses: ClassVar[Losses] = CLASS

    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    class_weights: ClassWeights = None


class Expected(Config):
    """Measured results of a shipped recipe.

    Args:
        scores: metric to value, on the split that ``note`` names.
        minutes: measured training time; ``note`` names the machine.
        parameters: number of parameters of the model, with the vocabulary of its data.
        note: how it was measured, or why there are no results.
    """

    scores: dict[str, float] = Field(default_factory=dict)
    minutes: PositiveFloat | None = None
    parameters: PositiveInt | None = None
    note: str = ""


class Tokenization(Config):
    """Tokenizer of tasks with one kind of text: the subword model and the text preprocessing.

    Args:
        subwords: kind and size of the subword model.
        text: lower-casing, Moses tokenisation, normalisation.
    """

    subwords: TokenizerConfig
    text: PreprocessingConfig = PreprocessingConfig()


class ComposingTokenization(Tokenization):
    """Tokenizer of tasks with one kind of text: the subword model and the text preprocessing.

    Args:
        text: lower-casing, Moses tokenisation, normalisation (NFC by default).
    """

    text: ComposingPreprocessingConfig = ComposingPreprocessingConfig()


ALWAYS: Literal["always"] = "always"


class VectorsConfig(Config):
    """Pretrained word vectors.

    Args:
        frozen: number of first updates during which tables with vectors are not trained, or ``always``.
            Words without a vector, and an output layer that shares the table, are not trained either.
    """

    frozen: NonNegativeInt | Literal["always"] = 0

    @model_validator(mode="after")
    def _freezes_vectors(self) -> Self:
        if self.frozen != 0 and all(value is None for key, value in self if key != "frozen"):
            raise ValueError(f"frozen={self.frozen} requires a file of vectors")
        return self


class TextVectorsConfig(VectorsConfig):
    """Word vectors (word2vec text or binary, or GloVe) that initialise rows of the embedding.

    A word gets its vector if a single token spells it: with a word tokenizer (``subwords: {kind: word}``),
    all words of the file. The model uses vectors at their original scale; if the output layer shares the
    table (language models), this needs ``model.scale_embedding=true``. Other words are initialised as
    without vectors.

    Args:
        text: the file; null: none. Its vectors must be as wide as the model (``d_model``).
    """

    text: str | None = None


class StartConfig(Config):
    """Another run whose tokenizers and weights this one starts from.

    Its sections ``model`` and ``tokenizer`` (if it has one) are merged below those of the recipe, which may
    omit them. Heads that it lacks are initialised from scratch.

    Args:
        run: its folder.
        frozen: the part that is not trained: ``none``, the ``embedding`` tables, the ``body`` (all but the
            heads), or the ``encoder`` of an encoder-decoder, with its embedding.
        layer_share: learning rate of a block divided by that of the block above it; embeddings have this
            share of the lowest block's rate (Howard and Ruder 2018, section 3.2: 1 / 2.6); 1: equal rates.
    """

    run: str
    frozen: Literal["none", "embedding", "body", "encoder"] = "none"
    layer_share: float = Field(default=1.0, gt=0, le=1)


Check = TypeVar("Check", bound=Callable[..., object])

_CHECKS = "_heedful_check"


def check(method: Check) -> Check:
    """Mark a method of a recipe that checks several sections; it raises a `ValueError` if they do not fit.

    All checks run, unlike pydantic's validators, so that their errors are reported together.
    """
    setattr(method, _CHECKS, True)
    return method


class Recipe(Config):
    """Sections of the recipes of all tasks.

    Args:
        description: the purpose of the recipe, in one sentence.
        root: folder that relative paths start from; null: the folder of the recipe's file, or the current
            folder for a shipped recipe; the run stores it.
        size: number of the entry of ``sizes`` that a run was started with, from 0; the run stores it.
        task: the task; it determines the other sections.
        data: sources of the rows, and the handling of unusable rows.
        tokenizer: for tasks with texts: subwords and text preprocessing.
        model: the kind of model, its sizes and parts; ``preset`` names one (``heedful describe``).
        objective: the loss.
        start: another run to start from; null: none.
        optimizer: the optimizer.
        schedule: the learning rate schedule.
        training: length of training, batch size and checkpoints.
        validation: validation during training.
        decoding: search or sampling of outputs.
        evaluation: scoring by ``evaluate``.
        expected: measured results of a shipped recipe.
    """

    description: str = ""
    root: str | None = None
    size: NonNegativeInt | None = None
    task: Any
    data: Any
    model: Any
    objective: ObjectiveConfig
    start: StartConfig | None = None
    optimizer: OptimizerConfig = AdamConfig()
    schedule: ScheduleConfig = InverseSqrtConfig()
    training: TrainingConfig
    validation: Any = None
    decoding: Any = None
    evaluation: Any = None
    expected: Expected = Expected()

    falling_metrics: ClassVar[frozenset[str]] = frozenset({"loss", "perplexity"})
    """Validation metrics for which lower is better."""

    decoded_metrics: ClassVar[frozenset[str]] = frozenset()
    """Validation metrics that depend on decoding; higher is better."""

    rising_metrics: ClassVar[frozenset[str]] = frozenset()
    """Other validation metrics for which higher is better."""

    scored_metrics: ClassVar[frozenset[str]] = frozenset()
    """Scores of ``evaluate`` that validations compute only if ``training.metric`` names one, since this takes
    predictions of all validation rows; higher is better."""

    best_values: ClassVar[Mapping[str, float]] = {
        "loss": 0,
        "perplexity": 1,
        **dict.fromkeys(("accuracy", "accuracy@1", "mrr", "f1", "micro-f1", "macro-f1", "exact-match"), 1),
        **dict.fromkeys(("span-precision", "span-recall", "span-f1", "mean-iou", "pearson", "spearman"), 1),
        **dict.fromkeys(("bleu", "chrf", "rouge-1", "rouge-2", "rouge-l"), 100),
    }
    """The best possible value of each metric that has one."""

    class_column: ClassVar[str | None] = None
    """The column with the class of each row, in tasks with one label for each row."""

    @property
    def folder(self) -> Path:
        """The folder that relative paths start from."""
        return Path(self.root or ".")

    def path(self, text: str) -> Path:
        """Return the file or folder of a path in the recipe.

        Raises:
            DataError: if the path names an environment variable that is not set.
        """
        return self.folder / expand(text)

    def batches_within_warm_up(self, updates: int | None) -> int | None:
        """Return the number of batches of ``updates`` if power normalisation is in warm-up for most of them.

        None if it is not, or if no norm of the model has a warm-up.
        """
        if updates is None or self.norm_warmup is None:
            return None
        batches = updates * self.training.accumulate
        return batches if 2 * self.norm_warmup[1] > batches else None

    @property
    def norm_warmup(self) -> tuple[str, int] | None:
        """Key of the power normalisation with the longest warm-up, and its number of batches, or None."""
        if not isinstance(self.model, StackConfig):
            return None
        changes = [(f"pattern.{n}", change) for n, change in enumerate(self.model.pattern or [{}])]
        layers = [
            (*keyed_change, layer) for keyed_change, layer in zip(changes, self.model.layers, strict=False)
        ]
        if isinstance(self.model, DecoderConfig):
            layers.append(("decoder_layer", self.model.decoder_layer, self.model.decoder_layers[0]))
        warmups = [
            (f"model.{key if 'norm' in changed else 'layer'}.norm", layer.norm.warmup)
            for key, changed, layer in layers
            if isinstance(layer.norm, PowerNormConfig)
        ]
        return max(warmups, key=lambda warmup: warmup[1], default=None)

    @model_validator(mode="after")
    def _passes_its_checks(self) -> Self:
        """Run all methods that are marked by `check`, and collect their errors."""
        methods = {name: m for cls in reversed(type(self).__mro__) for name, m in vars(cls).items()}
        messages = []
        for name in (name for name, method in methods.items() if getattr(method, _CHECKS, False)):
            try:
                getattr(self, name)()
            except ValueError as error:
                messages.append(str(error))
        if messages:
            raise SeveralErrors(messages)
        return self

    @property
    def direction(self) -> Direction:
        """Whether a lower or higher value of ``training.metric`` is better."""
        direction = self._known_direction or self.training.direction
        assert direction is not None, "a check of the recipe refuses it"
        return direction

    @property
    def _known_direction(self) -> Direction | None:
        """The direction that the task declares for ``training.metric``; None if it declares none."""
        metric = self.training.metric
        if metric in self.decoded_metrics | self.rising_metrics | self.scored_metrics:
            return "higher"
        return "lower" if metric in self.falling_metrics else None

    def is_best_possible(self, value: float) -> bool:
        """Whether no value of ``training.metric`` is better than this one."""
        best = self.best_values.get(self.training.metric)
        return best is not None and math.isclose(value, best, abs_tol=1e-9)

    def metric_names(self) -> set[str]:
        """Return the names of the validation metrics."""
        return {"loss", "perplexity"}

    @check
    def _measures_its_metric(self) -> None:
        metric, available = self.training.metric, self.metric_names() | self.scored_metrics
        if metric not in available:
            missing = sorted(self.decoded_metrics - available)
            needed = f"; {' and '.join(missing)} need validation.decode" if missing else ""
            raise ValueError(
                f"training.metric={metric} is not measured by validation; available: "
                f"{', '.join(sorted(available))}{needed}"
            )
        known, given = self._known_direction, self.training.direction
        if known is None and given is None:
            raise ValueError(
                f"training.metric={metric}: its direction is not known; set training.direction to lower "
                "or higher"
            )
        if None not in (known, given) and known != given:
            raise ValueError(
                f"training.direction={given} contradicts training.metric={metric}, for which {known} is "
                "better; remove it (training.direction=null)"
            )

    @check
    def _balances_classes(self) -> None:
        if self.training.sampling == "shuffled":
            return
        if self.class_column is None:
            raise ValueError(
                f"training.sampling=balanced is not supported for {self.task.kind}, whose rows do not have "
                "one label each; remove it"
            )
        if getattr(self.objective, "class_weights", None) == "balanced":
            raise ValueError(
                "training.sampling=balanced and objective.class_weights=balanced both make rare labels count "
                "more; remove one of them"
            )

    @check
    def _leaves_the_warm_up_of_its_schedule(self) -> None:
        """Check before tokenising that the last update of the schedule comes after its warm-up.

        The number of updates of an epoch depends on the data.
        """
        only_epochs = self.training.max_epochs is not None and self.training.max_updates is None
        if isinstance(self.schedule, CosineConfig | LinearConfig) and not (
            only_epochs and ends_with_training(self.schedule)
        ):
            try:
                last_update(self.schedule, self.training.max_updates)
            except RequestError as error:
                raise ValueError(str(error)) from None

    @check
    def _trains_until_its_end(self) -> None:
        """Check that a decay does not reach zero before the end, nor patience the end before a reduction."""
        training, schedule = self.training, self.schedule
        last_update = training.max_updates if training.max_epochs is None else None
        if problem := ends_at_zero(schedule, last_update):
            raise ValueError(problem)
        if not isinstance(schedule, PlateauConfig) or training.patience is None:
            return
        if training.patience < (fewest := schedule.patience + 2):
            raise ValueError(
                f"training.patience={training.patience} ends the training before schedule.patience="
                f"{schedule.patience} has reduced the rate and a validation has shown its effect; set "
                f"training.patience to at least {fewest}"
            )

    @check
    def _leaves_the_warm_up_of_its_norm(self) -> None:
        """Check that the run is longer than the warm-up of power normalisation on batch statistics."""
        batches = self.batches_within_warm_up(self.training.max_updates)
        if batches is not None and self.norm_warmup is not None:
            key, warmup = self.norm_warmup
            raise ValueError(
                f"the warmup={warmup} of {key} is more than half of the run's {batches} "
                "batches, so power normalisation would be in warm-up for most of the run; set it to at most "
                f"{batches // 2}"
            )
