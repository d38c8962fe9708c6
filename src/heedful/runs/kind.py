"""What runs of one task do in their own way; everything else about a run is the same for all.

recipe -> processor, token ids      `Kind.learn`, `Kind.encode`            by `heedful.runs.prepare`
       -> batches, loss         `Kind.feed`, `Kind.objective` …        by `heedful.runs.train`
run    -> predictions           `Kind.predictor`                       by `heedful.runs.run`
       -> scores                `Kind.scored`                          by `heedful.runs.evaluate`
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from torch import nn

from heedful.artifacts.run_folder import RunFolder
from heedful.data.batch import Batch
from heedful.data.report import DataReport, Encoded, Longest
from heedful.data.sources import LocatedRow, Row, SourceConfig
from heedful.data.store import TokenStore
from heedful.engine.choosing import Inference
from heedful.models.registry import build_model
from heedful.objectives.terms import AuxiliaryLoss, Objective
from heedful.recipes.schema import Recipe
from heedful.recipes.trees import Tree
from heedful.runs.warm_start import MappedWeights, MapWeights
from heedful.tasks.metrics.score import Score
from heedful.tasks.prediction import Prediction
from heedful.training.feed import PlannedData
from heedful.training.loop import Validate
from heedful.training.step import Step

Log = Callable[[str], None]
Rows = Callable[[], Iterator[LocatedRow[Row]]]
"""Opens the training rows, from the first on; may be called several times."""


@runtime_checkable
class Processor(Protocol):
    """What a run learns from its training rows before it has a model: its tokenizers, or labels."""

    @property
    def fingerprint(self) -> str:
        """Differs where anything is encoded differently."""
        ...

    @property
    def sizes(self) -> tuple[int, ...]:
        """What `Kind.model` must know: the sizes of the vocabularies, and of the set of labels."""
        ...


@dataclass(frozen=True)
class Prepared:
    """What a training reads.

    Args:
        processor: makes ids of rows.
        train, valid: the ids.
        valid_rows: the rows of ``valid`` themselves, where the kind keeps them.
        longest: of the training rows, where they were encoded now.
    """

    processor: Any
    train: TokenStore
    valid: TokenStore
    valid_rows: list[Row]
    longest: Longest | None = None


class Predictor(Protocol):
    """Answers inputs: one prediction for each, in their order."""

    def predict(
        self,
        texts: Sequence[Any],
        *,
        alignment: bool = False,
        first: int = 0,
        progress: Callable[[int], None] = lambda n: None,
    ) -> list[Prediction]:
        """See `heedful.runs.run.Run.predict`."""
        ...


OwnData = Literal["data", "text", "table", "folder"]
"""A form of a user's own data set: two aligned files, text, a table, a folder of images."""


class Trained(Protocol):
    """A run, as far as its kind asks it while it is scored (`heedful.runs.run.Run`)."""

    recipe: Any
    processor: Any
    model: Any

    @property
    def kind(self) -> "Kind":
        """The kind itself, or one that builds on it."""
        ...

    def predict(
        self,
        texts: Iterable[Any],
        *,
        decoding: Any = None,
        progress: Callable[[int], None] = lambda n: None,
        precision: str = "auto",
    ) -> list[Prediction]:
        """The run's task on each input, in order."""
        ...


@dataclass(frozen=True)
class Evaluation:
    """What came out for one data set.

    Args:
        split: its name.
        scores: with their signatures and counts.
        notes: what was out of the ordinary in the data.
    """

    split: str
    scores: list[Score]
    notes: Sequence[str] = field(default=(), kw_only=True)

    def to_dict(self) -> dict[str, Any]:
        """As ``docs/schemas/evaluation.schema.json`` has it, one entry of ``splits``."""
        noted = {"notes": list(self.notes)} if self.notes else {}
        return {"split": self.split, "scores": [score.to_dict() for score in self.scores], **noted}

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """One record for each thing that was scored, with its own scores."""
        return iter(())


