"""View ``patching``: which layers, tokens and heads carry the difference between two inputs.

`heedful.explain.attribution.patching` has the formula and its sources.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
from torch import Tensor, nn

from heedful.errors import RequestError
from heedful.explain.attention_map import AttentionMap
from heedful.explain.attribution.patching import Patching, n_patched, side_of
from heedful.explain.capture import prepare_input
from heedful.explain.drawing.matrix import Numbers, on_grid
from heedful.explain.drawings import Cell, Drawing, Heat, PatchPanel, PatchValues, Table
from heedful.explain.summary import NAMES
from heedful.explain.views.attributed import MOST_PANELS, part_names
from heedful.explain.views.shared import STACKS, head_table, rounded, rounded_all, stacks_of, two_places
from heedful.nn.taps import taps
from heedful.runs.loading import LoadedRun
from heedful.tasks.model_input import AnswerOptions, ModelInput
from heedful.tasks.prediction import GIVEN, TaskInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation

TOLERANCE = 1e-4
"""Differences of values below this, relative to values above 1, are rounding."""

SMALLEST = 0.005
"""Tokens that restore less at every depth are left out of tables: 0.00."""


def supports(run: LoadedRun) -> bool:
    """Whether a stack of blocks reads the input."""
    return _stack_of_input(run.model) in stacks_of(run.model)


def _stack_of_input(model: nn.Module) -> str:
    """Return the name of the stack that reads the input, whether or not it exists."""
    return "encoder" if hasattr(model, "source_embedding") else "stack"


def compute(run: LoadedRun, prepared: ModelInput, explanations: Sequence["Explanation"]) -> JsonObject:
    """Return how much of the answer to the first input each activation restores, put into the second input.

    Patched are the residual stream of each token of the input, after the embedding and after each block; and
    each selected head, at all tokens together. The value of an answer of several parts is their sum.

    Returns:
        ``side`` (name of the axis); ``unit``, what is measured; the parts of the answer as ``answers``, the
        words that they are ``about`` if they are tags, and their values, ``clean_parts`` and
        ``corrupted_parts``; their sums ``clean`` and ``corrupted``; the ``tokens`` of the corrupted input and
        the positions of those that ``differ``; ``depths``, each with ``tap``, and for each token ``effects``,
        the change of the value, and ``restored``, its share of ``clean - corrupted``; and ``stacks`` of
        heads: for each ``kind``, ``queries``, ``keys`` and ``layers``, each with ``layer``, ``heads``,
        ``tap`` and, for each head, ``effects`` and ``restored``.

    Raises:
        RequestError: there are not two inputs, they have different numbers of tokens, or the same answer.
    """
    if len(explanations) != 2:
        raise RequestError(
            f"activation patching needs two inputs, got {len(explanations)}; give a second one that differs "
            'in a few words, after the first one (in Python, others=["OTHER TEXT"])'
        )
    other = prepared_like(run, prepared, cast(TaskInput, explanations[1].input))
    stack, existing = _stack_of_input(run.model), taps(run.model)
    depths = [f"{STACKS[stack]}.output"]
    depths += [f"{stack}.blocks.{i}.output" for i in range(len(stacks_of(run.model)[stack].blocks))]
    maps = [m for m in explanations[0].maps if _mixed(m) in existing]
    patching = Patching.of(run.model, prepared, other, [*depths, *map(_mixed, maps)])
    clean, corrupted = (each.sum().item() for each in patching.values)
    measured = patching.clean
    answer = measured.answers.names[0] if len(measured.answers) == 1 else "the answer"
    if not math.isfinite(clean - corrupted) or abs(clean - corrupted) <= TOLERANCE * max(1.0, abs(clean)):
        raise RequestError(
            f"both inputs give the same {measured.unit} of {answer} ({clean:.4g}), so that there is nothing "
            "to restore; use a second input with another answer"
        )

    def restored(tap: str, units: Sequence[int]) -> JsonObject:
        effects = _sums(patching.patched(tap, [[unit] for unit in units])) - corrupted
        return {"effects": rounded_all(effects), "restored": rounded_all(effects / (clean - corrupted))}

    side, n = side_of(prepared), n_patched(prepared)
    return {
        "side": side,
        "unit": measured.unit,
        "answers": [*measured.answers.names],
        "about": [*measured.answers.words],
        "clean": rounded(clean),
        "corrupted": rounded(corrupted),
        "clean_parts": rounded_all(patching.values[0].cpu()),
        "corrupted_parts": rounded_all(patching.values[1].cpu()),
        "tokens": [*other.axes[side].tokens[:n]],
        "differ": patching.changed(depths[0]),
        "depths": [{"tap": tap, **restored(tap, range(n))} for tap in depths],
        "stacks": [
            {
                "kind": stack_maps[0].kind,
                "queries": stack_maps[0].queries,
                "keys": stack_maps[0].keys,
                "layers": [
                    {"layer": m.layer, "heads": [*m.heads], "tap": m.tap, **restored(_mixed(m), m.heads)}
                    for m in stack_maps
                ],
            }
            for stack_maps in _by_stack(maps)
        ],
    }


def _mixed(attention_map: AttentionMap) -> str:
    """Return the tap of the outputs of the heads of a map."""
    return f"{attention_map.tap.removesuffix('.weights')}.mixed"


def _by_stack(maps: Sequence[AttentionMap]) -> list[list[AttentionMap]]:
    """Return the maps of each kind of attention and axes together."""
    stacks: dict[tuple[str, str], list[AttentionMap]] = {}
    for attention_map in maps:
        stacks.setdefault((attention_map.kind, attention_map.queries), []).append(attention_map)
    return [*stacks.values()]


def _sums(values: Tensor) -> Numbers:
    sums: Numbers = values.sum(-1).cpu().numpy()
    return sums


def prepared_like(run: LoadedRun, prepared: ModelInput, other: TaskInput) -> ModelInput:
    """Prepare another input, with the answer to the first one if the task generates text.

    The answers of other tasks have no tokens, so that they do not depend on how the input is prepared.
    """
    if not run.task.info.writes:
        return prepare_input(run, other)
    answer = prepared.answer
    is_given = GIVEN in answer.notes
    options = AnswerOptions(target=answer.text if is_given else None)
    read = run.task.model_input(run.model, other, options, answer)
    return replace(read, batch=read.batch.to(next(run.model.parameters()).device))


# Output


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return a table of tokens by depth, in images a heat map, or maps over an image; and tables of heads."""
    parts, unit = part_names(values), values["unit"]
    of = unit if unit == "number" else f"{unit} of {parts[0] if len(parts) == 1 else 'the answer'}"
    note = (
        f"0: the patch changes nothing; 1: it restores the {of} for the first input, {values['clean']:.4g} "
        f"(for the second: {values['corrupted']:.4g})"
    )
    title = f"restored share of the {of}"
    is_image = explanation.axes[values["side"]].grid is not None
    draw = _patch_drawings if is_image else _token_drawings
    output = [*draw(explanation, values, title, note), *_head_tables(values, title)]
    if len(parts) > 1:
        rows = [*zip(parts, values["clean_parts"], values["corrupted_parts"], strict=True)]
        columns = ["answer", "first input", "second input"]
        output.append(Table(f"{unit} of each part of the answer".capitalize(), columns, rows))
    return output


