"""Inputs of classification and regression: a text, a pair of texts, or an image."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from heedful.data.batch import Batch
from heedful.data.images import LazyImage
from heedful.errors import RequestError, nearest
from heedful.explain.attention_sites import INPUT
from heedful.explain.reading.questions import AnswerOptions, ModelInput, Questions
from heedful.explain.reading.shared import ids_in, predicted, refuse_empty, refuse_target, texts_of
from heedful.explain.sides import patches_side, text_side
from heedful.explain.view import Axis
from heedful.nn.patches import Images
from heedful.objectives.classification import class_logits
from heedful.objectives.regression import values
from heedful.tasks.prediction import Prediction
from heedful.tasks.texts import fitted

if TYPE_CHECKING:
    from heedful.runs.run import Run


def read_class(run: "Run", given: Any, asked: AnswerOptions) -> ModelInput:
    """Prepare a text or pair of texts; the target may be a label other than the predicted one."""
    batch, sides = _framed(run, given)
    answer = predicted(run, given, asked)
    return ModelInput(batch, sides, answer, _class_of(run, batch, answer, asked))


def read_image(run: "Run", given: Any, asked: AnswerOptions) -> ModelInput:
    """Prepare an image; its tokens are the patches of the model."""
    model = run.recipe.model
    pixels = run.processor.reader.pixels(LazyImage.of(given))
    answer = predicted(run, given, asked)
    images = Images.of(run.processor.reader.normalised(np.stack([pixels])), model.n_tokens)
    batch = Batch.of_images(images, [0])
    before = model.n_tokens - int(np.prod(model.grid))
    sides = {INPUT: patches_side(model.grid, before, pixels)}
    return ModelInput(batch, sides, answer, _class_of(run, batch, answer, asked))


def read_number(run: "Run", given: Any, asked: AnswerOptions) -> ModelInput:
    """Prepare a text or pair of texts for regression."""
    refuse_target(run, asked, "the answer is a number")
    batch, sides = _framed(run, given)
    answer, processor = predicted(run, given, asked), run.processor
    heads, layout = run.model.heads, batch.inputs.layout
    questions = Questions(
        INPUT,
        (),
        torch.zeros(1, dtype=torch.int64),
        lambda hidden: iter([]),
        lambda i, number: answer.text,
        numbers=lambda hidden: (
            processor.mean + processor.deviation * values(hidden, heads, layout.to(hidden.device))
        ),
    )
    return ModelInput(batch, sides, answer, questions)


def _framed(run: "Run", given: Any) -> tuple[Batch, dict[str, Axis]]:
    """Encode a text or pair as in training, truncated to the maximum length."""
    tokenizer = run.processor.tokenizer
    texts = texts_of(run, given)
    ids = tokenizer.encode_batch(texts)
    refuse_empty(*ids)
    batch = run.recipe.frame([fitted(ids, run.recipe.model.longest, run.recipe.frame)])
    return batch, {INPUT: text_side(tokenizer, ids_in(batch), texts)}


def _class_of(run: "Run", batch: Batch, answer: Prediction, asked: AnswerOptions) -> Questions:
    """Return the question which class the input belongs to.

    Raises:
        RequestError: the target is not a label of the run.
    """
    labels: tuple[str, ...] = run.processor.labels
    label = answer.text if asked.target is None else asked.target
    if label not in labels:
        raise RequestError(
            f"unknown label {label!r}{nearest(label, labels)}; expected one of {', '.join(map(str, labels))}"
        )
    heads, layout = run.model.heads, batch.inputs.layout
    return Questions(
        INPUT,
        (),
        torch.tensor([labels.index(label)]),
        lambda hidden: iter([class_logits(hidden, heads, layout.to(hidden.device))]),
        lambda i, number: labels[number],
    )
