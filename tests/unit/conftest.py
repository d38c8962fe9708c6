"""Tokenizers of a few short sentences, for tests of several packages; where shapes are checked."""

from pathlib import Path

import pytest

from heedful.text.configuration import BpeConfig, ByteConfig, WordConfig
from heedful.text.tokenizer import Tokenizer
from heedful.text.training import train_tokenizer

TEXT = ["the cat sees the dog", "the dog sees a cat", "a dog and a cat see the doghouse"] * 3


@pytest.fixture(scope="session")
def words() -> Tokenizer:
    """A tokenizer of whole words."""
    return train_tokenizer(WordConfig(kind="word", vocab_size=101, split="space"), iter(TEXT))


@pytest.fixture(scope="session")
def pieces() -> Tokenizer:
    """A tokenizer of parts of words, in which unknown characters are one token."""
    return train_tokenizer(BpeConfig(kind="bpe", merges=11, byte_fallback=False), iter(TEXT))


@pytest.fixture(scope="session")
def octets() -> Tokenizer:
    """A tokenizer of bytes."""
    return train_tokenizer(ByteConfig(kind="byte"), iter(TEXT))


CHECKED = ("nn", "models", "objectives", "decoding")
"""Folders of tests in which shapes are checked."""


@pytest.fixture(autouse=True)
def _shapes_are_checked(request: pytest.FixtureRequest) -> None:
    """Check shapes in `CHECKED`, but not for properties, which call a part hundreds of times."""
    folders = request.path.parent.relative_to(Path(__file__).parent).parts
    if folders[:1] in [(name,) for name in CHECKED] and not request.node.get_closest_marker("hypothesis"):
        request.getfixturevalue("shape_checks")
