"""The one error that the image builder shows to a person."""

from __future__ import annotations


class ImageError(Exception):
    """Something a person can act on: what is wrong, and the way out. The command prints both,
    status 1.
    """

    def __init__(self, problem: str, way_out: str) -> None:
        super().__init__(f"{problem}\n  way out: {way_out}")
