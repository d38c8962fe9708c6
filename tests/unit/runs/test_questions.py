"""What a run may be given in Python: every kind refuses what it does not read, and says which input."""

import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from heedful.api.run import load
from heedful.data.images import LazyImage
from heedful.decoding.config import BeamConfig, GreedyConfig
from heedful.errors import RequestError

WORDS = {"subwords": {"kind": "word"}}
SIZES = {
    "d_model": 8,
    "n_layers": 1,
    "dropout": 0.0,
    "layer": {"mixer": {"n_heads": 2}, "channels": {"d_ff": 9}},
}
ENCODER = {"kind": "encoder", **SIZES, "max_length": 13}
SEEN = {"image_size": 6, "channels": 1, "patch_size": 3}
SHORT = {"kind": "greedy", "max_length": {"ratio": 0, "extra": 3}}


def noise(seed, *shape):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


IMAGES = [LazyImage.of(noise(i, 6, 6)) for i in range(2)]
TEXTS = ["a b c", "b c a"]
LABELLED = [{"text": text, "pair": text, "label": text[0]} for text in TEXTS]


def written(task, model, **sections):
    return {"task": task, "tokenizer": WORDS, "model": model, **sections}


TRANSLATION = written({"kind": "translation"}, {"kind": "transformer", **SIZES}, decoding=SHORT)
LANGUAGE = written(
    {"kind": "language-modelling"},
    {"kind": "language-model", **SIZES, "context": 9},
    completion={"max_new_tokens": 3},
    decoding={"kind": "greedy"},
)
VISION = {"task": {"kind": "image-classification"}, "model": {"kind": "vision", **SIZES, **SEEN}}
CAPTIONING = written({"kind": "captioning"}, {"kind": "captioner", **SIZES, **SEEN}, decoding=SHORT)

RUNS = {
    "translation": (TRANSLATION, [{"source": t, "target": t} for t in TEXTS], TEXTS),
    "language model": (LANGUAGE, [{"text": t} for t in TEXTS], TEXTS),
    "masked": (
        written({"kind": "masked-language-modelling"}, ENCODER),
        [{"text": t} for t in TEXTS],
        ["a [MASK] c", "[MASK]"],
    ),
    "classification": (
        written({"kind": "classification"}, ENCODER),
        [{"text": t, "label": t[0]} for t in TEXTS],
        TEXTS,
    ),
    "pairs": (
        written({"kind": "classification", "pairs": True}, ENCODER),
        LABELLED,
        [("a b", "c"), ("b", "")],
    ),
    "tagging": (
        written({"kind": "tagging"}, {**ENCODER, "segments": 0}),
        [{"words": t, "tags": "X Y X"} for t in TEXTS],
        ["a b", ["a b", "c"]],
    ),
    "answers": (
        written({"kind": "question-answering"}, ENCODER, windows={"longest_question": 4}),
        [{"question": "a b", "passage": t, "answer": "b"} for t in TEXTS],
        [("a", "b c"), ["b", "c a b"]],
    ),
    "images": (VISION, [{"image": p, "label": x} for p, x in zip(IMAGES, "ab")], IMAGES),
    "captions": (CAPTIONING, [{"image": p, "caption": t} for p, t in zip(IMAGES, TEXTS)], IMAGES),
}
OF_TEXTS = ["translation", "language model", "masked", "classification", "tagging"]
OF_PAIRS = ["pairs", "answers"]
WRITING = ["translation", "language model", "captions"]


@pytest.fixture(scope="module")
def made(make_run, tmp_path_factory):
    runs = {}

    def of(name):
        if name not in runs:
            recipe, rows, _ = RUNS[name]
            runs[name] = load(make_run(tmp_path_factory.mktemp("asked") / "run", recipe, rows), device="cpu")
        return runs[name]

    return of


@pytest.mark.parametrize("name", list(RUNS))
def test_whatever_gives_inputs_one_after_the_other_is_a_list_of_them(made, name):
    run, inputs = made(name), RUNS[name][2]
    listed = run.predict(inputs)
    assert len(listed) == len(inputs)
    for given in (tuple(inputs), iter(inputs), (each for each in inputs), dict(enumerate(inputs)).values()):
        assert [p.to_dict() for p in run.predict(given)] == [p.to_dict() for p in listed]
    assert run.predict(iter(())) == []


def test_an_open_file_is_a_list_of_lines(made):
    run = made("translation")
    assert [p.text for p in run.predict(io.StringIO("a b c\nb c a\n"))] == [
        p.text for p in run.predict(TEXTS)
    ]


@pytest.mark.parametrize("name", list(RUNS))
@pytest.mark.parametrize("given", ["a b", b"a b", None, 7, {"text": "a b"}, {"a b"}], ids=repr)
def test_what_is_no_list_is_refused(made, name, given):
    with pytest.raises(RequestError, match=r"expected a list of (texts|images), got"):
        made(name).predict(given)


def refused(run, good, bad, message):
    with pytest.raises(RequestError, match=re.escape("input 2") + ".*" + message):
        run.predict([good, bad, good])


@pytest.mark.parametrize("name", OF_TEXTS)
@pytest.mark.parametrize("bad", [None, 7, b"a", {"text": "a", "words": "b"}, "\ud800"], ids=repr)
def test_an_input_that_is_no_text_is_refused_with_its_number(made, name, bad):
    refused(made(name), RUNS[name][2][0], bad, "surrogate" if bad == "\ud800" else "expected a text")


@pytest.mark.parametrize("name", [name for name in OF_TEXTS if name not in {"tagging", "masked"}])
@pytest.mark.parametrize("bad", [("a", "b"), ["a"], []], ids=repr)
def test_several_texts_are_not_one(made, name, bad):
    refused(made(name), RUNS[name][2][0], bad, f"expected a text, got a {type(bad).__name__} of {len(bad)}")


