"""View ``rollout``: attention rollout over all layers (`heedful.explain.flow.rollouts`)."""

import sys
from collections.abc import Iterator, Sequence

import numpy as np

from heedful.errors import RequestError
from heedful.explain.attention_sites import find_sites
from heedful.explain.flow import rollouts
from heedful.explain.summary import AttentionMatrix, over_patches
from heedful.explain.terminal import choose_style, heat_map, link_lines
from heedful.explain.view import MEMORY, Explanation
from heedful.explain.views.shared import Figure, headline, rounded_all
from heedful.runs.run import Run
from heedful.tasks.model_input import PREFIX, ModelInput
from heedful.typing import JsonMapping, JsonObject

RESIDUAL = 0.5
"""Share of the residual connection, as in the paper."""


def has(run: Run) -> bool:
    """Whether the model has self-attention outside of a decoder, and no compressed memory."""
    sites = find_sites(run.model)
    if any(site.keys == MEMORY for site in sites):
        return False
    return any(site.kind != "cross" and site.queries != PREFIX for site in sites)


def compute(run: Run, prepared: ModelInput, explanations: Sequence[Explanation]) -> JsonObject:
    """Return how much each output token receives from each input token through attention.

    Returns:
        ``residual``, and ``matrices``: for each pair of axes their names ``queries`` and ``keys``, and
        ``weights``, whose row i contains the shares of the input tokens in output token i. Rows sum to 1; for
        a decoder, rows of both matrices together do.

    Raises:
        RequestError: some maps were not selected.
    """
    explanation = explanations[0]
    captured = {(each.tap, each.heads) for each in explanation.maps}
    if {(site.tap, site.heads) for site in find_sites(run.model)} - captured:
        raise RequestError(
            "view rollout needs all kinds of attention, layers and heads; remove the selection of maps"
        )
    found = rollouts(explanation, residual=RESIDUAL)
    pairs = dict.fromkeys((each.queries, each.keys) for each in explanation.maps)
    matrices = [
        {"queries": queries, "keys": keys, "weights": rounded_all(found[queries, keys])}
        for queries, keys in pairs
        if (queries, keys) in found
    ]
    return {"residual": RESIDUAL, "matrices": matrices}


def lines(explanation: Explanation, values: JsonMapping) -> list[str]:
    """Return the strongest links of each output token, or a heat map over the image."""
    output = []
    for shown in _matrices(explanation, values):
        output.append(shown.title)
        if shown.keys.grid is None:
            output += link_lines(shown.in_words().strongest())
        else:
            over = over_patches(shown)
            rows, columns = ([str(i + 1) for i in range(n)] for n in over.shape)
            style = choose_style(sys.stdout)
            output += heat_map(columns, rows, over / (over.max() or 1.0), style=style).splitlines()
            output.append(f"  darkest cell: {over.max():.2g}")
    return output


def drawings(explanation: Explanation, values: JsonMapping) -> list[JsonObject]:
    """Return drawings over images; the page draws other rollouts like attention maps."""
    return [
        {
            "title": headline(shown.title),
            "kind": "patches",
            "side": matrix["keys"],
            "images": [{"label": _query_name(shown), "values": over_patches(shown).ravel().tolist()}],
            "among": _among(shown),
        }
        for shown, matrix in zip(_matrices(explanation, values), values["matrices"], strict=True)
        if shown.keys.grid is not None
    ]


def figure(explanation: Explanation, values: JsonMapping) -> Figure:
    """Draw the last matrix: that of the decoder, if there is one."""
    from heedful.explain.canvas import check_size
    from heedful.explain.heat_map import attention_panels, heat_map

    *_, shown = _matrices(explanation, values)
    title = explanation.text
    if shown.keys.grid is not None:
        maps, note = [("", over_patches(shown))], f"{shown.title}: {_query_name(shown)}"
        return attention_panels(maps, shown.keys.image, among=_among(shown), title=title, note=note)
    shown = shown.in_words()
    check_size(*shown.weights.shape)
    return heat_map(shown.keys.tokens, shown.queries.tokens, shown.weights, title=title, note=shown.title)


def _matrices(explanation: Explanation, values: JsonMapping) -> Iterator[AttentionMatrix]:
    for each in values["matrices"]:
        queries, keys = each["queries"], each["keys"]
        if queries == keys:
            title = f"rollout of the {queries}: share of each input token in each output token"
        else:
            title = f"rollout: share of each {keys} token in each {queries} token"
        weights = np.asarray(each["weights"], dtype=float).clip(0.0, 1.0)
        yield AttentionMatrix(explanation.axes[queries], explanation.axes[keys], weights, title)


def _among(shown: AttentionMatrix) -> int | None:
    """Return the number of tokens that share each row; None for a decoder, which also uses its own tokens."""
    return len(shown.keys.tokens) if shown.queries is shown.keys else None


def _query_name(shown: AttentionMatrix) -> str:
    return "class token" if shown.queries.before else "mean of all tokens"
