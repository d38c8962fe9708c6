"""Damaged and lying folders of models: each is imported, or refused with a message, and leaves nothing.

Declared sizes that nobody could allocate are tested elsewhere; numbers here are small, or no size at all.
"""

import json
import shutil
from random import Random

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from heedful.config import merged
from heedful.data.images import LazyImage
from heedful.errors import HeedfulError
from heedful.interop.conversion import export_run, import_run

TEXT = ["the cat sat on the mat, and it's the cat's mat.", "  We'll see 1234 dogs!\n\nÜber façade, நாய் 🐈"]
SMALL = {"d_model": 8, "n_layers": 1, "layer": {"mixer": {"n_heads": 2}, "channels": {"d_ff": 12}}}
TEXTS = [{"text": text} for text in TEXT]
LABELLED = [{"text": text, "label": label} for text, label in zip(TEXT, ("yes", "no"), strict=True)]
PAIRS = [{"source": text, "target": text} for text in TEXT]
IMAGES = [
    {"image": LazyImage(np.full((6, 6, 3), 40 * n, np.uint8), str(n)), "label": label}
    for n, label in enumerate(("cat", "dog"))
]
SUBWORDS = {"kind": "byte-bpe", "merges": 9, "min_frequency": 1, "split": "gpt2"}
WORDPIECE = {"kind": "wordpiece", "vocab_size": 70, "cleaning": {"clean": True, "chinese": True}}
ENCODER = merged(
    SMALL,
    {
        "kind": "encoder",
        "positions": "learned",
        "max_length": 16,
        "segments": 2,
        "layer": {"norm": {"eps": 1e-12}, "norm_placement": "post"},
    },
)

RUNS = {
    "gpt2": (
        {
            "task": {"kind": "language-modelling"},
            "tokenizer": {"subwords": SUBWORDS},
            "model": {"kind": "language-model", "context": 9, **SMALL},
        },
        TEXTS,
    ),
    "bert": (
        {
            "task": {"kind": "masked-language-modelling"},
            "tokenizer": {"subwords": WORDPIECE},
            "model": ENCODER,
        },
        TEXTS,
    ),
    "marian": (
        {
            "task": {"kind": "translation"},
            "tokenizer": {"subwords": {"kind": "bpe", "merges": 9}},
            "model": {"kind": "transformer", "tie": "three-way", **SMALL},
        },
        PAIRS,
    ),
    "vit": (
        {
            "task": {"kind": "image-classification"},
            "model": {"kind": "vision", "image_size": 6, "patch_size": 3, "channels": 3, **SMALL},
        },
        IMAGES,
    ),
    "gpt2 that labels": (
        {
            "task": {"kind": "classification", "add_special_tokens": False},
            "tokenizer": {"subwords": SUBWORDS},
            "model": {"kind": "language-model", "context": 16, **SMALL},
        },
        LABELLED,
    ),
    "bert that labels": (
        {
            "task": {"kind": "classification"},
            "tokenizer": {"subwords": WORDPIECE},
            "model": {**ENCODER, "pooler": True},
        },
        LABELLED,
    ),
}

VALUES = [
    None, True, False, 0, -1, 1, 3, 7, 0.5, -0.0, float("nan"), float("inf"), "", "x", "gpt2", "\ud800", "\0",
    [], [None], {}, {"content": 3}, {"type": "x"}, [[[[]]]], {"a": {"b": {}}},
]  # fmt: skip
KINDS = [
    torch.int8,
    torch.bool,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.complex64,
    torch.float8_e4m3fn,
]


