"""When a model is compiled: what the recipe says, and if it leaves the choice, how long the run is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._inductor.runtime.runtime_utils import cache_dir

from heedful.errors import RequestError
from heedful.models.encoder import EncoderConfig
from heedful.models.language_model import LanguageModelConfig
from heedful.models.registry import build_model
from heedful.models.transformer import TransformerConfig
from heedful.objectives.cross_entropy import NextToken
from heedful.training import compilation
from heedful.training.compilation import choose_compile, find_compiler, separate_compiled_code
from heedful.training.settings import TrainingConfig
from heedful.training.step import Step

CPU = torch.device("cpu")
MODEL = nn.Linear(1000, 1000, bias=False)  # 6 million operations a token
LONG = 1_000_000_000
SHORT = 1_000_000


@pytest.fixture(params=["/usr/bin/g++", None], ids=["compiler", "no compiler"])
def compiler(request, monkeypatch):
    monkeypatch.setattr(compilation, "find_compiler", lambda device: request.param)
    return request.param


def test_off_is_off_and_on_is_on_or_refused(compiler):
    assert not choose_compile("off", MODEL, LONG, None, CPU)
    if compiler:
        assert choose_compile("on", MODEL, SHORT, None, CPU)
    else:
        with pytest.raises(RequestError, match=r"training\.compile"):
            choose_compile("on", MODEL, SHORT, None, CPU)


@pytest.mark.parametrize(
    "n_tokens, minutes, long",
    [
        (LONG, None, True),
        (SHORT, None, False),
        (LONG, 5, False),
        (LONG, 60, True),
        (None, 60, True),
        (None, None, False),
    ],
)
def test_auto_compiles_long_runs(compiler, n_tokens, minutes, long):
    assert choose_compile("auto", MODEL, n_tokens, minutes, CPU) == (long and compiler is not None)


def test_the_compiler_is_what_the_environment_names_or_a_usual_one(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert find_compiler(CPU) is None
    for name in ("clang++", "my-c++"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert find_compiler(CPU) == str(tmp_path / "clang++")
    monkeypatch.setenv("CXX", "my-c++")
    assert find_compiler(CPU) == str(tmp_path / "my-c++")


@pytest.mark.parametrize(
    "limits, tokens",
    [
        ({"max_epochs": 3}, 300),
        ({"max_updates": 7}, 70),
        ({"max_epochs": 3, "max_updates": 7}, 70),
        ({"max_minutes": 1}, None),
    ],
)
def test_a_training_reads_at_most_so_many_tokens(limits, tokens):
    assert TrainingConfig(**limits).n_tokens(an_epoch=100, an_update=10) == tokens


@pytest.mark.parametrize("norm, compiled", [("layer", True), ("batch", False)])
def test_norms_with_running_statistics_are_not_compiled(norm, compiled):
    config = TransformerConfig(
        d_model=14, n_layers=1, layer={"mixer": {"n_heads": 2}, "channels": {"d_ff": 19}, "norm": norm}
    )
    step = Step(build_model(config, 11, 11), NextToken())
    step.compile("eager")
    assert step.compiled == compiled


@pytest.mark.parametrize(
    "layer",
    [
        {"mixer": {"visible": {"kind": "blocks"}}},
        {"mixer": {"kind": "compressed-attention", "n_heads": 2}},
        {"channels": {"kind": "experts", "n": 3, "expert": {"d_ff": 19, "activation": "gelu"}}},
        {"mixer": {"visible": "all"}},
    ],
    ids=str,
)
def test_parts_that_read_single_lengths_or_ids_are_not_compiled(layer):
    sizes = {"mixer": {"n_heads": 2}, "channels": {"d_ff": 19}}
    config = LanguageModelConfig(d_model=14, n_layers=1, layer=sizes).changed(layer=layer)
    step = Step(build_model(config, 11), NextToken())
    step.compile("eager")
    assert step.compiled == (layer == {"mixer": {"visible": "all"}})


@pytest.mark.parametrize("mixer, compiled", [({"n_heads": 2}, True), ("recurrent", False)])
def test_recurrences_are_not_compiled(mixer, compiled):
    config = EncoderConfig(d_model=14, n_layers=1, layer={"mixer": mixer, "channels": {"d_ff": 19}})
    step = Step(build_model(config, 11), NextToken())
    step.compile("eager")
    assert step.compiled == compiled


# Where compiled code is kept --------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path, monkeypatch):
    for name in ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_compiled_code_is_kept_in_the_folder_that_is_named(cache):
    folder = separate_compiled_code()
    assert folder.parent == cache
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(folder) == cache_dir()
    assert separate_compiled_code() == folder


def test_a_folder_of_the_user_may_be_named_after_heedful(cache, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache / "heedful-cache"))
    folder = separate_compiled_code()
    assert folder.parent == cache / "heedful-cache"
    assert separate_compiled_code() == folder


@pytest.mark.parametrize("name", ["ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "processor"])
def test_other_instructions_have_another_folder_beside(cache, monkeypatch, name):
    """Even in a process started from one that has a folder already."""
    folder = separate_compiled_code()
    if name == "processor":
        monkeypatch.setattr(compilation, "identity", lambda: "another")
    else:
        monkeypatch.setenv(name, "avx2")
    other = separate_compiled_code()
    assert other != folder
    assert other.parent == cache


def test_a_step_that_is_compiled_has_its_code_there(cache):
    model = build_model(
        EncoderConfig(d_model=8, n_layers=1, layer={"mixer": {"n_heads": 2}, "channels": {"d_ff": 8}}), 11
    )
    Step(model, NextToken()).compile("eager")
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(cache)
    Step(model, NextToken()).compile()
    assert Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).parent == cache


LOSS = """
import torch
from heedful.models.language_model import LanguageModelConfig
from heedful.models.registry import build_model
from heedful.nn.layout import Tokens
from heedful.objectives.cross_entropy import NextToken
from heedful.training.step import Step
torch.manual_seed(1)
torch.set_num_threads(1)
sizes = {"d_model": 32, "d_ff": 64, "n_heads": 2, "n_layers": 1, "dropout": 0.0}
step = Step(build_model(LanguageModelConfig(**sizes), 31), NextToken()).train()
tokens = Tokens.of([[3, 4, 5, 6, 7], [6, 8, 9]])
plain = step.model(tokens)
step.compile()
tokens.layout.prepare()
compiled = step.model(tokens)
torch.testing.assert_close(compiled, plain, rtol=0, atol=1e-4)
"""


@pytest.mark.full
@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() != "AVX512", reason="needs AVX-512")
def test_code_for_more_instructions_is_not_run_where_there_are_fewer(cache):
    for most in ("avx512", "avx2"):
        environment = {**os.environ, "ATEN_CPU_CAPABILITY": most}
        done = subprocess.run([sys.executable, "-c", LOSS], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, (most, done.stderr[-3000:])
    assert len(list(cache.glob("heedful-*"))) == 2
