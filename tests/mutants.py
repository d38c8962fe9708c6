"""Mutation testing: change the sources in one place at a time, and check that `make test` fails.

    python tests/mutants.py                 48 mutants (hours: a surviving mutant runs all tests)
    python tests/mutants.py --list          only list them
    python tests/mutants.py --stages 2      leave out the last stage
    python tests/mutants.py --seed 7 --packages lab nn          other mutants, from two packages
    python tests/mutants.py --only 3 17 --tests tests/unit/nn   two mutants, against some tests

A mutant changes one operator, constant, condition, result or statement of one function. Its tests run in
stages until one fails: the tests of its module; then unit tests of its package, laws and parity; then all.
A mutant that survives also runs the whole sweep (``--full``). The exit status is 1 if only the whole sweep
kills a mutant: then `make test` leaves out a test that nothing replaces. A mutant that survives both may be
equivalent to the original.
"""

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = Path("src", "heedful")
TIERS = {"make test": (), "--full": ("--full",)}
PAIRS = ("<", "<="), (">", ">="), ("==", "!="), ("is", "is not"), ("in", "not in"), ("and", "or")
SWAPS = {a: b for own, other in (*PAIRS, ("+", "-"), ("*", "/")) for a, b in ((own, other), (other, own))}
OPERATOR = re.compile("|".join(re.escape(each) for each in sorted(SWAPS, key=len, reverse=True)))
CALCULATIONS = ast.Add | ast.Sub | ast.Mult | ast.Div
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
APART = FUNCTIONS | ast.ClassDef | ast.Raise | ast.JoinedStr  # visited separately, or messages
MESSAGES = ("if TYPE_CHECKING", "logging.", "logger.", "warnings.")


@dataclass(frozen=True)
class Mutant:
    """A change of a file: ``new`` replaces the bytes from start to end, a node of syntax ``kind``."""

    path: Path
    kind: str
    start: int
    end: int
    new: str

    def applied(self) -> bytes:
        """Return the changed file."""
        text = (ROOT / self.path).read_bytes()
        return text[: self.start] + self.new.encode() + text[self.end :]

    def __str__(self) -> str:
        texts = (ROOT / self.path).read_bytes(), self.applied()
        row = texts[0][: self.start].count(b"\n")
        old, new = (text.decode().splitlines()[row].strip() for text in texts)
        return f"{self.path}:{row + 1}: {old}  =>  {new}"


def mutants_of(path: Path) -> Iterator[list[Mutant]]:
    """Yield all mutants of each function of a file."""
    text = (ROOT / path).read_bytes()
    starts = [0, *(match.end() for match in re.finditer(b"\n", text))]

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        first, last = starts[node.lineno - 1], starts[(node.end_lineno or 0) - 1]
        return first + node.col_offset, last + (node.end_col_offset or 0)

    def between(*operands: ast.expr) -> Iterator[tuple[int, int, str]]:
        for left, right in pairwise(operands):
            first, last = span(left)[1], span(right)[0]
            if operator := OPERATOR.search(text[first:last].decode()):
                yield first + operator.start(), first + operator.end(), SWAPS[operator[0]]

    def changes(node: ast.AST) -> Iterator[tuple[int, int, str]]:
        match node:
            case ast.Compare(left=left, comparators=others):
                yield from between(left, *others)
            case ast.BinOp(left=left, right=right) if isinstance(node.op, CALCULATIONS):
                yield from between(left, right)
            case ast.BoolOp(values=values):
                yield from between(*values)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield span(node)[0], span(operand)[0], ""
            case ast.Constant(value=bool(value)):
                yield *span(node), str(not value)
            case ast.Constant(value=int(value)):
                yield *span(node), str(value + 1)
            case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
                yield *span(value), "None"
            case ast.Expr(value=value) if not isinstance(value, ast.Constant | ast.Yield | ast.YieldFrom):
                yield *span(node), "pass"
            case ast.If(test=test) | ast.IfExp(test=test):
                yield *span(test), f"not ({text[slice(*span(test))].decode()})"

    def walk(node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, APART) or ast.unparse(node).startswith(MESSAGES):
            return
        yield from (Mutant(path, type(node).__name__, *each) for each in changes(node))
        below = [node.value] if isinstance(node, ast.AnnAssign) else ast.iter_child_nodes(node)
        yield from chain.from_iterable(map(walk, filter(None, below)))

    for function in ast.walk(ast.parse(text)):
        if isinstance(function, FUNCTIONS) and function.name not in ("__repr__", "extra_repr"):
            defaults = filter(None, (*function.args.defaults, *function.args.kw_defaults))
            yield [*chain.from_iterable(map(walk, (*defaults, *function.body)))]


def drawn(args: argparse.Namespace) -> list[Mutant]:
    """Sample mutants of random kinds in random functions: two in each package, the others anywhere."""
    by_package: dict[str, list[list[Mutant]]] = {}
    for path in sorted(path.relative_to(ROOT) for path in (ROOT / PACKAGE).glob("*/**/*.py")):
        if path.parts[2] in (args.packages or path.parts):
            by_package.setdefault(path.parts[2], []).extend(filter(None, mutants_of(path)))
    pools = [pool for pool in by_package.values() if pool] * 2
    pools += [[*chain.from_iterable(by_package.values())]] * args.count
    generator, chosen = random.Random(args.seed), list[Mutant]()
    while len(chosen) < args.count:
        pool = pools[len(chosen)]
        kind = generator.choice(sorted({mutant.kind for function in pool for mutant in function}))
        suitable = [
            same_kind
            for mutants in pool
            if (same_kind := [mutant for mutant in mutants if mutant.kind == kind])
        ]
        mutant = generator.choice(generator.choice(suitable))
        chosen += [mutant] if mutant not in chosen else []
    return sorted(chosen, key=lambda mutant: (mutant.path, mutant.start))


