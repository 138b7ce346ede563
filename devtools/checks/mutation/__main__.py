"""`python -m devtools.checks.mutation [TARGET ...]`: how many mutants do the tests notice?

It prints the score of each module, each mutant that no test noticed, and the table of
docs/testing.md. tests/mutation-survivors.yaml gives the reason for each known survivor. The exit
status is 1 when a survivor has no reason there, or the score of all is below `--least`.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace

from ruamel.yaml import YAML

from devtools.checks.mutation.mutants import ROOT, Mutant, mutants_of, targets
from devtools.checks.mutation.pool import start_workers, taken_from
from devtools.checks.mutation.reach import Reach
from devtools.checks.mutation.recordings import find_reach
from devtools.checks.mutation.verdicts import Verdicts
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


def find_gone(known: Iterable[str], mutants: Sequence[Mutant]) -> set[str]:
    """The keys of survivors in the modules of `mutants` that are not among these."""
    modules, keys = {each.module for each in mutants}, {each.key for each in mutants}
    return {key for key in known if key.partition(":")[0] in modules and key not in keys}


def choose(mutants: Iterable[Mutant], sample: int) -> list[Mutant]:
    """Mutants in a random order that stays the same; of each target, so many at most (0: all)."""
    ordered = sorted(mutants, key=lambda m: (m.module, m.line, m.column, m.operator))
    random.Random(0).shuffle(ordered)  # noqa: S311
    return ordered[:sample] if sample else ordered


def one_of_each_line(mutants: Iterable[Mutant]) -> list[Mutant]:
    """One mutant of each line, which stays the same when lines move.

    Others of a line are mostly noticed by the same tests. Petrovic, Ivankovic, Fraser, Just:
    "Practical Mutation Testing at Scale", IEEE TSE 48 (2022), generates no more than one, too.
    """
    lines: defaultdict[tuple[str, int], list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        lines[mutant.module, mutant.line].append(mutant)
    return [
        random.Random(f"{module} {found[0].text}").choice(found)  # noqa: S311
        for (module, _), found in lines.items()
    ]


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
            tests = verdicts.order(mutant, reach.choose(mutant))
            if not tests:
                return Outcome(mutant, True, "")
            answer = verdicts.find(mutant, tests)
            if not answer:
                if minutes and time.monotonic() > deadline:
                    return None
                with taken_from(idle) as worker:
                    answer = worker.attempt(tests, reach.is_imported(mutant), mutant)
                if "unsure" in answer:
                    return None
                verdicts.add(mutant, tests, answer)
            if "invalid" in answer:
                return None
            return Outcome(mutant, answer["passes"], answer["changed"])

        return [outcome for outcome in pool.map(attempt, mutants) if outcome]


@dataclass(frozen=True)
class Score:
    """How many mutants of a module or target were tried; `named` are survivors with a reason."""

    name: str
    tried: int
    killed: int
    named: int

    @property
    def share(self) -> float:
        """The share that was killed, of all that were tried."""
        return self.killed / self.tried


def scores(
    outcomes: Iterable[Outcome], group: Mapping[str, str], known: Mapping[str, str]
) -> list[Score]:
    """The score of each group of modules."""
    tried: Counter[str] = Counter()
    killed: Counter[str] = Counter()
    named: Counter[str] = Counter()
    for outcome in outcomes:
        name = group[outcome.mutant.module]
        tried[name] += 1
        killed[name] += not outcome.lives
        named[name] += outcome.lives and bool(reason_of(outcome.mutant, known))
    return [Score(name, tried[name], killed[name], named[name]) for name in sorted(tried)]


def report(
    outcomes: list[Outcome],
    total: Mapping[str, int],
    target: Mapping[str, str],
    known: Mapping[str, str],
) -> float:
    """Print what was found; the share of all mutants that was killed."""
    for row in scores(outcomes, {module: module for module in target}, known):
        print(f"{row.share:5.0%} {row.killed}/{row.tried} {row.name}")
    for outcome in sorted(outcomes, key=lambda o: (o.mutant.module, o.mutant.line)):
        mutant = outcome.mutant
        if outcome.lives and not reason_of(mutant, known):
            print(f"survived: {mutant.module}:{mutant.line}:{mutant.column} {mutant.name}")
            print(f"  - {mutant.text}\n  + {outcome.changed or 'no test calls it'}")
    columns = ("Target", "Mutants", "Tried", "Killed", "Share", "Survived for a known reason")
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    rows = scores(outcomes, target, known)
    for row in rows:
        figures = (total[row.name], row.tried, row.killed)
        share = f"{100 * row.share:.0f} %"
        print(f"| `{row.name}` | {' | '.join(f'{n:,}' for n in figures)} | {share} | {row.named} |")
    return sum(row.killed for row in rows) / max(1, sum(row.tried for row in rows))


def main() -> int:
    """Measure; status 1 when the score is below `--least`, or a survivor has no reason."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    about = f"a module's path, or one of {', '.join(targets())}"
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=about)
    parser.add_argument("--every", action="store_true", help="all mutants of a line, and not one")
    parser.add_argument("--sample", type=int, default=0, help="mutants of each target (0: all)")
    parser.add_argument("--minutes", type=float, default=0, help="try new ones so long (0: all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--least", type=float, default=0.9, help="the lowest score of all that passes"
    )
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
    known = known_survivors(read_survivors())
    gone = sorted(find_gone(known, found))
    if not arguments.every:
        found = one_of_each_line(found)
    chosen = [
        mutant
        for name in names
        for mutant in choose((m for m in found if target[m.module] == name), arguments.sample)
    ]
    reach = leave_out_failing(find_reach(arguments.jobs), arguments.jobs)
    # Those that are known to survive take longest: they come last.
    ordered = sorted(choose(chosen, 0), key=lambda mutant: bool(reason_of(mutant, known)))
    outcomes = measure(ordered, reach, arguments.jobs, arguments.minutes)
    share = report(outcomes, Counter(target[mutant.module] for mutant in found), target, known)
    new = sorted({o.mutant.key for o in outcomes if o.lives and not reason_of(o.mutant, known)})
    for key in new:
        print(f"no reason is known for: {key}")
    for key in gone:
        print(f"has a reason, but there is no such mutant: {key}")
    return 0 if share >= arguments.least and not new and not gone else 1


if __name__ == "__main__":
    sys.exit(main())
