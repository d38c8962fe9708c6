"""What `heedful explain --json` tells of an imported checkpoint, beside the library's own attention."""

import json

import numpy as np
from typer.testing import CliRunner

from heedful.cli.main import app

CLOSE = 1e-5
"""Weights are told to six digits."""


def explained(folder, *arguments):
    """The explanation, by the command."""
    given = ["explain", str(folder), *map(str, arguments), "--json", "--device", "cpu"]
    outcome = CliRunner().invoke(app, given)
    assert outcome.exit_code == 0, outcome.output
    return json.loads(outcome.stdout)


def same_attention(found, kind, theirs):
    """All weights of a kind: ``theirs`` has ``[1, H, queries, keys]`` for each layer."""
    maps = [each for each in found["maps"] if each["kind"] == kind]
    lengths = {side["name"]: len(side["tokens"]) for side in found["sides"]}
    assert [each["layer"] for each in maps] == [*range(len(theirs))]
    for each, (wanted,) in zip(maps, theirs, strict=True):
        weights = np.array(each["weights"])
        n_heads = len(wanted)
        assert weights.shape == (n_heads, lengths[each["queries"]], lengths[each["keys"]])
        np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=CLOSE)
        np.testing.assert_allclose(weights, wanted.detach().numpy(), atol=CLOSE, rtol=0)
