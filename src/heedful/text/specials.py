"""The special tokens: heedful owns them, gives them the first ids and inserts those itself.

They have no spelling that text could hit. A user who writes ``</s>`` gets the four or so tokens that
spell it, and the same text back.
"""

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Specials:
    """The ids of the special tokens, the same in every vocabulary.

    ``pad`` fills rectangles that leave heedful, ``start`` and ``end`` bound a sequence, ``unknown``
    stands for what the vocabulary cannot spell, ``classify``, ``separate`` and ``mask`` are BERT's.
    """

    pad: int = 0
    start: int = 1
    end: int = 2
    unknown: int = 3
    classify: int = 4
    separate: int = 5
    mask: int = 6

    @property
    def names(self) -> tuple[str, ...]:
        """How the specials are shown, in the order of their ids."""
        return ("<pad>", "<s>", "</s>", "<unk>", "<cls>", "<sep>", "<mask>")

    @property
    def never_written(self) -> tuple[int, ...]:
        """The specials that no output may hold: all but the end."""
        return tuple(i for i in range(len(self)) if i != self.end)

    def __len__(self) -> int:
        return len(fields(self))


SPECIALS = Specials()
