"""Pairs of settings that must fit: the table, each pair with either side changed.

A pair that cannot work is refused, by a message that names both settings; the remedy in the message works. A
pair with one setting that has no effect is harmless, and is listed as such.
"""

import re
from typing import NamedTuple

import pytest

from heedful.errors import RequestError
from heedful.recipes.resolve import shipped_recipes
from heedful.runs.reading import read_recipe
from heedful.tasks.registry import TASKS

DE, LABELS, LM = "phrasebook-de", "my-own-labels", "phrasebook-lm"


class Pair(NamedTuple):
    """Two settings that contradict each other in a recipe, what the message says, and what mends it."""

    recipe: str
    one: str
    other: str
    message: str
    remedies: tuple[str, ...]
    """Each of them alone is enough."""
    context: tuple[str, ...] = ()


REFUSED = {
    "metric, direction": Pair(
        LABELS, "training.metric=loss", "training.direction=higher",
        "training.direction=higher contradicts training.metric=loss, for which lower is better",
        ("training.direction=null", "training.direction=lower", "training.metric=accuracy"),
    ),
    "direction, metric": Pair(
        LABELS, "training.direction=lower", "training.metric=macro-f1",
        "training.direction=lower contradicts training.metric=macro-f1, for which higher is better",
        ("training.direction=null", "training.metric=loss"),
    ),
    "metric, decode": Pair(
        DE, "training.metric=bleu", "validation.decode=0", "bleu and chrf need validation.decode",
        ("validation.decode=8", "training.metric=loss"),
    ),
    "decay, no length": Pair(
        DE, "schedule={kind: cosine, peak: 1e-3}", "training.max_updates=null",
        "schedule.kind=cosine needs a last update",
        ("schedule.updates=90", "training.max_updates=90", "training.max_epochs=2"),
        ("training.max_minutes=1",),
    ),
    "decay, warm-up": Pair(
        DE, "schedule={kind: linear, peak: 1e-3, warmup: 90}", "training.max_updates=90",
        "schedule.warmup=90 must be smaller than training.max_updates=90",
        ("schedule.warmup=9", "training.max_updates=91"),
    ),
    "decay to zero, later updates": Pair(
        DE, "schedule={kind: linear, peak: 1e-3, updates: 100}", "training.max_updates=200",
        "schedule.updates=100 decays the learning rate to schedule.floor=0",
        ("schedule.updates=null", "schedule.floor=1e-5", "training.max_updates=100"),
    ),
    "floor, peak": Pair(
        DE, "schedule.floor=0.1", "schedule.peak=1e-3", "floor=0.1 must be at most peak=0.001",
        ("schedule.floor=1e-4", "schedule.peak=0.1"), ("schedule.kind=cosine",),
    ),
    "floor of a plateau, peak": Pair(
        DE, "schedule.floor=0.1", "schedule.peak=1e-3", "floor=0.1 must be at most peak=0.001",
        ("schedule.floor=1e-4", "schedule.peak=0.1"), ("schedule.kind=plateau", "training.patience=null"),
    ),
    "first rate, peak": Pair(
        DE, "schedule.warmup_from=0.1", "schedule.peak=1e-3", "warmup_from=0.1 must be at most peak=0.001",
        ("schedule.warmup_from=0", "schedule.peak=0.2"), ("schedule.kind=inverse-sqrt",),
    ),
    "patience, patience": Pair(
        DE, "schedule={kind: plateau, peak: 1e-3, patience: 3}", "training.patience=4",
        "training.patience=4 ends the training before schedule.patience=3 has reduced the rate",
        ("training.patience=5", "schedule.patience=2", "training.patience=null"),
    ),
    "no limit": Pair(
        DE, "training.max_updates=null", "training.patience=null", "set at least one of max_updates",
        ("training.max_updates=9", "training.max_epochs=1", "training.max_minutes=1", "training.patience=2"),
    ),
    "micro-batches, tokens": Pair(
        DE, "training.accumulate=200", "training.tokens_per_update=100", "accumulate=200 must be at most",
        ("training.accumulate=2", "training.tokens_per_update=200"),
    ),
    "n-best, beam": Pair(
        DE, "decoding.n_best=3", "decoding.beam=2", "n_best must be at most beam (2), got 3",
        ("decoding.n_best=2", "decoding.beam=3"), ("decoding.kind=beam",),
    ),
    "length penalty, greedy": Pair(
        DE, "decoding={kind: greedy}", "decoding.length_penalty={kind: none}",
        "decoding.length_penalty: unknown key; it needs decoding.kind=beam", ("decoding.kind=beam",),
    ),
    "samples, temperature": Pair(
        DE, "decoding.n=3", "decoding.temperature=0", "so n=3 samples would be equal",
        ("decoding.n=1", "decoding.temperature=0.5"), ("decoding.kind=sample",),
    ),
    "coverage penalty, no attention": Pair(
        "phrasebook-rnn", "model.attention=null", "decoding.coverage=0.2",
        "decoding.coverage=0.2 requires attention over the source",
        ("decoding.coverage=0", "model.attention=dot"),
        ("model.direction=left-to-right", "decoding.kind=beam"),
    ),
    "coverage penalty, no source": Pair(
        LM, "decoding={kind: beam}", "decoding.coverage=0.2", "decoding.coverage is not supported here",
        ("decoding.coverage=0",),
    ),
    "maximum length, no source": Pair(
        LM, "decoding={kind: beam}", "decoding.max_length.cap=9", "set completion.max_new_tokens",
        ("decoding.max_length.cap=null",),
    ),
    "stride, context": Pair(
        LM, "evaluation.stride=99", "model.context=64", "stride=99 is longer than model.context=64",
        ("evaluation.stride=64", "model.context=99"),
    ),
    "three-way ties, two vocabularies": Pair(
        DE, "model.tie=three-way", "tokenizer.shared=false", "model.tie=three-way requires one vocabulary",
        ("model.tie=target", "tokenizer.shared=true"),
    ),
    "dropout of merges, no merges": Pair(
        DE, "data.bpe_dropout=0.1", "tokenizer.subwords={kind: word}", "which has no merges",
        ("data.bpe_dropout=0", "tokenizer.subwords={kind: bpe, vocab_size: 300}"),
    ),
    "merges, vocabulary size": Pair(
        DE, "tokenizer.subwords={kind: bpe, merges: 9}", "tokenizer.subwords.vocab_size=300",
        "exactly one of vocab_size and merges must be given",
        ("tokenizer.subwords.merges=null", "tokenizer.subwords.vocab_size=null"),
    ),
    "filter, positions": Pair(
        DE, "data.filter.max_length=30", "model.max_length=20", "set data.filter.max_length to at most 19",
        ("data.filter.max_length=19", "model.max_length=31", "model.positions.kind=rotary"),
        ("model.positions={kind: learned}", "data.bpe_dropout=0"),
    ),
    "maximum length, positions": Pair(
        DE, "decoding.max_length.cap=20", "model.max_length=20", "set decoding.max_length.cap to at most 19",
        ("decoding.max_length.cap=19", "decoding.max_length.cap=null", "model.max_length=21"),
        ("model.positions={kind: learned}", "data.bpe_dropout=0", "data.filter.max_length=9"),
    ),
    "balanced twice": Pair(
        LABELS, "training.sampling=balanced", "objective.class_weights=balanced",
        "both make rare labels count more",
        ("training.sampling=shuffled", "objective.class_weights=null"),
    ),
    "shares, validation source": Pair(
        DE, "data.split.valid=0.1", "data.valid.limit=9", "data.valid and data.split.valid are both given",
        ("data.split.valid=null", "data.valid=null"),
    ),
}  # fmt: skip

