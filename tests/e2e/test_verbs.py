"""The daily commands on a real cluster: one run, from doctor to undeploy."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from devtools.toolchain.tools import tool
from tests.e2e.cluster import Namespace
from tests.e2e.test_hvdchart import here, hvdchart, write_spec
from tests.waiting import PROGRAM_PAUSE, wait_until
from tests.wheels import make_wheel

# Reports its steps until each rank finds a file in its own container.
TRAIN = """
import os, time
from pathlib import Path
import hvdleaf
import hvd_progress
hvd_progress.EVERY = 0.1
for step in range(1, 6000):
    hvd_progress.report(step, steps=6000, loss=1 / step, images_per_second=8)
    print("step", step, time.time(), flush=True)
    if Path("/tmp/go").exists():
        break
    time.sleep(0.1)
"""


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """kubectl on PATH, as people have it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "kubectl").symlink_to(tool("kubectl"))
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_a_run_is_followed_entered_stopped_started_and_scaled(
    namespace: Namespace, tmp_path: Path, commands: None
) -> None:
    where = ["--namespace", namespace.name]
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(TRAIN)
    # What train.py imports comes from requirements.txt; pods reach no package index here.
    wheel = make_wheel(code, "hvdleaf")
    (code / "requirements.txt").write_text(f"./{wheel.name}\n")
    spec = write_spec(
        tmp_path, namespace, ["python3", "train.py"], launch={"options": ["--tag-output"]}
    )

    def call(command: str, *arguments: str) -> str:
        return hvdchart(namespace, command, *where, *arguments).stdout

    def progress() -> Any:
        return json.loads(call("status", "hvd", "-o", "json"))["progress"]

    hvdchart(namespace, "doctor", spec, *here(namespace))

    hvdchart(namespace, "deploy", spec, "--code", str(code), "--detach", *here(namespace))
    wait_until(progress, 180, "the record has a step", PROGRAM_PAUSE)
    told = progress()
    assert (told["steps"], told["images_per_second"]) == (6000, 16.0), "two ranks"
    assert re.search(r"progress: step \d+ of 6000, loss .*16 images/s", call("status", "hvd"))
    assert "Job/hvd-master-" in call("events", "hvd")
    ranks = call("logs", "hvd", "--no-follow", "--rank", "1").splitlines()
    assert ranks[-1].startswith("[rank 1] step ")
    assert all(line.startswith("[rank 1] ") for line in ranks)

    assert call("exec", "hvd", "1", "--", "hostname") == "hvd-worker-1\n"
    shown = call("stack", "hvd", "1")
    assert shown.startswith("hvd-worker-1:\nrank 1 shows its Python stack:\n")
    assert re.search(r'/train\.py", line \d+ in <module>$', shown, re.M)
    rows = [line.split() for line in call("top", "hvd").splitlines()]
    by_pod = {row[0]: row for row in rows}
    assert by_pod["hvd-worker-1"][3] == "1"
    assert by_pod["hvd-worker-1"][5] == "8.0"
    assert float(by_pod["hvd-worker-0"][1]) >= 0

    hvdchart(namespace, "stop", "hvd", *here(namespace))
    namespace.kubectl("wait", "pods", "--all", "--for=delete", "--timeout=180s")
    assert call("status", "hvd").startswith("hvd: suspended")
    hvdchart(namespace, "wait", "hvd", "--timeout", "1s", *where, code=124)

    hvdchart(namespace, "restart", "hvd", *here(namespace))
    wait_until(progress, 180, "the run trains again", PROGRAM_PAUSE)
    hvdchart(namespace, "scale", "hvd", "1", *here(namespace))
    wait_until(
        lambda: (progress() or {}).get("images_per_second") == 8.0,
        180,
        "one rank trains alone",
        PROGRAM_PAUSE,
    )
    call("exec", "hvd", "0", "--", "touch", "/tmp/go")
    assert call("wait", "hvd", "--timeout", "180s") == "run hvd finished\n"
    assert call("status", "hvd").startswith("hvd: finished")

    entered = hvdchart(namespace, "debug", "hvd", "0", *here(namespace), "--", "ls")
    files = sorted(path.name for path in code.iterdir())
    assert entered.stdout.split() == files, "the master has handed the code over"
    hvdchart(namespace, "undeploy", "hvd", *here(namespace))
    namespace.wait_until_gone("all")
