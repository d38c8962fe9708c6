"""Laws of continuous batching: joining and leaving change no bit of any completion, and cost nothing."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from predictors import SIZES, noisy, tokenizer

from heedful.decoding.config import BeamConfig, GreedyConfig, MbrConfig, SampleConfig
from heedful.engine.choosing import Inference
from heedful.engine.compiled import CompiledModel
from heedful.engine.native import library
from heedful.models.language_model import LanguageModelConfig
from heedful.models.registry import build_model
from heedful.nn.layout import Tokens
from heedful.tasks.generation.output_constraints import NO_CONSTRAINTS, OutputConstraints
from heedful.tasks.language_modelling import slots as module
from heedful.tasks.language_modelling.continuing import Completer, Limits
from heedful.tasks.language_modelling.slots import Completion, Slots, fits
from heedful.tasks.prediction import PredictOptions

pytestmark = pytest.mark.skipif(library() is None, reason="no C compiler here")

GREEDY = GreedyConfig()
PRECISIONS = ["fp32", "int8"]
CONTEXTS = [11, 97]
LENGTHS = [0, 1, 2, 3, 5, 7, 11, 13, 29, 61, 127]
"""Of prompts, in characters."""
WORDS = "the cat sat on the mat eau a rat that sat at tea "
STOPS = [(), (), ("at",), ("e", "the ca")]
DECODINGS = [
    {},
    {"repetition_penalty": 1.5},
    {"no_repeat_ngram": 2, "min_length": 4},
    {"temperature": 0.0},
    {"temperature": 0.7},
    {"temperature": 1.3, "top_k": 5},
    {"top_p": 0.8, "min_p": 0.05},
    {"temperature": 0.9, "epsilon": 0.01, "repetition_penalty": 1.2},
    {"top_p": 0.9, "min_length": 3},
]
CONSTRAINTS = [NO_CONSTRAINTS] * 4 + [OutputConstraints(must_not=("at",)), OutputConstraints((), (), "tea")]


@cache
def prepared(context, precision):
    """A model that is compiled once."""
    torch.manual_seed(7)
    config = LanguageModelConfig(**SIZES, context=context)
    return Inference(noisy(build_model(config, tokenizer().vocab_size)), precision)


def completer(context=11, precision="fp32", decoding=GREEDY, **limits):
    inference, options = prepared(context, precision), PredictOptions()
    return Completer(
        inference.model, tokenizer(), decoding, context=context, inference=inference, options=options,
        limits=Limits(**limits),
    )  # fmt: skip


def drawn(rng, context, precision):
    """The arguments of a completion."""
    settings = DECODINGS[rng.integers(len(DECODINGS))]
    is_sample = bool({"temperature", "top_k", "top_p"} & {*settings})
    seed = {"seed": int(rng.integers(3))} if is_sample else {}
    decoding = (SampleConfig if is_sample else GreedyConfig)(**settings, **seed)
    own = completer(
        context, precision, decoding,
        max_new_tokens=int(rng.integers(4, 15 if rng.random() < 0.7 else context + 30)),
        stop=STOPS[rng.integers(len(STOPS))],
    )  # fmt: skip
    start, length = rng.integers(len(WORDS)), rng.choice(LENGTHS)
    text = (WORDS * 9)[start : start + length]
    constraints = CONSTRAINTS[rng.integers(len(CONSTRAINTS))]
    return own, text, {"ordinal": int(rng.integers(4)), "constraints": constraints}


def alone(own, text, ordinal=0, constraints=NO_CONSTRAINTS):
    return own.predict([text], first=ordinal, constraints=[constraints] if constraints else ())[0]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("context", CONTEXTS)
def test_each_completion_is_the_one_alone(precision, context, amount, monkeypatch):
    """Random schedules; some leave before their end, some slide, and the caches grow and shrink."""
    for number in range(amount(3, 50)):
        rng = np.random.default_rng([number, context, precision == "int8"])
        planned = [drawn(rng, context, precision) for _ in range(rng.integers(8, 41))]
        slots = Slots.of(planned[0][0], n=int(rng.integers(1, 65)))
        monkeypatch.setattr(module, "READ_TOGETHER", int(rng.choice([1, 50, 4096])))
        if rng.random() < 0.5:
            slots.max_bytes = int(rng.integers(1, 30)) * 64 * slots._bytes
        held, pieces = {}, {}
        while planned or held:
            while planned and (not held or rng.random() < 0.6):
                own, text, more = planned[-1]
                key = len(planned)
                pieces[key] = []
                completion = Completion(own, text, on_text=pieces[key].append, **more)
                if not slots.accepts(completion.generation):
                    break
                held[key] = (completion, *planned.pop())
                slots.add(completion.generation)
            ended = slots.step()
            if rng.random() < 0.1:
                leaving = held[sorted(held)[rng.integers(len(held))]][0].generation
                if leaving.running:
                    slots.remove(leaving)
                    ended.append(leaving)
            for key, (completion, own, text, more) in list(held.items()):
                if completion.generation in ended:
                    del held[key]
                    check(completion, own, text, more, pieces[key])
            if slots.max_bytes is not None and len(held) > 1:
                assert slots.cache_bytes <= slots.max_bytes
        assert not slots.running
        assert slots.cache_bytes == 0
        assert slots.step() == []


def check(completion, own, text, more, pieces):
    expected, removed = alone(own, text, **more), completion.generation.removed
    if not removed:
        assert completion.prediction() == expected
        assert "".join(pieces) == expected.text
        return
    found = completion.generation.hypothesis
    assert found.ids == tuple(expected.ids[: len(found.ids)])
    assert list(found.log_probs) == list(expected.log_probs[: len(found.log_probs)])
    assert not found.finished


def test_64_rows_are_those_alone():
    """More rows than a step has in one group, that begin together."""
    rng = np.random.default_rng(1)
    planned = [drawn(rng, 11, "fp32") for _ in range(64)]
    slots = Slots.of(planned[0][0])
    completions = [Completion(own, text, **more) for own, text, more in planned]
    for completion in completions:
        slots.add(completion.generation)
    assert slots.n_free == 0
    while slots.running:
        slots.step()
    for completion, (own, text, more) in zip(completions, planned, strict=True):
        assert completion.prediction() == alone(own, text, **more)


def endless(n=40, text="the cat", **settings):
    """A completion that has exactly so many tokens."""
    return Completion(completer(97, max_new_tokens=n, decoding=GreedyConfig(min_length=n, **settings)), text)


def test_freed_lines_are_reused():
    slots = Slots.of(completer(97))
    running = [endless(30 + 3 * i) for i in range(4)]
    for completion in running:
        slots.add(completion.generation)
    slots.step()
    caches = slots._state.own_caches
    for _ in range(9):
        oldest, *running = running
        slots.remove(oldest.generation)
        running.append(endless())
        slots.add(running[-1].generation)
        slots.step()
        assert slots._state.own_caches is caches
    slots.add(endless().generation)
    slots.step()
    assert slots._state.own_caches.lines == 8, "doubled"


def test_who_left_costs_no_step(monkeypatch):
    n_rows = []
    step, extend = CompiledModel.step, CompiledModel.extend
    monkeypatch.setattr(
        CompiledModel, "step", lambda self, ids, state: n_rows.append(len(ids)) or step(self, ids, state)
    )
    monkeypatch.setattr(
        CompiledModel,
        "extend",
        lambda self, tokens, state: n_rows.append(tokens.layout.n_sequences) or extend(self, tokens, state),
    )
    slots = Slots.of(completer(97))
    first, second, third = completions = [endless(9), endless(3), endless(9)]
    for completion in completions:
        slots.add(completion.generation)
    ended = [slots.step() for _ in range(3)]
    assert ended == [[], [], [second.generation]]
    slots.remove(third.generation)
    assert slots.n_free == 63
    slots.step()
    waiting = endless()
    slots.add(waiting.generation)
    slots.remove(waiting.generation)
    slots.step()
    slots.remove(first.generation)
    slots.step()
    assert n_rows == [3, 3, 3, 1, 1]
    assert len(first.generation.hypothesis.ids) == 5
    assert waiting.generation.hypothesis.ids == ()
    assert slots.cache_bytes == 0


def test_errors_of_a_callback_end_one_generation():
    class BrokenError(Exception):
        pass

    def broken(token):
        if failing.generation.position == 4:
            raise BrokenError

    slots = Slots.of(completer(97))
    failing, *others = completions = [endless(9), endless(9), endless(9, text="a rat")]
    failing.generation.on_token = broken
    for completion in completions:
        slots.add(completion.generation)
    ended = [generation for _ in range(9) for generation in slots.step()]
    assert ended == [failing.generation, *(completion.generation for completion in others)]
    with pytest.raises(BrokenError):
        failing.prediction()
    for completion in others:
        assert completion.prediction() == alone(completion.completer, completion.text)


@pytest.mark.parametrize("decoding", [GreedyConfig(), SampleConfig()])
def test_logits_that_are_no_distribution_end_one_generation(decoding, monkeypatch):
    logits = CompiledModel.logits

    def damaged(self, hidden):
        found = logits(self, hidden)
        found[1] = float("nan")
        return found

    own = completer(decoding=decoding)
    slots, completions = Slots.of(own), [Completion(own, text) for text in ("a", "cat", "tea")]
    for completion in completions:
        slots.add(completion.generation)
    monkeypatch.setattr(CompiledModel, "logits", damaged)
    assert slots.step() == [completions[1].generation]
    monkeypatch.setattr(CompiledModel, "logits", logits)
    assert "logits for generated token 1 contain NaN" in str(completions[1].generation.error)
    while slots.running:
        slots.step()
    assert [completions[i].prediction() for i in (0, 2)] == [alone(own, text) for text in ("a", "tea")]


def test_callbacks_add_and_remove_others():
    slots = Slots.of(completer(97))
    first, second, third = endless(5), endless(9), endless(5)

    def exchange(token):
        if first.generation.position == 2:
            slots.remove(second.generation)
            slots.add(third.generation)

    first.generation.on_token = exchange
    slots.add(first.generation)
    slots.add(second.generation)
    while slots.running:
        slots.step()
    assert second.generation.hypothesis.ids == first.generation.hypothesis.ids[:1]
    assert third.prediction() == first.prediction() == alone(first.completer, first.text)


def test_other_decodings_run_between_steps():
    completion = endless(20)
    slots, expected = Slots.of(completion.completer), alone(completion.completer, completion.text)
    slots.add(completion.generation)
    while slots.running:
        slots.step()
        completer(97, decoding=BeamConfig(beam=3), max_new_tokens=3).predict(["tea", "a rat"])
    assert completion.prediction() == expected


def test_slots_and_memory_are_bounded():
    slots = Slots.of(completer(97), n=3)
    slots.max_bytes = 2 * 40 * slots._bytes
    short = Completion(completer(97, max_new_tokens=11), "the")
    slots.add(endless(97).generation)  # more than the bound: alone, it is accepted
    assert not slots.accepts(short.generation)
    with pytest.raises(ValueError, match="free slot"):
        slots.add(short.generation)
    first = slots.running[0]
    slots.max_bytes = None
    with pytest.raises(ValueError, match="new generation"):
        slots.add(first)
    slots.max_bytes = 2 * 40 * slots._bytes
    slots.remove(first)
    for _ in range(2):
        slots.add(endless(30).generation)
    assert not slots.accepts(endless(30).generation)
    while len(slots.running) == 2:
        slots.step()
        assert slots.cache_bytes <= slots.max_bytes
    slots.max_bytes = None
    for _ in range(3):
        slots.add(endless(5).generation)
    assert slots.n_free == 0
    assert not slots.accepts(short.generation)


def test_what_does_not_fit():
    assert fits(SampleConfig(n=1))
    assert not any(map(fits, (SampleConfig(n=2), BeamConfig(beam=1), MbrConfig())))
    with pytest.raises(ValueError, match="one sample"):
        Completion(completer(decoding=SampleConfig(n=2)), "a")
    refused = Completion(completer(), "a", constraints=OutputConstraints((), ("the",), "the cat"))
    assert "contradict" in refused.prediction().error
    with torch.no_grad():
        own = completer()
        handle = own.model.register_forward_hook(lambda *_: None)
        assert Slots.of(own) is None
        handle.remove()


def test_only_simple_hypotheses_are_added_and_moved():
    model = prepared(97, "fp32").ready()
    _, state = model.extend(Tokens.of([[3, 4], [5, 6, 7]]), model.start(2))
    moved = replace(state).resized(3, 9)
    assert moved.own_caches.lines == 3
    assert moved.add(1).own_caches is moved.own_caches
    with pytest.raises(ValueError, match="do not fit"):
        state.resized(2, 2)
    with pytest.raises(ValueError, match="do not fit"):
        state.resized(1, 9)
    with pytest.raises(ValueError, match="width 1"):
        state.expand(2).add(1)
