"""Which tests are tried on a mutant: those that call its function, the likeliest to fail first."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from devtools.checks.mutation.mutants import Mutant
from devtools.checks.mutation.probes import RecordedTest

# Tests of so many seconds of CPU time are tried on one mutant: it counts as a survivor when none of
# them fails.
LONGEST = 8.0
# The same where Python starts anew for the mutant; and how many test files it then imports.
LONGEST_FRESH, FILES_FRESH = 5.0, 4
# The tests that are likeliest to fail run in the order of their duration, others file by file,
# since a module's fixtures are set up again whenever tests of another one were in between.
FIRST = 12
# In the names of files with tests that compare all that is generated from a package's modules: they
# come first where a mutant changes what is read on import, such as a limit or a default. So do the
# module's own tests, which may call none of its functions.
_GENERATED = "generated"


@dataclass
class Reach:
    """All tests, and the functions that importing the tests has called."""

    tests: list[RecordedTest]
    imported: set[str]
    importers: Mapping[str, set[str]]
    callers: dict[str, list[RecordedTest]] = field(init=False)

    def __post_init__(self) -> None:
        self.callers = defaultdict(list)
        for test in self.tests:
            for function in test.functions:
                self.callers[function].append(test)
            for module in {function.partition(":")[0] for function in test.functions}:
                self.callers[module].append(test)

    def is_imported(self, mutant: Mutant) -> bool:
        """Whether the code of a mutant runs already when tests are imported."""
        return not mutant.function or f"{mutant.module}:{mutant.function}" in self.imported

    def choose(self, mutant: Mutant) -> list[RecordedTest]:
        """The tests to try on a mutant, in their order: the likeliest to fail come first."""
        fresh = self.is_imported(mutant)
        places = [[f"{mutant.module}:{mutant.function}"]]
        ranks: dict[str, tuple[int, RecordedTest]] = {}
        module = Path(mutant.module)
        if fresh:
            places += [[mutant.module], sorted(self.importers.get(mutant.module, ()))]
            for test in self.tests:
                is_for_all = _GENERATED in Path(test.file).stem or _is_own(test, module)
                if is_for_all and _is_near(test, module):
                    ranks[test.name] = (-1, test)
        for rank, names in enumerate(places):
            for test in (test for name in names for test in self.callers.get(name, ())):
                ranks.setdefault(test.name, (rank, test))

        def order(found: tuple[int, RecordedTest]) -> tuple[bool, bool, int, float]:
            rank, test = found
            is_own = rank < 0 or _is_own(test, module)
            return not is_own, not _is_near(test, module), rank, test.cpu

        found = sorted(ranks.values(), key=order)
        chosen: list[RecordedTest] = []
        files, left = set[str](), LONGEST_FRESH if fresh else LONGEST
        for _, test in found:
            if fresh and test.file not in files and len(files) == FILES_FRESH:
                continue
            left -= test.cpu
            if left < 0 and chosen:
                break
            files.add(test.file)
            chosen.append(test)
        return [*chosen[:FIRST], *sorted(chosen[FIRST:], key=lambda test: test.file)]


def _is_near(test: RecordedTest, module: Path) -> bool:
    """Whether a test is in the folder for tests of the module's package; of files/ in podfiles/."""
    folder = module.parent.name.replace("files", "podfiles")
    return folder in Path(test.file).parent.parts


def _is_own(test: RecordedTest, module: Path) -> bool:
    """Whether a test is named after a module: test_keys.py, or in warm/ for the modules warm_*."""
    file, (subject, *_) = Path(test.file), module.stem.split("_")
    return module.stem in file.stem or file.parent.name == subject != module.parent.name


def find_importers(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Module -> the modules that import it; of `sources` by path."""
    names = {_dotted(path): path for path in sources}
    importers: dict[str, set[str]] = defaultdict(set)
    for path, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            imported: list[str | None] = []
            if isinstance(node, ast.Import):
                imported = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                imported = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            for name in imported:
                if name in names:
                    importers[names[name]].add(path)
    return importers


def _dotted(path: str) -> str:
    """The name by which a module is imported; the files of pods have no package."""
    name = path.removeprefix("charts/horovod/files/").removesuffix(".py").replace("/", ".")
    return name.removesuffix(".__init__")
