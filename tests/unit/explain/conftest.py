"""A tiny run of every task, with random weights far from their first ones."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from heedful.api.run import Run, load
from heedful.config import merged
from heedful.data.images import LazyImage
from heedful.errors import DataError
from heedful.explain.attribution import replacements
from heedful.explain.drawing.heat_map import save

WORDS = {"subwords": {"kind": "word"}}
PIECES = {"subwords": {"kind": "bpe", "merges": 9, "min_frequency": 1}}
LAYER = {"mixer": {"kind": "attention", "n_heads": 3}, "channels": {"kind": "feed-forward", "d_ff": 17}}
SIZES = {"d_model": 12, "dropout": 0.0, "layer": LAYER}
ENCODER = {"kind": "encoder", **SIZES, "n_layers": 2, "max_length": 23}
MODEL = {"kind": "language-model", **SIZES, "n_layers": 2, "context": 19}
VISION = {
    "kind": "vision",
    **SIZES,
    "n_layers": 2,
    "image_size": 6,
    "channels": 1,
    "patch_size": 3,
    "pooling": "first",
}
RECURRENT = {"kind": "recurrent", "d_embedding": 7, "d_hidden": 11, "tie": "none", "bridge": "zero"}

PAIRS = [
    {"source": "red dog runs", "target": "RUNS DOG RED"},
    {"source": "the blue cat sleeps", "target": "SLEEPS CAT BLUE"},
]
TEXTS = [{"text": "the cat sat on the mat, the dog sat on the log"}]
LABELLED = [
    {"text": "the cat sat", "pair": "a dog lay", "label": "1.5"},
    {"text": "a dog lay", "pair": "the cat sat", "label": "-2"},
    {"text": "a mat", "pair": "the log", "label": "7"},
]
SINGLE = [{"text": row["text"], "label": row["label"]} for row in LABELLED]
TAGGED = [{"words": "the cat sat", "tags": "DET NOUN VERB"}, {"words": "a dog lay", "tags": "DET NOUN VERB"}]
ASKED = [{"question": "who sat ?", "passage": "the cat sat . a dog lay", "answer": "the cat"}]


def pixels(seed: int, size: int = 6) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (size, size), dtype=np.uint8)


IMAGES = [{"image": LazyImage.of(pixels(i)), "label": label} for i, label in enumerate("abc")]
MASKED = [{"image": row["image"], "mask": LazyImage.of(pixels(i) % 3)} for i, row in enumerate(IMAGES)]
MASK_TRANSFORMER = {"kind": "mask-transformer", "n_layers": 1, "n_heads": 3, "d_ff": 17, "dropout": 0.0}
CAPTIONED = [{"image": LazyImage.of(pixels(i)), "caption": row["source"]} for i, row in enumerate(PAIRS)]

SHORT = {"kind": "greedy", "max_length": {"ratio": 0, "extra": 5}}
BEAM = {"kind": "beam", "beam": 4, "n_best": 3, "max_length": {"ratio": 0, "extra": 5}}


def _files(filter: Any) -> Any:
    source = {"kind": "jsonl", "paths": "x", "columns": {"source": "x", "target": "x"}}
    return {"train": source, "valid": source, "filter": filter}


def _recipe(task: str, tokenizer: Any, model: Any, **sections: Any) -> dict[str, Any]:
    kind = {"kind": task} if isinstance(task, str) else task
    made = {"task": kind, "model": model, **sections}
    return made if tokenizer is None else {**made, "tokenizer": tokenizer}


def _classifier(**model: Any) -> dict[str, Any]:
    return _recipe("classification", PIECES, merged(ENCODER, model))


TRANSFORMER = {"kind": "transformer", **SIZES, "n_layers": 2, "n_decoder_layers": 1}
ONE_TEXT = {"data": _files({"max_length": {"source": 6, "target": 7}}), "decoding": SHORT}
HEADS = {"kind": "multi-head-additive", "n_heads": 3, "d_k": 5, "d_v": 7}
PAIR = {"kind": "regression", "pairs": True}
CAPTIONER = {"kind": "captioner", **SIZES, "n_layers": 1, "image_size": 6, "channels": 1, "patch_size": 2}
CAPTIONER |= {"n_decoder_layers": 2}
GRID = {
    "kind": "resnet",
    "n_blocks": [1],
    "width": 8,
    "n_groups": 4,
    "root_kernel": 3,
    "root_stride": 2,
    "root_pool": False,
}
SHOW_ATTEND_TELL = {
    "kind": "recurrent-captioner",
    "image_size": 6,
    "channels": 1,
    "encoder": GRID,
    "d_embedding": 7,
    "d_hidden": 11,
}

RUNS: dict[str, tuple[dict[str, Any], list[dict[str, Any]], Any]] = {
    "translation": (_recipe("translation", PIECES, TRANSFORMER, decoding=BEAM), PAIRS, "the red dog sleeps"),
    "summarisation": (
        _recipe(
            "summarisation", PIECES, merged(TRANSFORMER, {"layer": {"norm_placement": "pre"}}), decoding=SHORT
        ),
        PAIRS,
        "blue dog",
    ),
    "one text": (_recipe("translation", WORDS, MODEL, **ONE_TEXT), PAIRS, "red dog runs"),
    "additive": (
        _recipe(
            "translation",
            WORDS,
            merged(TRANSFORMER, {"layer": {"mixer": {"score": "additive"}}}),
            decoding=SHORT,
        ),
        PAIRS,
        "red dog",
    ),
    "recurrent": (
        _recipe("translation", WORDS, {**RECURRENT, "attention": HEADS}, decoding=SHORT),
        PAIRS,
        "red dog runs",
    ),
    "recurrent, one head": (
        _recipe(
            "translation",
            WORDS,
            {**RECURRENT, "decoder": "luong", "attention": "bilinear", "input_feeding": True},
            decoding=SHORT,
        ),
        PAIRS,
        "the blue cat",
    ),
    "recurrent without attention": (
        _recipe(
            "translation",
            WORDS,
            {
                **RECURRENT,
                "decoder": "plain",
                "attention": None,
                "direction": "left-to-right",
                "bridge": "copy",
            },
            decoding=SHORT,
        ),
        PAIRS,
        "red dog",
    ),
    "language model": (
        _recipe(
            "language-modelling",
            PIECES,
            MODEL,
            completion={"max_new_tokens": 5},
            decoding={"kind": "greedy"},
        ),
        TEXTS,
        "the cat",
    ),
    "recurrent language model": (
        _recipe(
            "language-modelling",
            PIECES,
            merged(MODEL, {"layer": {"mixer": {"kind": "recurrent"}, "channels": {"kind": "none"}}}),
            completion={"max_new_tokens": 5},
            decoding={"kind": "greedy"},
        ),
        TEXTS,
        "the cat",
    ),
    "local and compressed": (
        _recipe(
            "language-modelling",
            PIECES,
            merged(
                MODEL,
                {
                    "n_layers": 3,
                    "pattern": [
                        {"mixer": {"visible": {"kind": "blocks", "size": 4}}},
                        {"mixer": {"kind": "compressed-attention", "n_heads": 3, "factor": 3}},
                    ],
                },
            ),
            completion={"max_new_tokens": 3},
            decoding={"kind": "greedy"},
        ),
        TEXTS,
        "the dog sat on",
    ),
    "rotary, shared keys": (
        _recipe(
            "language-modelling",
            WORDS,
            merged(
                MODEL,
                {"positions": "rotary", "layer": {"mixer": {"n_heads": 6, "n_kv_heads": 2}, "norm": "rms"}},
            ),
            completion={"max_new_tokens": 3},
            decoding={"kind": "greedy"},
        ),
        TEXTS,
        "the mat",
    ),
    "masked": (_recipe("masked-language-modelling", PIECES, ENCODER), TEXTS, "the [MASK] sat on [MASK] log"),
    "masked pairs": (
        _recipe({"kind": "masked-language-modelling", "next_sentence": True}, PIECES, ENCODER),
        TEXTS,
        ("the [MASK] sat", "the log [MASK]"),
    ),
    "classification": (_classifier(), SINGLE, "the cat lay"),
    "pairs": (
        _recipe({"kind": "classification", "pairs": True}, PIECES, {**ENCODER, "pooling": "mean"}),
        LABELLED,
        ("the cat", "a dog sat"),
    ),
    "pairs, to their end": (
        _recipe({"kind": "classification", "pairs": True}, PIECES, MODEL),
        LABELLED,
        ("the cat", "a dog sat"),
    ),
    "fourier": (_classifier(layer={"mixer": "fourier"}), SINGLE, "the cat"),
    "sets of labels": (
        _recipe("multilabel-classification", PIECES, {**ENCODER, "segments": 0}),
        [
            {"text": row["text"], "label": label}
            for row, label in zip(LABELLED, ("a,b", "b", ""), strict=True)
        ],
        "the cat lay",
    ),
    "regression": (_recipe(PAIR, PIECES, ENCODER), LABELLED, ("the cat", "a dog")),
    "sentence embeddings": (
        _recipe("sentence-embedding", PIECES, ENCODER),
        LABELLED,
        ("the cat", "a dog sat"),
    ),
    "tagging": (_recipe("tagging", PIECES, {**ENCODER, "segments": 0}), TAGGED, "the dog sat"),
    "answers": (
        _recipe("question-answering", PIECES, ENCODER, windows={"longest_question": 9}),
        ASKED,
        ("who lay ?", "the cat lay"),
    ),
    "images": (_recipe("image-classification", None, VISION), IMAGES, pixels(7)),
    "images without class token": (
        _recipe("image-classification", None, {**VISION, "pooling": "mean"}),
        IMAGES,
        pixels(8),
    ),
    "resnet": (
        _recipe(
            "image-classification",
            None,
            {
                "kind": "resnet",
                "image_size": 6,
                "channels": 1,
                "n_blocks": [1],
                "width": 8,
                "n_groups": 4,
                "root_kernel": 3,
                "root_stride": 1,
                "root_pool": False,
            },
        ),
        IMAGES,
        pixels(9),
    ),
    "masks": (
        _recipe({"kind": "segmentation", "labels": ["a", "b", "c"], "decoder": "pixels"}, None, VISION),
        MASKED,
        pixels(4),
    ),
    "masks by a transformer": (
        _recipe(
            {"kind": "segmentation", "labels": ["a", "b", "c"], "decoder": MASK_TRANSFORMER}, None, VISION
        ),
        MASKED,
        pixels(4),
    ),
    "captions": (_recipe("captioning", WORDS, CAPTIONER, decoding=SHORT), CAPTIONED, pixels(5)),
    "captions of cells": (
        _recipe("captioning", WORDS, {**CAPTIONER, "encoder": GRID}, decoding=SHORT),
        CAPTIONED,
        pixels(5),
    ),
    "show, attend and tell": (
        _recipe("captioning", WORDS, SHOW_ATTEND_TELL, decoding=SHORT),
        CAPTIONED,
        pixels(5),
    ),
}
"""Each run's recipe, training rows, and an input."""

