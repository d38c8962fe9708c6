"""How a training runs on this machine: what the recipe says, or if it leaves the choice, what is faster."""

import os
import platform
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
from heedful.training import fast_paths
from heedful.training.fast_paths import (
    choose_compile,
    choose_precision,
    choose_processes,
    find_compiler,
    separate_compiled_code,
)
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.settings import TrainingConfig

CPU = torch.device("cpu")
MODEL = nn.Linear(1000, 1000, bias=False)  # 6 million operations a token
LONG = 1_000_000_000
SHORT = 1_000_000


@pytest.fixture(params=["/usr/bin/g++", None], ids=["compiler", "no compiler"])
def compiler(request, monkeypatch):
    monkeypatch.setattr(fast_paths, "find_compiler", lambda device: request.param)
    return request.param


def compiles(wanted, n_tokens, minutes=None):
    return choose_compile(
        TrainingConfig(max_updates=1, compile=wanted, max_minutes=minutes), MODEL, n_tokens, CPU
    )


def test_off_is_off_and_on_is_on_or_refused(compiler):
    assert not compiles("off", LONG, None)
    if compiler:
        assert compiles("on", SHORT, None)
    else:
        with pytest.raises(RequestError, match=r"training\.compile"):
            compiles("on", SHORT, None)


@pytest.mark.parametrize(
    "n_tokens, minutes, long",
    [
        (LONG, None, True),
        (SHORT, None, False),
        (LONG, 5.0, False),
        (LONG, 60.0, True),
        (None, 60.0, True),
        (None, None, False),
    ],
)
def test_auto_compiles_long_runs(compiler, n_tokens, minutes, long):
    assert compiles("auto", n_tokens, minutes) == (long and compiler is not None)


@pytest.mark.parametrize(("n_updates", "expected"), [(1_000, False), (10_000, True)])
def test_on_a_gpu_small_models_are_compiled_if_they_make_many_updates(n_updates, expected, monkeypatch):
    """They wait for Python, not for the products."""
    monkeypatch.setattr(fast_paths, "find_compiler", lambda device: "triton")
    settings = TrainingConfig(max_updates=n_updates, tokens_per_update=128)
    assert choose_compile(settings, MODEL, 128 * n_updates, torch.device("cuda")) == expected
    assert not choose_compile(settings, MODEL, 128 * n_updates, CPU)


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
    assert TrainingConfig(**limits).n_tokens(epoch_tokens=100, update_tokens=10) == tokens


@pytest.mark.parametrize("norm, compiled", [("layer", True), ("batch", False)])
def test_norms_with_running_statistics_are_not_compiled(norm, compiled):
    config = TransformerConfig(
        d_model=14, n_layers=1, layer={"mixer": {"n_heads": 2}, "channels": {"d_ff": 19}, "norm": norm}
    )
    step = ModelWithLoss(build_model(config, 11, 11), NextToken())
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
    step = ModelWithLoss(build_model(config, 11), NextToken())
    step.compile("eager")
    assert step.compiled == (layer == {"mixer": {"visible": "all"}})


@pytest.mark.parametrize("mixer, compiled", [({"n_heads": 2}, True), ("recurrent", False)])
def test_recurrences_are_not_compiled(mixer, compiled):
    config = EncoderConfig(d_model=14, n_layers=1, layer={"mixer": mixer, "channels": {"d_ff": 19}})
    step = ModelWithLoss(build_model(config, 11), NextToken())
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
        monkeypatch.setattr(fast_paths, "identity", lambda: "another")
    else:
        monkeypatch.setenv(name, "avx2")
    other = separate_compiled_code()
    assert other != folder
    assert other.parent == cache


def test_a_step_that_is_compiled_has_its_code_there(cache):
    model = build_model(
        EncoderConfig(d_model=8, n_layers=1, layer={"mixer": {"n_heads": 2}, "channels": {"d_ff": 8}}), 11
    )
    ModelWithLoss(model, NextToken()).compile("eager")
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(cache)
    ModelWithLoss(model, NextToken()).compile()
    assert Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).parent == cache


