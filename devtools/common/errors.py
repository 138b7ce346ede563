"""Errors that the developer tools show to a person."""

from __future__ import annotations


class DevtoolsError(Exception):
    """A problem with its remedy: a command prints both and exits with status 1."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}\n  remedy: {remedy}")
        self.problem = problem
        self.remedy = remedy
