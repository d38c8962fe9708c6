"""The heads on BERT's encoder that answer: which tensors they are, and the runs that they make.

| transformers | tensors | task |
|---|---|---|
| BertForSequenceClassification | ``classifier``, on the vector of the sequence | classification |
| the same with one label | the same, one row | regression |
| BertForTokenClassification | ``classifier``, on every token | tagging |
| BertForQuestionAnswering | ``qa_outputs`` | question-answering |
"""

from collections.abc import Collection

from heedful.interop.checkpoint import Settings
from heedful.interop.heads import Classes, Head, Numbers, Passages, Tags, class_lines, number_lines, of_texts
from heedful.interop.names import linear
from heedful.objectives.answering import ANSWER
from heedful.objectives.tagging import TAG

_CLASSIFIER, _ANSWERS = "classifier", "qa_outputs"

_OF_TEXTS = "BertForSequenceClassification"

_TAGS = Tags("BertForTokenClassification", lambda processor: linear(f"heads.{TAG}.1", _CLASSIFIER))

HEADS: dict[str, Head] = {
    head.task: head
    for head in (
        Classes(_OF_TEXTS, class_lines(_CLASSIFIER)),
        Numbers(_OF_TEXTS, number_lines(_CLASSIFIER)),
        _TAGS,
        Passages("BertForQuestionAnswering", lambda processor: linear(f"heads.{ANSWER}.1", _ANSWERS)),
    )
}
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
    if _TAGS.architecture in told or not (pooled or _OF_TEXTS in told):
        return HEADS[Tags.task]
    return HEADS[of_texts(settings)]
