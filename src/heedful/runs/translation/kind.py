"""What runs of translators do in their own way."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import nn

from heedful.artifacts.run_folder import RunFolder
from heedful.data.batch import Batch
from heedful.data.files import FilesSource
from heedful.data.report import DataReport, Encoded, keep
from heedful.data.sources import LocatedRow, Row
from heedful.data.text import TEXT
from heedful.decoding.config import DecodingConfig
from heedful.engine.choosing import Inference
from heedful.errors import RequestError
from heedful.models.registry import build_model
from heedful.objectives.guided import Guidance
from heedful.objectives.terms import AuxiliaryLoss, Objective
from heedful.recipes.schema import Recipe
from heedful.recipes.trees import Tree
from heedful.runs import kind
from heedful.runs.kind import Kind, Log, Prepared, Rows, Scoring, Trained
from heedful.runs.pairs import Validator, planned, require_language, validation_notes
from heedful.runs.translation.recipe import TranslationRecipe
from heedful.runs.translation.recutting import recutting
from heedful.runs.translation.scoring import scored
from heedful.runs.vectors import fill_vectors
from heedful.runs.warm_start import tokenizer_of
from heedful.tasks.linking import ALIGNMENT, cut_links, encode_linked
from heedful.tasks.metrics.translation import quick_scores
from heedful.tasks.translation import COLUMNS, SOURCE, TARGET, Tokenizers, Translator
from heedful.text.configuration import PreprocessingConfig
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer
from heedful.text.training import train_shared, train_tokenizer
from heedful.training.feed import PlannedData
from heedful.training.step import Step

MOST_PLACES = 1 << 31
"""One more than the greatest place in a sequence that a store of links can keep."""


class Translation(Kind):
    """See `heedful.runs.kind.Kind`."""

    recipe: ClassVar[type[Recipe]] = TranslationRecipe
    unit = "sentences"
    scoring = "translating"
    scored_by_writing = True
    own_data = ("data",)
    shorter = "set or lower data.filter.max_length"
    whole_rows = True
    besides = (ALIGNMENT,)

    def columns(self, recipe: TranslationRecipe) -> tuple[str, ...]:
        """Source and target."""
        return COLUMNS

    def training_columns(self, recipe: TranslationRecipe) -> tuple[str, ...]:
        """Word alignments, where a head learns them."""
        return () if recipe.objective.guided is None else (ALIGNMENT,)

    def inputs(self, recipe: TranslationRecipe) -> tuple[str, ...]:
        """The source."""
        return (SOURCE,)

    def model(self, recipe: TranslationRecipe, sizes: Sequence[int]) -> nn.Module:
        """An encoder-decoder, or a language model of the one vocabulary."""
        return build_model(recipe.model, *(sizes[-1:] if recipe.is_one_text else sizes))

    def files(self, folder: RunFolder) -> list[Path]:
        """A tokenizer for each side."""
        return [folder.tokenizer(SOURCE), folder.tokenizer(TARGET)]

    def learn(self, recipe: TranslationRecipe, rows: Rows) -> Tokenizers:
        """One subword model for both sides, or one for each."""
        known = [tokenizer_of(recipe, column, TEXT) for column in COLUMNS]
        if all(known):
            return Tokenizers(*known)  # type: ignore[arg-type]
        settings = recipe.tokenizer

        def side(column: str) -> tuple[Iterator[str], PreprocessingConfig]:
            return (row.row[column] for row in rows()), getattr(settings, column)

        source, target = side(SOURCE), side(TARGET)
        if settings.shared:
            return Tokenizers(*train_shared(settings.subwords, [source, target]))
        return Tokenizers(
            train_tokenizer(settings.subwords, *source), train_tokenizer(settings.subwords, *target)
        )

    def taken_over(self, tokenizer: Tree) -> Tree:
        """What is done to the one text of a language model is done to both sides, in its vocabulary."""
        if not isinstance(tokenizer.value, dict) or TEXT not in tokenizer.value:
            return tokenizer
        sections = dict(tokenizer.value)
        text = sections.pop(TEXT)
        both = {"shared": Tree(True, text.mark), **dict.fromkeys(COLUMNS, text)}
        return Tree({**sections, **both}, tokenizer.mark)

    def save(self, processor: Tokenizers, folder: RunFolder) -> None:
        """Both tokenizers."""
        processor.source.save(folder.tokenizer(SOURCE))
        processor.target.save(folder.tokenizer(TARGET))

    def load(self, folder: RunFolder) -> Tokenizers:
        """Both tokenizers."""
        return Tokenizers(*(Tokenizer.load(path) for path in self.files(folder)))

    def report(self, processor: Tokenizers) -> DataReport:
        """Counts unknown tokens on both sides."""
        return DataReport({side: getattr(processor, side).specials.unknown for side in COLUMNS})

    def encode(
        self,
        recipe: TranslationRecipe,
        processor: Tokenizers,
        rows: Iterable[LocatedRow[Row]],
        report: DataReport,
    ) -> Iterator[Encoded]:
        """What passes the filter; with the links of words, where a head learns them."""
        if recipe.objective.guided is None:
            return keep(processor.encode(rows), recipe.data.filter, report)
        found = encode_linked(processor, rows, report)
        return cut_links(keep(found, recipe.data.filter, report, beside=[ALIGNMENT]))

    def n_ids(self, recipe: TranslationRecipe, processor: Tokenizers) -> Mapping[str, int]:
        """Of texts, those of their tokenizers; links are places."""
        return {**dict(zip(COLUMNS, processor.sizes, strict=True)), ALIGNMENT: MOST_PLACES}

    def keeps_rows(self, recipe: TranslationRecipe) -> bool:
        """Where translations are scored, against their references."""
        return recipe.validation.decode != 0

    def require(self, recipe: TranslationRecipe) -> None:
        """What splits texts for BLEU."""
        require_language(recipe)

    def notes(self, recipe: TranslationRecipe, prepared: Prepared) -> list[str]:
        """What makes BLEU at validations wrong, and how many sources they do not read whole."""
        notes, decode = validation_notes(recipe, prepared, TARGET), recipe.validation.decode
        cut = int((prepared.valid.lengths(SOURCE)[:decode] > recipe.max_source).sum())
        if cut:
            notes.append(
                f"data.valid: validations translate only the first {recipe.max_source:,} tokens of {cut:,} "
                "longer sources"
            )
        return notes

    def objective(self, recipe: TranslationRecipe) -> Objective:
        """The next token, teacher forced."""
        return recipe.objective.make()

    def inside(self, recipe: TranslationRecipe, model: Any) -> Sequence[AuxiliaryLoss]:
        """The guidance of a head, where it is asked for."""
        guided = recipe.objective.guided
        if guided is None:
            return ()
        layer = guided.place(len(model.alignment_taps))
        return (Guidance(model, guided.weight, layer, guided.head - 1, guided.step),)

    def begin(self, recipe: TranslationRecipe, processor: Tokenizers, model: Any, log: Log) -> None:
        """Word vectors, where there are some."""
        fill_vectors(recipe, {SOURCE: processor.source, TARGET: processor.target}, model, log)

    def feed(self, recipe: TranslationRecipe, prepared: Prepared) -> PlannedData:
        """Pairs of neighbours in length."""
        recut = None
        if p := recipe.data.bpe_dropout:
            recut = recutting({c: getattr(prepared.processor, c) for c in COLUMNS}, p, recipe.training.seed)
        return planned(recipe, prepared, COLUMNS, recut)

    def validator(self, recipe: TranslationRecipe, prepared: Prepared, step: Step) -> Validator:
        """Loss, and where asked for, BLEU and chrF."""

        def translator(model: nn.Module, decoding: DecodingConfig) -> Translator:
            return Translator(
                model, prepared.processor, decoding, pairing=recipe.pairing, max_source=recipe.max_source
            )

        language, lowercase = recipe.evaluation.language, recipe.tokenizer.target.lowercase
        score = partial(quick_scores, language=language, lowercase=lowercase)
        return Validator(recipe, prepared, step, COLUMNS, translator, score)

    def example(
        self, recipe: TranslationRecipe, sizes: Sequence[int], n: int, length: int, source_length: int
    ) -> Batch:
        """Pairs that differ by a token or two in length, as neighbours in a plan do."""
        draw = np.random.default_rng(0)

        def side(size: int, length: int) -> list[Any]:
            # With the start or end token that is added.
            lengths = (max(0, length - 1 + (0, -1, 1)[i % 3]) for i in range(n))
            return [draw.integers(len(SPECIALS), size, length) for length in lengths]

        source_vocab = sizes[-1] if recipe.is_one_text else sizes[0]
        return recipe.pairing.collate(side(source_vocab, source_length), side(sizes[-1], length))

    def predictor(
        self,
        recipe: TranslationRecipe,
        processor: Tokenizers,
        model: Any,
        decoding: Any,
        inference: Inference,
        **options: Any,
    ) -> Translator:
        """Translates."""
        return Translator(
            model,
            processor,
            decoding,
            pairing=recipe.pairing,
            max_source=recipe.max_source,
            inference=inference,
        )

    def source_of(self, recipe: TranslationRecipe, files: Sequence[Path]) -> FilesSource:
        """Two aligned files."""
        if len(files) != len(COLUMNS):
            raise RequestError(f"a translator is scored on two files, source and target, not {len(files)}")
        return FilesSource(columns={c: str(path.resolve()) for c, path in zip(COLUMNS, files, strict=True)})

    def scored(
        self, run: Trained, split: str, rows: Iterator[LocatedRow[Row]], how: Scoring
    ) -> kind.Evaluation:
        """BLEU, chrF and TER of its translations, likelihood of the references."""
        return scored(run, split, rows, how)
