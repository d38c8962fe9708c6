"""Seeds: the same numbers, no trace, all of them shifted together; verdicts that do not depend on them."""

import ast
import inspect
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch
from made_up import made_up, measure

import heedful.lab
import verdicts
from heedful.lab import seeds
from heedful.lab.registry import experiment
from heedful.lab.seeds import generator_from, seed_of, seeded, shifted

LAB = Path(heedful.lab.__file__).parent


def test_a_seed_gives_the_same_numbers_and_leaves_the_generator_alone():
    state = torch.get_rng_state()
    with seeded(3):
        first = torch.rand(5)
    assert torch.equal(torch.get_rng_state(), state)
    with seeded(3):
        assert torch.equal(torch.rand(5), first)
    with seeded(4):
        assert not torch.equal(torch.rand(5), first)


def of_generator(seed):
    return torch.rand(5, generator=generator_from(seed)).tolist()


def of_context(seed):
    with seeded(seed):
        return torch.rand(5).tolist()


@seeded(3)
def of_decorator(seed):
    return torch.rand(5).tolist()


@pytest.mark.parametrize("draw", [of_generator, of_context, of_decorator, seed_of])
def test_a_shift_gives_other_numbers_and_ends_with_its_context(draw):
    own, found = draw(3), []
    for shift in (0, 1, 2):
        with shifted(shift):
            found.append(draw(3))
            assert draw(3) == found[-1]
    assert found[0] == own == draw(3)
    assert len({str(each) for each in found}) == 3
    with pytest.raises(KeyError), shifted(1):
        raise KeyError
    assert draw(3) == own


def test_seeds_that_differ_do_so_under_every_shift():
    used = [*range(2000), 10**6]
    found = []
    for shift in range(4):
        with shifted(shift):
            found += map(seed_of, used)
    assert len(set(found)) == 4 * len(used)


def test_what_is_kept_is_kept_for_its_shift_alone():
    made = []

    @seeds.cache
    def drawn(seed, *, n=2):
        made.append(seed)
        return torch.rand(n, generator=generator_from(seed)).tolist()

    own = drawn(3)
    with shifted(1):
        assert drawn(3) != own
        assert drawn(3) == drawn(3)
    assert drawn(3) == own
    assert drawn(3, n=3) != own
    assert made == [3, 3, 3]


def source_of(module):
    return LAB.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")


def calls(module):
    """Calls in a module of the lab: the name that is called, its arguments."""
    tree = ast.parse(source_of(module))
    return [
        (node, node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name)
    ]


MODULES = sorted(
    ".".join(path.relative_to(LAB).with_suffix("").parts)
    for path in LAB.rglob("*.py")
    if path.stem not in ("seeds", "__init__")
)


@pytest.mark.parametrize("module", MODULES)
def test_no_module_seeds_a_generator_otherwise(module):
    text = source_of(module)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            origin = getattr(node, "module", None)
            assert "random" not in [*names, origin], "Python's generator"
            assert origin not in ("torch.random", "numpy.random"), ast.unparse(node)
            if module.startswith("experiments."):
                assert origin != "functools" or "cache" not in names, "use heedful.lab.seeds.cache"
        if isinstance(node, ast.Attribute):
            assert node.attr not in ("manual_seed", "seed", "default_generator", "default_rng"), node.attr
            whole = ast.unparse(node)
            assert whole != "torch.Generator" or f"{whole}(" not in text, whole
            assert whole not in ("np.random", "numpy.random", "torch.random"), whole


@pytest.mark.parametrize("module", MODULES)
def test_what_takes_a_seed_elsewhere_is_given_one_that_can_be_shifted(module):
    inside = import_module(f"heedful.lab.{module}")
    for node, name in calls(module):
        called = getattr(inside, name, None)
        if not callable(called) or (getattr(called, "__module__", None) or "").startswith("heedful.lab"):
            continue
        try:
            parameters = list(inspect.signature(called).parameters)
        except ValueError:
            continue
        if "seed" in parameters:
            given = dict(zip(parameters, node.args, strict=False)) | {k.arg: k.value for k in node.keywords}
            assert ast.unparse(given["seed"]).startswith("seed_of("), ast.unparse(node)


CHEAP = ("dot-product-scale", "order-blindness", "residual-gradients")


@pytest.mark.slow
@pytest.mark.parametrize("name", CHEAP)
def test_verdicts_stay_when_seeds_are_shifted(name):
    # The whole sweep is `python tests/verdicts.py`.
    assert verdicts.attempt(experiment(name), 1).flips == ()


def test_a_verdict_that_depends_on_its_seed_is_found():
    def verdict():
        return "holds" if torch.rand(1, generator=generator_from(0)) < 0.5 else "is wrong"

    def depends(size, control):
        if not control:
            return measure(size, verdict())
        if seed_of(0):
            raise ValueError("no such seed")
        return measure(size, "is wrong")

    first = verdict()
    arguments = {"control": False}, {"control": True}
    own = replace(made_up(expected=(first, "is wrong")), measure=depends, arguments=arguments)
    made = list(verdicts.sweep([own], range(1, 9)))
    assert [each.shift for each in made] == list(range(9))
    assert made[0].flips == ()
    assert all("ValueError('no such seed')" in each.flips[-1] for each in made[1:])
    flipped = [each.flips[0] for each in made if len(each.flips) == 2]
    assert flipped
    assert all("made-up, shift " in line and f"expected {first!r}" in line for line in flipped)


def test_cheap_experiments_come_first(monkeypatch):
    costs = {"dear": 3.0, "cheap": 1.0, "middle": 2.0}
    monkeypatch.setattr(
        verdicts, "attempt", lambda own, shift, size: verdicts.Attempt(own.name, shift, (), costs[own.name])
    )
    made = verdicts.sweep([made_up(name) for name in costs], [1, 2])
    order = ["dear", "cheap", "middle", "cheap", "cheap", "middle", "middle", "dear", "dear"]
    assert [each.name for each in made] == order
