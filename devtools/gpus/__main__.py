"""Check and measure on this machine's GPU: `python3 -m devtools.gpus --out FOLDER [STAGE...]`.

Without names of stages, all of them run. The output of a stage goes to FOLDER/STAGE.txt, and its
results to FOLDER/figures.json, together with the results of earlier runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from devtools.gpus.install import install_wheels
from devtools.gpus.stages import GROUPS, run_stage, stage_variables

GPU_FIELDS = "name,driver_version,memory.total,compute_cap"
VERSIONS = """
import json, torch
nccl = ".".join(map(str, torch.cuda.nccl.version()))
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "nccl": nccl}))
"""


def main() -> int:
    """Run the stages. Return 1 when one of them has failed."""
    parser = argparse.ArgumentParser(prog="python3 -m devtools.gpus")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("stages", nargs="*", help="names of stages; all without them")
    options = parser.parse_args()
    names = [stage.name for group in GROUPS for stage in group]
    if unknown := {*options.stages} - {*names}:
        parser.error(f"{', '.join(sorted(unknown))}: expected {', '.join(names)}")
    chosen = options.stages or names
    options.out.mkdir(parents=True, exist_ok=True)
    install_wheels(options.out)
    file = options.out / "figures.json"
    figures = json.loads(file.read_text()) if file.exists() else {"stages": {}}
    figures["machine"] = describe_machine()
    failed = []
    for group in GROUPS:
        together = [stage for stage in group if stage.name in chosen]
        with ThreadPoolExecutor(len(group)) as pool:
            results = [*pool.map(lambda stage: run_stage(stage, options.out), together)]
        for stage, result in zip(together, results, strict=True):
            figures["stages"][stage.name] = result
            if result["exit"] and not stage.may_fail:
                failed.append(stage.name)
        file.write_text(json.dumps(figures, indent=1) + "\n")
    print("failed:", ", ".join(failed) or "none", flush=True)
    return 1 if failed else 0


def describe_machine() -> dict[str, Any]:
    """Return card, driver and versions."""
    gpus = answer_of("nvidia-smi", f"--query-gpu={GPU_FIELDS}", "--format=csv,noheader")
    return {
        "gpus": [
            dict(zip(GPU_FIELDS.split(","), line.split(", "), strict=False))
            for line in gpus.splitlines()
        ],
        "cpus": os.cpu_count(),
        "python": ".".join(map(str, sys.version_info[:3])),
        **json.loads(answer_of(sys.executable, "-c", VERSIONS) or "{}"),
    }


def answer_of(*command: str) -> str:
    """Return the output of a command, or an empty text when it fails."""
    return subprocess.run(
        command, env=stage_variables(), capture_output=True, text=True, check=False
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
