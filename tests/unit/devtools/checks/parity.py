"""A small module to mutate, and its mutants."""

from __future__ import annotations

from devtools.checks.mutation.mutants import Mutant, find_mutants

PARITY = "hvdchart/parity.py"
# A loop that a mutant makes endless; a number that is read on import.
SOURCE = '''"""A module."""

LIMIT = 3


def is_even(number: int | None = 8) -> bool:
    """Whether a number is even."""
    while number > 0:
        number = number - 2
    return number == 0


@property
def untested():
    def inner():
        return 1
    return inner
'''


def mutant(operator: str, text: str, source: str = SOURCE, module: str = PARITY) -> Mutant:
    """The mutant of a line."""
    (only,) = (
        each for each in find_mutants(module, source) if operator in each.name and each.text == text
    )
    return only
