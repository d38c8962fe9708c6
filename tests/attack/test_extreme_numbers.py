"""Every number of every recipe, set to an absurd value, is refused by a message or is harmless.

Recipes run in another process, whose memory is limited. A call may take ``SECONDS`` before that process is
killed, which is a failure: nothing may loop or allocate over a number of a recipe.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bounded_trainings
import pytest
from base_recipes import BASES, base, task_of, write_rows
from extremes import ABSURD, Number, Worker, numbers, owner_of
from pydantic import BaseModel

from heedful.recipes.resolve import shipped_recipes
from heedful.runs.reading import read_recipe
from heedful.tasks.registry import TASKS

SECONDS = 60.0
ANY = math.inf

ANY_VALUE = """
AdamWConfig: weight_decay
AnsweringConfig: longest threshold
Augmentation: shift
AverageLength: alpha
BeamSettings: coverage
BlocksConfig: earlier size
BpeConfig: alphabet
BuiltInSource: seed
CaptionerConfig: max_length
CharacterConfig: min_frequency
ClassObjectiveConfig: class_weights
CompletionConfig: max_new_tokens
ConstantConfig: peak warmup
CosineConfig: key_strength
Crop: aspect
DilatedConfig: size step
DiverseBeamConfig: diversity
Expected: minutes parameters scores
ExpertsConfig: importance load
Filter: max_length max_ratio
FixedConfig: size
GlobalConfig: n size
GnmtLength: alpha
GuidedConfig: weight
InverseSigmoidDecay: k
InverseSqrtConfig: warmup warmup_from
LSTMConfig: forget_bias
LinearDecay: offset slope
MaxLength: cap extra ratio
MuonConfig: adam_share eps weight_decay
ObjectiveConfig: class_weights huber_delta longest_span temperature
OutputRules: min_length no_repeat_ngram repetition_penalty
PlateauConfig: floor patience warmup
Recipe: size
RotaryConfig: base
SampleSettings: seed temperature top_k
SentenceEmbeddingConfig: min_similarity
SinusoidalConfig: base offset
Source: limit skip
StridedConfig: stride
TrainingConfig: average clip_norm keep_best keep_last log_every max_epochs max_minutes max_updates
TrainingConfig: patience save_every seed tokens_per_update validate_every
TransformerConfig: max_length
TreeConfig: branching
UnigramConfig: alphabet min_frequency
ValidationConfig: decode tokens
VocabularyObjectiveConfig: chunk
WarmupConfig: factor warmup
WindowConfig: size
WindowsConfig: stride
WordConfig: min_frequency
WordPieceConfig: alphabet min_frequency
_AdamConfig: eps
_DecayConfig: floor updates
_Merging: min_frequency
_PeakConfig: peak
"""
"""Numbers that may have any value: nothing loops or allocates over them, or only up to what the data need."""

HARMLESS: dict[str, float] = {
    "CharacterConfig.vocab_size": 10_000_000,
    "WordConfig.vocab_size": 10_000_000,
    "UnigramConfig.vocab_size": 10_000_000,
    "WordPieceConfig.vocab_size": 10_000_000,
    "_Merging.vocab_size": 10_000_000,
    "_Merging.merges": 10_000_000,
    "CompressedAttentionConfig.factor": 1_000_000,  # a table, which has to fit in memory
    "EncoderConfig.max_length": ANY,  # of learned positions a table, which is refused if it does not fit
    "EncoderConfig.segments": 1_000_000,  # a table, which has to fit in memory
    "LanguageModelConfig.context": ANY,  # the same; no window is longer than the data
    **{
        f"{config}.{key}": ANY
        for config, keys in (line.split(": ") for line in ANY_VALUE.strip().splitlines())
        for key in keys.split()
    },
}
"""The largest sensible value of each number that may be one of `ABSURD`; for most, any is."""

REFUSED = {"RequestError", "DataError", "HeaderError", "WorkError"}


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    folder = tmp_path_factory.mktemp("numbers")
    write_rows(folder)
    with Worker(Path(bounded_trainings.__file__), [str(folder)], SECONDS) as worker:
        yield worker


def found() -> dict[str, list[Number]]:
    """Every number of the recipes of all tasks, in recipes of several tasks and kinds."""
    by_setting: dict[str, dict[str, Number]] = {}
    for name in BASES:
        for number in numbers(name, TASKS[task_of(name)].Recipe, base(name)):
            key = json.dumps(number.settings, sort_keys=True)
            by_setting.setdefault(number.setting, {}).setdefault(key, number)
    return {setting: list(each.values()) for setting, each in sorted(by_setting.items())}


def largest(value: Any) -> float:
    parts = value if isinstance(value, list) else value.values() if isinstance(value, dict) else [value]
    return max(parts)


def wrong(setting: str, value: Any, answer: dict[str, str]) -> str | None:
    """What is wrong with an answer, or None."""
    if answer["result"] in REFUSED:
        return None
    if answer["result"] in ("trained", "checked") and largest(value) <= HARMLESS.get(setting, -math.inf):
        return None
    return f"{setting}={value}: {answer['result']} {answer['message'][-600:]}"


def trainable(candidates: list[Number], worker: Worker, known: dict[str, bool]) -> Number:
    """The first recipe that trains as it is, or else the first."""
    for number in candidates[:25]:
        key = json.dumps(number.settings, sort_keys=True)
        if key not in known:
            known[key] = worker.call({"recipe": number.settings, "train": True})["result"] == "trained"
        if known[key]:
            return number
    return candidates[0]


def test_every_harmless_number_is_a_setting():
    assert HARMLESS.keys() <= found().keys()


@pytest.mark.slow
@pytest.mark.timeout(7200)  # for the whole sweep
def test_numbers_of_every_kind_of_section_are_refused_or_harmless(worker, draw, amount):
    by_setting, known = found(), {}
    chosen = draw.sample(sorted(by_setting), min(len(by_setting), amount(12, 10_000)))
    problems = []
    for setting in chosen:
        number = trainable(by_setting[setting], worker, known)
        for value in number.absurd:
            answer = worker.call({"recipe": number.changed(value), "train": True})
            problems.append(wrong(setting, value, answer))
    assert "\n".join(filter(None, problems)) == ""


def numbers_of(config: BaseModel, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """The setting and the key of each number of a recipe."""
    for key in type(config).model_fields:
        value = getattr(config, key)
        if isinstance(value, BaseModel):
            yield from numbers_of(value, (*prefix, key))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{owner_of(type(config), key).__name__}.{key}", ".".join((*prefix, key))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_numbers_of_shipped_recipes_are_refused_or_harmless(worker, draw, amount):
    names = sorted(shipped_recipes())
    problems = []
    for name in draw.sample(names, min(len(names), amount(4, 1000))):
        recipe, _ = read_recipe(name)
        for setting, key in draw.sample([*numbers_of(recipe)], amount(5, 0)) or numbers_of(recipe):
            for value in ABSURD:
                written = {math.inf: ".inf"}.get(value, ".nan" if value != value else value)
                request = {"recipe": name, "overrides": [f"{key}={written}"], "train": False}
                problems.append(wrong(setting, value, worker.call(request)))
    assert "\n".join(filter(None, problems)) == ""


def test_a_worker_reports_what_ends_it(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, time\nprint('ready', flush=True)\nwhile True:\n"
        "    value = input()\n    os._exit(3) if value == '1' else time.sleep(60)\n",
        "utf-8",
    )
    with Worker(script, [], 0.5) as worker:
        assert worker.call(1) == {"result": "died", "message": "the process ended with 3"}
        assert worker.call(2) == {"result": "died", "message": "no answer in 0.5 s"}
