"""Mutation testing: how many deliberate defects do the tests that need no cluster notice?

`python -m devtools.checks.mutation [TARGET ...]` changes one thing at a time in a copy of the
checkout (cosmic-ray's operators) and runs the tests of the target against it. It prints the score
and each mutant that no test noticed. tests/mutation-survivors.yaml gives the reason for each known
survivor. The exit status is 1 when a survivor has no reason there, or the score is below `--least`.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil
from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
POD_FILES, LIBRARY = "tests/unit/podfiles", "tests/unit/hvdchart"
# Target -> the modules to mutate, and the tests that run against them: their own and those of
# modules that import them.
TARGETS = {
    "pods": ("charts/horovod/files/*.py", [POD_FILES]),
    "base": (
        "hvdchart/*.py",
        [
            f"{LIBRARY}/test_errors.py",
            f"{LIBRARY}/test_files.py",
            f"{LIBRARY}/test_quantity.py",
            f"{LIBRARY}/spec",
            f"{LIBRARY}/cli",
        ],
    ),
    "spec": ("hvdchart/spec/**/*.py", [f"{LIBRARY}/spec", f"{LIBRARY}/values", f"{LIBRARY}/plan"]),
    "plan": ("hvdchart/plan/**/*.py", [f"{LIBRARY}/plan", f"{LIBRARY}/values"]),
    "values": ("hvdchart/values/**/*.py", [f"{LIBRARY}/values"]),
    "run": (
        "hvdchart/run/**/*.py",
        [f"{LIBRARY}/run", f"{LIBRARY}/cli", f"{POD_FILES}/test_podstatus.py"],
    ),
    "code": ("hvdchart/code/**/*.py", [f"{LIBRARY}/code", f"{LIBRARY}/cli"]),
    "doctor": ("hvdchart/doctor/**/*.py", [f"{LIBRARY}/doctor", f"{LIBRARY}/cli"]),
    "project": ("hvdchart/project/**/*.py", [f"{LIBRARY}/project", f"{LIBRARY}/cli"]),
    "discover": ("hvdchart/discover/**/*.py", [f"{LIBRARY}/discover", f"{LIBRARY}/cli"]),
    "migrate": ("hvdchart/migrate/**/*.py", [f"{LIBRARY}/migrate"]),
    "bench": ("hvdchart/bench/**/*.py", [f"{LIBRARY}/bench", f"{LIBRARY}/cli"]),
    "tune": ("hvdchart/tune/**/*.py", [f"{LIBRARY}/tune", f"{LIBRARY}/cli"]),
    "image": ("hvdchart/image/**/*.py", [f"{LIBRARY}/image", f"{LIBRARY}/cli"]),
    "cli": ("hvdchart/cli/**/*.py", [f"{LIBRARY}/cli", f"{LIBRARY}/migrate"]),
}
# Of each pair of like operators one is enough: any other replacement of `==` fails as `!=` does.
REPLACEMENTS = {
    "Eq": "NotEq", "NotEq": "Eq", "Lt": "LtE", "LtE": "Lt", "Gt": "GtE", "GtE": "Gt",
    "Is": "IsNot", "IsNot": "Is", "Add": "Sub", "Sub": "Add", "Mul": "Div", "Div": "Mul",
    "FloorDiv": "Mul", "Mod": "Mul", "Pow": "Mul", "BitOr": "BitAnd", "BitAnd": "BitOr",
    "LShift": "RShift", "RShift": "LShift",
}  # fmt: skip
OTHERS = (
    "AddNot", "ReplaceOrWithAnd", "ReplaceAndWithOr", "ReplaceTrueWithFalse", "NumberReplacer",
    "ReplaceFalseWithTrue", "ZeroIterationForLoop", "ExceptionReplacer", "RemoveDecorator",
    "ReplaceContinueWithBreak", "ReplaceBreakWithContinue", "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_USub_UAdd",
)  # fmt: skip
SURVIVORS = ROOT / "tests" / "mutation-survivors.yaml"
# A mutant that makes the tests hang is noticed, too.
TIME_LIMIT = 120


@dataclass(frozen=True)
class Mutant:
    """One change: `operator` applied where it fits for the `occurrence`-th time in a module.

    `line` and `column` are its place, `text` is the line without its indentation.
    """

    module: str
    operator: str
    occurrence: int
    line: int
    column: int
    text: str

    @property
    def key(self) -> str:
        """The mutant's name in tests/mutation-survivors.yaml: it stays when lines move."""
        return f"{self.module}: {self.operator.partition('/')[2]}: {self.text}"

    def __str__(self) -> str:
        return f"{self.module}:{self.line}:{self.column} {self.operator.partition('/')[2]}"


def operators() -> list[str]:
    """The names of the operators in use."""
    pairs = {f"{old}_{new}" for old, new in REPLACEMENTS.items()}
    return [
        name
        for name in operator_names()
        if name.partition("/")[2] in OTHERS
        or (name.partition("/")[2].partition("Operator_")[2] in pairs)
    ]


def mutants_of(module: Path) -> Iterator[Mutant]:
    """Every mutant of a module but those in type annotations, which nothing evaluates."""
    tree = get_ast_from_path(module)
    source = module.read_text("utf-8")
    annotations = _annotation_spans(source)
    lines = source.splitlines()
    for name in operators():
        operator = get_operator(name)()
        positions = itertools.chain.from_iterable(
            operator.mutation_positions(node) for node in ast_nodes(tree)
        )
        for occurrence, (start, _) in enumerate(positions):
            # The replacer of numbers adds one, then takes one away: the first is enough.
            if name.endswith("NumberReplacer") and occurrence % 2:
                continue
            if not any(first <= start < last for first, last in annotations):
                text = lines[start[0] - 1].strip()
                place = str(module.relative_to(ROOT))
                yield Mutant(place, name, occurrence, start[0], start[1], text)


