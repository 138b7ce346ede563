"""What earlier runs have found, cached by content."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from devtools.checks.mutation.mutants import ROOT, Mutant, first_line
from devtools.checks.mutation.probes import RecordedTest
from devtools.common.cache import cache_dir


class Verdicts:
    """What earlier runs have found, by the content of the mutant's module.

    A mutant that a test has noticed counts as killed until the test's function changes; one that
    none has noticed lives until one of the files changes, or there are other tests.
    """

    def __init__(self) -> None:
        self.file = cache_dir() / "mutation" / "killed.jsonl"
        self.known: dict[str, dict[str, Any]] = {}
        self.killers: dict[str, str] = {}
        if self.file.exists():
            for line in self.file.read_text().splitlines():
                self._keep(json.loads(line))

    def _keep(self, entry: dict[str, Any]) -> None:
        self.known[entry["key"]] = entry
        if "by" in entry:
            self.killers[entry["name"]] = entry["by"]

    def order(self, mutant: Mutant, tests: Sequence[RecordedTest]) -> list[RecordedTest]:
        """The tests; the one that has noticed the mutant before comes first."""
        return sorted(tests, key=lambda test: test.name != self.killers.get(mutant.key))

    def find(self, mutant: Mutant, tests: Sequence[RecordedTest]) -> dict[str, Any] | None:
        """What is known of a mutant, if it still holds."""
        entry = self.known.get(_key(mutant))
        return entry if entry and entry["evidence"] == _evidence(entry, tests) else None

    def add(self, mutant: Mutant, tests: Sequence[RecordedTest], answer: dict[str, Any]) -> None:
        """Keep an answer, also when this run is interrupted."""
        about = {"key": _key(mutant), "name": mutant.key, "evidence": _evidence(answer, tests)}
        self._keep(about | answer)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as file:
            file.write(json.dumps(about | answer) + "\n")


@cache
def digest_of(name: str) -> str:
    """A digest of a file of the checkout; empty when it does not exist."""
    path = ROOT / name
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


@cache
def sources_of(name: str) -> dict[str, str]:
    """The source of each test function of a file, its decorators included, by its name."""
    path = ROOT / name
    text = path.read_text("utf-8") if path.exists() else ""
    lines = text.splitlines()
    return {
        node.name: "\n".join(lines[first_line(node) - 1 : node.end_lineno])
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def _key(mutant: Mutant) -> str:
    return content_of(digest_of(mutant.module), mutant.operator, str(mutant.occurrence))


def _evidence(answer: dict[str, Any], tests: Sequence[RecordedTest]) -> str:
    """What an answer rests on: one test, or that none of them fails."""
    if "by" in answer:
        file, _, test = answer["by"].partition("::")
        return content_of(answer["by"], sources_of(file).get(test.partition("[")[0], ""))
    names, files = sorted(test.name for test in tests), sorted({test.file for test in tests})
    return content_of(*names, *map(digest_of, files))


def content_of(*parts: str) -> str:
    """A short digest of texts."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]
