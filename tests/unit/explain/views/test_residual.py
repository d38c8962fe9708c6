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
    title, *rows = view_module("residual").lines(seen, seen.views["residual"])
    assert title == "norm of the residual stream of input tokens: mean, largest"
    assert len(rows) == len(norms)
    tokens = seen.axes["input"].tokens
    for depth, (row, own) in enumerate(zip(rows, norms, strict=True)):
        name, mean, largest = (f"block {depth}" if depth else "embeddings"), own.mean(), own.max()
        assert row.split() == [*name.split(), f"{mean:.3f}", f"{largest:.3f}", *tokens[own.argmax()].split()]


def test_drawings_are_relative_to_the_largest_norm(explained):
    run, given = explained("translation")
    seen = explain_input(run, given, maps=NO_MAPS, views=["residual"])
    stacks = [np.array(each["norms"]) for each in seen.views["residual"]["stacks"]]
    drawings = [each.to_dict() for each in view_module("residual").drawings(seen, seen.views["residual"])]
    assert [each["size"] for each in drawings] == [[*norms.shape] for norms in stacks]
    assert [each["title"].rpartition(" ")[2] for each in drawings] == [
        f"{norms.max():.4g}" for norms in stacks
    ]
    axes = figure_of(seen).axes[0]
    (image,) = axes.images
    np.testing.assert_allclose(np.asarray(image.get_array()), stacks[-1] / stacks[-1].max(), atol=1e-6)


def test_without_blocks_there_is_no_such_view(explained):
    run, given = explained("recurrent")
    with pytest.raises(RequestError, match="view residual needs a stack of blocks"):
        explain_input(run, given, maps=NO_MAPS, views=["residual"])
