import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for `made_up` and `sweep`
sys.path.append(str(HERE.parents[1]))  # for `verdicts`
pytest.register_assert_rewrite("sweep")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of costly experiments `full`: those that have or name one of them."""
    from sweep import COSTLY

    for item in items:
        if item.path.is_relative_to(HERE) and isinstance(item, pytest.Function) and _named(item) & COSTLY:
            item.add_marker(pytest.mark.full)


def _named(item: pytest.Function) -> set[str]:
    """The texts that a test has among its parameters, its constants and those of its module that it uses."""
    code = item.function.__code__
    used = (getattr(item.module, name, None) for name in code.co_names)
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return {each for each in (*parameters, *code.co_consts, *used) if isinstance(each, str)}
