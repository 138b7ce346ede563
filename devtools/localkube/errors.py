"""The one error that localkube shows to a person."""

from __future__ import annotations


class LocalkubeError(Exception):
    """Something that a person can act on: what is wrong, and the way out.

    The command prints both and exits with status 1; anything else that is raised is a defect.
    """

    def __init__(self, problem: str, way_out: str) -> None:
        super().__init__(f"{problem}\n  way out: {way_out}")
        self.problem = problem
        self.way_out = way_out