def places(value, here=()):
    """The paths of all values inside one."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*here, key)
        yield from places(item, (*here, key))


def another_value(draw, path):
    """A value of the file is another, is missing, or there is one more."""
    whole = json.loads(path.read_text("utf-8"))
    *way, last = draw.choice(sorted(places(whole), key=lambda place: (len(place) > 1, draw.random()))[:40])
    inner = whole
    for key in way:
        inner = inner[key]
    if draw.random() < 0.2:
        del inner[last]
    else:
        inner[last] = draw.choice(VALUES)
    path.write_text(json.dumps(whole), "utf-8")


def other_bytes(draw, path):
    """The file is cut, or some of its bytes are others."""
    content = bytearray(path.read_bytes())
    if draw.random() < 0.4:
        content = content[: draw.randrange(len(content))]
    for _ in range(draw.randrange(1, 4) if content else 0):
        content[draw.randrange(len(content))] = draw.randrange(256)
    path.write_bytes(content)


def other_content(draw, path):
    """The file is something else altogether."""
    contents = [
        b"",
        b"\xff\xfe{}",
        b"[" * 100_000,
        b"{}",
        b"[]",
        b"null",
        b"3",
        b'{"a":' * 100_000,
        b"\0" * 64,
    ]
    path.write_bytes(draw.choice([*contents, b"NaN", b'"x"', b'{"model": {}}']))


def no_file(draw, path):
    """The file is missing, or is a folder."""
    path.unlink()
    if draw.random() < 0.5:
        path.mkdir()


def other_tensors(draw, path):
    """A tensor has another type or shape, or another name, is missing or holds no number."""
    tensors = load_file(path)
    name = draw.choice(sorted(tensors))
    tensor = tensors.pop(name)
    shapes = [tensor[None], tensor.flatten(), tensor[:0], tensor.mT if tensor.dim() > 1 else tensor[:1]]
    others = [*(tensor.to(kind) for kind in KINDS), *shapes, torch.tensor(1.0), tensor * float("nan"), None]
    if (other := draw.choice(others)) is not None:
        tensors[draw.choice([name, name, name, "x", ""])] = other.contiguous()
    save_file(tensors, path, {"format": "pt"})


def damage(draw, folder, besides=None):
    """Something about a file is wrong, but for one; which, and what, in words."""
    ways = [another_value] * 6 + [other_bytes] * 2 + [other_content, no_file] + [other_tensors] * 2
    ends = {another_value: ".json", other_tensors: ".safetensors"}
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != besides)
    path = draw.choice(files)
    way = draw.choice([way for way in ways if path.name.endswith(ends.get(way, ""))])
    way(draw, path)
    return path, f"{way.__name__} of {path.name}"


def with_sentencepieces(folder, out):
    """The folder of a Marian with tokenizers of Marian's own."""
    import sentencepiece

    shutil.copytree(folder, out)
    for path in out.glob("*tokenizer*"):
        path.unlink()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT * 5), model_prefix=str(out / "source"), vocab_size=40,
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    (out / "source.vocab").unlink()
    model = (out / "source.model").rename(out / "source.spm")
    shutil.copy(model, out / "target.spm")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    config = json.loads((out / "config.json").read_text("utf-8"))
    n = config["vocab_size"]
    pieces = [processor.id_to_piece(i) for i in range(3, len(processor))]
    others = [*pieces, *(f"x{i}" for i in range(n))][: n - 3]
    names = ["</s>", "<unk>", *others, "<pad>"]
    (out / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}), "utf-8")
    named = {"eos_token_id": 0, "pad_token_id": n - 1, "decoder_start_token_id": n - 1}
    (out / "config.json").write_text(json.dumps({**config, **named}), "utf-8")
    return out


@pytest.fixture(scope="module")
def folders(make_run, tmp_path_factory):
    """A folder of each format, as heedful exports it."""
    root = tmp_path_factory.mktemp("good")
    found = {}
    for name, (recipe, rows) in RUNS.items():
        form = name.partition(" ")[0]
        found[name] = export_run(make_run(root / name, recipe, rows), form, root / f"{name}-out")
    found["marian with its own tokenizers"] = with_sentencepieces(found["marian"], root / "pieces")
    return found


@pytest.mark.parametrize("form", [*RUNS, "marian with its own tokenizers"])
def test_a_hostile_folder_is_imported_or_refused_with_a_message(form, folders, tmp_path, amount):
    import_run(folders[form], tmp_path / "good")
    ended, bad = {"imported": 0, "refused": 0}, []
    for number in range(amount(16, 300)):
        draw = Random(f"{form} {number}")
        folder, out = tmp_path / "their", tmp_path / "run"
        shutil.copytree(folders[form], folder)
        path, done = damage(draw, folder)
        if draw.random() < 0.25:
            done = [done, damage(draw, folder, path)[1]]
        try:
            import_run(folder, out)
            ended["imported"] += 1
        except HeedfulError as error:
            assert str(error), done  # noqa: PT017
            assert not out.exists() or not any(out.iterdir()), done
            ended["refused"] += 1
        except BaseException as error:
            bad.append(f"{number} {done}: {type(error).__name__} {error}"[:300])
        shutil.rmtree(folder)
        shutil.rmtree(out, ignore_errors=True)
    assert not bad, "\n".join(bad)
    assert ended["refused"] > 5, ended