HARMLESS = {
    "patience longer than the training": (DE, ["training.patience=99", "training.validate_every=500"]),
    "interval longer than the training": (DE, ["training.validate_every=9999", "training.save_every=9999"]),
    "more checkpoints averaged than kept": (DE, ["training.average=5", "training.keep_last=2"]),
    "decoding of validations that decode nothing": (
        DE, ["validation.decode=0", "validation.decoding={kind: greedy}"],
    ),
    "cut distribution of the most probable token": (
        DE, ["decoding={kind: sample, temperature: 0, top_k: 3}"],
    ),
    "rule for an average that is not made": (DE, ["training.average=0", "training.keep_average=always"]),
    "warm-up longer than a trial of the training": (
        DE, ["schedule={kind: inverse-sqrt, warmup: 500}", "training.max_updates=20"],
    ),
    "weights by hand with balanced sampling": (
        LABELS, ["training.sampling=balanced", "objective.class_weights={a: 2}"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_pair_that_does_not_fit_is_refused_from_either_side(name):
    pair = REFUSED[name]
    for overrides in ([pair.one, pair.other], [pair.other, pair.one]):
        if overrides[0].split("=")[0] in pair.other and "={" in pair.one:
            continue  # a section replaces its own keys
        with pytest.raises(RequestError, match=re.escape(pair.message)):
            read_recipe(pair.recipe, [*pair.context, *overrides])
    for remedy in pair.remedies:
        read_recipe(pair.recipe, [*pair.context, pair.one, pair.other, remedy])


@pytest.mark.parametrize("name", HARMLESS)
def test_a_setting_without_effect_is_no_error(name):
    recipe, overrides = HARMLESS[name]
    read_recipe(recipe, overrides)


# Metrics -----------------------------------------------------------------------------------------------

LOWER = {"loss", "perplexity"}
HIGHER = {
    "accuracy", "accuracy@1", "bleu", "chrf", "exact-match", "f1", "macro-f1", "mean-iou", "micro-f1", "mrr",
    "pearson", "rouge-1", "rouge-2", "rouge-l", "span-f1", "span-precision", "span-recall", "spearman",
}  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_the_direction_of_every_metric_is_known(task):
    cls = TASKS[task].Recipe
    higher = cls.decoded_metrics | cls.rising_metrics | cls.scored_metrics
    assert higher <= HIGHER
    assert cls.falling_metrics <= LOWER


@pytest.mark.slow
@pytest.mark.parametrize("name", shipped_recipes())
def test_every_metric_of_every_shipped_recipe_has_its_direction(name):
    recipe, _ = read_recipe(name)
    assert recipe.training.direction is None
    for metric in recipe.metric_names() | recipe.scored_metrics:
        changed, _ = read_recipe(name, [f"training.metric={metric}"])
        assert changed.direction == ("lower" if metric in LOWER else "higher")