OTHER_INPUTS: dict[str, Any] = {
    "translation": "the red cat sleeps",
    "summarisation": "blue cat",
    "one text": "red cat runs",
    "additive": "red cat",
    "rotary, shared keys": "the dog",
    "masked pairs": ("the [MASK] on", "the dog [MASK]"),
    "masks by a transformer": pixels(9),
    "language model": "the dog",
    "recurrent language model": "the dog",
    "local and compressed": "the cat sat on",
    "masked": "the [MASK] on the [MASK] mat",
    "classification": "the mat sat",
    "pairs": ("the dog", "a cat lay"),
    "pairs, to their end": ("the dog", "a cat lay"),
    "fourier": "the mat",
    "sets of labels": "the mat sat",
    "regression": ("the dog", "a log"),
    "sentence embeddings": ("the dog", "a dog sat"),
    "tagging": "the log lay",
    "answers": ("who log ?", "the cat dog"),
    "images": pixels(9),
    "images without class token": pixels(9),
    "masks": pixels(9),
    "captions": pixels(9),
    "captions of cells": pixels(9),
}
"""For the runs with a stack that reads the input, a second input with as many tokens as the first."""

BLIND = ("recurrent without attention", "recurrent language model", "fourier", "resnet")
"""Those without attention."""

SEEING = [name for name in RUNS if name not in BLIND]


