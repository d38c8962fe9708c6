"""The bodies of requests have every option that an engine reads."""

import pytest

from heedful.serve import answering
from heedful.serve.bodies import BODIES

READ = {
    "predict": {*answering.SHARED_OPTIONS, *answering.TASK_OPTIONS, *answering.CONSTRAINTS},
    "score": set(),
    "embed": {*answering.EMBED_OPTIONS},
    "explain": {*answering.EXPLAIN_OPTIONS},
}
READ["complete"] = {"max_new_tokens", "decoding", "stop", "echo", "n_candidates"}
READ["stream"] = READ["predict"] - {"threshold", "otherwise"}


@pytest.mark.parametrize("verb", BODIES)
def test_every_option_is_described(verb):
    assert BODIES[verb].model_fields.keys() - {"inputs"} == READ[verb]
