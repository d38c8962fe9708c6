"""Scoring a run: the same decoding as ``predict``, detokenised text, metrics with their signatures."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from heedful.data.files import FilesSource
from heedful.data.sources import SourceConfig
from heedful.errors import DataError, RequestError, nearest
from heedful.evaluation.likelihood import Likelihood
from heedful.evaluation.score import Score
from heedful.evaluation.translation import (
    Preparation,
    sentence_scores,
    tokenised_bleu,
    translation_scores,
)
from heedful.runs.prepare import rows_of
from heedful.runs.run import Run, max_source
from heedful.tasks.forced import forced
from heedful.tasks.prediction import Prediction
from heedful.tasks.translation import COLUMNS, SOURCE, TARGET
from heedful.text.normalisation import tokenise_for_bleu

FORCED_BATCH = 64


@dataclass(frozen=True)
class Evaluation:
    """What came out for one data set.

    Args:
        split: its name.
        scores: BLEU, chrF, TER, perplexity and, where the recipe asks for it, tokenised BLEU.
        sources, references, predictions: sentence by sentence.
        lowercase: whether the scores are without regard to case.
    """

    split: str
    scores: list[Score]
    sources: list[str]
    references: list[str]
    predictions: list[Prediction]
    lowercase: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As ``docs/schemas/evaluation.schema.json`` has it, one entry of ``splits``."""
        return {"split": self.split, "scores": [score.to_dict() for score in self.scores]}

    def rows(self) -> Iterator[dict[str, Any]]:
        """One record a sentence, with its own scores."""
        texts = [p.text for p in self.predictions]
        own = sentence_scores(texts, self.references, lowercase=self.lowercase)
        for source, reference, prediction, scores in zip(
            self.sources, self.references, self.predictions, own, strict=True
        ):
            yield {
                "version": 1,
                "source": source,
                "reference": reference,
                **prediction.to_dict(),
                "scores": scores,
            }


def chosen_splits(run: Run, split: str, data: tuple[Path, Path] | None) -> dict[str, SourceConfig]:
    """The data sets to score: ``test`` stands for all test sets of the recipe.

    Raises:
        RequestError: there is no such split.
    """
    if data is not None:
        paths: dict[str, str | list[str]] = dict(zip(COLUMNS, map(str, (p.resolve() for p in data))))
        return {data[0].name: FilesSource(kind="files", columns=paths)}
    own = run.recipe.data
    known = {**own.test, "valid": own.valid, "train": own.train}
    if split == "test" and "test" not in own.test:
        if not own.test:
            raise RequestError("the recipe names no test set; use --split valid, or --data SOURCE TARGET")
        return dict(own.test)
    if split not in known:
        names = ", ".join(dict.fromkeys(["test", *known]))
        raise RequestError(f"--split {split}: no such split{nearest(split, known)}; there are {names}")
    return {split: known[split]}


def evaluate(
    run: Run,
    split: str,
    source: SourceConfig,
    *,
    decoding: Any = None,
    limit: int | None = None,
    progress: Callable[[int], None] = lambda n: None,
) -> Evaluation:
    """Translate a data set and score the translations; perplexity is of the references, teacher forced.

    A run that writes lower case is scored without regard to case, as the signatures then say.
    """
    rows = [row.row for row in islice(rows_of(source, Path(run.recipe.root or ".")), limit)]
    if not rows:
        raise DataError(f"{split}: there is nothing to score")
    sources, references = [r[SOURCE] for r in rows], [r[TARGET] for r in rows]
    predictions = run.predict(sources, decoding=decoding, progress=progress)
    texts = [p.text for p in predictions]
    lowercase = run.recipe.tokenizer.target.lowercase
    scores = list(translation_scores(texts, references, lowercase=lowercase).values())
    language = run.recipe.evaluation.tokenised_bleu
    if language is not None:
        prepared = Preparation(f"moses-{language}-lowercase", lambda text: tokenise_for_bleu(text, language))
        scores.append(tokenised_bleu(texts, references, preparation=prepared))
    scores += likelihood(run, sources, references)
    return Evaluation(split, scores, sources, references, predictions, lowercase)


def likelihood(run: Run, sources: Sequence[str], references: Sequence[str]) -> list[Score]:
    """Perplexity of the references, given their sources, per token of the run's own vocabulary.

    References for which the model has no positions are left out; the counts of the scores say how many
    were scored.
    """
    nll, tokens, n_bytes, scored = 0.0, 0, 0, 0
    device, longest = next(run.model.parameters()).device, max_source(run.recipe)
    limit = run.recipe.model.longest
    order = sorted(range(len(references)), key=lambda i: len(references[i]))
    for start in range(0, len(order), FORCED_BATCH):
        part = order[start : start + FORCED_BATCH]
        source = [ids[:longest] for ids in run.tokenizers.source.encode_batch([sources[i] for i in part])]
        target = run.tokenizers.target.encode_batch([references[i] for i in part])
        fit = [k for k, ids in enumerate(target) if limit is None or len(ids) < limit]
        if not fit:
            continue
        with torch.inference_mode():
            batch = run.tokenizers.collate([source[k] for k in fit], [target[k] for k in fit])
            results = forced(run.model, batch.to(device))
        nll -= math.fsum(float(r.log_probs.double().sum()) for r in results)
        tokens += sum(len(r.log_probs) for r in results)
        n_bytes += sum(len(references[part[k]].encode()) for k in fit)
        scored += len(fit)
    if not scored:
        return []
    scores = Likelihood(nll, tokens, n_bytes).scores(run.tokenizers.target.fingerprint[:12])
    return [replace(score, counts={**score.counts, "sentences": scored}) for score in scores.values()]
