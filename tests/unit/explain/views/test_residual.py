"""The view of the residual stream, against norms of what forward hooks see."""

import numpy as np
import pytest

from heedful.errors import RequestError
from heedful.explain.attention_sites import Selection
from heedful.explain.capture import explain_input, prepare_input
from heedful.explain.drawing.heat_map import figure_of
from heedful.explain.views import view_module
from heedful.nn.blocks import DecoderBlock, EncoderBlock

NO_MAPS = Selection(kinds=())
STACKED = ["translation", "language model", "masked", "classification", "images", "captions"]


def hooked(run, reading):
    """Of each stack the L2 norms ``[depths, tokens]``, by hooks on embeddings and blocks."""
    norms = {}

    def note(key):
        def hook(module, arguments, output):
            norms.setdefault(key, []).append(np.linalg.norm(output.detach().double().numpy(), axis=-1))

        return hook

    model, handles = run.model, []
    for stack, embedding in (
        ("encoder", "source_embedding"),
        ("decoder", "target_embedding"),
        ("stack", "embedding"),
    ):
        if hasattr(model, stack):
            handles.append(getattr(model, embedding).register_forward_hook(note(stack)))
            handles += [block.register_forward_hook(note(stack)) for block in getattr(model, stack).blocks]
    model(reading.batch.inputs, reading.batch.source)
    for handle in handles:
        handle.remove()
    return norms


@pytest.mark.parametrize("name", STACKED)
def test_norms_are_those_of_what_embeddings_and_blocks_return(explained, name):
    run, given = explained(name)
    seen = explain_input(run, given, maps=NO_MAPS, views=["residual"])
    wanted = hooked(run, prepare_input(run, given))
    sides = {"encoder": "source", "decoder": "prefix", "stack": "input"}
    found = {each["side"]: np.array(each["norms"]) for each in seen.views["residual"]["stacks"]}
    assert found.keys() == {sides[stack] for stack in wanted}
    for stack, norms in wanted.items():
        np.testing.assert_allclose(found[sides[stack]], np.stack(norms), rtol=2e-5, atol=1e-6)
        assert found[sides[stack]].shape[1] == len(seen.axes[sides[stack]].tokens)
    blocks = sum(isinstance(part, EncoderBlock | DecoderBlock) for part in run.model.modules())
    assert sum(len(norms) - 1 for norms in found.values()) == blocks


def test_the_terminal_names_the_token_with_the_largest_norm(explained):
    run, given = explained("language model")
    seen = explain_input(run, given, maps=NO_MAPS, views=["residual"])
    (norms,) = (np.array(each["norms"]) for each in seen.views["residual"]["stacks"])
    _, table = view_module("residual").drawings(seen, seen.views["residual"])
    assert table.title == "Norm of the residual stream of input tokens"
    assert table.media == {"terminal"}
    tokens = seen.axes["input"].tokens
    for depth, (row, own) in enumerate(zip(table.rows, norms, strict=True)):
        name = f"block {depth}" if depth else "embeddings"
        assert row == [name, f"{own.mean():.3f}", f"{own.max():.3f}", tokens[own.argmax()]]


def test_drawings_are_relative_to_the_largest_norm(explained):
    run, given = explained("translation")
    seen = explain_input(run, given, maps=NO_MAPS, views=["residual"])
    stacks = [np.array(each["norms"]) for each in seen.views["residual"]["stacks"]]
    drawings = view_module("residual").drawings(seen, seen.views["residual"])
    heats = [each for each in drawings if each.media == {"page", "image"}]
    panels = [axes for axes in figure_of(seen).axes if axes.get_yticklabels()[0].get_text() == "embeddings"]
    for heat, axes, norms, side in zip(heats, panels, stacks, ("source", "prefix"), strict=True):
        np.testing.assert_allclose(heat.values, norms / norms.max())
        np.testing.assert_array_equal(np.asarray(axes.images[0].get_array()), heat.values)
        assert heat.title.endswith(f"relative to {norms.max():.4g}")
        assert heat.columns == seen.axes[side].tokens


def test_without_blocks_there_is_no_such_view(explained):
    run, given = explained("recurrent")
    with pytest.raises(RequestError, match="view residual needs a stack of blocks"):
        explain_input(run, given, maps=NO_MAPS, views=["residual"])
