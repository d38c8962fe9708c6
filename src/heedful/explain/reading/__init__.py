"""An input as a model reads it, what the run answered, and what the model says of that answer.

Whatever the task, an explanation needs three things, and a `ModelInput` is all of them: the batch of the one
input, the sides that stand along the axes, and the `Questions` that were answered at some of its places
(which token comes next, which class it is, where the answer begins).

| task | sides | questions |
|---|---|---|
| translation, summarisation | source, target, prefix | every token of the target, and its end |
| the same by a language model | input: ``<s> x <sep> y </s>`` | every token of y, and the end |
| language modelling | input: prompt and completion | every token but the first; the prompt's are *given* |
| masked language modelling, of pairs too | input: ``<cls> a <sep> b <sep>`` | what stands in each gap |
| classification, of pairs too | input: ``<cls> a <sep> b <sep>`` | the class |
| the same by a language model | input: ``</s> a </s> b </s>`` | the class |
| regression | as of classes | the number (no probability) |
| tagging | input: ``<cls> x <sep>`` | the tag of each word, at its first token |
| question answering | input: ``<cls> a <sep> b <sep>`` | the answer's first and last token |
| image classification | input: patches | the class |
| captioning | source: patches, target, prefix | every token of the caption, and its end |
"""

from heedful.explain.reading.questions import ITS_BEST, AnswerOptions, ModelInput, Questions
from heedful.explain.reading.readers import READERS, read
from heedful.explain.reading.shared import GIVEN

__all__ = ["GIVEN", "ITS_BEST", "READERS", "AnswerOptions", "ModelInput", "Questions", "read"]
