"""The heads on BERT's encoder that answer: which tensors they are, and the runs that they make.

| transformers | tensors | task |
|---|---|---|
| BertForSequenceClassification | ``classifier``, on the vector of the sequence | classification |
| the same with one label | the same, one row | regression |
| BertForTokenClassification | ``classifier``, on every token | tagging |
| BertForQuestionAnswering | ``qa_outputs`` | question-answering |
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from heedful.interop.checkpoint import Settings
from heedful.interop.encoders import labels_of, written_labels
from heedful.interop.names import Affine, Pair, linear, pair
from heedful.objectives.answering import ANSWER
from heedful.objectives.regression import VALUE
from heedful.objectives.tagging import TAG
from heedful.runs.question_answering.recipe import WindowsConfig
from heedful.runs.run import Run
from heedful.tasks.answering import PASSAGE, QUESTION, PassageCodec
from heedful.tasks.classification import LabelCodec
from heedful.tasks.labels import LABEL
from heedful.tasks.regression import NumberCodec
from heedful.tasks.tagging import TAGS, WORDS, TagCodec
from heedful.tasks.texts import text_columns
from heedful.text.tokenizer import Tokenizer

_CLASSIFIER, _ANSWERS = "classifier", "qa_outputs"

# Data sets of pairs (GLUE): whoever fine-tuned on one has often written its name down.
_PAIRS = {"mnli", "mrpc", "qnli", "qqp", "rte", "snli", "stsb", "sts-b", "wnli"}


@dataclass(frozen=True)
class Answers:
    """What a configuration says of a task.

    Args:
        task: the recipe's section.
        columns: of the data.
        codec: of the run.
        sections: others of the recipe.
    """

    task: dict[str, Any]
    columns: tuple[str, ...]
    codec: Any
    sections: dict[str, Any] = field(default_factory=dict)


class Head(Protocol):
    """One of the table above. Has no state."""

    task: ClassVar[str]
    """heedful's."""

    architecture: ClassVar[str]
    """The class of transformers that has this head."""

    pooled: ClassVar[bool]
    """Whether it stands on the vector of the sequence."""

    def lines(self, codec: Any) -> list[Pair]:
        """Its lines of the table of names."""
        ...

    def read(self, settings: Settings, tokenizer: Tokenizer) -> Answers:
        """What a configuration says.

        Raises:
            RequestError: it says something that heedful cannot express.
        """
        ...

    def write(self, run: Run) -> dict[str, Any]:
        """What config.json says of it."""
        ...


class Classes:
    """See `Head`."""

    task: ClassVar[str] = "classification"
    architecture: ClassVar[str] = "BertForSequenceClassification"
    pooled: ClassVar[bool] = True

    def lines(self, codec: LabelCodec) -> list[Pair]:
        """One matrix."""
        return linear("heads.class.1", _CLASSIFIER)

    def read(self, settings: Settings, tokenizer: Tokenizer) -> Answers:
        """Labels of texts, or of pairs."""
        labels, pairs = labels_of(settings), _reads_pairs(settings)
        task = {"kind": self.task, "pairs": pairs, "labels": list(labels)}
        return Answers(task, (*text_columns(pairs), LABEL), LabelCodec(tokenizer, labels))

    def write(self, run: Run) -> dict[str, Any]:
        """The labels."""
        return {**written_labels(run.codec.labels), **_own(pairs=run.recipe.task.pairs)}


class Numbers:
    """See `Head`. heedful's model makes standardised numbers, transformers' makes the numbers themselves."""

    task: ClassVar[str] = "regression"
    architecture: ClassVar[str] = "BertForSequenceClassification"
    pooled: ClassVar[bool] = True

    def lines(self, codec: NumberCodec) -> list[Pair]:
        """One row, in the unit of the labels."""
        weight, bias = Affine(codec.deviation), Affine(codec.deviation, codec.mean)
        ours = f"heads.{VALUE}.1"
        return [
            pair(f"{ours}.weight", f"{_CLASSIFIER}.weight", form=weight),
            pair(f"{ours}.bias", f"{_CLASSIFIER}.bias", form=bias),
        ]

    def read(self, settings: Settings, tokenizer: Tokenizer) -> Answers:
        """A number for texts, or for pairs."""
        pairs = _reads_pairs(settings)
        codec = NumberCodec(tokenizer, mean=0.0, deviation=1.0)
        return Answers({"kind": self.task, "pairs": pairs}, (*text_columns(pairs), LABEL), codec)

    def write(self, run: Run) -> dict[str, Any]:
        """One label, which has no meaning."""
        return {
            **written_labels(["LABEL_0"]),
            "problem_type": "regression",
            **_own(pairs=run.recipe.task.pairs),
        }


