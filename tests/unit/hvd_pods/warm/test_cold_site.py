"""The stack of a rank that starts cold, and what its script sees of how that is done: nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hvd_pods.pod import rank_variables
from tests.unit.hvd_pods.warm.worker import ONLY_RANK, Worker, make_worker

# What a script may look at. Launchers and the chart set variables of their own.
LOOK = """
import sys
modules = sorted(set(sys.modules) - {"faulthandler"})
import json, os, subprocess
child = [sys.executable, "-c", "import os; print(os.environ.get('PYTHONPATH'))"]
print(json.dumps({
    "path": sys.path, "argv": sys.argv, "flags": list(sys.flags), "name": __name__,
    "modules": modules,
    "variables": {k: v for k, v in os.environ.items() if not k.startswith(("OMP", "HVD_SLOTS"))},
    "open": sorted(int(name) for name in os.listdir("/proc/self/fd") if int(name) < 512),
    "children": subprocess.run(child, stdout=subprocess.PIPE).stdout.decode(),
    "inherited": os.get_inheritable(512) if os.path.exists("/proc/self/fd/512") else None,
    "own": getattr(sys.modules.get("sitecustomize"), "OWN", None),
    "hook": sys.excepthook is sys.__excepthook__,
}))
"""


def look(worker: Worker, *python: str, **variables: str) -> tuple[Any, Any]:
    """What a script sees as a rank that starts cold, and started by hand."""
    # Python sets another one for its children where there is none.
    variables = {"LC_ALL": "C.UTF-8", **variables}
    done = worker.run(*python, "-c", LOOK, "a", variables=variables)
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
    environment = {**worker.environment(), **ONLY_RANK, **variables}
    alone = subprocess.run(
        [*python, "-c", LOOK, "a"],
        env=environment,
        stdin=subprocess.PIPE,
        capture_output=True,
        check=True,
    )
    seen = json.loads(done.stdout.splitlines()[-1])
    for name in rank_variables.choose((0, 1, 0, 1), {}):
        del seen["variables"][name]
    return seen, json.loads(alone.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("path", [None, "", "/one:/two", "/one::", "OWN"])
def test_script_finds_what_it_would_find_without_the_stack(
    cold_worker: Worker, tmp_path: Path, path: str | None
) -> None:
    """Also the image's own sitecustomize."""
    (tmp_path / "sitecustomize.py").write_text("OWN = 'the image'\n")
    variables = {} if path is None else {"PYTHONPATH": path.replace("OWN", str(tmp_path))}
    seen, expected = look(cold_worker, sys.executable, **variables)
    assert seen.pop("inherited") is False
    expected.pop("inherited")
    # Behind everything else, and not for other programs.
    assert seen["path"].pop().endswith("/hvd_pods/library")
    # What counts the steps of a script.
    counting = {"__future__", "hvd_pods", "hvd_pods.rank", "hvd_pods.rank.step_count"}
    assert {*seen.pop("modules")} - {*expected.pop("modules")} <= counting
    if path == "":
        # Python does not tell the two apart.
        expected["variables"].pop("PYTHONPATH")
        expected["children"] = "None\n"
    assert seen == expected


@pytest.mark.slow
def test_rank_without_room_in_memory_runs_and_shares_its_standard_error() -> None:
    with make_worker() as worker:
        (worker.root / "generated" / "ranks").touch()
        done = worker.run("python3", "-c", "import os; os.system('echo heard >&2')")
    assert done.stderr == b"heard\n"
    assert b"[hvd] rank 0 cannot be terminated gracefully: " in done.stdout
