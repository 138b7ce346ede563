"""The stages: their list, how one runs, and its results."""

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

from devtools.common.repository import CHART, ROOT

# The bundle: the folders that `make gpu-bundle` writes.
BUNDLE = ROOT / ".gpu"
# Outside the project, which may be on a small or a read-only disk.
PREFIX = Path("/tmp/hvd-gpu/prefix")  # noqa: S108 - no other user has such a machine
# Open MPI's wheel also has programs and libraries. Horovod looks for them four folders up.
SITE = PREFIX / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
# The programs of the pods, and the modules that scripts import from them.
OF_PODS = (CHART / "files", CHART / "files/hvd_pods/library")
# Open MPI needs the two OMPI variables to run as root. With the two others, a rank that waits for
# another one fails in time.
VARIABLES = {
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "20",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "60",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PYTHONUNBUFFERED": "1",
}


@dataclass(frozen=True)
class Stage:
    """A program that prints a line `RESULT` with JSON; it is killed after `seconds`."""

    name: str
    seconds: int
    command: list[str]
    may_fail: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)


def stage_command(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", f"devtools.gpus.{name}", *arguments]


OVER_MPI = ("mpirun", "--bind-to", "none", "--oversubscribe", "-np")
OVER_GLOO = ("horovodrun", "-np", "1", "-H", "localhost:1", "--gloo")
TWO_RANKS = [*OVER_MPI, "2", *stage_command("operations", "two-ranks")]
# In the order in which they run: no Kubernetes runs during a measurement.
MEASURED = (
    Stage("throughput", 110, stage_command("throughput")),
    # Each step waits for the GPU, as in Horovod without this project's patches.
    Stage(
        "throughput-waiting",
        60,
        stage_command("throughput", "waiting"),
        variables={"HOROVOD_ENABLE_ASYNC_COMPLETION": "0"},
    ),
    Stage("keep-cost", 100, stage_command("keep_checks", "cost"), variables={"HVD_RUN_ID": "gpu"}),
    Stage("warm-ranks", 80, stage_command("warm_ranks")),
    Stage("image-loading", 100, stage_command("image_loading")),
)
CHECKED = (
    Stage("operations", 90, [*OVER_MPI, "1", *stage_command("operations")]),
    Stage("operations-gloo", 90, [*OVER_GLOO, *stage_command("operations")]),
    Stage("two-ranks-same-gpu", 60, [*TWO_RANKS, "same"], may_fail=True),
    Stage("two-ranks-own-gpu", 60, [*TWO_RANKS, "own"], may_fail=True),
    Stage(
        "keep-restored",
        90,
        stage_command("keep_checks", "restored"),
        # This setting makes cuBLAS deterministic.
        variables={"CUBLAS_WORKSPACE_CONFIG": ":4096:8"},
    ),
    # This stage leaves the local Kubernetes running for `cluster`.
    Stage("cluster-start", 100, stage_command("cluster", "start")),
)
CLUSTER = Stage("cluster", 200, stage_command("cluster", "run"))
# The stages of a group run at the same time.
GROUPS = (*((stage,) for stage in MEASURED), CHECKED, (CLUSTER,))


def stage_variables() -> dict[str, str]:
    """Return variables of all stages: the packages of the bundle, this project, and `keep`."""
    paths = [*map(str, (SITE, ROOT, *OF_PODS)), os.environ.get("PYTHONPATH", "")]
    programs = [str(PREFIX / "bin"), os.environ["PATH"], "/usr/local/nvidia/bin"]
    return {
        **os.environ,
        **VARIABLES,
        "HOME": "/root",
        "PATH": ":".join(programs),
        "PYTHONPATH": ":".join(filter(None, paths)),
    }


def run_stage(stage: Stage, out: Path) -> dict[str, Any]:
    """Run a stage to its end or its time limit. The last result that it prints counts."""
    began = time.monotonic()
    log = out / f"{stage.name}.txt"
    command = ["timeout", "--kill-after=5", str(stage.seconds), *stage.command]
    variables = {**stage_variables(), **stage.variables}
    if stage.command[0] == "mpirun":
        # Stages that run at the same time need separate folders for their sockets.
        folder = PREFIX.parent / stage.name
        folder.mkdir(parents=True, exist_ok=True)
        variables["TMPDIR"] = str(folder)
    with log.open("w") as file:
        done = subprocess.run(
            command, env=variables, stdout=file, stderr=subprocess.STDOUT, check=False
        )
    seconds = round(time.monotonic() - began, 1)
    print(f"{stage.name}: exit code {done.returncode} after {seconds} s", flush=True)
    result = last_result(log.read_text(errors="replace"))
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"day": today, "exit": done.returncode, "seconds": seconds, "result": result}


def last_result(text: str) -> dict[str, Any] | None:
    """Return the last result in an output, whose last line may be cut off."""
    for line in reversed(text.splitlines()):
        # A launcher may print the name of the rank before it.
        with contextlib.suppress(json.JSONDecodeError):
            result: dict[str, Any] = json.loads(line.partition("RESULT ")[2])
            return result
    return None
