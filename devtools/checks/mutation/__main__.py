"""`python -m devtools.checks.mutation [TARGET ...]`: how many mutants do the tests notice?

It prints the score of each module, each mutant that no test noticed, and the table of
docs/testing.md. tests/mutation-survivors.yaml gives the reason for each known survivor. The exit
status is 1 when a survivor has no reason there, or the score of a target is below `--least`.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace

from ruamel.yaml import YAML

from devtools.checks.mutation.mutants import ROOT, Mutant, mutants_of, targets
from devtools.checks.mutation.pool import Verdicts, find_reach, start_workers
from devtools.checks.mutation.reach import Reach
from devtools.common.ui import note

SURVIVORS = ROOT / "tests" / "mutation-survivors.yaml"


@dataclass(frozen=True)
class Outcome:
    """Whether a mutant lives after its tests, and what its line has become."""

    mutant: Mutant
    lives: bool
    changed: str


def read_survivors() -> dict[str, list[str]]:
    """The survivors that are known, by reason."""
    document: dict[str, list[str]] = YAML(typ="safe").load(SURVIVORS.read_text("utf-8"))
    return document


def known_survivors(document: Mapping[str, list[str]]) -> dict[str, str]:
    """The reason for each survivor that is known, by its key."""
    return {key: reason for reason, keys in document.items() for key in keys}


def reason_of(mutant: Mutant, known: Mapping[str, str]) -> str | None:
    """Why a mutant survives; a key may have `*` in place of the module."""
    return known.get(mutant.key) or known.get(f"*{mutant.key.removeprefix(mutant.module)}")


def choose(mutants: Iterable[Mutant], sample: int) -> list[Mutant]:
    """Mutants in a random order that stays the same; of each target, so many at most (0: all)."""
    ordered = sorted(mutants, key=lambda m: (m.module, m.line, m.column, m.operator))
    random.Random(0).shuffle(ordered)  # noqa: S311
    return ordered[:sample] if sample else ordered


def leave_out_failing(reach: Reach, jobs: int) -> Reach:
    """Without the tests that fail even though nothing is changed."""
    failed = [test for test in reach.tests if not test.passed]
    if not failed:
        return reach
    with start_workers(min(jobs, len(failed)), with_probes=False) as idle:
        worker = idle.get()
        failing = {t.name for t in failed if not worker.attempt([t], False, None)["passes"]}
    for name in sorted(failing):
        note(f"left out, since it fails without any mutant: {name}")
    return replace(reach, tests=[test for test in reach.tests if test.name not in failing])


def measure(mutants: list[Mutant], reach: Reach, jobs: int, minutes: float) -> list[Outcome]:
    """Try mutants in their order, for so many minutes (0: all)."""
    verdicts, deadline = Verdicts(), time.monotonic() + minutes * 60
    with start_workers(jobs, with_probes=False) as idle, ThreadPoolExecutor(jobs) as pool:

        def attempt(mutant: Mutant) -> Outcome | None:
            tests = reach.choose(mutant)
            if not tests:
                return Outcome(mutant, True, "")
            key = verdicts.key(mutant, tests)
            if key not in verdicts.known:
                if minutes and time.monotonic() > deadline:
                    return None
                worker = idle.get()
                answer = worker.attempt(tests, reach.is_imported(mutant), mutant)
                idle.put(worker)
                if "unsure" in answer:
                    return None
                verdicts.add(key, answer)
            answer = verdicts.known[key]
            if "invalid" in answer:
                return None
            return Outcome(mutant, answer["passes"], answer["changed"])

        return [outcome for outcome in pool.map(attempt, mutants) if outcome]


def score_rows(outcomes: Iterable[Outcome], group: Mapping[str, str]) -> list[tuple[str, int, int]]:
    """(group, killed, tried) for each group of modules."""
    tried: Counter[str] = Counter()
    killed: Counter[str] = Counter()
    for outcome in outcomes:
        name = group[outcome.mutant.module]
        tried[name] += 1
        killed[name] += not outcome.lives
    return [(name, killed[name], tried[name]) for name in sorted(tried)]


def report(outcomes: list[Outcome], total: Mapping[str, int], target: Mapping[str, str]) -> float:
    """Print what was found; the lowest score of a target."""
    for name, killed, tried in score_rows(outcomes, {module: module for module in target}):
        print(f"{killed / tried:5.0%} {killed}/{tried} {name}")
    for outcome in sorted(outcomes, key=lambda o: (o.mutant.module, o.mutant.line)):
        if outcome.lives:
            mutant = outcome.mutant
            print(f"survived: {mutant.module}:{mutant.line}:{mutant.column} {mutant.name}")
            print(f"  - {mutant.text}\n  + {outcome.changed or 'no test calls it'}")
    print("| Target | Mutants | Tried | Killed | Score |\n|---|---|---|---|---|")
    rows = score_rows(outcomes, target)
    for name, killed, tried in rows:
        share = f"{100 * killed / tried:.0f} %"
        print(f"| `{name}` | {total[name]:,} | {tried:,} | {killed:,} | {share} |")
    return min((killed / tried for _, killed, tried in rows), default=1.0)


def main() -> int:
    """Measure; status 1 when a target is below `--least`, or a survivor has no reason."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    about = f"a module's path, or one of {', '.join(targets())}"
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=about)
    parser.add_argument("--sample", type=int, default=0, help="mutants of each target (0: all)")
    parser.add_argument("--minutes", type=float, default=0, help="try new ones so long (0: all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--least", type=float, default=0.9, help="the lowest score that passes")
    arguments = parser.parse_args()
    every = {str(path.relative_to(ROOT)): name for name in targets() for path in targets()[name]}
    unknown = sorted(set(arguments.targets) - {*every, *every.values()})
    if unknown:
        parser.error(f"unknown target {unknown[0]!r}: use {about}")
    asked = set(arguments.targets or targets())
    target = {path: name for path, name in every.items() if asked & {path, name}}
    names = dict.fromkeys(target.values())
    with ProcessPoolExecutor(arguments.jobs) as pool:
        found = [m for part in pool.map(mutants_of, map(ROOT.joinpath, target)) for m in part]
    chosen = [
        mutant
        for name in names
        for mutant in choose((m for m in found if target[m.module] == name), arguments.sample)
    ]
    reach = leave_out_failing(find_reach(arguments.jobs, list(names)), arguments.jobs)
    outcomes = measure(choose(chosen, 0), reach, arguments.jobs, arguments.minutes)
    lowest = report(outcomes, Counter(target[mutant.module] for mutant in found), target)
    known = known_survivors(read_survivors())
    new = sorted({o.mutant.key for o in outcomes if o.lives and not reason_of(o.mutant, known)})
    for key in new:
        print(f"no reason is known for: {key}")
    return 0 if lowest >= arguments.least and not new else 1


if __name__ == "__main__":
    sys.exit(main())
