"""Prove the product on this machine's GPU: `python3 -m images.gpus.proof --out FOLDER STAGE...`.

Without names of stages, all of them run. What a stage prints goes to FOLDER/STAGE.txt, and what it
found to FOLDER/gpu-proof.json, together with what earlier runs have found there.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[3]
LIBRARY = PROJECT / "charts/horovod/files/hvd_pods/library"
# Outside of the project, which may be on a small or a read-only disk.
PREFIX = Path("/tmp/hvd-gpu/prefix")  # noqa: S108 - the machine is the proof's own
# Open MPI's wheel has programs and libraries besides, and Horovod finds them four folders up.
SITE = PREFIX / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
FIGURES = "gpu-proof.json"
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


def main() -> int:
    """Run the stages. Returns 1 when one of them has failed."""
    parser = argparse.ArgumentParser(prog="python3 -m images.gpus.proof")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--bundle", type=Path, default=PROJECT / ".gpu", help="folder of the parts")
    parser.add_argument("--seconds", type=float, default=3600, help="limit of all stages together")
    parser.add_argument("stages", nargs="*", help="names of stages; all without them")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    options.out.mkdir(parents=True, exist_ok=True)
    every = stages(options.bundle.resolve())
    unknown = {*options.stages} - {stage.name for stage in every}
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: expected {', '.join(s.name for s in every)}")
    chosen = [stage for stage in every if not options.stages or stage.name in options.stages]
    install(options.bundle, options.out)
    figures = read(options.out / FIGURES)
    figures["machine"] = describe_machine()
    for group in groups(chosen):
        with ThreadPoolExecutor(len(group)) as pool:
            results = [*pool.map(lambda stage: run(stage, options.out, deadline), group)]
        for stage, result in zip(group, results, strict=True):
            figures["stages"][stage.name] = result
        (options.out / FIGURES).write_text(json.dumps(figures, indent=1) + "\n")
    failed = [s.name for s in chosen if figures["stages"][s.name]["exit"] and not s.may_fail]
    print("failed:", ", ".join(failed) or "none", flush=True)
    return 1 if failed else 0


def groups(chosen: list[Stage]) -> list[list[Stage]]:
    """Neighbours of one group together, and each other stage alone."""
    found: list[list[Stage]] = []
    for stage in chosen:
        if found and stage.group and found[-1][0].group == stage.group:
            found[-1].append(stage)
        else:
            found.append([stage])
    return found


def read(file: Path) -> dict[str, Any]:
    """What earlier runs have found; no stages where there was none."""
    if not file.exists():
        return {"stages": {}}
    figures: dict[str, Any] = json.loads(file.read_text())
    return figures


def environment() -> dict[str, str]:
    """Variables of all stages: the packages that were brought, this project, and `keep`."""
    paths = [str(SITE), str(PROJECT), str(LIBRARY), os.environ.get("PYTHONPATH", "")]
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


def install(bundle: Path, out: Path) -> None:
    """Install the wheels of the bundle; compile Horovod where none of them fits this PyTorch."""
    wheels = sorted(map(str, bundle.glob("**/*.whl")))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    pip += ["--no-compile", "--ignore-installed", "--prefix", str(PREFIX)]
    if wheels and not (SITE / "horovod").exists():
        subprocess.run([*pip, *wheels], check=True)
    test = [sys.executable, "-c", "import horovod.torch"]
    with (out / "import.txt").open("w") as log:
        tried = subprocess.run(test, env=environment(), stdout=log, stderr=log, check=False)
    if tried.returncode == 0:
        return
    (source,) = bundle.glob("**/horovod-*.tar.gz")
    shutil.rmtree(SITE / "horovod", ignore_errors=True)
    built = PREFIX.parent / "built"
    command = [*program("compile"), str(source), str(built)]
    with (out / "compile.txt").open("w") as log:
        subprocess.run(command, env=environment(), stdout=log, stderr=subprocess.STDOUT, check=True)
    subprocess.run([*pip, *map(str, built.glob("*.whl"))], check=True)


def describe_machine() -> dict[str, Any]:
    """Card, driver and versions."""
    fields = "name,driver_version,memory.total,compute_cap"
    query = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    answer = subprocess.run(query, env=environment(), capture_output=True, text=True, check=False)
    gpus = [line.split(", ") for line in answer.stdout.splitlines()]
    code = (
        "import json, torch; print(json.dumps({'torch': torch.__version__, 'cuda': "
        "torch.version.cuda, 'nccl': '.'.join(map(str, torch.cuda.nccl.version()))}))"
    )
    versions = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False
    )
    return {
        "gpus": [dict(zip(fields.split(","), gpu, strict=False)) for gpu in gpus],
        "cpus": os.cpu_count(),
        "python": ".".join(map(str, sys.version_info[:3])),
        **json.loads(versions.stdout or "{}"),
    }


if __name__ == "__main__":
    sys.exit(main())
