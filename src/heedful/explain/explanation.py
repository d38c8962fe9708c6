"""The explanation of one input: plain values, from which all drawings, statistics and files are made.

An *axis* (`heedful.tasks.model_input.Axis`) has the tokens of a text, or the patches of an image. The
modules that draw and write an explanation are given it, and know its class for types alone.
"""

import html
import reprlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import SupportsIndex

from heedful.errors import RequestError, nearest
from heedful.explain.attention_map import AttentionMap, BestHead, Kind, Weights
from heedful.explain.json_format import json_pieces
from heedful.explain.summary import probabilities
from heedful.explain.views import PAGE, SUFFIXES
from heedful.files import IMAGES, whole_file
from heedful.tasks.model_input import Axis
from heedful.tasks.prediction import answer_text
from heedful.typing import JsonMapping, JsonObject


@dataclass(frozen=True, repr=False, eq=False)
class Explanation:
    """The attention, answer and views of one input; ``explanation["NAME"]`` is the weights of a tap.

    Args:
        task: kind of the run's task.
        run: name of the run.
        input: the input as it was passed.
        answer: the prediction (`heedful.tasks.prediction.Prediction.to_dict`).
        axes: by name: ``input``; or ``source``, ``target`` and ``prefix`` (the decoder's input); and
            ``memory``, the slots of compressed attention.
        maps: stack by stack, from the first to the last layer.
        log_probs: natural log-probabilities of the tokens of an axis that the model predicted, by name of the
            axis; None for other tokens, such as a prompt.
        views: further views by name (`heedful.explain.views`), JSON-ready.
        best: the head with the best known alignment, if it is in the explanation.
        provenance: the hashes of the run's files and the settings (`heedful.explain.provenance`), JSON-ready;
            empty of an explanation that was not made by a run.
        unavailable: requested views that are not available for the input, with the reason; not only some of
            them are, unless all views were requested.
    """

    task: str
    run: str
    input: object
    answer: JsonMapping
    axes: Mapping[str, Axis]
    maps: Sequence[AttentionMap]
    log_probs: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    views: JsonMapping = field(default_factory=dict)
    best: BestHead | None = None
    provenance: JsonMapping = field(default_factory=dict)
    unavailable: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for attention_map in self.maps:
            shape = (
                len(attention_map.heads),
                *(len(self.axes[name].tokens) for name in (attention_map.queries, attention_map.keys)),
            )
            weights = attention_map.weights
            if weights.shape != shape:
                raise ValueError(
                    f"{attention_map.tap}: weights must be of shape {shape}, got {weights.shape}"
                )

    @property
    def text(self) -> str:
        """The answer as text; empty if it has none."""
        return answer_text(self.answer)

    def map(self, kind: Kind, layer: int, queries: str | None = None) -> AttentionMap:
        """Return the map of the layer with this index, from 0.

        Args:
            kind: the kind of attention.
            layer: the index of the layer in its stack.
            queries: the name of the axis of the queries; None: the first that there is.

        Raises:
            RequestError: the explanation does not contain it.
        """
        kinds = dict.fromkeys(attention_map.kind for attention_map in self.maps)
        if kind not in kinds:
            raise RequestError(
                f"the explanation has no attention of the kind {kind!r}; it has {', '.join(kinds) or 'none'}"
            )
        if isinstance(layer, bool) or not isinstance(layer, SupportsIndex):
            raise RequestError(f"layer: expected an index from 0, got {layer!r}")
        axes = dict.fromkeys(
            attention_map.queries for attention_map in self.maps if attention_map.kind == kind
        )
        if queries is not None and queries not in axes:
            raise RequestError(
                f"queries: expected the name of an axis, one of {', '.join(axes)}, got {queries!r}; for one "
                f"head, map({kind!r}, {layer}).head(0)"
            )
        maps = [m for m in self.maps if m.kind == kind and (queries is None or m.queries == queries)]
        for attention_map in maps:
            if attention_map.layer == layer:
                return attention_map
        layers = ", ".join(str(attention_map.layer) for attention_map in maps)
        raise RequestError(
            f"the explanation has no {kind} attention of layer {layer}; expected one of {layers} (from 0)"
        )

    def __repr__(self) -> str:
        """Show the input and the answer, and what else there is, in one line."""
        kinds = Counter(attention_map.kind for attention_map in self.maps)
        maps = ", ".join(f"{n} {kind}" for kind, n in kinds.items()) or "none"
        views = f", views: {', '.join(self.views)}" if self.views else ""
        shown = " -> ".join(" ".join(reprlib.repr(value).split()) for value in (self.input, self.text))
        return f"<{type(self).__name__} of {shown}; maps: {maps}{views}>"

    def __getitem__(self, tap: str) -> Weights:
        """Return the attention weights of a tap, ``[heads, queries, keys]``.

        Raises:
            KeyError: the explanation has no such tap; the message names those that it has.
        """
        names = self.keys()
        if tap not in names:
            raise KeyError(f"no tap {tap!r}{nearest(tap, names)}; expected one of {', '.join(names)}")
        return self.maps[names.index(tap)].weights

    def keys(self) -> list[str]:
        """Return the names of the taps."""
        return [attention_map.tap for attention_map in self.maps]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.maps)

    def __bool__(self) -> bool:
        """Return True, also without maps."""
        return True

    def word_scores(self, view: str) -> list[JsonObject]:
        """Return a row for each word and part of the answer, as `pandas.DataFrame` takes them.

        Args:
            view: a view of attribution: ``occlusion``, ``replacement`` or ``integrated-gradients``.

        Returns:
            Rows with ``index`` (of the word, from 0), ``word``, ``answer`` (a label, a tag, a written word),
            ``about`` (the word that a tag is about; otherwise empty) and ``score``: by occlusion and
            replacement, how much lower the value is without the word; positive if the word supports the
            answer, None if it takes the answer with it; ``probability`` (of the answer, None of a number) and
            ``unknown``: whether the model reads ``<unk>``
            for the word, or for a part of it. Of an image, words are patches.

        Raises:
            RequestError: the view is not in the explanation, or has no scores of words.
        """
        if view in self.unavailable:
            raise RequestError(f"view {view} is not available: {self.unavailable[view]}")
        if "scores" not in self.views.get(view, {}):
            known = [name for name, values in self.views.items() if "scores" in values]
            raise RequestError(
                f"the explanation has no scores of words by view {view!r}; it has "
                f"{', '.join(known) or 'none'} (views=['occlusion'] of Run.explain)"
            )
        values = self.views[view]
        unknown = {*values.get("unknown", ())}
        abouts = values["about"] or [""] * len(values["answers"])
        return [
            {
                "index": index,
                "word": word,
                "answer": answer,
                "about": about,
                "score": score,
                "probability": probability,
                "unknown": index in unknown,
            }
            for answer, about, probability, scores in zip(
                values["answers"], abouts, probabilities(values), values["scores"], strict=True
            )
            for index, (word, score) in enumerate(zip(values["words"], scores, strict=True))
        ]

    def page(self, exact: Sequence[tuple[str, int]] = ()) -> str:
        """Return the explanation as a self-contained HTML document.

        Args:
            exact: tap and head of those whose weights are all included, also of long inputs.
        """
        from heedful.explain.page.build import page

        return page(self, exact=list(exact))

    def save(self, path: Path | str, *, tokens: bool = False, exact: Sequence[tuple[str, int]] = ()) -> None:
        """Write a page (``.html``), an image (``.svg``, ``.png``) or data (``.json``).

        Args:
            path: the file; its suffix is the format.
            tokens: whether an image, which shows a view or else attention, has tokens instead of words.
            exact: as of `page`.

        Raises:
            RequestError: the suffix is none of these.
        """
        path, suffix = Path(path), Path(path).suffix.lower()
        if suffix not in SUFFIXES:
            raise RequestError(f"{path}: expected a name that ends in {', '.join(SUFFIXES)}")
        if suffix in IMAGES:
            from heedful.explain.drawing.heat_map import figure_of, save
            from heedful.explain.json_format import description

            save(figure_of(self, tokens=tokens), path, description=description(self))
            return
        pieces = [self.page(exact)] if suffix == PAGE else chain(json_pieces(self), "\n")
        with whole_file(path) as file:
            file.writelines(pieces)

    def _repr_html_(self) -> str:
        """Show the page in a notebook."""
        return (
            f'<iframe srcdoc="{html.escape(self.page())}" sandbox="allow-scripts" '
            'style="width: 100%; height: 40em; border: 0"></iframe>'
        )
