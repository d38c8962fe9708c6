import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `made_up` and `sweep`
sys.path.append(str(Path(__file__).parents[2]))  # for `verdicts`
pytest.register_assert_rewrite("sweep")
