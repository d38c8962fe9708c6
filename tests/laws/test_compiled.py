"""Law 3, compiled equals eager: for every model whose blocks training compiles."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from cases import LABELLED, MODELS, labelled_model, plain_model
from tiers import sampled

from heedful.nn.blocks import DecoderStack, EncoderStack
from heedful.nn.declarations import claims
from heedful.objectives.cross_entropy import NextToken
from heedful.training.fast_paths import find_compiler
from heedful.training.model_with_loss import ModelWithLoss

# What a model may declare that keeps it from being compiled.
REASONS = ("couples_batch", "not_compilable")
MACHINE_CODE = "inductor" if find_compiler(torch.device("cpu")) else "aot_eager"


@pytest.fixture(scope="module")
def agrees():
    """Whether a model equals itself compiled, which a process of its own is asked (`compiled.py`).

    The compiler cannot see through the checks of shapes in these tests.
    """
    process = subprocess.Popen(
        [sys.executable, Path(__file__).parent / "compiled.py"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip

    def ask(name, backend):
        print(json.dumps([name, backend]), file=process.stdin, flush=True)
        wrong = json.loads(process.stdout.readline())
        assert not wrong, wrong

    yield ask
    process.kill()
    process.communicate()


def any_model(name):
    return labelled_model(name) if name in LABELLED else plain_model(name)


def is_compiled(model):
    """Whether training compiles something of it."""
    step = ModelWithLoss(model, NextToken())
    step.compile("eager")
    return step.compiled


NAMES = [*MODELS, *LABELLED]
every_model = pytest.mark.parametrize("name", NAMES)


@every_model
def test_a_model_is_compiled_or_declares_why_not(name):
    """Each of its stacks by itself; one without a stack declares it."""
    model = any_model(name)
    is_compiled(model)
    stacks = [part for part in model.modules() if isinstance(part, EncoderStack | DecoderStack)]
    for part in stacks or [model]:
        compiled = getattr(part, "compiled", None) is not None
        assert compiled != any(claims(part, reason) for reason in REASONS)


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(NAMES, NAMES[::17]))
def test_compiled_blocks_equal_themselves_whatever_the_lengths(name, agrees):
    """Graphs by the compiler's front end; a model that is not compiled has none."""
    if is_compiled(any_model(name)):
        agrees(name, "eager")


@pytest.mark.slow
def test_compiled_blocks_equal_themselves_with_scheduled_sampling(agrees):
    agrees("transformer", "sampled eager")


@pytest.mark.full
@pytest.mark.timeout(900)  # a minute of an idle machine
def test_machine_code_of_blocks_equals_them_whatever_the_lengths(agrees):
    agrees("pre-norm", MACHINE_CODE)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["additive", "luong, fed"])
def test_a_model_compiled_as_a_whole_equals_itself(name, agrees):
    agrees(name, "whole eager")
