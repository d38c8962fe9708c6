"""In tests of blocks, shapes and types are checked at run time (`tests/conftest.py`)."""

import jaxtyping
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.nn.norms import RMSNorm


def test_a_wrong_type_is_found():
    norm = RMSNorm(7)
    norm(torch.zeros(3, 7))
    with pytest.raises(jaxtyping.TypeCheckError):
        norm(torch.zeros(3, 7, dtype=torch.long))


@given(n=st.integers(1, 3))
def test_properties_are_not_slowed_down(n):
    assert jaxtyping.config.jaxtyping_disable
    assert RMSNorm(7)(torch.zeros(n, 7)).shape == (n, 7)
