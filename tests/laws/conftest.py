import sys
from pathlib import Path

import pytest

from heedful.nn.attention import kernels

sys.path.insert(0, str(Path(__file__).parent))  # for `cases`


@pytest.fixture
def kernel(request, monkeypatch):
    """Attention takes this kernel wherever it can; by itself it takes the explicit one for short rows."""
    monkeypatch.setattr(kernels, "CPU_SDPA_FROM", 0 if request.param == "fused" else 1 << 30)
    return request.param
