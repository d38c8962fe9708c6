"""Split text in any script into words, for metrics.

A word is a run of letters, combining marks and digits (Unicode categories L, M and N); everything else is a
separator. In scripts without spaces, each letter with its combining marks is a word. Texts are first
normalised to NFKC and lower case. For ASCII texts, the words are the tokens of rouge-score.
"""

import regex

from heedful.text.normalisation import normalised
from heedful.text.scripts import JOINERS, LETTER_SCRIPTS, characters_of

_SPACELESS = characters_of(LETTER_SCRIPTS)
_WORD = regex.compile(
    rf"[\p{{L}}&&[{_SPACELESS}]]\p{{M}}*|[[\p{{L}}\p{{M}}\p{{N}}{JOINERS}]--[\p{{L}}&&[{_SPACELESS}]]]+",
    regex.VERSION1,
)


def words(text: str) -> list[str]:
    """Split a text into lower-case words; see the module."""
    return _WORD.findall(normalised(text, "nfkc").lower())