class Tags:
    """See `Head`."""

    task: ClassVar[str] = "tagging"
    architecture: ClassVar[str] = "BertForTokenClassification"
    pooled: ClassVar[bool] = False

    def lines(self, codec: TagCodec) -> list[Pair]:
        """One matrix."""
        return linear(f"heads.{TAG}.1", _CLASSIFIER)

    def read(self, settings: Settings, tokenizer: Tokenizer) -> Answers:
        """A tag for every word, told at its first token."""
        return Answers({"kind": self.task}, (WORDS, TAGS), TagCodec(tokenizer, labels_of(settings)))

    def write(self, run: Run) -> dict[str, Any]:
        """The tags."""
        return written_labels(run.codec.tags)


class Passages:
    """See `Head`."""

    task: ClassVar[str] = "question-answering"
    architecture: ClassVar[str] = "BertForQuestionAnswering"
    pooled: ClassVar[bool] = False

    def lines(self, codec: PassageCodec) -> list[Pair]:
        """Two rows: begins here, ends here."""
        return linear(f"heads.{ANSWER}.1", _ANSWERS)

    def read(self, settings: Settings, tokenizer: Tokenizer) -> Answers:
        """Whether there may be no answer, transformers has no key for."""
        task = {"kind": self.task, "unanswerable": bool(_told(settings).get("unanswerable"))}
        room = settings.whole("max_position_embeddings", 512) // 3
        windows = {"longest_question": max(1, min(WindowsConfig().longest_question, room))}
        codec = PassageCodec(tokenizer)
        return Answers(task, (QUESTION, PASSAGE, ANSWER), codec, {"windows": windows})

    def write(self, run: Run) -> dict[str, Any]:
        """Whether there may be no answer."""
        return _own(unanswerable=run.recipe.task.unanswerable)


HEADS: dict[str, Head] = {head.task: head for head in (Classes(), Numbers(), Tags(), Passages())}
"""All, by their tasks."""


def head_of(settings: Settings, held: Collection[str]) -> Head | None:
    """The head of a folder; None for a model of hidden tokens.

    A ``classifier`` stands on the vector of the sequence where there is a layer for it; of old, models of
    single tokens had that layer too, so the architecture counts where it is told.
    """
    if any(name.startswith(f"{_ANSWERS}.") for name in held):
        return HEADS[Passages.task]
    if not any(name.startswith(f"{_CLASSIFIER}.") for name in held):
        return None
    told = settings.get("architectures", list, [])
    pooled = any(name.startswith(("bert.pooler.", "pooler.")) for name in held)
    if Tags.architecture in told or not (pooled or Classes.architecture in told):
        return HEADS[Tags.task]
    is_number = settings.get("problem_type", str) == "regression" or len(_labels(settings)) == 1
    return HEADS[Numbers.task if is_number else Classes.task]


def _labels(settings: Settings) -> Mapping[str, Any]:
    found: Mapping[str, Any] = settings.get("id2label", dict, {})
    return found


def _own(**facts: bool) -> dict[str, Any]:
    """What transformers has no key for."""
    return {"task_specific_params": {"heedful": facts}}


def _told(settings: Settings) -> Mapping[str, Any]:
    found = settings.get("task_specific_params", dict, {}).get("heedful", {})
    return found if isinstance(found, dict) else {}


def _reads_pairs(settings: Settings) -> bool:
    """Whether inputs are pairs, as far as the configuration tells."""
    name = settings.get("finetuning_task", str, "")
    return bool(_told(settings).get("pairs")) or name.lower() in _PAIRS
