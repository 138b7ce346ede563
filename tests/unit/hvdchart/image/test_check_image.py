"""The requirements of images, and the probe that reports on them."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hvdchart.errors import ImageError
from hvdchart.image.check_image import (
    check_report,
    check_requirements,
    find_unmet,
    probe_command,
    read_probe,
)
from hvdchart.image.probe import IMAGE_PROBE_MARK
from hvdchart.run.kube.pods import UNKNOWN_USER_ID
from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.command import Command

pytestmark = pytest.mark.timeout(120)
PROGRAMS = ("python3", "mpirun")
GOOD: dict[str, Any] = {
    "python": "3.8.10",
    "user": UNKNOWN_USER_ID,
    "ssl": {"version": "OpenSSL 3.0.15", "error": ""},
    "programs": {name: f"/usr/bin/{name}" for name in PROGRAMS},
    "mpi": "mpirun (Open MPI) 4.1.4",
    "modules": ["torch"],
    "horovod": True,
    "frameworks": {"tensorflow": {"version": "2.15.1", "built": ["mpi", "gloo"]}},
}
NO_SSL = {"version": "", "error": "No module named '_ssl'"}
NO_HOROVOD = {"horovod": False, "frameworks": {}}
GLOO_ONLY = {"frameworks": {"torch": {"version": "2.6.0", "built": ["gloo"]}}}
MPI_ONLY = {"frameworks": {"torch": {"version": "2.6.0", "built": ["mpi"]}}}
BROKEN = {"torch": {"error": "ImportError: no mpi_lib_v2"}}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an mpirun and a module of Horovod that do not work, beside one that works."""
    folder = tmp_path_factory.mktemp("image")
    (folder / "mpirun").write_text("#!/bin/sh\necho no fabric >&2\nexit 3\n")
    (folder / "mpirun").chmod(0o755)
    (folder / "horovod").mkdir()
    for name, text in {
        "horovod/__init__.py": "",
        "horovod/torch.py": "raise ImportError('no mpi_lib_v2')",
        "horovod/tensorflow.py": "def gloo_built(): return 1",
        "torch.py": "",
        "tensorflow.py": "__version__ = '2.15.1'",
    }.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def probe(broken: Path) -> Mapping[str, Any]:
    """What the probe reports of them, between other output."""
    environment = {"PATH": f"{broken}:{os.environ['PATH']}", "PYTHONPATH": str(broken)}
    done = subprocess.run(
        [sys.executable, *probe_command()[1:]],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return read_probe("this", f"a banner\n{done.stdout}bye\n", "")


@pytest.mark.parametrize(
    ("changes", "how", "lacking", "remedy"),
    [
        *(({}, [mode], None, "") for mode in ("mpirun", "direct")),
        ({"python": "3.7.9"}, ["mpirun"], "Python 3.8+", "install Python 3.8"),
        ({"programs": {"mpirun": None}}, ["direct"], None, ""),
        ({"programs": {"mpirun": None}}, ["mpirun"], "mpirun", "requirements.txt"),
        ({"ssl": NO_SSL}, ["direct"], "Python's module ssl", "No module named '_ssl'"),
        ({"programs": {"mpirun": None}, **NO_HOROVOD}, ["direct", "torch"], None, ""),
        (NO_HOROVOD, ["direct"], None, ""),
        (MPI_ONLY, ["direct"], "Horovod on torch", "HOROVOD_WITH_GLOO=1"),
        (NO_HOROVOD, ["mpirun"], "Horovod", "HOROVOD_WITH_MPI=1"),
        ({"frameworks": {}}, ["mpirun"], "a framework", "tensorflow or torch"),
        (GLOO_ONLY, ["mpirun"], "Horovod on torch", "HOROVOD_WITH_MPI=1"),
        (GLOO_ONLY, ["direct"], None, ""),
        ({"frameworks": BROKEN}, ["mpirun"], "Horovod on torch", "HOROVOD_WITH_PYTORCH=1"),
        # PyTorch is installed as a dependency in an image for TensorFlow.
        ({"frameworks": {**BROKEN, **GOOD["frameworks"]}}, ["mpirun"], None, ""),
        # A program without Horovod needs its own framework alone.
        (NO_HOROVOD, ["direct", "jax"], "jax", "pip install jax"),
        (NO_HOROVOD, ["mpirun", "torch"], None, ""),
        (NO_HOROVOD, ["mpirun", "mpi"], None, ""),
    ],
)
def test_missing_requirement_is_named_with_its_remedy(
    changes: dict[str, Any], how: list[Any], lacking: str | None, remedy: str
) -> None:
    programs = {**GOOD["programs"], **changes.get("programs", {})}
    requirements = check_requirements({**GOOD, **changes, "programs": programs}, *how)
    assert [requirement.name for requirement in find_unmet(requirements)] == (
        [lacking] if lacking else []
    )
    head, *lines = check_report("team/train:1", requirements)
    assert head == "team/train:1"
    assert remedy in "\n".join(lines)
    assert any(line.startswith("  --  ") for line in lines) == bool(remedy)


def test_mpi_that_the_run_brings_is_no_reason_to_refuse_an_image() -> None:
    probe = {**GOOD, "programs": {**GOOD["programs"], "mpirun": None}}
    requirements = check_requirements(probe, "mpirun", brings_mpi=True)
    assert find_unmet(requirements) == []
    assert "requirements.txt" in "\n".join(check_report("team/train:1", requirements))


@pytest.mark.parametrize(
    ("output", "errors", "message"),
    [
        ("", "exec: python3: executable file not found", "executable file not found"),
        ("", "1\n2\n3\n4\n5\n6\n", f"{UNKNOWN_USER_ID}: 2; 3; 4; 5; 6. "),
    ],
)
def test_image_without_a_usable_python_is_an_error_with_its_output(
    output: str, errors: str, message: str
) -> None:
    with pytest.raises(ImageError, match=r"team/train:1: .*Python 3\.8") as raised:
        read_probe("team/train:1", output, errors)
    assert message in str(raised.value)


@pytest.mark.slow
def test_probe_reports_what_is_required_and_what_fails(
    probe: Mapping[str, Any], broken: Path
) -> None:
    assert set(probe) == set(GOOD)
    assert probe["programs"]["mpirun"] == str(broken / "mpirun")
    assert probe["mpi"] == "no fabric"
    assert probe["horovod"] is True
    assert probe["frameworks"] == {"tensorflow": {"version": "2.15.1", "built": ["gloo"]}, **BROKEN}
    assert probe["ssl"] == {"version": ssl.OPENSSL_VERSION, "error": ""}


def test_image_check_runs_the_probe_as_an_unknown_user(hvdchart: Command, programs: Path) -> None:
    docker = StubProgram(programs, "docker")
    docker.answer("run", f"banner\n{IMAGE_PROBE_MARK}{json.dumps(GOOD)}\n")
    done = hvdchart("image", "check", "image:1", "--engine", "docker")
    assert done.code == 0
    assert done.errors == ""
    assert done.output.startswith("image:1\n  ok  Python 3.8+")
    assert f"--user={UNKNOWN_USER_ID}:0" in docker.calls[-1].arguments


def test_image_check_shows_the_progress_of_a_pull(hvdchart: Command, programs: Path) -> None:
    docker = StubProgram(programs, "docker")
    docker.answer("inspect", code=1)
    docker.answer("pull", "1: Pulling from image\n")
    docker.answer("run", f"{IMAGE_PROBE_MARK}{json.dumps(GOOD)}\n")
    done = hvdchart("image", "check", "image:1", "--engine", "docker")
    assert done.code == 0
    assert "hvdchart: 1: Pulling from image\n" in done.errors


def test_image_check_says_what_is_missing_for_a_mode(hvdchart: Command, programs: Path) -> None:
    docker = StubProgram(programs, "docker")
    docker.answer("run", f"{IMAGE_PROBE_MARK}{json.dumps({**GOOD, 'horovod': False})}\n")
    lacking = hvdchart("image", "check", "image:1", "--engine", "docker", "--mode", "mpirun")
    assert lacking.code == 9
    assert "launch.mode: mpirun" in lacking.errors
    assert lacking.errors.endswith("missing: Horovod\n")


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_check_in_the_cluster_that_is_ended_deletes_its_pod(
    fake_cluster: FakeCluster, sent: signal.Signals
) -> None:
    fake_cluster.created_status = {"phase": "Pending"}
    command = [sys.executable, "-m", "hvdchart", "image", "check", "team/a:1", "--in-cluster"]
    with subprocess.Popen(command) as process:
        fake_cluster.wait_for("pods", "watch")
        process.send_signal(sent)
        assert process.wait(30) == -sent
    assert fake_cluster.names("pods") == []
