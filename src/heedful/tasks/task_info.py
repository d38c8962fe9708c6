"""Facts about tasks that commands need: words for messages, supported options, and columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from heedful import limits
from heedful.tasks.prediction import TaskInput
from heedful.typing import JsonMapping


@dataclass(frozen=True)
class TaskInfo:
    """Facts about a task that hold for all its recipes.

    Args:
        unit: plural noun for what a data set contains: "sentences".
        evaluation_verb: verb for progress messages of an evaluation: "translating".
        memory_advice: if memory runs out, how to get shorter sequences.
        options: names of the fields of `PredictOptions` that the task supports.
        predicts_numbers: whether predictions are numbers, which have no probability.
        predicts_images: whether predictions are images (`Prediction.image_file`), which may be written.
        writes: whether an answer is a text that the model generates; a target to explain is one too.
        generates: whether it is evaluated on generated text, which depends on the decoding.
        unlimited_length: whether models may have no maximum length, so that only ``data.filter`` limits rows.
        windows: whether it is evaluated in windows that may overlap (``--stride``).
        fitting_message: progress message while the processor is fitted.
        encoding_message: progress message while rows are encoded.
    """

    unit: str
    evaluation_verb: str
    memory_advice: str
    options: tuple[str, ...] = ()
    predicts_numbers: bool = False
    predicts_images: bool = False
    generates: bool = False
    writes: bool = False
    unlimited_length: bool = False
    windows: bool = False
    fitting_message: str = "training the tokenizer"
    encoding_message: str = "tokenising the data"


@dataclass(frozen=True)
class Columns:
    """The columns of a task's rows.

    Args:
        required: columns that every row must have; ids are stored under the same names.
        inputs: keys of an input in JSON lines; most tasks have one.
        optional_inputs: further keys that an input may have.
        training: required in training rows only; not used in evaluation.
        extra: columns that only some recipes of the task use.
        list_valued: columns that may have a list instead of a text. Lists in other columns are joined with
            spaces.
        single_valued: columns with exactly one value; a longer list is an error.
        images: columns of images; a path in them is opened.
        numeric: columns of numbers, which are not classes.
        input_lists: whether an input may also be a list of words.
        trained_as: the column of the training data that an input is, if it has another name there.
        running_text: whether texts are documents, which are read in pieces and may be longer than
            `heedful.limits.LONGEST_TEXT`.
    """

    required: tuple[str, ...]
    inputs: tuple[str, ...]
    optional_inputs: tuple[str, ...] = ()
    training: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    list_valued: tuple[str, ...] = ()
    single_valued: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    input_lists: bool = False
    trained_as: Mapping[str, str] = field(default_factory=dict)
    running_text: bool = False

    @property
    def longest_text(self) -> int:
        """The most characters of a text, before it is normalised or tokenised."""
        return limits.LONGEST_DOCUMENT if self.running_text else limits.LONGEST_TEXT

    @property
    def names(self) -> tuple[str, ...]:
        """All columns that rows may have."""
        return tuple(dict.fromkeys((*self.required, *self.list_valued, *self.extra)))

    def input_of(self, row: JsonMapping) -> TaskInput:
        """Return the input of a row, as `Predictor.predict` takes it: one value, or a tuple of several."""
        keys = (*self.inputs, *(key for key in self.optional_inputs if key in row))
        return row[keys[0]] if len(keys) == 1 else tuple(row[key] for key in keys)


def reads(task: str, columns: Sequence[str]) -> str:
    """Return which columns a task reads, for messages."""
    *others, last = columns
    return f"the task {task} reads {', '.join(others) + ' and ' if others else ''}{last}"
