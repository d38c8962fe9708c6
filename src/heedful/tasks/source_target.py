"""Pairs of texts: the columns ``source`` and ``target``, and a tokenizer for each."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from heedful.artifacts.run_folder import RunFolder
from heedful.data.report import Encoded
from heedful.data.sources import LocatedRow, Row
from heedful.text.tokenizer import Tokenizer

SOURCE, TARGET = COLUMNS = ("source", "target")


@dataclass(frozen=True)
class Tokenizers:
    """One tokenizer for each side; both may share a subword model."""

    source: Tokenizer
    target: Tokenizer

    @property
    def fingerprint(self) -> str:
        """Differs where either side is encoded differently."""
        return f"{self.source.fingerprint}-{self.target.fingerprint}"

    @property
    def sizes(self) -> tuple[int, int]:
        """The sizes of the vocabularies of source and target."""
        return self.source.vocab_size, self.target.vocab_size

    @staticmethod
    def files(folder: RunFolder) -> list[Path]:
        """A tokenizer for each side."""
        return [folder.tokenizer(column) for column in COLUMNS]

    def save(self, folder: RunFolder) -> None:
        """Write both tokenizers."""
        self.source.save(folder.tokenizer(SOURCE))
        self.target.save(folder.tokenizer(TARGET))

    @classmethod
    def load(cls, folder: RunFolder) -> "Tokenizers":
        """Read both tokenizers."""
        return cls(*(Tokenizer.load(path) for path in cls.files(folder)))

    def encode(self, rows: Iterable[LocatedRow[Row]], chunk: int = 1000) -> Iterator[Encoded]:
        """Yield the ids of both columns of each row, in order; a chunk of rows is in memory at a time."""
        rows = iter(rows)
        while block := list(islice(rows, chunk)):
            sources = self.source.encode_batch([r.row[SOURCE] for r in block])
            targets = self.target.encode_batch([r.row[TARGET] for r in block])
            for row, source, target in zip(block, sources, targets, strict=True):
                yield LocatedRow({SOURCE: source, TARGET: target}, row.where)
