"""Interprets messages of CUDA and NCCL: the meaning for a run, and the remedy.

The known messages are in gpu_problems.json. Each entry has signs, which are parts of messages, with
the program that was seen to write them or whose sources have them; whether no attempt can succeed
until somebody changes something (`permanent`); whether the GPU is broken, so that other workers may
succeed (`broken`); and the remedy. The first entry with a sign in a message counts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple


class GpuProblem(NamedTuple):
    """Words of a message, and the remedy.

    is_permanent: no attempt can succeed until somebody changes something. is_broken: the GPU is
    broken, and other workers may succeed.
    """

    words: tuple[str, ...]
    remedy: str
    is_permanent: bool
    is_broken: bool


GPU_PROBLEMS = tuple(
    GpuProblem(tuple(entry["signs"]), entry["remedy"], entry["permanent"], entry["broken"])
    for entry in json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
)


def find_gpu_problem(text: str) -> GpuProblem | None:
    """Return the GPU problem in the message of an exception; None if there is no known one."""
    for problem in GPU_PROBLEMS:
        if any(words in text for words in problem.words):
            return problem
    return None
