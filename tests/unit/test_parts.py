"""What recipes can name by import path in the modules of plugins."""

import sys
from types import ModuleType

import pytest

from heedful import parts, plugins
from heedful.parts import check_marked, check_part, load_reference
from heedful.plugins import PluginError

MODULE = """
import functools
import os
import subprocess
from os import system
from subprocess import Popen

import heedful


class Base:
    def forward(self): ...


class Own(Base):
    pass


class Meta(type):
    def __getattr__(cls, name):
        raise SystemExit(name)


class Strange(metaclass=Meta):
    pass


Alias = Own
Elsewhere = type("Elsewhere", (), {"__module__": "subprocess"})
Lying = type("Lying", (), {"__module__": "parts_of_mine.other"})
number = 3
instance = Own()
bound = instance.forward
prepared = functools.partial(print, "x")


def helper(path):
    raise SystemExit(path)


@heedful.part
def marked():
    return Own()


@heedful.part
class Marked:
    pass


def __getattr__(name):
    raise SystemExit(name)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "parts_of_mine.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(plugins.VARIABLE, "parts_of_mine")
    monkeypatch.setattr(parts, "_marked", {})
    yield load_reference("parts_of_mine:Own").__module__
    del sys.modules["parts_of_mine"]


@pytest.mark.parametrize("name", ["Base", "Own", "Alias", "Strange", "marked", "Marked"])
def test_classes_that_a_module_defines_and_what_it_marks_are_parts(name, module):
    assert load_reference(f"{module}:{name}") is vars(sys.modules[module])[name]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Popen", "expected a class that parts_of_mine defines, got one of the module subprocess"),
        ("Elsewhere", "expected a class that parts_of_mine defines, got one of the module subprocess"),
        ("Lying", "expected a class that parts_of_mine defines, got one of the module parts_of_mine.other"),
        (
            "system",
            "expected a class, or a function with the decorator @heedful.part, got a builtin_function",
        ),
        ("os", "expected a class, or a function with the decorator @heedful.part, got a module"),
        ("helper", "expected .*, got a function; add the decorator above its definition"),
        ("prepared", "expected a class, or a function with the decorator @heedful.part, got a partial"),
        ("bound", "expected a class, or a function with the decorator @heedful.part, got a method"),
        ("instance", "expected a class, or a function with the decorator @heedful.part, got an Own"),
        ("number", "expected a class, or a function with the decorator @heedful.part, got an int"),
        ("__builtins__", "expected a class, or a function with the decorator @heedful.part, got a dict"),
        ("Owm", "the module parts_of_mine has no 'Owm' .did you mean 'Own'"),
        ("anything", "the module parts_of_mine has no 'anything'"),
    ],
)
def test_other_names_of_a_module_are_no_parts(name, message, module):
    with pytest.raises(PluginError, match=f"^parts_of_mine:{name}: {message}"):
        load_reference(f"{module}:{name}")


def test_a_class_of_a_further_module_is_a_part_if_that_module_is_one_of_a_plugin(module, monkeypatch):
    other = ModuleType("further_of_mine")
    other.Further = type("Further", (), {"__module__": "further_of_mine"})
    monkeypatch.setitem(sys.modules, "further_of_mine", other)
    sys.modules[module].Further = other.Further
    with pytest.raises(
        PluginError, match=r"expected a class that parts_of_mine defines, got .* further_of_mine"
    ):
        load_reference(f"{module}:Further")
    monkeypatch.setenv(plugins.VARIABLE, "parts_of_mine,further_of_mine")
    assert load_reference(f"{module}:Further") is other.Further


def test_a_class_must_fit_before_it_is_called(module):
    base = vars(sys.modules[module])["Base"]
    check_part(f"{module}:Own", base, ["forward"])
    for name in ("Strange", "Marked"):
        with pytest.raises(PluginError, match=f":{name}: expected a subclass of parts_of_mine.Base$"):
            check_part(f"{module}:{name}", base, ["forward"])
    with pytest.raises(PluginError, match=r":Own: the class must define backward and counts$"):
        check_part(f"{module}:Own", base, ["forward", "counts", "backward"])
    check_part(f"{module}:marked", base, ["forward"])  # a function, which may return one


def test_rows_are_given_by_marked_functions_alone(module):
    check_marked(f"{module}:marked")
    with pytest.raises(
        PluginError, match=r":Own: expected a function with the decorator @heedful.part, got a cl"
    ):
        check_marked(f"{module}:Own")


def test_metrics_of_heedful_are_listed_and_nothing_else_of_it_is_a_part():
    for reference in parts.METRICS:
        metric = load_reference(reference)
        check_part(reference, object, ["__call__"])
        home, _, name = reference.partition(":")
        assert (metric.__module__, metric.__qualname__) == (home, name)
        with pytest.raises(PluginError, match="expected an import path of your own part"):
            load_reference(f"{home}:Score")