def _depth_names(values: JsonMapping) -> list[str]:
    return [f"block {depth}" if depth else "embedding" for depth in range(len(values["depths"]))]


def _token_drawings(explanation: "Explanation", values: JsonMapping, title: str, note: str) -> list[Drawing]:
    restored = np.array([depth["restored"] for depth in values["depths"]], dtype=float)
    clean, differ = explanation.axes[values["side"]].tokens, {*values["differ"]}
    labels = [f"{clean[i]} → {token}" if i in differ else token for i, token in enumerate(values["tokens"])]
    shown = np.abs(restored).max(0) >= SMALLEST
    left_out = "" if shown.all() else "; tokens that restore less than 0.005 at every depth are left out"
    rows = [
        [label, *(Cell(two_places(value), max(0.0, min(value, 1.0))) for value in column)]
        for label, column, is_shown in zip(labels, restored.T.tolist(), shown, strict=True)
        if is_shown or not shown.any()
    ]
    title = f"Activation patching of the residual stream: {title}"
    beyond = "; values beyond -1 and 1 have the colours of -1 and 1" if np.abs(restored).max() > 1 else ""
    return [
        Table(
            title, ["token", *_depth_names(values)], rows, note=note + left_out, media={"page", "terminal"}
        ),
        Heat(title, restored.clip(-1, 1), _depth_names(values), labels, note=note + beyond, media={"image"}),
    ]


def _patch_drawings(explanation: "Explanation", values: JsonMapping, title: str, note: str) -> list[Drawing]:
    axis = explanation.axes[values["side"]]
    depths = [*zip(_depth_names(values), values["depths"], strict=True)]
    panels = [PatchPanel(name, on_grid(depth["restored"], axis)) for name, depth in depths]
    panels = panels[:: -(-len(panels) // MOST_PANELS)]
    title_of_patches = f"Activation patching of the residual stream: {title}"
    output: list[Drawing] = [PatchValues(title_of_patches, values["side"], panels, note=note)]
    if axis.before:
        rows = [[name, two_places(depth["restored"][0])] for name, depth in depths]
        title = f"Activation patching of the class token: {title}"
        output.append(Table(title, ["after", "restored"], rows))
    return output


def _head_tables(values: JsonMapping, title: str) -> list[Drawing]:
    return [
        head_table(
            f"Activation patching of heads of {NAMES[stack['kind']]}: {title}",
            stack["layers"],
            "restored",
            1.0,
        )
        for stack in values["stacks"]
    ]
