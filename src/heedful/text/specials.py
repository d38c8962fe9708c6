"""Special tokens: heedful gives them the first ids and inserts them itself.

No text is encoded to them. ``</s>`` in a text becomes the tokens that spell it (about four), and decodes
to the same text.
"""

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Specials:
    """The ids of the special tokens, the same in every vocabulary.

    ``pad`` pads batches that leave heedful, ``start`` and ``end`` delimit a sequence, ``unknown`` replaces
    text that the vocabulary cannot encode, and ``classify``, ``separate`` and ``mask`` are BERT's.
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
        """The display names of the special tokens, in the order of their ids."""
        return ("<pad>", "<s>", "</s>", "<unk>", "<cls>", "<sep>", "<mask>")

    @property
    def never_generated(self) -> tuple[int, ...]:
        """The special tokens that are never generated: all but ``end``."""
        return tuple(i for i in range(len(self)) if i != self.end)

    def __len__(self) -> int:
        return len(fields(self))


SPECIALS = Specials()