LOSS = """
import torch
from heedful.models.language_model import LanguageModelConfig
from heedful.models.registry import build_model
from heedful.nn.layout import Tokens
from heedful.objectives.cross_entropy import NextToken
from heedful.training.model_with_loss import ModelWithLoss
torch.manual_seed(1)
torch.set_num_threads(1)
layer = {"mixer": {"n_heads": 2}, "channels": {"d_ff": 64}}
config = LanguageModelConfig(d_model=32, n_layers=1, dropout=0.0, layer=layer)
step = ModelWithLoss(build_model(config, 31), NextToken()).train()
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


# Precision ------------------------------------------------------------------------------------------

INTEL, AMD = "GenuineIntel", "AuthenticAMD"


def _chip(monkeypatch, vendor: str, bf16: bool, amx: bool) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: bf16, raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx, raising=False)
    read = Path.read_text
    told = f"processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: some {AMD} {INTEL} mixture\n"
    monkeypatch.setattr(
        Path,
        "read_text",
        lambda self, *args, **named: told if str(self) == "/proc/cpuinfo" else read(self, *args, **named),
    )


@pytest.mark.parametrize(
    "vendor, bf16, amx, chosen",
    [
        (AMD, True, False, "bf16"),
        (AMD, False, False, "fp32"),
        (INTEL, True, False, "fp32"),
        (INTEL, True, True, "bf16"),
        (INTEL, False, False, "fp32"),
    ],
)
def test_auto_takes_bf16_where_products_are_faster_in_it(monkeypatch, vendor, bf16, amx, chosen):
    _chip(monkeypatch, vendor, bf16, amx)
    assert choose_precision("auto", "cpu") == chosen
    assert choose_precision("bf16", "cpu") == "bf16"
    assert choose_precision("fp32", "cpu") == "fp32"


@pytest.mark.parametrize("vendor, chosen", [(INTEL, "fp32"), (AMD, "bf16")])
def test_where_the_kernel_names_no_vendor_the_processors_description_does(monkeypatch, vendor, chosen):
    _chip(monkeypatch, vendor, bf16=True, amx=False)

    def unreadable(self, *args, **named):
        raise FileNotFoundError(self)

    monkeypatch.setattr(Path, "read_text", unreadable)
    monkeypatch.setattr(platform, "processor", lambda: f"Family 6 Model 143, {vendor}")
    assert choose_precision("auto", "cpu") == chosen


def test_a_torch_without_the_probes_trains_in_fp32(monkeypatch):
    for probe in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.delattr(torch.cpu, probe, raising=False)
    assert choose_precision("auto", "cpu") == "fp32"


@pytest.mark.parametrize("has", [True, False])
def test_a_gpu_reports_its_own_bf16_support(monkeypatch, has):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has)
    assert choose_precision("auto", "cuda") == ("bf16" if has else "fp32")
    if has:
        assert choose_precision("bf16", "cuda") == "bf16"
    else:
        with pytest.raises(RequestError, match="this GPU does not support bf16"):
            choose_precision("bf16", "cuda")


def test_other_devices_train_in_fp32():
    assert choose_precision("auto", "mps") == "fp32"


# Processes ------------------------------------------------------------------------------------------

SMALL, LARGE = nn.Linear(3, 5), nn.Linear(5000, 4001, device="meta")
assert sum(p.numel() for p in LARGE.parameters()) > fast_paths.LARGEST


class Coupled(nn.Linear):
    couples_batch = True


def chosen(wanted="auto", model=SMALL, tokens=4096, seconds=61.0, device=CPU, threads=None):
    minutes = None if seconds is None else seconds / 60
    settings = TrainingConfig(
        max_updates=1, processes=wanted, tokens_per_update=tokens, max_minutes=minutes, threads=threads
    )
    return choose_processes(settings, model, None, device)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_a_small_model_in_a_long_training_has_a_process_for_each_thread(threads):
    threads(3)
    assert chosen() == chosen(seconds=None) == 3


def test_each_process_has_enough_tokens(threads):
    threads(3)
    assert [chosen(tokens=n) for n in (4096, 3072, 3071, 2048, 2047, 1)] == [3, 3, 2, 2, 1, 1]


@pytest.mark.parametrize(
    "case",
    [
        {"seconds": 59.0},
        {"model": LARGE},
        {"model": nn.Sequential(SMALL, Coupled(5, 5))},
        {"device": torch.device("cuda")},
        {"threads": 2},
    ],
)
def test_otherwise_it_is_one(threads, case):
    threads(2)
    assert chosen() == 2
    assert chosen(**case) == 1


def test_a_number_is_taken_as_it_is_on_a_cpu(threads):
    threads(1)
    assert chosen(4, seconds=1.0, model=LARGE) == 4
    assert chosen(4, device=torch.device("cuda")) == 1


def test_what_torchrun_started_starts_nothing(threads, monkeypatch):
    threads(2)
    monkeypatch.setattr("heedful.training.distribution.world", lambda: 2)
    assert chosen() == chosen(4) == 1
