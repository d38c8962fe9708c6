"""Prompts in, continuations out: against plain loops without caches, with stops, streams and slides."""

import threading
from functools import cache

import pytest
import torch
from small_tasks import LAYER, task_of

from heedful.data.sources import LocatedRow, Location
from heedful.decoding.config import BeamConfig, GreedyConfig, MaxLength, SampleConfig
from heedful.decoding.scoring import NoPenalty
from heedful.errors import RequestError, WorkError
from heedful.models.language_model import LanguageModelConfig, build
from heedful.nn.layout import Tokens
from heedful.tasks.language_modelling.continuing import Completer, Continuation, Limits, Stops
from heedful.tasks.model_input import AnswerOptions, ids_in
from heedful.tasks.prediction import Prediction, PredictOptions
from heedful.tasks.running_text import TextProcessor
from heedful.text.configuration import BpeConfig, ByteConfig, CharacterConfig, WordConfig
from heedful.text.training import train_tokenizer

CONTEXT = 11
TEXT = "the cat sat on the mat; the dog sat on the log.\nÄ weiße Maus"
PROMPTS = ["the cat", "", "d", "on the mat; the dog sat on the log", "the cat", "\n"]


@cache
def processor(kind="character"):
    config = {
        "character": CharacterConfig(kind="character"),
        "byte": ByteConfig(kind="byte"),
        "bpe": BpeConfig(kind="bpe", merges=12),
        "word": WordConfig(kind="word"),
    }[kind]
    return TextProcessor(train_tokenizer(config, [TEXT]))


def completer(decoding=None, kind="character", positions="learned", context=CONTEXT, n=23, stop=(), **more):
    torch.manual_seed(7)
    config = LanguageModelConfig(
        d_model=12,
        n_layers=2,
        context=context,
        dropout=0.3,
        positions=positions,
        tie=False,
        layer={"mixer": {"n_heads": 3}, "channels": {"d_ff": 17}},
    )
    model = build(config, *processor(kind).sizes).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    limits = Limits(n, tuple(stop))
    return Completer(
        model, processor(kind).text, decoding or GreedyConfig(), context=context, limits=limits, **more
    )


