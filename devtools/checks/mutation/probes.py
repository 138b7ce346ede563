"""What tests call, in whichever process.

In a copy of the checkout, each function first adds its place to a log. Between these lines the
worker writes when fixtures and tests start and end.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from devtools.checks.mutation.mutants import functions_of


@dataclass(frozen=True)
class RecordedTest:
    """A test: its name for pytest, and the `MODULE:LINE` of the functions that it called.

    `cpu` is its CPU time; the busier the machine was, the longer were its `seconds`.
    """

    name: str
    seconds: float
    cpu: float
    passed: bool
    functions: list[str]

    @property
    def file(self) -> str:
        """Its file."""
        return self.name.partition("::")[0]


def add_probes(module: str, source: str, log: Path) -> str:
    """Return the source, changed so that each function adds its place to `log` when called."""
    lines = source.splitlines(keepends=True)
    entries = [(function.entry, function.line) for function in functions_of(source)]
    for entry, line in sorted(((e, n) for e, n in entries if e), reverse=True):
        place = f"{module}:{line}\n"
        probe = f'__import__("io").open({str(log)!r}, "a").write({place!r})\n'
        lines.insert(entry[0] - 1, " " * entry[1] + probe)
    return "".join(lines)


def parse_log(lines: Iterable[str]) -> list[RecordedTest]:
    """The tests of a log.

    What a fixture that several tests share has called counts for each test that uses it.
    """
    calls: list[set[str]] = [set()]
    fixtures: defaultdict[str, set[str]] = defaultdict(set)
    tests = []
    for line in lines:
        if not line.startswith("{"):
            calls[-1].add(line.strip())
            continue
        mark = json.loads(line)
        if "begins" in mark:
            calls.append(set())
        elif "fixture" in mark:
            fixtures[mark["fixture"]] |= calls.pop()
        else:
            called = calls[-1].union(*(fixtures[name] for name in mark.pop("uses")))
            calls = [set()]
            tests.append(RecordedTest(**mark, functions=sorted(called)))
    return tests
