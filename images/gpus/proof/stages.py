"""The stages of the proof: which there are, how one runs, and what it has found."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from images.gpus.proof.places import LIBRARY, PREFIX, PROGRAMS, PROJECT, SITE

ONE_RANK = ["mpirun", "-np", "1", "--bind-to", "none"]
TWO_RANKS = ["mpirun", "-np", "2", "--bind-to", "none", "--oversubscribe"]
# Open MPI refuses root without these, and a rank that waits for another one fails in time.
VARIABLES = {
    "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "20",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "60",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PYTHONUNBUFFERED": "1",
}
# Each step waits for the GPU, as Horovod does by itself without this project's patches.
WAITING = {"HOROVOD_ENABLE_ASYNC_COMPLETION": "0"}


@dataclass(frozen=True)
class Stage:
    """A program that prints a line `RESULT` with JSON; it is killed after `seconds`."""

    name: str
    seconds: int
    command: list[str]
    # Stages of one group run at the same time; nothing is measured in them.
    group: str = ""
    may_fail: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)


def program(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", f"images.gpus.proof.{name}", *arguments]


def stages(bundle: Path) -> list[Stage]:
    """All stages, in the order in which they run: no Kubernetes is up while something is measured.

    `cluster-start` leaves the local Kubernetes running for `cluster`.
    """
    loopback = ["horovodrun", "-np", "1", "-H", "localhost:1", "--gloo"]
    return [
        Stage("throughput", 110, program("throughput")),
        Stage(
            "throughput-waiting",
            60,
            program("throughput", "--sizes", "128", "--ways", "plain", "Horovod"),
            variables=WAITING,
        ),
        Stage("keep-cost", 100, program("keep_cost")),
        Stage("warm", 80, program("warm")),
        Stage("data", 100, program("data")),
        Stage("operations", 90, [*ONE_RANK, *program("operations")], "checks"),
        Stage("operations-gloo", 90, [*loopback, *program("operations")], "checks"),
        Stage(
            "two-ranks-same-gpu", 60, [*TWO_RANKS, *program("two_ranks", "same")], "checks", True
        ),
        Stage("two-ranks-own-gpu", 60, [*TWO_RANKS, *program("two_ranks", "own")], "checks", True),
        Stage("keep-restored", 90, program("keep_restored"), "checks"),
        Stage("cluster-start", 100, program("cluster", "start", str(bundle)), "checks"),
        Stage("cluster", 200, program("cluster", "run", str(bundle))),
    ]


def groups(chosen: list[Stage]) -> list[list[Stage]]:
    """Neighbours of one group together, and each other stage alone."""
    found: list[list[Stage]] = []
    for stage in chosen:
        if found and stage.group and found[-1][0].group == stage.group:
            found[-1].append(stage)
        else:
            found.append([stage])
    return found


def environment() -> dict[str, str]:
    """Variables of all stages: the packages that were brought, this project, and `keep`."""
    own = [SITE, PROJECT, PROGRAMS, LIBRARY]
    paths = [*map(str, own), os.environ.get("PYTHONPATH", "")]
    programs = [str(PREFIX / "bin"), os.environ["PATH"], "/usr/local/nvidia/bin"]
    return {
        **os.environ,
        **VARIABLES,
        "HOME": "/root",
        "PATH": ":".join(programs),
        "PYTHONPATH": ":".join(filter(None, paths)),
    }


def run(stage: Stage, out: Path, deadline: float) -> dict[str, Any]:
    """Run a stage to its end, its limit, or the deadline. The last result that it prints counts."""
    began = time.monotonic()
    log = out / f"{stage.name}.txt"
    seconds_left = max(1, min(stage.seconds, round(deadline - began)))
    command = ["timeout", "--kill-after=5", str(seconds_left), *stage.command]
    variables = {**environment(), **stage.variables}
    if stage.command[0] == "mpirun":
        # Those that run beside each other keep what they need to meet in folders of their own.
        folder = PREFIX.parent / stage.name
        folder.mkdir(parents=True, exist_ok=True)
        variables["TMPDIR"] = str(folder)
    with log.open("w") as file:
        done = subprocess.run(
            command,
            env=variables,
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
        )
    seconds = round(time.monotonic() - began, 1)
    print(f"{stage.name}: exit code {done.returncode} after {seconds} s", flush=True)
    result = last_result(log.read_text(errors="replace"))
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"day": today, "exit": done.returncode, "seconds": seconds, "result": result}


def last_result(text: str) -> dict[str, Any] | None:
    """The last result in an output, whose last line may be cut off."""
    for line in reversed(text.splitlines()):
        # A launcher may print the name of the rank before it.
        with contextlib.suppress(json.JSONDecodeError):
            result: dict[str, Any] = json.loads(line.partition("RESULT ")[2])
            return result
    return None
