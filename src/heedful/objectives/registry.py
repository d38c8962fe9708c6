"""Registry of the losses available in recipes (``objective.loss``); add a loss by adding a line here.

Each is built from the section ``objective`` of the recipe:

| table | prediction | terms |
|---|---|---|
| `NEXT_TOKEN` | the next token | ``token``, ``nll`` |
| `MASKED_TOKEN` | masked tokens | ``token``, ``nll`` |
| `CLASS` | the class of a sequence | ``class``, ``correct`` |
| `TAG` | the tag of a word | ``tag``, ``correct`` |
| `NUMBER` | the number of a sequence | ``value`` |
| `ANSWER` | start and end of the answer | ``answer``, ``correct`` |
| `PIXEL` | the class of a pixel | ``pixel``, ``correct`` |
| `CONTRAST` | the similarity of texts | ``contrast``, ``correct`` |
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from heedful.objectives.classification import AnswerSpan, SequenceClass, TokenClass
from heedful.objectives.contrastive import InfoNCE
from heedful.objectives.cross_entropy import MaskedToken, NextToken
from heedful.objectives.regression import Huber, NumberError
from heedful.objectives.segmentation import PixelClass
from heedful.objectives.terms import Objective

Losses = Mapping[str, Callable[[Any], Objective]]

NEXT_TOKEN: Losses = {"cross-entropy": lambda c: NextToken(c.label_smoothing, c.chunk)}
MASKED_TOKEN: Losses = {"cross-entropy": lambda c: MaskedToken(c.chunk)}
CLASS: Losses = {"cross-entropy": lambda c: SequenceClass(c.label_smoothing)}
TAG: Losses = {"cross-entropy": lambda c: TokenClass(c.label_smoothing)}
NUMBER: Losses = {
    "squared-error": lambda c: NumberError(torch.square),
    "absolute-error": lambda c: NumberError(torch.abs),
    "huber": lambda c: NumberError(Huber(c.huber_delta)),
}
ANSWER: Losses = {"cross-entropy": lambda c: AnswerSpan()}
PIXEL: Losses = {"cross-entropy": lambda c: PixelClass(c.label_smoothing)}
CONTRAST: Losses = {"info-nce": lambda c: InfoNCE(c.temperature, c.symmetric)}
