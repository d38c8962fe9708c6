"""Guided attention: the head that learns word alignments, and the alignments as links between ids.

Rows have the column ``alignment`` (``0-0 1-2``, source-target, words counted from 0). Ids inherit the links
of their words: if two words are linked, each id of one is linked to each id of the other. Merely possible
links count as links.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np
from pydantic import Field, PositiveInt

from heedful.config import Config
from heedful.data.links import ALIGNMENT, Links, check_links, read_links
from heedful.data.report import DataReport, Encoded
from heedful.data.sources import LocatedRow, Row
from heedful.models.mixers import HeadsConfig
from heedful.models.recurrent import RecurrentConfig
from heedful.models.transformer import TransformerConfig
from heedful.objectives.guided import DecoderStep
from heedful.tasks.inputs.processor import COLUMNS, SOURCE, TARGET, Tokenizers
from heedful.text.words import blank_words, word_indices_of_ids

TOKENS_NOT_BY_WORD = "alignment not used: the tokens of the text are not those of its words"


class GuidedConfig(Config):
    """One head of the attention over the source also learns word alignments (`heedful.objectives.guided`).

    Rows of the training data then have a column ``alignment`` (``0-0 1-2``: source-target, words between
    blanks counted from 0).

    Args:
        weight: of the term; 0: it is only reported.
        layer: of those that read the source, from 1; null: the last but one, or the only one.
        head: of the layer, from 1.
        step: the decoder step at which the head attends to the words that a word is aligned with: ``output``,
            the step that predicts it; ``input``, the next one, which reads it.
    """

    weight: float = Field(default=0.05, ge=0)
    layer: PositiveInt | None = None
    head: PositiveInt = 1
    step: DecoderStep = "output"

    def layer_index(self, n_layers: int) -> int:
        """Return the index of the layer, from 0, in a model of which so many layers read the source."""
        return max(n_layers - 2, 0) if self.layer is None else self.layer - 1

    def check(self, model: Config) -> None:
        """Refuse a model without the head.

        Raises:
            ValueError: with the key.
        """
        n_layers, n_heads = heads_over_source(model)
        if not n_layers:
            raise ValueError(
                "objective.guided: not supported by this model, which has no attention over a source"
            )
        for key, number, limit in (("layer", self.layer, n_layers), ("head", self.head, n_heads)):
            if number is not None and number > limit:
                raise ValueError(
                    f"objective.guided.{key}={number}: must be at most {limit} in this model (counted from 1)"
                )


def heads_over_source(model: Config) -> tuple[int, int]:
    """Return how many layers of a configured model attend to the source, and the number of heads of each."""
    if isinstance(model, TransformerConfig):
        mixer = model.cross_attention or model.decoder_layers[0].mixer
        assert isinstance(mixer, HeadsConfig)  # as `DecoderConfig` requires
        return len(model.decoder_layers), mixer.n_heads
    if isinstance(model, RecurrentConfig) and model.decoder != "plain" and model.attention is not None:
        return 1, getattr(model.attention, "n_heads", 1)
    return 0, 0


def encode_linked(
    tokenizers: Tokenizers, rows: Iterable[LocatedRow[Row]], report: DataReport, chunk: int = 1000
) -> Iterator[Encoded]:
    """Encode rows as `Tokenizers.encode`, and add the links of rows that have an alignment.

    They are in the column ``alignment``: target position and source position of each link in turn, special
    tokens not counted. Alignments do not change the ids of texts; if ids cannot be split into those of words,
    the row has no links, and the report notes it.

    Raises:
        DataError: an alignment cannot be read, or a link points outside of its sentence pair.
    """
    rows = iter(rows)
    while block := list(islice(rows, chunk)):
        encoded = list(tokenizers.encode(block))
        words = {column: [blank_words(row.row[column]) for row in block] for column in COLUMNS}
        words_of_ids = {
            column: word_indices_of_ids(
                getattr(tokenizers, column), words[column], [row.row[column] for row in encoded]
            )
            for column in COLUMNS
        }
        for i, (row, where) in enumerate(block):
            if ALIGNMENT not in row:
                yield encoded[i]
                continue
            links = read_links(row[ALIGNMENT], f"{where}: {ALIGNMENT}")
            check_links(links, len(words[SOURCE][i]), len(words[TARGET][i]), f"{where}: {ALIGNMENT}")
            source, target = words_of_ids[SOURCE][i], words_of_ids[TARGET][i]
            if source is None or target is None:
                report.note(TOKENS_NOT_BY_WORD, where)
                pairs = []
            else:
                pairs = links_between_ids(links, source, target)
            yield LocatedRow({**encoded[i].row, ALIGNMENT: pairs}, where)


def links_between_ids(links: Links, source: list[int], target: list[int]) -> list[int]:
    """Return the links between ids: target position and source position in turn, sorted.

    Args:
        links: between words.
        source: the number of the word of each source id.
        target: the number of the word of each target id.
    """
    source_positions, target_positions = _positions_of_words(source), _positions_of_words(target)
    pairs = {
        (t, s)
        for i, j in links.sure | links.possible
        for t in target_positions.get(j, ())
        for s in source_positions.get(i, ())
    }
    return [position for pair in sorted(pairs) for position in pair]


def _positions_of_words(words: list[int]) -> dict[int, list[int]]:
    """Return the positions of the ids of each word, given the number of the word of each id."""
    positions: dict[int, list[int]] = {}
    for position, word in enumerate(words):
        positions.setdefault(word, []).append(position)
    return positions


def cut_links(rows: Iterable[Encoded]) -> Iterator[Encoded]:
    """Drop the links of ids that were cut off."""
    for row, where in rows:
        if ALIGNMENT not in row:
            yield LocatedRow(row, where)
            continue
        pairs = np.asarray(row[ALIGNMENT], dtype=np.int64).reshape(-1, 2)
        in_range = (pairs[:, 0] < len(row[TARGET])) & (pairs[:, 1] < len(row[SOURCE]))
        yield LocatedRow({**row, ALIGNMENT: pairs[in_range].reshape(-1).tolist()}, where)
