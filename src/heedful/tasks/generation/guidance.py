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
from heedful.text.words import blank_words, word_places

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

    def place(self, n_layers: int) -> int:
        """The layer, from 0, of a model of which so many layers read the source."""
        return max(n_layers - 2, 0) if self.layer is None else self.layer - 1

    def check(self, model: Config) -> None:
        """Refuse a model without the head.

        Raises:
            ValueError: with the key.
        """
        n_layers, n_heads = heads_over_source(model)
        if not n_layers:
            raise ValueError(
                "objective.guided: this model has no attention over a source that could be guided"
            )
        for key, given, most in (("layer", self.layer, n_layers), ("head", self.head, n_heads)):
            if given is not None and given > most:
                raise ValueError(f"objective.guided.{key}={given}: the model has {most}, counted from 1")


def heads_over_source(model: Config) -> tuple[int, int]:
    """How many layers of a configured model read the source with attention, and the heads of each."""
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
    """As `Tokenizers.encode`, with the links of rows that have an alignment.

    They are in the column ``alignment``: the target's and the source's place of each link in turn, without
    special tokens. The ids of texts are what they are without alignments; where they cannot be parted into
    words, the row has no links, and the report notes it.

    Raises:
        DataError: an alignment cannot be read, or a link points outside of its sentence pair.
    """
    rows = iter(rows)
    while block := list(islice(rows, chunk)):
        encoded = list(tokenizers.encode(block))
        words = {column: [blank_words(row.row[column]) for row in block] for column in COLUMNS}
        places = {
            column: word_places(
                getattr(tokenizers, column), words[column], [row.row[column] for row in encoded]
            )
            for column in COLUMNS
        }
        for n, (row, where) in enumerate(block):
            if ALIGNMENT not in row:
                yield encoded[n]
                continue
            links = read_links(row[ALIGNMENT], f"{where}: {ALIGNMENT}")
            check_links(links, len(words[SOURCE][n]), len(words[TARGET][n]), f"{where}: {ALIGNMENT}")
            source, target = places[SOURCE][n], places[TARGET][n]
            if source is None or target is None:
                report.note(TOKENS_NOT_BY_WORD, where)
                pairs = []
            else:
                pairs = links_between_ids(links, source, target)
            yield LocatedRow({**encoded[n].row, ALIGNMENT: pairs}, where)


def links_between_ids(links: Links, source: list[int], target: list[int]) -> list[int]:
    """Links between ids, target place and source place in turn, in order.

    Args:
        links: between words.
        source: of each source id the number of its word.
        target: of each target id.
    """
    ids_of: list[dict[int, list[int]]] = [{}, {}]
    for own, side in zip(ids_of, (source, target), strict=True):
        for place, word in enumerate(side):
            own.setdefault(word, []).append(place)
    words = links.sure | links.possible
    pairs = {(t, s) for i, j in words for t in ids_of[1].get(j, ()) for s in ids_of[0].get(i, ())}
    return [place for pair in sorted(pairs) for place in pair]


def cut_links(rows: Iterable[Encoded]) -> Iterator[Encoded]:
    """Drop the links of ids that were cut off."""
    for row, where in rows:
        if ALIGNMENT not in row:
            yield LocatedRow(row, where)
            continue
        pairs = np.asarray(row[ALIGNMENT], dtype=np.int64).reshape(-1, 2)
        there = (pairs[:, 0] < len(row[TARGET])) & (pairs[:, 1] < len(row[SOURCE]))
        yield LocatedRow({**row, ALIGNMENT: pairs[there].reshape(-1).tolist()}, where)
