"""The README's first command, as a stranger would run it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from devtools.localkube.instance import current
from tests.e2e.cluster import Namespace

ROOT = Path(__file__).resolve().parents[2]


def demo() -> str:
    """Run `make demo` and return all it printed."""
    done = subprocess.run(
        ["make", "demo"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        # It may wait for the images that another test builds, one after another.
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_demo_trains_and_can_be_repeated(kubeconfig: Path, examples_image: str) -> None:
    in_demo = Namespace("hvd-demo", kubeconfig, examples_image)
    printed = demo()
    accuracy = re.search(r"accuracy +([0-9.]+) on held-out digits", printed)
    assert accuracy is not None, printed
    assert float(accuracy[1]) >= 0.95
    assert re.search(r"throughput [0-9]+ images/s over 2 ranks", printed)
    assert "first allreduce" in printed
    assert re.search(r"hvd-worker-1 +localkube-\S+\n", printed), printed
    assert "and then, for example:" in printed
    made = in_demo.get("namespace", "hvd-demo")["metadata"]["uid"]
    node = in_demo.get("node", current().node_name)["metadata"]["uid"]

    demo()
    assert in_demo.get("namespace", "hvd-demo")["metadata"]["uid"] == made
    assert in_demo.get("node", current().node_name)["metadata"]["uid"] == node
    in_demo.wait_for_no_workers("hvd")
    in_demo.kubectl("delete", "namespace", "hvd-demo", "--wait=false")