def modules_of(target: str) -> list[Path]:
    """The modules of a target."""
    return sorted(ROOT.glob(TARGETS[target][0]))


def _annotation_spans(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    spans = []
    for node in ast.walk(ast.parse(source)):
        for field in ("annotation", "returns"):
            part = getattr(node, field, None)
            if isinstance(part, ast.expr):
                end = (part.end_lineno or part.lineno, part.end_col_offset or 0)
                spans.append(((part.lineno, part.col_offset), end))
    return spans


def copy_checkout(target: Path) -> None:
    """Copy what git tracks, and what it does not ignore, as it is in the working tree."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        source = ROOT / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)


def run_tests(checkout: Path, tests: list[str], module: str) -> bool:
    """Run the tests of a target in a forked child; True when all pass.

    Files of tests that are named after the module come first: they are the likeliest to fail.
    """
    stem = Path(module).stem
    paths = [checkout / path for path in tests]
    files = [file for path in paths for file in sorted(path.rglob("test_*.py")) or [path]]
    files.sort(key=lambda file: stem not in file.stem)
    child = os.fork()
    if child == 0:
        os.setsid()
        with open(os.devnull, "w") as null:  # noqa: PTH123
            os.dup2(null.fileno(), 1)
            os.dup2(null.fileno(), 2)
        import pytest

        options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not fuzz"]
        os._exit(int(pytest.main([*options, *map(str, files)])))
    try:
        code = psutil.Process(child).wait(TIME_LIMIT)
    except psutil.TimeoutExpired:
        code = None
    _kill_group(child)
    if code is None:
        os.waitpid(child, 0)
    return code == 0


def _kill_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def enter_copy(folder: str) -> None:
    """Make a copy of the checkout the working directory of this process, and import from there."""
    copy = Path(folder) / f"copy-{os.getpid()}"
    copy_checkout(copy)
    os.chdir(copy)
    sys.dont_write_bytecode = True
    # Mutants of the same size within a second must not be taken for one another.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.path[:] = [str(copy)] + [path for path in sys.path if Path(path or ".").resolve() != ROOT]


def survives(mutant: Mutant, tests: list[str]) -> bool:
    """Whether all tests pass with the mutant in place; to be called after `enter_copy`."""
    module = Path(mutant.module)
    original = module.read_text("utf-8")
    mutated = mutate_code(original, get_operator(mutant.operator)(), mutant.occurrence)
    if mutated is None:
        raise RuntimeError(f"{mutant}: the operator no longer fits")
    module.write_text(mutated, "utf-8")
    try:
        return run_tests(Path.cwd(), tests, mutant.module)
    finally:
        module.write_text(original, "utf-8")


def known_survivors() -> dict[str, str]:
    """The reason for each survivor that is known, by its key."""
    reasons: dict[str, list[str]] = YAML(typ="safe").load(SURVIVORS.read_text("utf-8")) or {}
    return {key: reason for reason, keys in reasons.items() for key in keys}


def measure(name: str, sample: int, jobs: int, seed: int) -> tuple[int, list[Mutant]]:
    """How many mutants of a target were tried, and those that survived."""
    mutants = [mutant for module in modules_of(name) for mutant in mutants_of(module)]
    tests = TARGETS[name][1]
    if sample and sample < len(mutants):
        mutants = random.Random(seed).sample(mutants, sample)  # noqa: S311
    survivors = []
    with (
        tempfile.TemporaryDirectory(prefix="hvd-mutation-") as copies,
        ProcessPoolExecutor(jobs, initializer=enter_copy, initargs=(copies,)) as pool,
    ):
        if not pool.submit(run_tests_unchanged, tests).result():
            sys.exit(f"{name}: the tests fail without any mutant")
        for mutant, alive in zip(
            mutants, pool.map(survives, mutants, itertools.repeat(tests)), strict=True
        ):
            if alive:
                survivors.append(mutant)
                print(f"survived: {mutant}", flush=True)
    return len(mutants), survivors


def run_tests_unchanged(tests: list[str]) -> bool:
    """Whether the tests pass in the copy as it is."""
    return run_tests(Path.cwd(), tests, "")


def main() -> int:
    """Measure each target; status 1 when one is below `--least`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}")
    parser.add_argument(
        "--sample", type=int, default=0, help="number of mutants to try for each target (0: all)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random sample")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--least", type=float, default=0.9, help="the lowest score that passes")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.targets) - set(TARGETS))
    if unknown:
        parser.error(f"unknown target {unknown[0]!r}: use {', '.join(TARGETS)}")
    known, unexplained, lowest = known_survivors(), 0, 1.0
    for name in arguments.targets or TARGETS:
        tried, survivors = measure(name, arguments.sample, arguments.jobs, arguments.seed)
        new = [mutant for mutant in survivors if mutant.key not in known]
        for mutant in new:
            print(f"no reason is known for: {mutant.key}")
        unexplained += len(new)
        score = 1 - len(survivors) / tried
        lowest = min(lowest, score)
        print(
            f"{name}: {tried - len(survivors)} of {tried} mutants killed, {score:.1%}", flush=True
        )
    return 0 if lowest >= arguments.least and not unexplained else 1


if __name__ == "__main__":
    sys.exit(main())
