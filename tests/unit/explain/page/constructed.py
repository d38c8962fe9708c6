"""Explanations made of weights that are known: no model has anything to do with them."""

import io
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from PIL import Image

from heedful.explain.attention_map import AttentionMap
from heedful.explain.explanation import Explanation
from heedful.explain.patterns.census import census
from heedful.explain.views.rollout import rollouts
from heedful.tasks.model_input import Axis

Weights = np.ndarray


def broad(rows: int, columns: int) -> Weights:
    return np.full((rows, columns), 1 / columns)


def diagonal(rows: int, columns: int, shift: int = 0) -> Weights:
    """Each row looks at the column in its place, ``shift`` further right; at the ends, at the last one."""
    found = np.zeros((rows, columns))
    found[np.arange(rows), np.clip(np.arange(rows) + shift, 0, columns - 1)] = 1
    return found


def drawn(rows: int, columns: int, seed: int, sharpness: float = 0.3) -> Weights:
    return np.random.default_rng(seed).dirichlet(np.full(columns, sharpness), rows)


def mixed(*parts: Weights) -> Weights:
    return sum(parts) / len(parts)


def causal(weights: Weights) -> Weights:
    """Nothing to the right of the diagonal."""
    below = np.tril(weights + 1e-9)
    return below / below.sum(axis=1, keepdims=True)


def heads(*matrices: Weights) -> Weights:
    return np.stack(matrices).astype(np.float32)


def stack(
    kind: str, queries: str, keys: str, n_layers: int, name: str, make: Callable[[int], Weights]
) -> list[AttentionMap]:
    """Maps of layers, each ``make(layer) [H, rows, columns]``."""
    found = []
    for layer in range(n_layers):
        weights = make(layer)
        tap = f"{name}.{layer}.weights"
        found.append(AttentionMap(tap, kind, layer, queries, keys, tuple(range(len(weights))), weights))
    return found


SOURCE = Axis(
    ("I", "enjoyed", "the", "film", "transform", "ers", "</s>"),
    (0, 1, 2, 3, 4, 4, 5),
    ("I", "enjoyed", "the", "film", "transformers", "</s>"),
)
TARGET = Axis(
    ("naan", "trans", "farm", "ar", "padaththai", "rasi", "ththen", "</s>"),
    (0, 1, 1, 1, 2, 3, 3, 4),
    ("naan", "transfarmar", "padaththai", "rasiththen", "</s>"),
)
ALIGNED = (0, 4, 4, 5, 3, 1, 1, 6)
"""The source token that each target token translates."""


def aligned() -> Weights:
    return np.eye(len(SOURCE.tokens))[list(ALIGNED)]


def translation() -> Explanation:
    """Two layers of four heads in the encoder, the decoder and between them."""
    s, t = len(SOURCE.tokens), len(TARGET.tokens)

    def encoder(layer: int) -> Weights:
        return heads(
            mixed(diagonal(s, s, -1), broad(s, s)), diagonal(s, s), drawn(s, s, 11 + layer), broad(s, s)
        )

    def decoder(layer: int) -> Weights:
        return heads(*(causal(drawn(t, t, 31 + 4 * layer + head)) for head in range(4)))

    def cross(layer: int) -> Weights:
        sure = mixed(aligned(), aligned(), aligned(), drawn(t, s, 51 + layer))
        return heads(drawn(t, s, 61 + layer), sure, broad(t, s), mixed(sure, broad(t, s)))

    return Explanation(
        "translation",
        "lecture-ta",
        "I enjoyed the film transformers",
        {
            "output": "naan transfarmar padaththai rasiththen",
            "score": -0.9,
            "tokens": list(TARGET.tokens[:-1]),
            "log_probs": [-0.05, -0.2, -0.01, -0.01, -0.3, -0.1, -0.02, -0.01],
            "alternatives": [{"output": "naan padam rasiththen", "score": -2.1, "log_probs": [-0.6, -0.9]}],
        },
        {"source": SOURCE, "target": TARGET},
        [
            *stack("self", "source", "source", 2, "encoder", encoder),
            *stack("causal", "target", "target", 2, "decoder", decoder),
            *stack("cross", "target", "source", 2, "cross", cross),
        ],
        {"target": [-0.05, -0.2, -0.01, -0.01, -2.3, -0.7, -0.02, None]},
        {
            "gradients": {
                "title": "Gradients times input",
                "kind": "tokens",
                "side": "source",
                "values": [0.1, 0.8, -0.05, 0.4, -0.6, 0.2, 0.0],
            },
            "lens": {
                "title": "What each depth would have said",
                "kind": "table",
                "columns": ["after layer", "first", "second"],
                "rows": [[1, "padam", "naan"], [2, "rasi", "padaththai"]],
            },
        },
    )


