"""What each test calls, recorded once in workers."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from devtools.checks.mutation.mutants import ROOT
from devtools.checks.mutation.pool import all_modules, start_workers, taken_from
from devtools.checks.mutation.probes import RecordedTest
from devtools.checks.mutation.reach import Reach, find_importers
from devtools.checks.mutation.verdicts import digest_of
from devtools.checks.mutation.worker import TESTS
from devtools.common.cache import cache_dir, content_key
from devtools.common.ui import note
from hvdchart.files import write_atomically

# What all tests import, and what records their calls: when it changes, they are recorded again.
HELPERS = ["tests/fakes/**/*.py", "devtools/checks/mutation/probes.py"]


def find_reach(jobs: int) -> Reach:
    """What each test calls: from the cache, if neither its file nor what it calls has changed."""
    entries = _entries()
    missing = [name for name, entry in entries.items() if not _is_valid(entry)]
    if missing:
        note(f"Recording what the tests of {len(missing)} files call.")
        with start_workers(jobs, with_probes=True) as idle, ThreadPoolExecutor(jobs) as pool:

            def record(name: str) -> None:
                with taken_from(idle) as worker:
                    tests = worker.ask(file=name)["tests"]
                    imported = worker.begin["imported"]
                called = {place for test in tests for place in test["functions"]}
                entry = {
                    "tests": tests,
                    "calls": _digests(called),
                    "imported": imported,
                    "imports": _digests(imported),
                }
                entries[name].parent.mkdir(parents=True, exist_ok=True)
                write_atomically(entries[name], json.dumps(entry))

            list(pool.map(record, missing))
    answers = [json.loads(entry.read_text()) for entry in entries.values()]
    sources = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in all_modules()}
    return Reach(
        [RecordedTest(**test) for answer in answers for test in answer["tests"]],
        {place for answer in answers for place in answer["imported"] if _is_current(place, answer)},
        find_importers(sources),
    )


def _entries() -> dict[str, Path]:
    """Where the calls of each file of tests are kept."""
    files = [file for folder in TESTS for file in sorted((ROOT / folder).rglob("test_*.py"))]
    patterns = [*(f"{folder}/**/*.py" for folder in TESTS), *HELPERS]
    helpers = {path for pattern in patterns for path in ROOT.glob(pattern)} - set(files)
    common, folder = content_key(sorted(helpers)), cache_dir() / "mutation" / "calls"
    return {str(file.relative_to(ROOT)): folder / content_key([file], common) for file in files}


def _digests(places: list[str] | set[str]) -> dict[str, str]:
    """Module -> digest, of the modules of `MODULE:LINE`."""
    return {module: digest_of(module) for module in {place.partition(":")[0] for place in places}}


def _is_valid(entry: Path) -> bool:
    """Whether the modules that were called are as they were."""
    if not entry.exists():
        return False
    calls = json.loads(entry.read_text())["calls"]
    return all(digest_of(module) == digest for module, digest in calls.items())


def _is_current(place: str, answer: dict[str, Any]) -> bool:
    """Whether a module that was imported is as it was, so that the lines still hold."""
    module = place.partition(":")[0]
    return bool(answer["imports"][module] == digest_of(module))
