"""How living functions get the code of a mutant."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FunctionType

Patches = list[tuple[FunctionType, CodeType]]


def codes_of(source: str, path: str) -> dict[tuple[str, int], CodeType]:
    """The code of each function of a module, by its name and line."""
    found, left = {}, [compile(source, path, "exec", dont_inherit=True)]
    while left:
        code = left.pop()
        found[code.co_qualname, code.co_firstlineno] = code
        left += [each for each in code.co_consts if isinstance(each, CodeType)]
    return found


def find_patches(functions: Sequence[FunctionType], path: str, before: str, after: str) -> Patches:
    """The new code of each living function that a change of the source changes.

    Empty when the change is in none of them: only a new import of the module shows it.
    """
    old, new = codes_of(before, path), codes_of(after, path)
    changed = {place: code for place, code in new.items() if old.get(place) != code}
    patches = []
    for function in functions:
        place = (function.__code__.co_qualname, function.__code__.co_firstlineno)
        code = changed.get(place)
        if code is not None and code.co_freevars == function.__code__.co_freevars:
            patches.append((function, code))
    return patches


def living_functions() -> dict[str, list[FunctionType]]:
    """The functions of modules that were imported from the copy, by the module's path."""
    copy = f"{Path.cwd()}/"
    found: defaultdict[str, list[FunctionType]] = defaultdict(list)
    for item in gc.get_objects():
        if type(item) is FunctionType and item.__code__.co_filename.startswith(copy):
            found[item.__code__.co_filename.removeprefix(copy)].append(item)
    return found