def png(rows: int, columns: int, size: int) -> bytes:
    """An image with a bright disc on a gradient."""
    y, x = np.mgrid[: rows * size, : columns * size] / size
    disc = (y - rows * 0.4) ** 2 + (x - columns * 0.6) ** 2 < (min(rows, columns) * 0.25) ** 2
    red = np.where(disc, 250, 60 + 20 * x)
    green = np.where(disc, 210, 80 + 15 * y)
    blue = np.where(disc, 90, 140 + 10 * x)
    pixels = np.stack([red, green, blue], axis=-1).clip(0, 255).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


GRID = (5, 7)


def patches(before: int) -> Axis:
    rows, columns = GRID
    names = [f"{i + 1},{j + 1}" for i in range(rows) for j in range(columns)]
    return Axis((*["<class>"][:before], *names), grid=GRID, before=before, image=png(rows, columns, 12))


def at_patch(n_rows: int, before: int, seed: int) -> Weights:
    """Each row looks around a patch of its own."""
    rows, columns = GRID
    y, x = np.mgrid[:rows, :columns].reshape(2, -1)
    centres = np.random.default_rng(seed).uniform((0, 0), (rows, columns), (n_rows, 2))
    distance = (y - centres[:, :1]) ** 2 + (x - centres[:, 1:]) ** 2
    weights = np.concatenate([np.full((n_rows, before), 0.02), np.exp(-distance / 3)], axis=1)
    return weights / weights.sum(axis=1, keepdims=True)


def image() -> Explanation:
    """A classifier of images: two layers of three heads, a class token before 5 x 7 patches."""
    n = GRID[0] * GRID[1] + 1
    maps = stack(
        "self",
        "input",
        "input",
        2,
        "vit",
        lambda layer: heads(*(at_patch(n, 1, 71 + 3 * layer + head) for head in range(3))),
    )
    answer = {"output": "disc", "score": -0.105, "alternatives": [{"output": "square", "score": -2.3}]}
    return Explanation("image-classification", "shapes", "disc.png", answer, {"input": patches(1)}, maps)


def caption() -> Explanation:
    """A captioner: text looks at 5 x 7 patches."""
    text = Axis(("a", "bright", "disc", "</s>"))
    maps = stack(
        "cross",
        "target",
        "source",
        2,
        "cross",
        lambda layer: heads(*(at_patch(4, 0, 91 + 2 * layer + head) for head in range(2))),
    )
    answer = {"output": "a bright disc", "score": -0.7, "log_probs": [-0.2, -0.3, -0.1, -0.1]}
    sides = {"source": patches(0), "target": text}
    return Explanation(
        "captioning", "captions", "disc.png", answer, sides, maps, {"target": [-0.2, -0.3, -0.1, -0.1]}
    )


HOSTILE = (
    "</script><script>window.hit = 1</script>",
    "<img src=x onerror='window.hit = 2'>",
    "<!--",
    "\u2028",
    "\n",
    "",
    "&amp;",
    "\u202etxet",
    "日本語",
    "👩‍👩‍👧",
    "$script",
    "'\"`${window.hit = 3}",
)


