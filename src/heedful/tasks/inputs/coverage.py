"""How well vocabularies cover the data: unknown tokens, and characters that are spelled in bytes."""

from collections.abc import Iterator, Mapping

from heedful.data.report import DataReport
from heedful.text.configuration import TokenizerConfig
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer

NOTICEABLE = 0.01
"""Share of characters spelled in bytes from which there is a note."""


def new_report(tokenizers: Mapping[str, Tokenizer]) -> DataReport:
    """Return an empty report that counts what the tokenizers of columns do not cover."""
    spelling = {column: tokenizer.byte_spelling for column, tokenizer in tokenizers.items()}
    return DataReport(
        {column: tokenizer.specials.unknown for column, tokenizer in tokenizers.items()},
        {column: counter for column, counter in spelling.items() if counter is not None},
    )


def spelling_notes(
    report: DataReport, tokenizers: Mapping[str, Tokenizer], *, is_trained: bool
) -> Iterator[str]:
    """Yield a note for each column with many characters that are spelled in bytes.

    Args:
        report: of the training data.
        tokenizers: by column; or one for all.
        is_trained: whether they were trained for this run, so that other settings change them.
    """
    for column, counts in report.columns.items():
        if counts.spelled_rate < NOTICEABLE:
            continue
        tokenizer = tokenizers.get(column) or next(iter(tokenizers.values()))
        remedy = f"; {_remedy(tokenizer)}" if is_trained else ""
        yield (
            f"{column}: {counts.spelled_rate:.1%} of the characters have no entry in the vocabulary and are "
            f"spelled in bytes, several tokens each{remedy}"
        )


def _remedy(tokenizer: Tokenizer) -> str:
    """Return which setting gives entries to more characters."""
    config, n = tokenizer.model.config, tokenizer.n_characters
    if (limit := getattr(config, "alphabet", None)) is not None and n >= limit:
        return f"remove tokenizer.subwords.alphabet={limit}, or raise it"
    if tokenizer.vocab_size == len(SPECIALS) + 256 + n and _is_limited(config):
        return f"raise tokenizer.subwords.vocab_size={tokenizer.vocab_size}"
    coverage = " and tokenizer.subwords.coverage=1" if hasattr(config, "coverage") else ""
    return f"set tokenizer.subwords.min_frequency=1{coverage}"


def _is_limited(config: TokenizerConfig) -> bool:
    return getattr(config, "vocab_size", None) is not None
