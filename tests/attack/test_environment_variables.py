"""Environment variables that heedful reads, with values that mean nothing: a message, or no effect."""

import ast
import os
from pathlib import Path

import pytest

import heedful
from heedful.errors import HeedfulError
from heedful.training import distribution, fast_paths, signals

SOURCE = Path(heedful.__file__).parent
JUNK = ["", " ", "x", "-1", "0", "1.5", "1e3", "²", "9" * 400, "a,b", "\udcff", "/nowhere/at/all", "65536"]

OF_PROCESSES = {
    "WORLD_SIZE": "2",
    "RANK": "0",
    "LOCAL_RANK": "0",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29511",
}
OF_CHILDREN = {"WORLD_SIZE": "2", "RANK": "1", "HEEDFUL_STORE": "store", "HEEDFUL_PARENT": str(os.getpid())}
HARMLESS = {
    "CC": "tests/unit/engine: it is a command or not",
    "CXX": "looked for on the path",
    "COLUMNS": "read by others",
    "GLOO_SOCKET_IFNAME": "read by torch, whose error is a message",
    "HEEDFUL_DATA": "a folder that exists or not",
    "HEEDFUL_NATIVE": "compared with 0",
    "HEEDFUL_PLUGINS": "names of packages that may be imported",
    "NO_COLOR": "set or not",
    "THP_MEM_ALLOC_ENABLE": "set or not",
    "TERM": "compared with names",
    "TOKENIZERS_PARALLELISM": "read by the tokenizers library, set only if it is not there",
    "TORCHINDUCTOR_CACHE_DIR": "a folder, of torch",
    "TORCH_CPP_LOG_LEVEL": "read by torch, set only if it is not there",
    "XDG_CACHE_HOME": "tests/unit/engine: a folder that can be used or not",
    "_HEEDFUL_COMPLETE": "read by click",
}
OTHERS = {"MKL_NUM_THREADS", "OMP_NUM_THREADS", "PYTHONPATH", "SC_PAGE_SIZE", "SC_PHYS_PAGES"}
"""Set for other processes, or no variables."""

TESTED = {*OF_PROCESSES, *OF_CHILDREN, "HEEDFUL_FAULT", "ATEN_CPU_CAPABILITY"}


def variables_of(path: Path) -> set[str]:
    """Return the names that a module looks up in the environment, those in its constants too."""
    tree = ast.parse(path.read_text("utf-8"))
    if "environ" not in path.read_text("utf-8"):
        return set()
    constants = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return {
        name for name in constants if name.isascii() and name.strip("_").isupper() and "_" in name.strip("_")
    }


def test_every_variable_is_tried_or_harmless():
    names = {name for path in SOURCE.rglob("*.py") for name in variables_of(path)}
    assert {"WORLD_SIZE", "HEEDFUL_FAULT", "HEEDFUL_STORE"} <= names
    instruction_sets = {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}
    assert names - TESTED - HARMLESS.keys() - instruction_sets - OTHERS == set()


@pytest.fixture
def never_joins(monkeypatch):
    """A process that would join the others has read its variables: it does not wait for them here."""
    joined = []

    def join(*arguments, **options):
        joined.append(options)
        raise RuntimeError("gloo/transport: nobody is there\nmore")

    monkeypatch.setattr(distribution.dist, "init_process_group", join)
    monkeypatch.setattr(distribution, "_end_with_parent", lambda parent: None)
    return joined


@pytest.mark.parametrize("value", [*JUNK, None])
@pytest.mark.parametrize("name", [*OF_PROCESSES, "HEEDFUL_STORE", "HEEDFUL_PARENT"])
def test_a_variable_of_processes_that_means_nothing_is_a_message(
    name, value, monkeypatch, tmp_path, never_joins
):
    monkeypatch.chdir(tmp_path)
    settings = OF_CHILDREN if name.startswith("HEEDFUL") else OF_PROCESSES
    for key, text in settings.items():
        monkeypatch.setenv(key, text)
    if value is None:
        monkeypatch.delenv(name)
    else:
        monkeypatch.setenv(name, value)
    try:
        with distribution.process_group("cpu"):
            pass
    except HeedfulError as error:
        message = str(error)
        assert len(message) < 300
        assert "unset WORLD_SIZE" in message
        assert (
            name in message
            or (name, value) == ("HEEDFUL_STORE", None)
            or "cannot connect: gloo/transport: nobody is there;" in message
        )
    else:
        assert (name, value) == ("WORLD_SIZE", None)


@pytest.mark.parametrize("value", ["WORLD_SIZE", "x", "1.5"])
def test_a_world_size_that_is_no_number_is_named(monkeypatch, value):
    monkeypatch.setenv("WORLD_SIZE", value)
    with (
        pytest.raises(heedful.RequestError, match="environment variable WORLD_SIZE: expected a whole number"),
        distribution.process_group("cpu"),
    ):
        pass


@pytest.mark.parametrize("value", JUNK)
def test_a_fault_that_means_nothing_does_nothing(monkeypatch, value):
    monkeypatch.setenv("HEEDFUL_FAULT", f"nowhere:{value}")
    signals._fault.cache_clear()
    try:
        signals.fault_point("after-update")
    finally:
        monkeypatch.undo()
        signals._fault.cache_clear()


@pytest.mark.parametrize("value", JUNK)
def test_instruction_sets_that_mean_nothing_only_name_a_folder(monkeypatch, value, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", value)
    assert fast_paths.separate_compiled_code().parent == tmp_path