def stages(mutant: Mutant) -> list[list[str]]:
    """Return test files by stage: of the module; of its package, laws and parity; all others."""
    package, *folders, name = mutant.path.relative_to(PACKAGE).with_suffix("").parts
    module = r"\.".join(["heedful", package, *folders])
    imports = re.compile(rf"{module}\.{name}\b|from {module} import .*\b{name}\b")
    files = [path.relative_to(ROOT) for path in sorted((ROOT / "tests").rglob("test_*.py"))]

    def stage(path: Path) -> tuple[int, bool]:
        folder = path.parts[1]
        if path.stem in {f"test_{each}" for each in (name, *folders)}:
            return 1, path.stem != f"test_{name}"
        if folder in ("unit", "laws", "parity") and imports.search((ROOT / path).read_text("utf-8")):
            return 1, True
        near = path.is_relative_to(Path("tests", "unit", package))
        return 2 if near or folder in ("laws", "parity") else 3, not near

    staged_files = sorted((stage(path), str(path)) for path in files)
    return [
        [path for (number, _), path in staged_files if number == stage_number] for stage_number in (1, 2, 3)
    ]


def failures(copy: Path, tests: Sequence[str], *options: str) -> list[str]:
    """Return the tests that fail in a copy of the project, or the error of pytest."""
    paths = os.pathsep.join(str(copy / each) for each in ("src", "bench", "tests/support"))
    copy_environment = {"PYTHONPATH": paths, "TMPDIR": f"{copy}.tmp", "XDG_CACHE_HOME": f"{copy}.cache"}
    # Byte code is kept, because rewriting the assertions of all tests is slow.
    environment = {**os.environ, **copy_environment, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-m", "pytest", "-rfE", "--tb=no", "-p", "no:cacheprovider", *options, *tests]
    process = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    if process.returncode in (0, 5):  # 5: no tests in this tier
        return []
    failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", process.stdout, re.MULTILINE)
    return failed or [f"pytest stops: {(process.stderr or process.stdout).strip().splitlines()[-1]}"]


def killer(copy: Path, mutant: Mutant, groups: list[list[str]], *options: str) -> tuple[int, str] | None:
    """Return the stage and name of the first test that fails, or None."""
    file = copy / mutant.path
    file.write_bytes(mutant.applied())
    try:
        for stage_number, tests in enumerate(groups, 1):
            if tests and (failed := failures(copy, tests, "-x", *options)):
                return stage_number, failed[0]
        return None
    finally:
        shutil.copy2(ROOT / mutant.path, file)  # with its timestamp, which validates byte code


def main() -> int:
    """Test the selected mutants."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    add = parser.add_argument
    add("--count", type=int, default=48, help="number of mutants")
    add("--seed", type=int, default=0, help="seed of the sample")
    add("--packages", nargs="+", default=[], help="packages of heedful to mutate; default all")
    add("--only", type=int, nargs="+", help="numbers of the mutants to test, from 1")
    add("--list", action="store_true", help="list the mutants without testing")
    add("--stages", type=int, default=3, choices=(1, 2, 3), help="the last stage")
    add("--tests", nargs="+", help="test files or folders, instead of the stages")
    add("--tiers", nargs="+", choices=TIERS, default=list(TIERS), help="tiers to run, in order")
    args = parser.parse_args()
    chosen = [(n, each) for n, each in enumerate(drawn(args), 1) if n in (args.only or [n])]
    if args.list:
        print(*(f"{number:3} {mutant}" for number, mutant in chosen), sep="\n")
        return 0
    verdicts, killers = Counter[str](), set[str]()
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        copy = Path(scratch, "heedful")
        Path(f"{copy}.tmp").mkdir()
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "build", "site", "__pycache__"))
        for number, mutant in chosen:
            print(f"{number:3} {mutant}", flush=True)
            groups = [args.tests] if args.tests else stages(mutant)[: args.stages]
            start, verdict, detail = time.monotonic(), "survived", ""
            for tier in args.tiers:
                if kill := killer(copy, mutant, groups, *TIERS[tier]):
                    killers.add(kill[1])
                    verdict, detail = f"killed by {tier}", f"in stage {kill[0]} by {kill[1]}, "
                    break
            print(f"    {verdict}, {detail}{time.monotonic() - start:.0f} s", flush=True)
            verdicts[verdict] += 1
        killing_tests = sorted(each for each in killers if "::" in each)
        failures_without_mutant = failures(copy, killing_tests, "--full") if killing_tests else []
    print(", ".join(f"{verdict}: {n}" for verdict, n in verdicts.items()))
    print(*(f"fails without a mutant too: {each}" for each in failures_without_mutant), sep="\n")
    return 1 if failures_without_mutant or verdicts["killed by --full"] else 0


if __name__ == "__main__":
    sys.exit(main())
