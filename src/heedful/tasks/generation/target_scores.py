"""Scores of given targets: translations, summaries and captions, each given its source."""

from collections.abc import Sequence
from dataclasses import replace

from heedful.data.images import LazyImage
from heedful.errors import DataError
from heedful.models.base import Model
from heedful.nn.layout import Ids
from heedful.tasks.generation.reference_scores import FORCED_BATCH, reference_log_probs
from heedful.tasks.generation.sequence_formats import ImageAndCaption, SequenceFormat
from heedful.tasks.generation.text_generation import source_notes
from heedful.tasks.inputs.processor import Tokenizers
from heedful.tasks.inputs.texts import join_notes
from heedful.tasks.prediction import ImageInput, Prediction, Progress, TaskInput, as_texts
from heedful.tasks.text_scoring import scored_prediction
from heedful.text.tokenizer import EncodedTexts, Tokenizer


def score_translations(
    model: Model,
    tokenizers: Tokenizers,
    sequence_format: SequenceFormat,
    max_source: int,
    inputs: Sequence[TaskInput],
    progress: Progress,
) -> list[Prediction]:
    """Score targets given their sources.

    Args:
        model: a trained model in evaluation mode.
        tokenizers: of both sides.
        sequence_format: how both are presented to the model.
        max_source: maximum number of tokens of a source; a longer one is truncated, with a note.
        inputs: tuples of source and target.
        progress: called with the number of inputs just scored.
    """
    source_texts, targets = ([as_texts(pair)[side] for pair in inputs] for side in (0, 1))
    sources = tokenizers.source.encode_batch(source_texts)
    truncated = [ids[:max_source] for ids in sources]
    encoded = EncodedTexts.encode(tokenizers.target, targets)
    predictions = _score(model, sequence_format, truncated, encoded)
    progress(len(inputs))
    return [
        replace(
            prediction,
            notes=join_notes(source_notes(tokenizers.source, text, ids, max_source), prediction.notes),
            cut=max(0, len(ids) - max_source),
        )
        for prediction, text, ids in zip(predictions, source_texts, sources, strict=True)
    ]


def score_captions(
    model: Model,
    tokenizer: Tokenizer,
    sequence_format: ImageAndCaption,
    inputs: Sequence[TaskInput],
    progress: Progress,
) -> list[Prediction]:
    """Score captions given their images; one whose image cannot be read has an error.

    The arguments are those of `score_translations`; the inputs are tuples of image and caption.
    """
    results = [Prediction("") for _ in inputs]
    for start in range(0, len(inputs), FORCED_BATCH):
        indices, sources = range(start, min(start + FORCED_BATCH, len(inputs))), {}
        pairs = {i: _image_and_caption(inputs[i]) for i in indices}
        for i, (image, _) in pairs.items():
            try:
                sources[i] = sequence_format.reader.pixels(LazyImage.of(image)).reshape(-1)
            except DataError as error:
                results[i] = Prediction("", error=str(error))
        captions = EncodedTexts.encode(tokenizer, [pairs[i][1] for i in sources])
        predictions = _score(model, sequence_format, list(sources.values()), captions)
        for i, prediction in zip(sources, predictions, strict=True):
            results[i] = prediction
        progress(len(indices))
    return results


def _image_and_caption(task_input: TaskInput) -> tuple[ImageInput, str]:
    """Return both parts of an input, which `heedful.Run.score` has checked before."""
    assert isinstance(task_input, list | tuple)
    image, caption = task_input
    return image, caption


def _score(
    model: Model, sequence_format: SequenceFormat, sources: Sequence[Ids], targets: EncodedTexts
) -> list[Prediction]:
    """Return the targets with their scores; one for which the model has no positions has an error."""
    log_probs = reference_log_probs(
        model, sequence_format, lambda chosen: [sources[i] for i in chosen], targets
    )
    predictions = []
    for i, (text, ids, source) in enumerate(zip(targets.texts, targets.ids, sources, strict=True)):
        if i in log_probs:
            predictions.append(scored_prediction(targets.tokenizer, text, ids, log_probs[i]))
            continue
        most = max(0, (sequence_format.max_target_length(len(source)) or 0) - 1)
        problem = f"the target must have at most {most:,} tokens, got {len(ids):,}; shorten it"
        predictions.append(Prediction("", error=problem))
    return predictions
