"""Task heads of BERT: their transformers classes, tensors and tasks.

| transformers | tensors | task |
|---|---|---|
| BertForSequenceClassification | ``classifier``, on the pooled vector | classification |
| the same with one label | the same, one row | regression |
| BertForTokenClassification | ``classifier``, on every token | tagging |
| BertForQuestionAnswering | ``qa_outputs`` | question-answering |
"""

from collections.abc import Collection

from heedful.interop.checkpoint import Settings
from heedful.interop.heads import Classes, Head, Numbers, Passages, Tags, class_lines, number_lines, of_texts
from heedful.interop.names import linear
from heedful.objectives.classification import ANSWER, TAG

_CLASSIFIER, _ANSWERS = "classifier", "qa_outputs"

_SEQUENCE = "BertForSequenceClassification"

_TAGS = Tags("BertForTokenClassification", lambda processor: linear(f"heads.{TAG}.1", _CLASSIFIER))

HEADS: dict[str, Head] = {
    head.task: head
    for head in (
        Classes(_SEQUENCE, class_lines(_CLASSIFIER)),
        Numbers(_SEQUENCE, number_lines(_CLASSIFIER)),
        _TAGS,
        Passages("BertForQuestionAnswering", lambda processor: linear(f"heads.{ANSWER}.1", _ANSWERS)),
    )
}
"""Heads by task."""


def head_of(settings: Settings, held: Collection[str]) -> Head | None:
    """Return the task head of a folder; None for a masked language model.

    A ``classifier`` reads the pooled vector if there is a pooler; since old models for token classification
    have a pooler too, ``architectures`` takes precedence.
    """
    if any(name.startswith(f"{_ANSWERS}.") for name in held):
        return HEADS[Passages.task]
    if not any(name.startswith(f"{_CLASSIFIER}.") for name in held):
        return None
    architectures = settings.get("architectures", list, [])
    pooled = any(name.startswith(("bert.pooler.", "pooler.")) for name in held)
    if _TAGS.architecture in architectures or not (pooled or _SEQUENCE in architectures):
        return HEADS[Tags.task]
    return HEADS[of_texts(settings)]
