"""Predictors that generate a text for a source: translators and captioners."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from heedful.data.images import LazyImage
from heedful.decoding.config import BeamSettings, DecodingConfig, decode, with_spares
from heedful.decoding.protocol import Hypothesis, Request
from heedful.engine.choosing import Inference
from heedful.errors import DataError, RequestError
from heedful.models.base import Model
from heedful.nn.layout import Ids
from heedful.nn.modes import evaluating
from heedful.tasks.generation.generator import Generator, n_hypotheses, score_targets
from heedful.tasks.generation.minimum_bayes_risk import answers
from heedful.tasks.generation.output_constraints import (
    NO_CONSTRAINTS,
    ConstraintBuilder,
    OutputConstraints,
    separated,
)
from heedful.tasks.generation.sequence_formats import ENCODER_DECODER, ImageAndCaption, SequenceFormat
from heedful.tasks.generation.streaming import Detokenizer, OnText, Streaming, streamed
from heedful.tasks.inputs.processor import Tokenizers
from heedful.tasks.inputs.texts import (
    cut_output_note,
    encode_texts,
    group_by_length,
    join_notes,
    unknown_note,
)
from heedful.tasks.prediction import (
    BATCH_TOKENS,
    DEFAULT_OPTIONS,
    EMPTY,
    Prediction,
    PredictOptions,
    TaskInput,
    as_text,
    check_inputs,
)
from heedful.text.tokenizer import Tokenizer

# Maximum number of tokens of a source, if the recipe sets no limit.
MAX_SOURCE = 1024


class TextGenerator(Streaming):
    """Base class of predictors that generate a text for a source.

    Args:
        model: follows the model contract; in evaluation mode while it generates.
        tokenizer: of the generated text.
        decoding: decoding settings.
        sequence_format: how source and target are presented to the model.
        options: ``attention`` and ``progress``.
        budget: maximum number of tokens of a batch, with padding and all hypotheses.
        inference: the model prepared for decoding; by default it is prepared here.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        decoding: DecodingConfig,
        sequence_format: SequenceFormat,
        options: PredictOptions = DEFAULT_OPTIONS,
        *,
        budget: int = BATCH_TOKENS,
        inference: Inference | None = None,
    ) -> None:
        self.model, self.tokenizer, self.decoding = model, tokenizer, decoding
        self.sequence_format, self.options, self.budget = sequence_format, options, budget
        self.inference = inference or Inference(self.model)
        self.device = next(model.parameters()).device
        preprocessing = tokenizer.preprocessing
        self.detokenizer = Detokenizer(
            tokenizer, preprocessing.undo, preprocessing.stable_prefix, is_local=preprocessing.moses is None
        )
        self.width = n_hypotheses(decoding)
        self.constraints = ConstraintBuilder(tokenizer, decoding)

    def generate(
        self,
        sources: Sequence[Ids],
        lengths: Sequence[int],
        ordinals: Sequence[int],
        on_text: OnText | None = None,
        constraints: Sequence[OutputConstraints] = (),
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses for each source, best first; several of them may spell the same text.

        Args:
            sources: in the form of the sequence format.
            lengths: their numbers of tokens, which limit the length of the generated texts.
            ordinals: their numbers; sampling draws for each number independently.
            on_text: called with the text for a single source while it is generated.
            constraints: of each output; empty: none.
        """
        specials = self.tokenizer.specials
        coverage = isinstance(self.decoding, BeamSettings) and self.decoding.coverage > 0
        generator = Generator(self.inference.ready(attention=coverage), attention=coverage)
        with evaluating(self.model), streamed(self.detokenizer, on_text) as on_token:
            first_output, encoder_input = self.sequence_format.prefill(generator, sources, self.device)
            request = Request(
                first_output,
                generator.step,
                end=specials.end,
                max_lengths=[self._max_length(n) for n in lengths],
                forbidden=specials.never_generated,
                source_lengths=None if encoder_input is None else encoder_input.layout.lengths,
                ordinals=ordinals,
                on_token=on_token,
                on_step=self.options.on_step,
                constraints=[self.constraints.build(wanted) for wanted in constraints],
            )
            return decode(with_spares(self.decoding), request)

    def _max_length(self, source_length: int) -> int:
        """The maximum number of tokens to generate."""
        max_length = self.decoding.max_length.of(source_length)
        limit = self.sequence_format.max_target_length(source_length)
        return max_length if limit is None else min(max_length, limit)

    def output_note(self, prediction: Prediction, source_length: int) -> str | None:
        """Note that the output was cut at its maximum length, and what sets it; None if it was not."""
        n, max_length = self._max_length(source_length), self.decoding.max_length
        if prediction.finished or len(prediction.ids) < n:
            return None
        if n < max_length.of(source_length):
            reason = "the most that the model has positions for"
        else:
            reason = f"decoding.max_length.{'cap' if n == max_length.cap else 'ratio and extra'}"
        return cut_output_note(n, reason)

    @torch.inference_mode()
    def prediction(
        self,
        source: Ids,
        hypotheses: Sequence[Hypothesis],
        constraints: OutputConstraints = NO_CONSTRAINTS,
    ) -> Prediction:
        """Return the best hypothesis as a prediction, with other texts as its alternatives.

        The attention ``[layer][head][target][source]``, if requested, comes from one forward pass over the
        source and the finished hypothesis. If that was cut at the last position of the model, its last token
        was generated, but cannot be read; there is then no row for an end token.
        """
        best, *alternatives = answers(self.detokenizer, hypotheses, self.decoding)
        best = self.constraints.checked(replace(best, alternatives=alternatives), constraints)
        if not self.options.attention:
            return best
        limit = self.sequence_format.max_target_length(len(source))
        read = best.ids[: None if limit is None else max(0, limit - 1)]
        batch = self.sequence_format.collate([source], [read]).to(self.device)
        with evaluating(self.model):
            weights = score_targets(self.model, batch, attention=True)[0].attention
        return replace(best, attention=None if weights is None else weights.float().tolist())


def source_notes(tokenizer: Tokenizer, text: str, source: Sequence[int], longest: int) -> tuple[str, ...]:
    """Note that a source was truncated or has unknown words."""
    n_tokens = len(source)
    truncation = f"source cut from {n_tokens} to {longest} tokens" if n_tokens > longest else None
    return join_notes(truncation, unknown_note(tokenizer, [text], [source], "source"))


class Translator(TextGenerator):
    """Generates a text for a text.

    Args:
        model: follows the model contract; in evaluation mode while it generates.
        tokenizers: of both sides.
        decoding: decoding settings.
        sequence_format, options, budget, inference: as of `TextGenerator`.
        max_source: maximum number of tokens of a source; a longer one is truncated, with a note.
    """

    def __init__(
        self,
        model: Model,
        tokenizers: Tokenizers,
        decoding: DecodingConfig,
        sequence_format: SequenceFormat = ENCODER_DECODER,
        options: PredictOptions = DEFAULT_OPTIONS,
        *,
        max_source: int = MAX_SOURCE,
        budget: int = BATCH_TOKENS,
        inference: Inference | None = None,
    ) -> None:
        super().__init__(
            model, tokenizers.target, decoding, sequence_format, options, budget=budget, inference=inference
        )
        self.source_tokenizer, self.max_source = tokenizers.source, max_source

    @torch.inference_mode()
    def predict(
        self,
        inputs: Sequence[TaskInput],
        *,
        first: int = 0,
        on_text: OnText | None = None,
        constraints: Sequence[OutputConstraints] = (),
    ) -> list[Prediction]:
        """Translate texts; one without a token gets an empty prediction. See `Streaming.predict`.

        Attention over the source, if requested, is that of every layer and head.
        """
        attention = self.options.attention
        if attention and not self.model.alignment_taps:
            raise RequestError("this model has no attention from target to source")
        check_inputs(inputs)
        tokenizer, longest = self.source_tokenizer, self.max_source
        texts = [as_text(task_input) for task_input in inputs]
        sources = encode_texts(tokenizer, texts)
        wanted = constraints or [NO_CONSTRAINTS] * len(texts)
        empty = Prediction("", finished=True, notes=(EMPTY,))
        results = [self.constraints.checked(empty, own) for own in wanted]
        lengths = {i: len(source) for i, source in enumerate(sources) if source}
        refused = self.constraints.refused(
            constraints, {i: self._max_length(min(n, longest)) for i, n in lengths.items()}
        )
        for i, prediction in refused.items():
            results[i] = prediction
            del lengths[i]
        for group in self._groups(lengths, constraints):
            truncated = [sources[i][:longest] for i in group]
            hypothesis_lists = self.generate(
                truncated,
                [len(ids) for ids in truncated],
                [first + i for i in group],
                on_text,
                [wanted[i] for i in group] if any(wanted[i] for i in group) else (),
            )
            for i, source, hypotheses in zip(group, truncated, hypothesis_lists, strict=True):
                prediction = self.prediction(source, hypotheses, wanted[i])
                results[i] = replace(
                    prediction,
                    source_tokens=[*tokenizer.tokens(source), "</s>"] if attention else None,
                    notes=join_notes(
                        source_notes(tokenizer, texts[i], sources[i], longest),
                        prediction.notes,
                        self.output_note(prediction, len(source)),
                    ),
                    cut=len(sources[i]) - len(source),
                )
            self.options.progress(len(group))
        return results

    def _groups(
        self, lengths: Mapping[int, int], constraints: Sequence[OutputConstraints]
    ) -> Iterator[list[int]]:
        """Yield the indices of sources in groups of bounded size, longest first."""
        for part in separated(lengths, constraints):
            yield from group_by_length(
                part, self.budget, lambda n: (min(n, self.max_source) + 1) * self.width
            )


class Captioner(TextGenerator):
    """Generates a caption for an image; the decoding limits lengths by the number of patches."""

    sequence_format: ImageAndCaption

    @torch.inference_mode()
    def predict(
        self,
        inputs: Sequence[TaskInput],
        *,
        first: int = 0,
        on_text: OnText | None = None,
        constraints: Sequence[OutputConstraints] = (),
    ) -> list[Prediction]:
        """Caption images: paths, or whatever `LazyImage.of` takes. See `Streaming.predict`.

        One that cannot be read gets an empty caption and an error. Attention, if requested, is that over
        the patches, of every layer and head.
        """
        check_inputs(inputs)
        results, n_tokens = [Prediction("") for _ in inputs], self.sequence_format.n_tokens
        wanted = constraints or [NO_CONSTRAINTS] * len(inputs)
        grid = self.sequence_format.grid if self.options.attention else None
        lengths = dict.fromkeys(range(len(inputs)), n_tokens)
        refused = self.constraints.refused(constraints, dict.fromkeys(lengths, self._max_length(n_tokens)))
        size = max(1, self.budget // (n_tokens * self.width))
        for part in separated(lengths, constraints):
            for start in range(0, len(part), size):
                indices = [*part][start : start + size]
                sources: dict[int, Ids] = {}
                for i in indices:
                    try:
                        sources[i] = self.sequence_format.reader.pixels(LazyImage.of(inputs[i])).reshape(-1)
                    except DataError as error:
                        results[i] = Prediction("", error=str(error))
                for i in sources.keys() & refused.keys():
                    results[i] = refused[i]
                    del sources[i]
                if sources:
                    hypothesis_lists = self.generate(
                        list(sources.values()),
                        [n_tokens] * len(sources),
                        [first + i for i in sources],
                        on_text,
                        [wanted[i] for i in sources] if any(wanted[i] for i in sources) else (),
                    )
                    for (i, source), hypotheses in zip(sources.items(), hypothesis_lists, strict=True):
                        prediction = self.prediction(source, hypotheses, wanted[i])
                        notes = join_notes(prediction.notes, self.output_note(prediction, n_tokens))
                        results[i] = replace(prediction, grid=grid, notes=notes)
                self.options.progress(len(indices))
        return results
