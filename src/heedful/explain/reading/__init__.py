"""Prepare the input of a model, the answer of the run, and the questions that the answer responds to.

An explanation of any task needs three things, which form a `ModelInput`: the batch with the one input, the
sides (the axes of the attention maps), and the `Questions` that the model answers at some positions (which
token comes next, which class it is, where the answer starts).

| task | sides | questions |
|---|---|---|
| translation, summarisation | source, target, prefix | every target token, and the end token |
| the same with a language model | input: ``<s> x <sep> y </s>`` | every token of y, and the end token |
| language modelling | input: prompt and completion | every token but the first; the prompt's are *given* |
| masked language modelling, also of pairs | input: ``<cls> a <sep> b <sep>`` | the token at each mask |
| classification, also of pairs | input: ``<cls> a <sep> b <sep>`` | the class |
| the same with a language model | input: ``</s> a </s> b </s>`` | the class |
| regression | as in classification | the value (no probability) |
| tagging | input: ``<cls> x <sep>`` | the tag of each word, at its first token |
| question answering | input: ``<cls> a <sep> b <sep>`` | the first and last token of the answer |
| image classification | input: patches | the class |
| captioning | source: patches, target, prefix | every token of the caption, and the end token |
"""

from heedful.explain.reading.questions import ITS_BEST, AnswerOptions, ModelInput, Questions
from heedful.explain.reading.readers import READERS, read
from heedful.explain.reading.shared import GIVEN

__all__ = ["GIVEN", "ITS_BEST", "READERS", "AnswerOptions", "ModelInput", "Questions", "read"]
