"""Translation, and every task that generates one text for another: the columns ``source`` and ``target``.

row -> token ids -> `Batch` -> model -> loss                 `Tokenizers.encode`, `SequenceFormat.collate`
text -> token ids -> state and step -> chosen ids -> text    `Translator.predict`
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from heedful.config import Config
from heedful.data.batch import Batch
from heedful.data.links import ALIGNMENT
from heedful.data.report import DataReport, Encoded, Filter, keep
from heedful.data.sources import FilesSource, LocatedRow, Row
from heedful.data.text import TEXT
from heedful.data.user_files import UserTable, user_table
from heedful.engine.choosing import Inference
from heedful.errors import RequestError
from heedful.models.base import Model
from heedful.models.language_model import LanguageModelConfig
from heedful.models.recurrent import RecurrentConfig
from heedful.models.registry import build_model
from heedful.models.transformer import TransformerConfig
from heedful.objectives.guided import Guidance
from heedful.objectives.terms import AuxiliaryLoss
from heedful.recipes import schema
from heedful.tasks import seq2seq
from heedful.tasks.base import PreparedData, RowReader
from heedful.tasks.embedding import EmbeddingInputs
from heedful.tasks.evaluation import PredictedRows
from heedful.tasks.generation.augmenting import Augmenter, subword_dropout
from heedful.tasks.generation.guidance import GuidedConfig, cut_links, encode_linked
from heedful.tasks.generation.reference_scores import left_out_notes, reference_likelihood
from heedful.tasks.generation.sequence_formats import ConcatenatedFormat, EncoderDecoderFormat, SequenceFormat
from heedful.tasks.generation.target_scores import score_translations
from heedful.tasks.generation.text_generation import MAX_SOURCE, Translator, source_notes
from heedful.tasks.inputs.processor import COLUMNS, SOURCE, TARGET, Tokenizers
from heedful.tasks.inputs.texts import encode_texts, join_notes, synthetic_ids, unknown_notes
from heedful.tasks.metrics.loads import count_expert_loads
from heedful.tasks.metrics.score import Score
from heedful.tasks.metrics.translation import (
    Preparation,
    check_language,
    reference_notes,
    sentence_scores,
    tokenised_bleu,
    translation_scores,
)
from heedful.tasks.model_input import AnswerOptions, ModelInput, refuse_empty, text_axis, text_in
from heedful.tasks.prediction import DEFAULT_OPTIONS, Prediction, PredictOptions, Progress, TaskInput
from heedful.tasks.pretrained import PairWarmStart, start_tokenizer
from heedful.tasks.seq2seq import (
    LanguageConfig,
    Seq2SeqRecipe,
    Seq2SeqTask,
)
from heedful.tasks.task_info import Columns, TaskInfo
from heedful.text.configuration import ComposingPreprocessingConfig, PreprocessingConfig, TokenizerConfig
from heedful.text.normalisation import Lowercase, tokenise_for_bleu
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import EncodedTexts
from heedful.text.training import train_shared, train_tokenizer
from heedful.typing import JsonMapping

# Recipes ------------------------------------------------------------------------------------------------


LanguageCode = Annotated[str, Field(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$")]


class LanguagesConfig(Config):
    """What languages the two sides are in; clients of ``heedful serve`` choose a run by them.

    Args:
        source, target: codes such as ``en`` or ``pt-BR`` (BCP 47).
    """

    source: LanguageCode
    target: LanguageCode


class TranslationConfig(Config):
    """One text in, one text out; the data have the columns ``source`` and ``target``.

    Args:
        languages: of the two sides; null: not said. They change nothing in training and prediction.
    """

    kind: Literal["translation"] = "translation"
    languages: LanguagesConfig | None = None


class DataConfig(schema.DataConfig):
    """Rows with a source and a target, and what to do with those that cannot be used as they are.

    Args:
        filter: of texts that are too long, empty, or of very different lengths.
        bpe_dropout: how probable it is that a merge is left out of a training text, on both sides: it is cut
            into other pieces in every epoch (`heedful.text.merge_dropout`). 0.1 is usual for little data.
    """

    filter: Filter = Filter()
    bpe_dropout: float = Field(default=0.0, ge=0, lt=1)


class Tokenization(Config):
    """The subword model, and what is done to the text of each side before it.

    Args:
        subwords: which model, and how large.
        shared: one model for both sides, which three-way tying needs; or one for each.
        source, target: lower-casing, Moses tokenisation, normalisation (NFC by default).
    """

    subwords: TokenizerConfig
    shared: bool = True
    source: ComposingPreprocessingConfig = ComposingPreprocessingConfig()
    target: ComposingPreprocessingConfig = ComposingPreprocessingConfig()


class ObjectiveConfig(seq2seq.ObjectiveConfig):
    """Cross-entropy on the next token.

    Args:
        loss_on: of a language model, which reads source and target as one text: whether it learns to
            predict the ``answer`` (the target) alone, or ``all``.
        guided: let one head learn the word alignments of the training data besides; null: none.
    """

    loss_on: Literal["answer", "all"] = "answer"
    guided: GuidedConfig | None = None


class EvaluationConfig(LanguageConfig):
    """What ``evaluate`` reports besides sacreBLEU's scores.

    Args:
        tokenised_bleu: the language code whose Moses tokenisation a published score used: reports the
            lower-cased, tokenised BLEU under that name, beside sacreBLEU's and never instead.
    """

    tokenised_bleu: str | None = None


class PretrainedConfig(schema.VectorsConfig):
    """Word vectors (word2vec text or binary, or GloVe) that fill rows of the embeddings at the start.

    Words are filled that one token alone spells. The model reads vectors at their own size; in a recurrent
    model whose output layer shares the table, this needs ``model.scale_embedding=true``. Other words begin as
    without vectors. If both sides share a table, the target's vectors are written last.

    Args:
        source, target: the file for each side; null: none.
    """

    source: str | None = None
    target: str | None = None


class TranslationRecipe(Seq2SeqRecipe):
    """A whole recipe.

    Args:
        pretrained: word vectors that the embeddings begin with.
    """

    task: TranslationConfig
    data: DataConfig
    tokenizer: Tokenization
    model: Annotated[TransformerConfig | RecurrentConfig | LanguageModelConfig, Field(discriminator="kind")]
    objective: ObjectiveConfig = ObjectiveConfig()
    pretrained: PretrainedConfig = PretrainedConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @property
    def max_source(self) -> int:
        """The longest source in tokens; more is cut, in validation as in prediction.

        It is what the model has positions for, and not how long the training sentences were. A language
        model needs some of them for the target: as many as the training targets may have.
        """
        longest: int | None = self.model.longest
        if self.is_one_text and longest is not None:
            return longest - 2 - (self.data.filter.limit("target") or 0)
        return MAX_SOURCE if longest is None else min(MAX_SOURCE, longest - 1)

    @property
    def is_one_text(self) -> bool:
        """Whether source and target are read as one text, by a language model."""
        return isinstance(self.model, LanguageModelConfig)

    @property
    def sequence_format(self) -> SequenceFormat:
        """How both are presented to the model."""
        if isinstance(self.model, LanguageModelConfig):
            return ConcatenatedFormat(self.model.context, self.objective.loss_on == "answer")
        return EncoderDecoderFormat(self.model.longest)

    @schema.check
    def _fits_one_text(self) -> None:
        """A language model has one vocabulary, no side of its own for the source, and a context."""
        if not isinstance(self.model, LanguageModelConfig):
            if self.objective.loss_on != "answer":
                raise ValueError(
                    "objective.loss_on=all: not supported by an encoder-decoder, which does not predict its "
                    "source; remove it"
                )
            return
        if not self.tokenizer.shared:
            raise ValueError(
                "model.kind=language-model reads both sides as one text and requires tokenizer.shared=true"
            )
        if self.pretrained != PretrainedConfig():
            raise ValueError("pretrained: a language model has no source embedding to fill")
        for key, decoding in self.decodings.items():
            if getattr(decoding, "coverage", 0):
                raise ValueError(
                    f"{key}.coverage is not supported by a language model, which has no attention over a "
                    "source"
                )
        limits = [self.data.filter.limit(column) for column in ("source", "target")]
        limit = self.model.context - 2
        if None in limits or sum(n for n in limits if n) > limit:
            raise ValueError(
                f"a language model reads source and target as one text of at most model.context="
                f"{self.model.context} tokens: set data.filter.max_length for both, together at most {limit}"
            )

    @schema.check
    def _samples_targets_alone(self) -> None:
        """Check that scheduled sampling replaces no token of a source, and no word that a link refers to."""
        loss_on, guided = self.objective.loss_on, self.objective.guided
        refused = {"loss_on=all": loss_on == "all", "guided.step=input": guided and guided.step == "input"}
        for setting in (s for s in refused if refused[s] and self.objective.scheduled_sampling):
            raise ValueError(
                f"objective.scheduled_sampling is not supported with objective.{setting}; remove one of them"
            )

    @schema.check
    def _has_the_guided_head(self) -> None:
        if self.objective.guided is not None:
            self.objective.guided.check(self.model)

    @schema.check
    def _supports_bpe_dropout(self) -> None:
        """Without some merges, texts have more pieces, and links between pieces no longer match."""
        if not self.data.bpe_dropout:
            return
        kind = self.tokenizer.subwords.kind
        if kind not in ("bpe", "byte-bpe"):
            raise ValueError(
                f"data.bpe_dropout is not supported with tokenizer.subwords.kind={kind}, which has no merges"
            )
        if self.model.longest is not None:
            raise ValueError(
                "data.bpe_dropout makes texts longer than data.filter allows; use positions without a "
                "maximum (sinusoidal, rotary, alibi)"
            )
        if self.objective.guided is not None:
            raise ValueError(
                "data.bpe_dropout is not supported with objective.guided, whose links refer to pieces "
                "without dropout"
            )

    @schema.check
    def _ties_one_vocabulary(self) -> None:
        if getattr(self.model, "tie", None) == "three-way" and not self.tokenizer.shared:
            raise ValueError(
                "model.tie=three-way requires one vocabulary for both sides; set tokenizer.shared=true"
            )

    @schema.check
    def _has_positions_for_all(self) -> None:
        """Check now, not hours later, that no sentence is longer than the table of positions."""
        model = self.model
        if not isinstance(model, TransformerConfig) or model.longest is None:
            return
        table = (
            f"model.positions.kind={model.positions.kind} ends after model.max_length={model.longest} tokens"
        )
        max_tokens = model.longest - 1
        for column in ("source", "target"):
            limit = self.data.filter.limit(column)
            if limit is None or limit > max_tokens:
                raise ValueError(f"{table}; set data.filter.max_length to at most {max_tokens}")
        for key, decoding in self.decodings.items():
            if (decoding.max_length.cap or 0) > max_tokens:
                raise ValueError(f"{table}; set {key}.max_length.cap to at most {max_tokens}")


# The task -----------------------------------------------------------------------------------------------

N_POSITIONS = 1 << 31
"""Number of positions in a sequence that a store of links can represent."""


class Translation(Seq2SeqTask):
    """Generate a target text for a source text."""

    Recipe: ClassVar[type[schema.Recipe]] = TranslationRecipe
    Processor = Tokenizers
    info = TaskInfo(
        unit="sentences",
        evaluation_verb="translating",
        memory_advice="set or lower data.filter.max_length",
        generates=True,
        writes=True,
        unlimited_length=True,
    )
    warm_start = PairWarmStart()
    sides = COLUMNS

    recipe: TranslationRecipe
    processor: Tokenizers

    @property
    def columns(self) -> Columns:
        """Source and target; word alignments, if a head learns them."""
        training = () if self.recipe.objective.guided is None else (ALIGNMENT,)
        return Columns(COLUMNS, (SOURCE,), training=training, extra=(ALIGNMENT,))

    @property
    def lowercase(self) -> Lowercase:
        """Whether the recipe's tokenizer of the target is lower case."""
        return self.recipe.tokenizer.target.lowercase

    def make_processor(self, read_rows: RowReader) -> Tokenizers:
        """Train one subword model for both sides, or one for each, or load those of the run to start from."""
        start_tokenizers = [start_tokenizer(self.recipe, column, TEXT) for column in COLUMNS]
        if all(start_tokenizers):
            return Tokenizers(*start_tokenizers)  # type: ignore[arg-type]
        settings = self.recipe.tokenizer

        def texts_and_settings(column: str) -> tuple[Iterator[str], PreprocessingConfig]:
            return (row.row[column] for row in read_rows()), getattr(settings, column)

        source, target = texts_and_settings(SOURCE), texts_and_settings(TARGET)
        if settings.shared:
            return Tokenizers(*train_shared(settings.subwords, [source, target]))
        return Tokenizers(
            train_tokenizer(settings.subwords, *source), train_tokenizer(settings.subwords, *target)
        )

    def encode(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[Encoded]:
        """Yield the ids of rows that pass the filter; with word alignments, if a head learns them."""
        filter = self.recipe.data.filter
        if self.recipe.objective.guided is None:
            return keep(self.processor.encode(rows), filter, report)
        encoded = encode_linked(self.processor, rows, report)
        return cut_links(keep(encoded, filter, report, unchecked_columns=[ALIGNMENT]))

    def n_ids(self) -> Mapping[str, int]:
        """The sizes of both vocabularies; links are positions."""
        return {**dict(zip(COLUMNS, self.processor.sizes, strict=True)), ALIGNMENT: N_POSITIONS}

    def data_notes(self, data: PreparedData) -> Sequence[str]:
        """Return notes on what makes BLEU at validations wrong, and on truncated sources."""
        notes, decode = [*super().data_notes(data)], self.recipe.validation.decode
        n_truncated = int((data.valid.lengths(SOURCE)[:decode] > self.recipe.max_source).sum())
        if n_truncated:
            notes.append(
                f"data.valid: validations translate only the first {self.recipe.max_source:,} tokens of "
                f"{n_truncated:,} longer sources"
            )
        return notes

    def build_model(self, sizes: Sequence[int] | None = None) -> Model:
        """Build an encoder-decoder, or a language model with the one vocabulary."""
        sizes = self.processor.sizes if sizes is None else sizes
        return build_model(self.recipe.model, *(sizes[-1:] if self.recipe.is_one_text else sizes))

    def auxiliary_losses(self, model: Model) -> Sequence[AuxiliaryLoss]:
        """Return the guidance of a head, if the recipe sets it."""
        guided = self.recipe.objective.guided
        if guided is None:
            return ()
        layer = guided.layer_index(len(model.alignment_taps))
        return (Guidance(model, guided.weight, layer, guided.head - 1, guided.step),)

    def augmenter(self) -> Augmenter | None:
        """Return BPE-dropout, if the recipe sets it."""
        p, seed = self.recipe.data.bpe_dropout, self.recipe.training.seed
        return subword_dropout({c: getattr(self.processor, c) for c in COLUMNS}, p, seed) if p else None

    def synthetic_batch(self, sizes: Sequence[int], n: int, length: int, source_length: int) -> Batch:
        """Return pairs that differ by a token or two in length; each text gets a start or end token."""
        draw = np.random.default_rng(0)
        sources = synthetic_ids(draw, sizes[-1 if self.recipe.is_one_text else 0], n, source_length - 1)
        return self.recipe.sequence_format.collate(sources, synthetic_ids(draw, sizes[-1], n, length - 1))

    def predictor(self, inference: Inference, options: PredictOptions = DEFAULT_OPTIONS) -> Translator:
        """Return a `Translator`."""
        recipe = self.recipe
        return Translator(
            inference.model,
            self.processor,
            options.decoding or recipe.decoding,
            recipe.sequence_format,
            options,
            max_source=recipe.max_source,
            inference=inference,
        )

    def score(self, model: Model, inputs: Sequence[TaskInput], progress: Progress) -> list[Prediction]:
        """Score targets given their sources, which are truncated as by `predict`."""
        sequence_format, longest = self.recipe.sequence_format, self.recipe.max_source
        return score_translations(model, self.processor, sequence_format, longest, inputs, progress)

    def model_input(
        self, model: Model, task_input: TaskInput, options: AnswerOptions, answer: Prediction
    ) -> ModelInput:
        """Prepare a source text and its target, as two axes or as one text."""
        recipe, tokenizers, text = self.recipe, self.processor, text_in(task_input, self.recipe.task.kind)
        (source_ids,) = encode_texts(tokenizers.source, [text])
        source = source_ids[: recipe.max_source]
        refuse_empty(source)
        answer, target = self.answer_and_ids(tokenizers.target, len(source), options, answer)
        if options.target is not None:
            note = source_notes(tokenizers.source, text, source_ids, recipe.max_source)
            answer = replace(answer, notes=join_notes(answer.notes, note))
        if recipe.is_one_text:
            return self.concatenated_input(model, tokenizers, text, source, target, answer)
        axis = text_axis(tokenizers.source, [*source, SPECIALS.end], [text])
        return self.encoder_decoder_input(model, source, axis, tokenizers.target, target, answer)

    def embedding_inputs(self, inputs: Sequence[TaskInput]) -> EmbeddingInputs:
        """Return sources as the encoder, or the language model before a target, reads them."""
        tokenizer, longest = self.processor.source, self.recipe.max_source
        return EmbeddingInputs.of_sources(tokenizer, inputs, longest, is_one_text=self.recipe.is_one_text)

    def source_from(self, files: Sequence[Path]) -> FilesSource | UserTable:
        """Return a source of two aligned files, or a table with both columns."""
        if len(files) == 1:
            return user_table(files[0], COLUMNS, like=self.recipe.data.train, aligned=COLUMNS)
        if len(files) != len(COLUMNS):
            raise RequestError(f"expected two files (source and target) or one table, got {len(files)} files")
        return FilesSource(columns={c: str(path.resolve()) for c, path in zip(COLUMNS, files, strict=True)})

    def check_rows(self, rows: Sequence[LocatedRow[Row]]) -> None:
        """Check that the package that BLEU of some languages needs is installed."""
        check_language(self.recipe.evaluation.language)

    def metrics(self, model: Model, predicted: PredictedRows[Prediction]) -> tuple[list[Score], list[str]]:
        """Return BLEU, chrF and TER of the translations; perplexity of the references, teacher forced.

        A run that generates lower case is scored case-insensitively; the signatures say so.
        """
        language, moses = self.recipe.evaluation.language, self.recipe.evaluation.tokenised_bleu
        texts, references = predicted.texts, [row.row[TARGET] for row in predicted.rows]
        scores = [
            *translation_scores(texts, references, language=language, lowercase=self.lowercase).values()
        ]
        if moses is not None:
            preparation = Preparation(f"moses-{moses}-lowercase", lambda text: tokenise_for_bleu(text, moses))
            scores.append(tokenised_bleu(texts, references, preparation=preparation))
        likelihoods, notes = self.likelihood(model, predicted.rows)
        return [*scores, *likelihoods], [*reference_notes(references, language), *notes]

    def likelihood(self, model: Model, rows: Sequence[LocatedRow[Row]]) -> tuple[list[Score], list[str]]:
        """Return perplexity and forcing gap of the references, expert loads, and notes."""
        sources = EncodedTexts.encode(self.processor.source, [row.row[SOURCE] for row in rows])
        references = EncodedTexts.encode(self.processor.target, [row.row[TARGET] for row in rows])

        def get_sources(indices: Sequence[int]) -> list[list[int]]:
            return [sources.ids[i][: self.recipe.max_source] for i in indices]

        sequence_format, fingerprint = self.recipe.sequence_format, sources.tokenizer.fingerprint
        with count_expert_loads(model) as loads:
            scores = reference_likelihood(model, sequence_format, get_sources, references, fingerprint)
        scores += loads() + self.forcing_gap(model, get_sources, references)
        notes = left_out_notes(scores, len(rows)) + unknown_notes(SOURCE, sources)
        return scores, notes + unknown_notes(TARGET, references, predicted=True)

    def compared(self, predicted: PredictedRows[Prediction]) -> Iterator[JsonMapping]:
        """Yield the reference of each row, and the scores of the translation."""
        language, references = self.recipe.evaluation.language, [row.row[TARGET] for row in predicted.rows]
        row_scores = sentence_scores(predicted.texts, references, language=language, lowercase=self.lowercase)
        for reference, scores in zip(references, row_scores, strict=True):
            yield {"target": reference, "scores": scores}