@pytest.mark.parametrize("bad", [["a", None], ["a", ["b"]], ("a", 3)], ids=repr)
def test_words_are_texts(made, bad):
    refused(made("tagging"), "a b", bad, "word 2")


@pytest.mark.parametrize("bad", [["a"], [], ("a", "b", "c"), ("a", None)], ids=repr)
def test_a_text_beside_which_another_may_stand_is_one_or_two(made, bad):
    refused(made("masked"), "a [MASK] c", bad, "expected a")
    alone, both = made("masked").predict(["a [MASK]", ("a [MASK]", "c")])
    assert both.text.split("\t")[1:] == ["c"]
    (single,) = made("masked").predict(["a [MASK]"])
    # Beside a longer input the library may multiply in another order: equal to a tolerance, not to the bit.
    assert alone.log_probs == pytest.approx(single.log_probs, rel=0, abs=1e-5)
    assert alone.score == pytest.approx(single.score, rel=0, abs=1e-5)
    assert replace(alone, score=single.score, log_probs=single.log_probs) == single


@pytest.mark.parametrize("name", OF_PAIRS)
@pytest.mark.parametrize(
    "bad", ["a", "a\tb", ("a",), ("a", "b", "c"), ("a", None), (["a"], "b"), None, 7], ids=repr
)
def test_a_pair_is_two_texts(made, name, bad):
    refused(made(name), RUNS[name][2][0], bad, "expected a")


@pytest.mark.parametrize("name", OF_PAIRS)
def test_one_pair_is_not_a_list_of_two(made, name):
    names = r"\(text, pair\)" if name == "pairs" else r"\(question, passage\)"
    with pytest.raises(RequestError, match=f"input 1: expected a tuple of 2 texts {names}, got a text"):
        made(name).predict(("a b", "c"))


@pytest.mark.parametrize("name", list(RUNS))
@pytest.mark.parametrize("option", ["n_best", "beam"])
@pytest.mark.parametrize("number", [0, -1, 1.5, "2", True], ids=repr)
def test_fewer_than_one_answer_or_hypothesis_is_refused(made, name, option, number):
    with pytest.raises(RequestError, match=f"{option}: expected a whole number of at least 1, got"):
        made(name).predict(RUNS[name][2], **{option: number})


@pytest.mark.parametrize("name", WRITING)
def test_a_decoding_may_be_written_as_in_recipes(made, name):
    run, inputs = made(name), RUNS[name][2]
    length = {"max_length": SHORT["max_length"]} if name != "language model" else {}
    for plain, config in (
        ({"kind": "greedy"}, GreedyConfig),
        ({"kind": "beam", "beam": 3, "n_best": 2}, BeamConfig),
    ):
        given = {**plain, **length}
        typed = config.model_validate_json(json.dumps(given))
        found = [run.predict(inputs, decoding=each) for each in (given, typed)]
        assert [p.to_dict() for p in found[0]] == [p.to_dict() for p in found[1]]


@pytest.mark.parametrize("name", WRITING)
@pytest.mark.parametrize(
    "decoding, message",
    [
        ({"kind": "beams"}, "beams"),
        ({"kind": "beam", "beem": 3}, "beem"),
        ({"kind": "beam", "beam": 0}, "at least 1"),
        ("greedy", "expected a configuration"),
        ({}, "kind"),
    ],
    ids=repr,
)
def test_a_decoding_that_cannot_be_is_refused(made, name, decoding, message):
    with pytest.raises(RequestError, match=message):
        made(name).predict(RUNS[name][2], decoding=decoding)


@pytest.mark.parametrize("name", [name for name in RUNS if name not in WRITING])
@pytest.mark.parametrize("decoding", [{"kind": "greedy"}, GreedyConfig()], ids=["map", "typed"])
def test_what_writes_nothing_takes_no_decoding(made, name, decoding):
    with pytest.raises(RequestError, match="generates no text"):
        made(name).predict(RUNS[name][2], decoding=decoding)


def test_what_is_watched_while_it_is_written_is_one_text(made):
    with pytest.raises(RequestError, match="input 1: expected a text"):
        next(made("language model").stream(["a", "b"]))


def bad_images():
    """Images in the caller's hands that cannot be read, each with a part of the reason."""
    file = io.BytesIO()
    Image.fromarray(noise(9, 40, 40)).save(file, "PNG")
    closed = Image.new("L", (6, 6))
    closed.close()
    return [
        (Image.open(io.BytesIO(file.getvalue()[:500])), "truncated"),
        (Image.new("I", (6, 6)), "32-bit"),
        (Image.new("F", (6, 6)), "32-bit"),
        (closed, "closed"),
        (Image.new("L", (0, 8)), "no pixels"),
        (noise(1, 0, 8), "no pixels"),
        (noise(1, 8, 0, 3), "no pixels"),
        (noise(1, 8), "must be uint8"),
        (file.getvalue()[:500], "cannot be read"),
        ((IMAGES[0], IMAGES[1]), "expected a path, an array or an image, got a tuple of 2"),
        (None, "expected a path, an array or an image, got None"),
    ]


@pytest.mark.parametrize("name", ["images", "captions"])
def test_an_image_that_cannot_be_read_has_its_error_in_its_place(made, name):
    run, bad = made(name), bad_images()
    (wanted,) = run.predict(IMAGES[:1])
    found = run.predict([IMAGES[0], *(image for image, _ in bad), IMAGES[0]])
    assert found[0].text == found[-1].text == wanted.text
    assert found[0].error is found[-1].error is None
    for (_, why), prediction in zip(bad, found[1:-1], strict=True):
        assert prediction.text == ""
        assert why in prediction.error