def slow(it, prompt, choose=lambda log_probs: int(log_probs.argmax())):
    """Ids and log-probabilities from whole passes over what the model may see, as the docstring has it."""
    own = it.tokenizer
    ids = (own.encode(prompt) or [own.specials.end])[-it.context :]
    n_prompt, begin, found = len(ids), 0, []
    for _ in range(it.limits.max_new_tokens):
        if len(ids) - begin > it.context:
            begin = len(ids) - max(1, it.context // 2)
        with torch.no_grad():
            logits = it.model.heads["token"](it.model(Tokens.of([ids[begin:]]))[-1])
        log_probs = logits.log_softmax(-1)
        log_probs[list(own.specials.never_generated)] = float("-inf")
        token = choose(log_probs)
        found.append(float(log_probs[token]))
        if token == own.specials.end:
            break
        ids.append(token)
    return ids[n_prompt:], found


@pytest.mark.slow
@pytest.mark.parametrize("context", [1, 2, CONTEXT, 100])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
def test_greedy_completions_are_those_of_whole_passes(positions, context):
    it = completer(positions=positions, context=context)
    for prompt, prediction in zip(PROMPTS, it.predict(PROMPTS), strict=True):
        ids, log_probs = slow(it, prompt)
        assert prediction.tokens == it.tokenizer.tokens(ids)
        assert prediction.log_probs == pytest.approx(log_probs, abs=1e-5)
        assert prediction.score == pytest.approx(sum(log_probs), abs=1e-4)
        assert it.tokenizer.decode(ids) == prediction.text


@pytest.mark.slow
def test_the_loops_above_slide_and_end_and_go_on():
    """Otherwise they would have tested little."""
    it = completer()
    lengths = {len(slow(it, prompt)[1]) for prompt in PROMPTS}
    assert max(lengths) == 23
    assert len(it.tokenizer.encode(PROMPTS[3])) > CONTEXT


DECODINGS = [
    GreedyConfig(),
    BeamConfig(beam=3, n_best=2, length_penalty=NoPenalty()),
    SampleConfig(seed=5, temperature=1.4, top_k=30, top_p=0.95, n=2),
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["character", "byte", "bpe", "word"])
@pytest.mark.parametrize("decoding", DECODINGS, ids=lambda d: d.kind)
def test_as_many_completions_as_prompts_in_order_whatever_the_batch(decoding, kind):
    together = completer(decoding, kind).predict(PROMPTS)
    alone = completer(decoding, kind, budget=1).predict(PROMPTS)
    assert len(together) == len(PROMPTS)
    for ours, other in zip(together, alone, strict=True):
        for one, same in zip([ours, *ours.alternatives], [other, *other.alternatives], strict=True):
            assert one.tokens == same.tokens
            assert one.score == pytest.approx(same.score, abs=1e-4)
    for i, prompt in enumerate(PROMPTS[:2]):
        (own,) = completer(decoding, kind).predict([prompt], first=i)
        assert own.tokens == together[i].tokens
    if decoding.kind != "sample":
        assert together[0] == together[4]


@pytest.mark.parametrize("decoding", DECODINGS[:2], ids=lambda d: d.kind)
@torch.no_grad()
def test_log_probabilities_are_those_of_a_forced_pass(decoding):
    it = completer(decoding, context=100)
    for prompt, prediction in zip(PROMPTS, it.predict(PROMPTS), strict=True):
        read = it.tokenizer.encode(prompt) or [it.tokenizer.specials.end]
        for one in [prediction, *prediction.alternatives]:
            chosen = [it.tokenizer.model.labels.index(token) for token in one.tokens]
            chosen += [it.tokenizer.specials.end] * (len(one.log_probs) - len(chosen))
            hidden = it.model(Tokens.of([[*read, *chosen]]))[len(read) - 1 : -1]
            log_probs = it.model.heads["token"](hidden).log_softmax(-1)
            wanted = [float(row[token]) for row, token in zip(log_probs, chosen, strict=True)]
            assert one.log_probs == pytest.approx(wanted, abs=1e-5)
            assert one.score == pytest.approx(sum(wanted), abs=1e-4)


def test_a_beam_of_one_equals_greedy():
    greedy, beam = completer().predict(PROMPTS), completer(BeamConfig(beam=1)).predict(PROMPTS)
    assert [p.tokens for p in beam] == [p.tokens for p in greedy]


def test_a_prompt_beyond_the_context_is_cut_and_says_so():
    it = completer()
    long, short = it.predict(["the cat sat on the mat", "cat sat on the mat"[-CONTEXT:]])
    cut = "output cut at 23 tokens (max_new_tokens)"
    assert "; ".join(long.notes) == f"of the prompt's 22 tokens, the last 11 were read; {cut}"
    assert short.notes == (cut,)
    assert long.tokens == short.tokens


def test_an_empty_prompt_is_begun_with_the_end_token():
    it = completer()
    ids, _ = slow(it, "")
    assert ids
    assert it.predict([""])[0].tokens == it.tokenizer.tokens(ids)


def test_special_tokens_are_never_written():
    it = completer(SampleConfig(seed=1, temperature=5.0), n=50)
    specials = set(it.tokenizer.specials.names)
    for prediction in it.predict(["the"] * 20):
        assert not specials & set(prediction.tokens)


def test_what_is_added_to_a_prompt_keeps_its_space():
    it = completer(kind="word", n=3)
    own = it.tokenizer
    prompt = "the cat"
    (prediction,) = it.predict([prompt])
    ids, _ = slow(it, prompt)
    assert prediction.text.startswith(" ")
    assert prompt + prediction.text == own.decode([*own.encode(prompt), *ids])
    assert not it.predict([""])[0].text.startswith(" ")


# Stop strings ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["character", "byte", "bpe"])
@pytest.mark.parametrize("decoding", [GreedyConfig(), SampleConfig(seed=3, temperature=1.5)], ids=["g", "s"])
def test_a_completion_ends_before_a_stop_string(kind, decoding):
    free = completer(decoding, kind, n=60).predict(PROMPTS)
    text = free[0].text
    for stop in (text[5:8], text[3], "never", text[20:27]):
        stopped = completer(decoding, kind, n=60, stop=[stop, "never either"]).predict(PROMPTS)
        for one, other in zip(stopped, free, strict=True):
            assert one.text == other.text.partition(stop)[0]
            assert other.tokens[: len(one.tokens)] == one.tokens
            if stop in other.text:
                # The tokens that complete it are shown, and the end that follows was forced.
                assert stop in processor(kind).text.decode(
                    [processor(kind).text.model.labels.index(token) for token in one.tokens]
                )
                assert len(one.log_probs) == len(one.tokens) + 1 or len(one.tokens) == 60
                assert one.log_probs[len(one.tokens) :] in ([0.0], [])
            assert one.score == pytest.approx(sum(one.log_probs), abs=1e-5)


def test_a_stop_string_ends_the_work_itself():
    it = completer(n=500, stop=[completer().predict(["d"])[0].text[:2]])
    steps = []
    it.model.stack.register_forward_hook(lambda *_: steps.append(1))
    it.predict(["d"])
    assert len(steps) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("context", [1, 2, CONTEXT])
def test_what_is_remembered_of_a_sequence_does_not_grow_with_it(context, monkeypatch):
    """A stop string may be longer than the context, and begin right behind the prompt."""
    decoding, sizes = SampleConfig(seed=3, temperature=3.0), []
    output = Continuation._output

    def measured(self, logits, inner, lines):
        sizes.extend(len(line.ids) for line in lines)
        return output(self, logits, inner, lines)

    monkeypatch.setattr(Continuation, "_output", measured)
    free = completer(decoding, "byte", context=context, n=300).predict(PROMPTS)
    for stop in {free[0].text[:17], free[1].text[60:90], free[2].text[-14:]}:
        sizes.clear()
        stopped = completer(decoding, "byte", context=context, n=300, stop=[stop, "\0" * 29]).predict(PROMPTS)
        assert [one.text for one in stopped] == [each.text.partition(stop)[0] for each in free]
        assert max(sizes) <= max(context, 29, len(stop.encode())) + 1


def test_without_a_prompt_the_first_word_has_no_blank_before_it():
    own = processor("bpe").text
    ids = own.encode("the cat")
    assert Stops(own, (" the",)).reached(ids)
    assert not Stops(own, (" the",)).reached(ids, is_continuation=False)
    assert Stops(own, (" cat",)).reached(ids, is_continuation=False)
    for seed in range(8):
        decoding = SampleConfig(seed=seed, temperature=3.0)
        (whole,), (cut,) = (
            completer(decoding, kind="bpe", n=9, stop=stop).predict([""]) for stop in ([], [" "])
        )
        assert cut.text == whole.text.partition(" ")[0]


def test_a_stop_string_in_the_prompt_ends_nothing():
    text = completer(n=5).predict(["the cat"])[0].text
    assert completer(n=5, stop=["cat", "the cat" + text[:1]]).predict(["the cat"])[0].text == text


def test_stops_look_at_whole_tokens_and_tell_what_is_certain():
    own = processor("bpe").text
    stops = Stops(own, ("ab", "bcd", "ß"))
    assert stops.reached(own.encode("x ab"))
    assert not stops.reached(own.encode("x a"))
    assert not stops.reached([])
    assert not Stops(own).reached(own.encode("x ab"))
    assert stops.before("xbcdab") == "x"
    assert stops.before("none") == "none"
    texts = ("xa", "xab", "xbc", "xbce", "")
    assert [stops.stable_prefix(text) for text in texts] == ["x", "x", "x", "xbce", ""]
    with pytest.raises(ValueError, match="stop strings must not be empty"):
        Stops(own, ("",))


# Streams ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["character", "byte", "bpe", "word"])
@pytest.mark.parametrize("decoding", [GreedyConfig(), SampleConfig(seed=3, temperature=2.0)], ids=["g", "s"])
def test_a_stream_gives_the_text_of_the_prediction(kind, decoding):
    for stop in ((), ("at", "e o")):
        it = completer(decoding, kind, n=25, stop=stop)
        for number, prompt in enumerate(PROMPTS[:3]):
            pieces = list(it.stream(prompt, ordinal=number))
            (prediction,) = it.predict([prompt], first=number)
            assert "".join(pieces) == prediction.text
            assert all(pieces)
            if kind == "character" and not stop:
                assert len(pieces) == len(prediction.tokens)


def test_a_stream_shows_a_token_before_the_next_is_made():
    it = completer(n=30)
    made = []
    it.model.stack.register_forward_hook(lambda *_: made.append(1))
    stream = it.stream("the cat")
    next(stream)
    stream.close()
    assert len(made) < 30


def test_a_stream_that_is_left_ends_its_thread():
    before = threading.active_count()
    stream = completer(n=10_000).stream("the cat")
    next(stream)
    stream.close()
    assert threading.active_count() == before


def test_what_goes_wrong_in_a_stream_is_told_to_its_reader():
    with pytest.raises(RequestError, match="beam search has no final token before its end"):
        list(completer(BeamConfig()).stream("the"))
    it = completer()
    with torch.no_grad():
        it.model.heads["token"].weight.fill_(float("nan"))
    with pytest.raises(WorkError, match="contain NaN"):
        list(it.stream("the"))


# Refusals --------------------------------------------------------------------------------------------------


def test_what_needs_a_source_is_refused():
    with pytest.raises(RequestError, match="no source, so there is no attention"):
        completer(options=PredictOptions(attention=True)).predict(["x"])
    with pytest.raises(RequestError, match=r"set\s+completion\.max_new_tokens"):
        completer(GreedyConfig(max_length=MaxLength(extra=3)))
    with pytest.raises(RequestError, match=r"decoding\.coverage"):
        completer(BeamConfig(coverage=0.1))


# The processor ---------------------------------------------------------------------------------------------


def rows(*texts):
    return [LocatedRow({"text": text}, Location("t", number)) for number, text in enumerate(texts, 1)]


def task_of_text(kind, **sections):
    sizes = {"d_model": 14, "n_layers": 1, "context": 9, "layer": LAYER}
    model = {"kind": "language-model", **sizes}
    return task_of("language-modelling", processor(kind), ["text"], model=model, **sections)


def test_documents_follow_one_another_each_with_its_end():
    task, own = task_of_text("character"), processor().text
    report, end = task.new_report(), own.specials.end
    found = [i for row in task.encode(rows("the cat", "", "dog?"), report) for i in row.row["text"]]
    assert found == [*own.encode("the cat"), end, end, *own.encode("dog?"), end]
    assert (report.rows, report.kept) == (3, 3)
    facts = report.to_dict()["columns"]["text"]
    assert (facts["tokens"], facts["unknown"]) == (11, 1)
    assert facts["length"]["max"] == 7


@pytest.mark.parametrize(
    ("kind", "text", "spells"),
    [
        ("character", "the cat", True),
        ("character", "the cat?", False),
        ("byte", "the cat?", True),
        ("word", "the cat", False),
    ],
)
def test_bits_are_those_of_the_very_text(kind, text, spells):
    task = task_of_text(kind)
    report = task.new_report()
    list(task.encode(rows(text), report))
    assert task.spells(report) is spells


# Explanations ----------------------------------------------------------------------------------------------


def test_a_stop_text_with_a_space_is_not_reached_by_the_first_word_of_a_text():
    """After a prompt "cat" is " cat", which ends the completion; at the beginning of a text it is not."""
    task, own = task_of_text("word", completion={"stop": [" cat"]}), processor("word").text
    answer = Prediction("cat", tokens=["cat"], log_probs=[-0.5, -0.5], ids=tuple(own.encode("cat")))
    model = build(task.recipe.model, *processor("word").sizes)
    explained = {prompt: task.model_input(model, prompt, AnswerOptions(), answer) for prompt in ("the", "")}
    ends = {prompt: ids_in(found.batch)[-1] == own.specials.end for prompt, found in explained.items()}
    assert ends == {"the": False, "": True}


@pytest.mark.parametrize("prompt", ["", " "])
def test_a_target_of_a_prompt_without_tokens_is_explained_from_its_first_token(prompt):
    task, own = task_of_text("word"), processor("word").text
    model = build(task.recipe.model, *processor("word").sizes)
    options = AnswerOptions(target="the cat")
    found = task.model_input(model, prompt, options, Prediction("the cat"))
    assert ids_in(found.batch) == [own.specials.end, *own.encode("the cat")]
