"""What the parsers of command lines share. Pure."""

from __future__ import annotations

import argparse
from typing import NoReturn

from hvd_pods.common.hostile import parse_count

# The largest number of ranks, slots and nodes that is read.
MOST = 10**7 - 1


class NotUnderstoodError(Exception):
    """A part of a line is not understood, for the reason in the text."""


class Parser(argparse.ArgumentParser):
    """A parser that never exits: it raises NotUnderstoodError for a wrong line."""

    def __init__(self, program: str) -> None:
        super().__init__(program, add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise NotUnderstoodError(f"{self.prog}: {message}")


def count(text: str) -> int:
    """A whole number from 1 on. Raises argparse.ArgumentTypeError for any other text."""
    number = parse_count(text, MOST)
    if not number:
        raise argparse.ArgumentTypeError(f"{text} is no whole number from 1 on")
    return number
