"""Accelerate and Lightning find a rank's place in the variables that the chart sets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hvd_pods.pod.rank_variables import choose
from tests.images.sandboxes import Sandboxes
from tests.support.in_image.sandbox import Sandbox, output_of

LIBRARY_REQUIREMENTS = Path(__file__).with_name("libraries.txt")
SHOW = """
import json, sys
sys.path.insert(0, "/output/libraries")
from accelerate import PartialState
from lightning_fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment
# Debian's PyTorch has MPI, which Accelerate would prefer.
state, lightning = PartialState(cpu=True, backend="gloo"), TorchElasticEnvironment()
assert lightning.detect() and not SLURMEnvironment.detect()
place = lightning.global_rank(), lightning.world_size(), lightning.local_rank()
own = {"accelerate": [state.process_index, state.num_processes, state.local_process_index]}
print("PLACE", json.dumps({**own, "lightning": place, "node": lightning.node_rank()}), flush=True)
# A rank that leaves at once would close connections that the other one still opens.
state.wait_for_everyone()
state.destroy_process_group()
"""


@pytest.fixture(scope="module")
def libraries(sandboxes: Sandboxes) -> Sandbox:
    """The image, with the libraries in /output."""
    inside = sandboxes("pytorch")
    options = ["--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    target = ["--python-version=3.13", "--target", str(inside.folder / "libraries")]
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        *options,
        *target,
        "-r",
        str(LIBRARY_REQUIREMENTS),
    ]
    subprocess.run(command, check=True)
    return inside


def start_of_rank(rank: int) -> str:
    """The line of a shell that shows a rank's place, with the variables of the chart."""
    of_pod = {"HVD_RENDEZVOUS": "127.0.0.1 61004 a:0-1", "HVD_POD": f"a-{rank}"}
    variables = choose((rank, 2, 0, 1), of_pod)
    words = " ".join(f"{name}={value}" for name, value in variables.items())
    return f'env {words} timeout 280 python3 -c "$0" &'


def test_libraries_know_their_place_among_the_ranks(libraries: Sandbox) -> None:
    script = f"{start_of_rank(0)} {start_of_rank(1)} wait"
    done = libraries.run("bash", "-c", script, SHOW, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    lines = [
        line.partition(" ")[2] for line in done.stdout.splitlines() if line.startswith("PLACE")
    ]
    places = sorted((json.loads(text) for text in lines), key=lambda place: place["node"])
    assert places == [
        {"accelerate": [rank, 2, 0], "lightning": [rank, 2, 0], "node": rank} for rank in (0, 1)
    ], output_of(done)