@dataclass(frozen=True)
class Scoring:
    """How a data set is to be scored.

    Args:
        decoding: another than the recipe's, or None.
        limit: only so many rows, or None.
        stride: how far windows move on, where the kind has windows, or None.
        progress: called with the number of rows just done.
        precision: of the weights while decoding (`heedful.engine.choosing`).
    """

    decoding: Any = None
    limit: int | None = None
    stride: int | None = None
    progress: Callable[[int], None] = lambda n: None
    precision: str = "auto"


class Kind(ABC):
    """A task, as far as its runs differ from those of others. Has no state: everything is an argument."""

    recipe: ClassVar[type[Recipe]]
    """The schema of its recipes."""

    unit: ClassVar[str]
    """What is counted in its data sets, in the plural."""

    scoring: ClassVar[str]
    """What it does when it is scored: "translating"."""

    scored_by_writing: ClassVar[bool]
    """Whether the scores are of what it writes, and so depend on how it is decoded."""

    shorter: ClassVar[str]
    """What a user can do to get shorter sequences."""

    whole_rows: ClassVar[bool] = False
    """Whether a sequence is as long as its row: nothing but ``data.filter`` limits it."""

    own_data: ClassVar[tuple[OwnData, ...]]
    """In which forms it is scored on a user's own data set."""

    learning: ClassVar[str] = "training the tokenizer"
    """What one waits for while `learn` works."""

    encoding: ClassVar[str] = "tokenising the data"
    """What one waits for while `encode` works."""

    options: ClassVar[tuple[str, ...]] = ()
    """What its `predictor` takes besides the decoding."""

    reads_words: ClassVar[bool] = False
    """Whether an input in JSON lines may also be a list of words."""

    listed: ClassVar[tuple[str, ...]] = ()
    """Columns whose rows may hold a list as well as a text: of any other, a list is one text, with blanks."""

    single: ClassVar[tuple[str, ...]] = ()
    """Columns that hold one thing, of which a list is refused."""

    besides: ClassVar[tuple[str, ...]] = ()
    """Columns that some of its recipes read, and others need not have."""

    strides: ClassVar[bool] = False
    """Whether it is scored in windows, which may slide."""

    @abstractmethod
    def columns(self, recipe: Any) -> tuple[str, ...]:
        """What every row of its data must have; ids are kept under the same names."""

    @abstractmethod
    def inputs(self, recipe: Any) -> tuple[str, ...]:
        """What the texts of an input are called in JSON lines: most tasks have one."""

    def optional(self, recipe: Any) -> tuple[str, ...]:
        """What texts are called that may stand beside an input, and need not."""
        return ()

    def input_of(self, recipe: Any, row: Mapping[str, Any]) -> Any:
        """What `Predictor.predict` takes of a row: the input, or those that belong together."""
        keys = (*self.inputs(recipe), *(key for key in self.optional(recipe) if key in row))
        return row[keys[0]] if len(keys) == 1 else tuple(row[key] for key in keys)

    def training_columns(self, recipe: Any) -> tuple[str, ...]:
        """What every row of the training data must have besides: what is learned from, and never measured."""
        return ()

    def known_columns(self, recipe: Any) -> tuple[str, ...]:
        """All that its data may have: what every row must have, and what is read where it is there."""
        return tuple(dict.fromkeys((*self.columns(recipe), *self.listed, *self.besides)))

    def images(self, recipe: Any) -> tuple[str, ...]:
        """Which of the columns hold images: a path in their place is opened."""
        return ()

    # What is learned before the model ---------------------------------------------------------------------

    @abstractmethod
    def files(self, folder: RunFolder) -> list[Path]:
        """Where the processor is kept, besides recipe and weights; the last is written last."""

    @abstractmethod
    def learn(self, recipe: Any, rows: Rows) -> Processor:
        """Make the processor from the training rows."""

    def taken_over(self, tokenizer: Tree) -> Tree:
        """The section ``tokenizer`` of a run to start from, as recipes of this task write it."""
        return tokenizer

    adopts: ClassVar[tuple[str, ...]] = ()
    """Kinds of models that its own can begin with, besides those of its recipes."""

    def adopted(self, model: Tree) -> Tree:
        """The section ``model`` of a run to start from, as recipes of this task write it.

        Raises:
            ValueError: it is of one of `adopts`, but has parts that there is no place for.
        """
        return model

    def adopting(self, recipe: Any) -> MapWeights:
        """What makes the weights of the run that the recipe starts from those of its own model."""
        return MappedWeights

    @abstractmethod
    def save(self, processor: Any, folder: RunFolder) -> None:
        """Write the processor to `files`."""

    @abstractmethod
    def load(self, folder: RunFolder) -> Any:
        """Read what `save` wrote."""

    # Data -------------------------------------------------------------------------------------------------

    @abstractmethod
    def report(self, processor: Any) -> DataReport:
        """An empty report, for `encode` to fill."""

    @abstractmethod
    def encode(
        self, recipe: Any, processor: Any, rows: Iterable[LocatedRow[Row]], report: DataReport
    ) -> Iterator[Encoded]:
        """The ids of the rows that are kept."""

    def n_ids(self, recipe: Any, processor: Any) -> int | Mapping[str, int]:
        """One more than the greatest id, of all columns or by column."""
        return max(processor.sizes)

    def keeps_rows(self, recipe: Any) -> bool:
        """Whether validation reads the text of its rows, and not their ids alone."""
        return False

    def require(self, recipe: Any) -> None:  # noqa: B027 (most need nothing)
        """Check that this machine has what validations need, before a training begins.

        Raises:
            RequestError: a package is missing.
        """

    def notes(self, recipe: Any, prepared: Prepared) -> Sequence[str]:
        """What the user should know of the data, before a training begins."""
        return ()

    # The model --------------------------------------------------------------------------------------------

    def sizes(self, recipe: Any, vocabularies: Sequence[int]) -> tuple[int, ...]:
        """What `Processor.sizes` will be, as far as that is known before there are data."""
        return tuple(vocabularies)

    def model(self, recipe: Any, sizes: Sequence[int]) -> nn.Module:
        """The freshly initialised model, with the heads that the task needs.

        Raises:
            ValueError: the sizes do not suit the configuration.
        """
        return build_model(recipe.model, *sizes)

    # Training ---------------------------------------------------------------------------------------------

    @abstractmethod
    def objective(self, recipe: Any) -> Objective:
        """What is minimised."""

    def inside(self, recipe: Any, model: Any) -> Sequence[AuxiliaryLoss]:
        """What adds further terms to the loss, of what happens inside the model.

        Raises:
            ValueError: the model has nothing of the kind.
        """
        return ()

    def begin(self, recipe: Any, processor: Any, model: Any, log: Log) -> None:  # noqa: B027 (most do nothing)
        """Change the first weights of the model, where the recipe says so."""

    @abstractmethod
    def feed(self, recipe: Any, prepared: Prepared) -> PlannedData:
        """Batches of the training data."""

    @abstractmethod
    def validator(self, recipe: Any, prepared: Prepared, step: Step) -> Validate:
        """Measures a model on the validation data."""

    @abstractmethod
    def example(self, recipe: Any, sizes: Sequence[int], n: int, length: int, source_length: int) -> Batch:
        """A batch of ``n`` made-up sequences, as `feed` would give them: for timing, before there is data.

        Args:
            recipe: of the run.
            sizes: of the processor.
            n: how many.
            length: tokens of each, about, where the recipe does not say.
            source_length: likewise, of sources, where there are some.
        """

    # Use --------------------------------------------------------------------------------------------------

    @abstractmethod
    def predictor(
        self, recipe: Any, processor: Any, model: Any, decoding: Any, inference: Inference, **options: Any
    ) -> Predictor:
        """What answers inputs, with the model as ``inference`` makes it ready.

        ``options`` are some of `options`, those that are not None.
        """

    @abstractmethod
    def source_of(self, recipe: Any, files: Sequence[Path]) -> SourceConfig:
        """A user's own files as a data set to score.

        Raises:
            RequestError: they are too few or too many.
        """

    @abstractmethod
    def scored(self, run: "Trained", split: str, rows: Iterator[LocatedRow[Row]], how: Scoring) -> Evaluation:
        """Score the run on rows."""