def hostile() -> Explanation:
    """Tokens, names and texts that would break a careless page."""
    n = len(HOSTILE)
    text = " ".join(HOSTILE)
    side = Axis(HOSTILE, (*range(n - 2), n - 3, -1), HOSTILE[: n - 2])
    maps = stack(
        "self", "input", "input", 1, "</script>", lambda layer: heads(drawn(n, n, 5), diagonal(n, n))
    )
    more = {
        "lens": {
            "title": HOSTILE[0],
            "kind": "table",
            "columns": [HOSTILE[1]],
            "rows": [[HOSTILE[0]], [None], [["a", 0.5]]],
        },
        "unknown": {"title": "", "kind": "other"},
    }
    answer = {"output": text, "score": 0.0, "notes": [HOSTILE[0]], "alternatives": [{"output": HOSTILE[1]}]}
    return Explanation(
        HOSTILE[0], HOSTILE[1], text, answer, {"input": side}, maps, {"input": [float("-inf")] * n}, more
    )


def hebrew() -> Explanation:
    side = Axis(("השועל", "קפץ", "מעל", "הכלב", "."))
    maps = stack("self", "input", "input", 1, "encoder", lambda layer: heads(drawn(5, 5, 3)))
    return Explanation(
        "classification",
        "rtl",
        "השועל קפץ מעל הכלב.",
        {"output": "נכון", "score": -0.2},
        {"input": side},
        maps,
    )


def without_maps() -> Explanation:
    """What a model without attention has to show."""
    side = Axis(("a", "b"))
    return Explanation(
        "language-modelling", "rnn", "a b", {"output": "c"}, {"input": side}, [], {"input": [None, -0.5]}
    )


def large(n_layers: int = 12, n_heads: int = 12, n: int = 512, kind: str = "self") -> Explanation:
    """As large as pages are to be comfortable with; rounded copies of one matrix, moved along."""
    noise = np.random.default_rng(17).random((n, n), dtype=np.float32) ** 12 + np.float32(1e-5)

    def make(layer: int) -> Weights:
        found = np.empty((n_heads, n, n), dtype=np.float32)
        for head in range(n_heads):
            moved = np.roll(noise, 31 * head + 7 * layer, axis=1)
            moved[np.arange(n), np.maximum(np.arange(n) - head, 0)] += 2 * layer
            if kind == "causal":
                moved = np.tril(moved)
            found[head] = moved / moved.sum(axis=1, keepdims=True)
        return found

    words = tuple(i // 2 for i in range(n))
    side = Axis(tuple(f"tok{i}" for i in range(n)), words, tuple(f"word{i}" for i in range((n + 1) // 2)))
    maps = stack(kind, "input", "input", n_layers, "encoder", make)
    text = " ".join(side.surface)
    return Explanation("language-modelling", "large", text, {"output": "x"}, {"input": side}, maps)


def seeing_further() -> Explanation:
    """A translation with a rollout, a census and distances."""
    plain = translation()
    counted = census([replace(plain, maps=[each for each in plain.maps if each.layer == 1])] * 2)
    matrices = [
        {"queries": queries, "keys": keys, "weights": weights.tolist()}
        for (queries, keys), weights in sorted(rollouts(plain).items())
    ]
    layers = [
        {
            "layer": n,
            "tap": f"encoder.{n}.weights",
            "heads": [0, 1, 2, 3],
            "distances": [1.5 * n, None, 2, 0.25],
        }
        for n in range(2)
    ]
    stack = {"side": "source", "kind": "self", "unit": "tokens", "even": 2.25, "layers": layers}
    more = {
        "rollout": {"residual": 0.5, "matrices": matrices},
        "census": counted.to_dict(),
        "distances": {"inputs": 2, "stacks": [stack]},
    }
    return replace(plain, views=more)


def seen_image() -> Explanation:
    """An image with what its class token looks at, its positions and its filters."""
    plain, n = image(), GRID[0] * GRID[1]
    draw = np.random.default_rng(5)
    means = [each.weights.astype(float).mean(axis=0) for each in plain.maps]
    layers = [{"layer": i, "weights": w[0, 1:].reshape(GRID).tolist()} for i, w in enumerate(means)]
    more = {
        "class-token": {"side": "input", "layers": layers},
        "positions": {"sides": [{"name": "input", "similarity": draw.uniform(-1, 1, (n, n)).tolist()}]},
        "filters": {
            "patch": 3,
            "filters": 8,
            "shares": [0.5, 0.25],
            "tiles": draw.random((2, 3, 3, 3)).tolist(),
        },
    }
    return replace(plain, views=more)
