"""The library in the ways in which it can be compiled here."""

import platform

import pytest

from heedful.engine import native
from heedful.engine.native import UnavailableError, build

# What is left where a processor has less: no products of bf16 and int8, and shorter vectors.
_COMMON = ["-O2", "-ffp-contract=fast", "-std=gnu11", "-fPIC", "-shared", "-w"]
FLAGS = {"own": None}
if platform.machine() in ("x86_64", "AMD64"):
    FLAGS |= {"avx2": [*_COMMON, "-march=x86-64-v3", "-fopenmp"], "sse": [*_COMMON, "-march=x86-64"]}


@pytest.fixture(params=FLAGS, scope="session")
def library(request):
    try:
        return native.Library(build(FLAGS[request.param]))
    except UnavailableError as reason:
        pytest.skip(str(reason))
