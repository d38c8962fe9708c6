import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for `made_up` and `sweep`
sys.path.append(str(HERE.parents[1]))  # for `verdicts`
pytest.register_assert_rewrite("sweep")

# Two seconds or more in their short form: the whole sweep makes them, with several shifts of their seeds.
COSTLY = {
    "attention-as-alignment",
    "attention-distance",
    "concatenated-positions",
    "convolution-or-lstm",
    "copying-in-context",
    "emerging-links",
    "experts-at-equal-operations",
    "exposure",
    "heads-on-it",
    "layer-or-batch-norm",
    "mixers-at-equal-budget",
    "one-vector",
    "patterns-of-heads",
    "pictures-to-learn-from",
    "post-norm-needs-warm-up",
    "pretrained-or-scratch",
    "residual-gradients",
    "trained-faster",
    "warm-up-and-optimizer",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of costly experiments `full`: those that have or name one of them."""
    for item in items:
        if item.path.parent == HERE and isinstance(item, pytest.Function) and _named(item) & COSTLY:
            item.add_marker(pytest.mark.full)


def _named(item: pytest.Function) -> set[str]:
    """The texts that a test has among its parameters, its constants and those of its module that it uses."""
    code = item.function.__code__
    used = (getattr(item.module, name, None) for name in code.co_names)
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return {each for each in (*parameters, *code.co_consts, *used) if isinstance(each, str)}
