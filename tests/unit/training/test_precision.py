import platform
from pathlib import Path

import pytest
import torch

from heedful.errors import RequestError
from heedful.training.precision import choose_precision

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
