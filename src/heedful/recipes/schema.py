"""The schema that recipes of all tasks share: everything a run is made from. Blocks never see any of it.

Each task has a class of its own that says more (`heedful.tasks`).
"""

from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator, model_validator

from heedful.config import Config
from heedful.data.lines import expand
from heedful.data.sources import SourceConfig
from heedful.errors import RequestError, nearest
from heedful.objectives.registry import CLASS, NEXT_TOKEN, Losses
from heedful.objectives.terms import Objective
from heedful.text.configuration import PreprocessingConfig, TokenizerConfig
from heedful.training.optimizers import AdamConfig, OptimizerConfig
from heedful.training.schedules import (
    CosineConfig,
    InverseSqrtConfig,
    LinearConfig,
    ScheduleConfig,
    last_update,
)
from heedful.training.settings import TrainingConfig


class DataConfig(Config):
    """Where the rows come from.

    Args:
        train: what is learned from.
        valid: what is measured on the way.
        test: any number of sets by name; ``evaluate`` takes one or all. ``null`` takes away one that the
            recipe below has (``data.test.NAME=null``), or all of them.
    """

    train: SourceConfig
    valid: SourceConfig
    test: dict[str, SourceConfig] = Field(default_factory=dict)

    @field_validator("test", mode="before")
    @classmethod
    def _taken_away(cls, test: Any) -> Any:
        if test is None:
            return {}
        if not isinstance(test, dict):
            return test
        return {name: source for name, source in test.items() if source is not None}


class ObjectiveConfig(Config):
    """What is minimised; each task says of what.

    Args:
        loss: by its name in `heedful.objectives.registry`; there is ``cross-entropy``.
        chunk: tokens whose logits exist at one time.
    """

    losses: ClassVar[Losses] = {}
    """What ``loss`` may name."""

    loss: str = "cross-entropy"
    chunk: PositiveInt = 1024

    @field_validator("loss")
    @classmethod
    def _known(cls, loss: str) -> str:
        if loss not in cls.losses:
            known = ", ".join(cls.losses)
            raise ValueError(f"no loss is called {loss!r}{nearest(loss, cls.losses)}; there are {known}")
        return loss

    def make(self) -> Objective:
        """The objective that these settings describe."""
        return self.losses[self.loss](self)


class TokenObjectiveConfig(ObjectiveConfig):
    """What is minimised of the next token.

    Args:
        label_smoothing: of cross-entropy.
    """

    losses: ClassVar[Losses] = NEXT_TOKEN

    label_smoothing: float = Field(default=0.1, ge=0, lt=1)


class ClassObjectiveConfig(ObjectiveConfig):
    """What is minimised of the class of a sequence or image; ``chunk`` is not used.

    Args:
        label_smoothing: of cross-entropy.
    """

    losses: ClassVar[Losses] = CLASS

    label_smoothing: float = Field(default=0.0, ge=0, lt=1)


class Expected(Config):
    """What a shipped recipe reaches, as measured.

    Args:
        scores: metric to value, on the split that ``note`` names.
        minutes: of training, as measured; ``note`` says on what.
        parameters: of the model, with the vocabulary that its data give.
        note: how it was measured, or why nothing stands here.
    """

    scores: dict[str, float] = Field(default_factory=dict)
    minutes: PositiveFloat | None = None
    parameters: PositiveInt | None = None
    note: str = ""


class Tokenization(Config):
    """Of tasks with one kind of text: the subword model, and what is done to the text before it.

    Args:
        subwords: which model, and how large.
        text: lower-casing, Moses tokenisation, normalisation.
    """

    subwords: TokenizerConfig
    text: PreprocessingConfig = PreprocessingConfig()


ALWAYS: Literal["always"] = "always"


class VectorsConfig(Config):
    """Word vectors from elsewhere.

    Args:
        frozen: for how many of the first updates the tables with vectors are not trained, or ``always``.
            Words without a vector, and an output layer that shares the table, are not trained either.
    """

    frozen: NonNegativeInt | Literal["always"] = 0

    @model_validator(mode="after")
    def _freezes_vectors(self) -> Self:
        if self.frozen != 0 and all(value is None for key, value in self if key != "frozen"):
            raise ValueError(f"frozen={self.frozen} needs a file of vectors")
        return self


class TextVectorsConfig(VectorsConfig):
    """Word vectors (word2vec text or binary, or GloVe) that fill rows of the embedding at the start.

    Words are filled that one token alone spells: with tokens that are words (``subwords: {kind: word}``), all
    that the file has. The model reads vectors at their own size; if the output layer shares the table
    (language models), this needs ``model.scale_embedding=true``. Other words begin as without vectors.

    Args:
        text: the file; null: none. Its vectors are as wide as the model (``d_model``).
    """

    text: str | None = None