@pytest.fixture(scope="session")
def explained(make_run: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run and an input, by the name of `RUNS`; nobody may change the run."""
    made: dict[str, Run] = {}

    def of(name: str) -> tuple[Run, Any]:
        recipe, rows, given = RUNS[name]
        if name not in made:
            folder = tmp_path_factory.mktemp("explained") / "run"
            made[name] = load(make_run(folder, recipe, rows), device="cpu")
        return made[name], given

    return of


@pytest.fixture(scope="session")
def others() -> Callable[[str], list[Any]]:
    """The other inputs of a run, by its name: one of `OTHER_INPUTS`, or none."""
    return lambda name: [OTHER_INPUTS[name]] if name in OTHER_INPUTS else []


@pytest.fixture(scope="module", autouse=True)
def training_inputs() -> Iterator[None]:
    """Most of these runs were made without files of training data: words and patches are drawn from this.

    Only in these modules: a test elsewhere in the same process reads what its run has.
    """
    read = replacements._training_inputs

    def inputs(run: Run) -> list[Any]:
        try:
            return read(run)
        except DataError:
            return [pixels(11)] if run.task.columns.images else ["the cat ran after a red log"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replacements, "_training_inputs", inputs)
        yield


@pytest.fixture
def tasks() -> set[str]:
    """The tasks of the runs."""
    return {recipe["task"]["kind"] for recipe, _, _ in RUNS.values()}


def pytest_generate_tests(metafunc: Any) -> None:
    """Arguments ``seeing`` and ``every`` sweep the runs that have attention, and all."""
    if "seeing" in metafunc.fixturenames:
        metafunc.parametrize("seeing", SEEING)
    if "every" in metafunc.fixturenames:
        metafunc.parametrize("every", list(RUNS))


# Figures ---------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    """The bytes of a figure, saved to a file with this ending."""

    def write(figure, suffix):
        save(figure, tmp_path / f"x{suffix}")
        return (tmp_path / f"x{suffix}").read_bytes()

    return write


@pytest.fixture
def drawn_on_white():
    """The pixels of a figure, of which nothing reaches the edge."""

    def draw(figure):
        figure.canvas.draw()
        drawn = np.asarray(figure.canvas.buffer_rgba())
        for edge in (drawn[0], drawn[-1], drawn[:, 0], drawn[:, -1]):
            assert (edge == 255).all()
        return drawn

    return draw


@pytest.fixture
def labels_are_apart():
    """Check that no label of a tick overlaps another one of its axis; slanted ones by their distance."""

    def check(figure):
        figure.canvas.draw()
        for axes in figure.axes:
            for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
                shown = [label for label in labels if label.get_visible() and label.get_text()]
                for one, other in pairwise(shown):
                    if one.get_rotation():
                        # They are parallel: their distance is that of their anchors, across.
                        apart = (other.get_window_extent().x0 - one.get_window_extent().x0) / 2**0.5
                        assert apart > one.get_fontsize() * figure.dpi / 72, (one, other)
                    else:
                        assert not one.get_window_extent().overlaps(other.get_window_extent()), (one, other)

    return check
