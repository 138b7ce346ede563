"""Prove the product on this machine's GPU: `python3 -m images.gpus.proof --out FOLDER STAGE...`.

Without names of stages, all of them run. What a stage prints goes to FOLDER/STAGE.txt, and what it
found to FOLDER/gpu-proof.json, together with what earlier runs have found there.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from images.gpus.proof.places import PREFIX, PROJECT, SITE
from images.gpus.proof.stages import environment, groups, program, run, stages

FIGURES = "gpu-proof.json"


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


def read(file: Path) -> dict[str, Any]:
    """What earlier runs have found; no stages where there was none."""
    if not file.exists():
        return {"stages": {}}
    figures: dict[str, Any] = json.loads(file.read_text())
    return figures


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