class StartConfig(Config):
    """Another run whose tokenizers and weights this one begins with.

    Its sections ``model`` and ``tokenizer`` (where it has one) lie below those of the recipe, which may
    leave them out. Heads that it lacks are newly initialised.

    Args:
        run: its folder.
        frozen: what is not trained: nothing, the ``embedding`` tables, the ``body``, all but the heads, or of
            an encoder-decoder the ``encoder``, with its embedding.
        layer_share: each block learns at this share of the rate of the block above it, the embeddings at
            that share of the lowest block's (Howard and Ruder 2018, section 3.2: 1 / 2.6); 1: all alike.
    """

    run: str
    frozen: Literal["none", "embedding", "body", "encoder"] = "none"
    layer_share: float = Field(default=1.0, gt=0, le=1)


class Recipe(Config):
    """What recipes of all tasks have.

    Args:
        description: what the recipe is for, in a sentence.
        root: where relative paths begin; null: at the folder of the recipe's file, or, of a shipped
            recipe, at the current folder; the run keeps it.
        task: what is done; it decides which other sections there are.
        data: where rows come from, and what becomes of those that cannot be used.
        tokenizer: of tasks with texts: which subwords, and what is done to the text before.
        model: the family, its sizes and its parts; ``preset`` names one to begin with (``heedful describe``).
        objective: what is minimised.
        start: another run to begin from; null: none.
        optimizer: how gradients become updates.
        schedule: how the learning rate rises and falls.
        training: how long, how much at a time, and what is kept.
        validation: what is measured on the way.
        decoding: how answers are searched for or drawn.
        evaluation: how ``evaluate`` scores.
        expected: of a shipped recipe, what it reached.
    """

    description: str = ""
    root: str | None = None
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

    decoded_metrics: ClassVar[frozenset[str]] = frozenset()
    """Metrics of validation that depend on how it decodes; they improve upwards."""

    rising_metrics: ClassVar[frozenset[str]] = frozenset()
    """Other metrics of validation that improve upwards."""

    @property
    def folder(self) -> Path:
        """Where its relative paths start."""
        return Path(self.root or ".")

    def path(self, written: str) -> Path:
        """The file or folder that it calls ``written``.

        Raises:
            DataError: the path names a variable that is not set.
        """
        return self.folder / expand(written)

    def batches_within_warm_up(self, updates: int | None) -> int | None:
        """The batches of so many updates, where power normalisation hardly leaves its warm-up in them.

        None where it does, or where no norm of the model warms up.
        """
        norms = (getattr(self.model, name, None) for name in ("norm", "decoder_norm"))
        if updates is None or "power" not in norms:
            return None
        batches = updates * self.training.accumulate
        return batches if 2 * self.model.norm_warmup > batches else None

    def metrics(self) -> set[str]:
        """What validation measures."""
        return {"loss", "perplexity"}

    @model_validator(mode="after")
    def _measures_its_metric(self) -> "Recipe":
        metric, known = self.training.metric, self.metrics()
        if metric not in known:
            missing = sorted(self.decoded_metrics - known)
            needed = f"; {' and '.join(missing)} need validation.decode" if missing else ""
            raise ValueError(
                f"training.metric={metric} is not measured by validation, which gives "
                f"{', '.join(sorted(known))}{needed}"
            )
        if metric in self.decoded_metrics | self.rising_metrics and self.training.direction != "higher":
            raise ValueError(f"training.metric={metric} improves upwards: set training.direction=higher")
        return self

    @model_validator(mode="after")
    def _leaves_the_warm_up_of_its_schedule(self) -> "Recipe":
        """A rate that falls to an end needs one beyond the warm-up; found now, not when all is tokenised."""
        if isinstance(self.schedule, CosineConfig | LinearConfig):
            try:
                last_update(self.schedule, self.training.max_updates)
            except RequestError as error:
                raise ValueError(str(error)) from None
        return self

    @model_validator(mode="after")
    def _leaves_the_warm_up_of_its_norm(self) -> "Recipe":
        """Power normalisation warms up on the batch's own statistics; a run must outlast that."""
        batches = self.batches_within_warm_up(self.training.max_updates)
        if batches is not None:
            raise ValueError(
                f"model.norm_warmup={self.model.norm_warmup} is more than half of the run's {batches} "
                "batches: power normalisation would hardly leave its warm-up; set it to at most "
                f"{batches // 2}"
            )
        return self
