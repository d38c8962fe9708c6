"""Scheduled sampling from recipe to run: what is refused, and that runs stay what they were."""

import pytest

from heedful.errors import RequestError
from heedful.recipes.trees import Mark, Tree
from heedful.runs.reading import read_recipe, recipe_from
from heedful.runs.train import train_run
from heedful.tasks.registry import task_for
from heedful.text.specials import SPECIALS
from heedful.training.scheduled_sampling import LinearDecay

LAYER = {"mixer": {"kind": "attention", "n_heads": 2}, "channels": {"kind": "feed-forward", "d_ff": 17}}
TRANSFORMER = {"kind": "transformer", "d_model": 12, "n_layers": 1, "dropout": 0.2, "layer": LAYER}
LANGUAGE_MODEL = {"kind": "language-model", "d_model": 12, "n_layers": 1, "context": 31, "layer": LAYER}
RECURRENT = {"kind": "recurrent", "d_embedding": 5, "d_hidden": 7}
HALF = {"kind": "linear", "offset": 0.5, "slope": 0.0}


def plain(sampling=None, model=TRANSFORMER, objective=(), **sections):
    texts = {"kind": "files", "columns": {"source": "text", "target": "text"}}
    return {
        "task": {"kind": "translation"},
        "data": {"train": texts, "valid": texts, "filter": {"max_length": 14}},
        "tokenizer": {"subwords": {"kind": "word"}},
        "model": model,
        "objective": {"scheduled_sampling": sampling, **dict(objective)},
        "schedule": {"kind": "constant", "peak": 1e-2},
        "training": {
            "max_updates": 6,
            "tokens_per_update": 60,
            "validate_every": 3,
            "save_every": 3,
            "precision": "fp32",
        },
        **sections,
    }


def recipe(*given, **sections):
    return recipe_from(Tree.of(plain(*given, **sections), Mark("r")))


@pytest.fixture
def corpus(tmp_path):
    lines = ["a b c d", "b", "d c a", "c c a b d", "a", "b d d c a b"] * 9
    (tmp_path / "text").write_text("".join(line + "\n" for line in lines))
    return tmp_path


def weights(folder, settings, name, **how):
    train_run(settings.model_copy(update={"root": str(folder)}), folder / name, device="cpu", **how)
    return (folder / name / "weights.safetensors").read_bytes()


def limited(settings, **limits):
    return settings.model_copy(update={"training": settings.training.model_copy(update=limits)})


def test_the_recipe_says_how_and_special_tokens_are_never_read():
    settings = recipe({"kind": "linear", "slope": 0.01}, objective={"chunk": 5})
    sampling = task_for(settings).scheduled_sampling()
    assert sampling.decay == LinearDecay(slope=0.01)
    assert (sampling.seed, sampling.chunk) == (settings.training.seed, 5)
    assert list(sampling.unread) == [*SPECIALS.never_generated[:2], SPECIALS.end, *range(3, len(SPECIALS))]
    assert task_for(recipe()).scheduled_sampling() is None
    captioner, _ = read_recipe("scenes", ["objective.scheduled_sampling={kind: exponential, base: 0.99}"])
    assert task_for(captioner).scheduled_sampling().decay.base == 0.99


@pytest.mark.parametrize(
    ("model", "objective", "message"),
    [
        (LANGUAGE_MODEL, {"loss_on": "all"}, r"not supported with objective\.loss_on=all"),
        (TRANSFORMER, {"guided": {"step": "input"}}, r"not supported with objective\.guided\.step=input"),
    ],
)
def test_what_does_not_fit_is_refused(model, objective, message):
    with pytest.raises(RequestError, match=r"objective\.scheduled_sampling.*" + message):
        recipe(HALF, model, objective)
    recipe(None, model, objective)


def test_other_tasks_do_not_have_it():
    with pytest.raises(RequestError, match=r"objective\.scheduled_sampling"):
        read_recipe("phrasebook-lm", ["objective.scheduled_sampling={kind: linear, slope: 0.1}"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [TRANSFORMER, RECURRENT, LANGUAGE_MODEL], ids=["transformer", "recurrent", "language model"]
)
def test_a_stopped_run_goes_on_as_if_it_had_not_been_and_only_a_probability_above_0_changes_it(corpus, model):
    teacher_forced = weights(corpus, recipe(None, model), "forced")
    always_gold = recipe({"kind": "linear", "offset": 1.0, "slope": 0.0}, model)
    assert weights(corpus, always_gold, "gold") == teacher_forced
    half = recipe(HALF, model)
    whole = weights(corpus, half, "whole")
    assert whole != teacher_forced
    weights(corpus, limited(half, max_updates=4), "parts")
    assert weights(corpus, half, "parts", resume=True) == whole
