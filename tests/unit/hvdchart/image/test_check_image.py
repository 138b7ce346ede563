"""The requirements of images, the probe that reports on them, and the engines that run it."""

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
from hvdchart.image.engines import choose_engine, run_in
from hvdchart.image.probe import IMAGE_PROBE_MARK
from hvdchart.run.kube.pods import UNKNOWN_USER_ID
from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.command import Command

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
    assert [each.name for each in find_unmet(requirements)] == ([lacking] if lacking else [])
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


RESTRICTIONS = [
    "--rm",
    "--read-only",
    "--network=none",
    "--tmpfs=/tmp",
    "--entrypoint=",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--env=HOME=/tmp",
    "--user=7:0",
    "image:1",
    "id",
    "-u",
]


def engine(folder: Path, name: str) -> StubProgram:
    """An engine that works and has the image."""
    stub = StubProgram(folder, name)
    stub.answer("run", "output\n", "errors\n", 3)
    stub.answer("from", "container-1\n")
    return stub


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH, with what the stubs need: no engine of this machine is there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "cat"):
        (folder / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture(params=[(0, True), (0, False), (1000, True)], ids=["root", "no runc", "user"])
def runtime(
    request: pytest.FixtureRequest, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """The options for a user, with runc installed or not: root uses it where it is installed."""
    user, runc = request.param
    monkeypatch.setattr(os, "geteuid", lambda: user)
    if runc:
        StubProgram(programs, "runc")
    return ["--runtime=runc"] if user == 0 and runc else []


def test_command_runs_restricted_in_podman(programs: Path, runtime: list[str]) -> None:
    podman = engine(programs, "podman")
    done = run_in("image:1", ["id", "-u"], 7)
    assert (done.returncode, done.stdout, done.stderr) == (3, "output\n", "errors\n")
    assert podman.calls[-1].arguments == [*runtime, "run", *RESTRICTIONS]


def test_podman_is_preferred_to_buildah(programs: Path) -> None:
    engine(programs, "podman")
    buildah = engine(programs, "buildah")
    run_in("image:1", ["id", "-u"], 7)
    assert buildah.commands() == []


def test_command_runs_restricted_in_buildah(programs: Path, runtime: list[str]) -> None:
    """Its working container is deleted."""
    engine(programs, "podman")
    buildah = engine(programs, "buildah")
    run_in("image:1", ["id", "-u"], 7, "buildah")
    assert {"--cap-drop", "all", "7:0", *runtime} <= {*buildah.calls[-2].arguments}
    assert buildah.commands()[-1] == "rm"


def test_machine_without_an_engine_is_reported_with_a_remedy(programs: Path) -> None:
    with pytest.raises(ImageError, match=r"docker, podman, buildah .*--in-cluster"):
        run_in("image:1", ["true"], 0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("kaniko", "'kaniko' .*docker, podman"),
        ("docker", "^docker "),
        (None, "deploy --code"),
    ],
    ids=["unknown", "not started", "none"],
)
def test_engine_that_cannot_build_is_refused_with_a_remedy(
    programs: Path, name: str | None, message: str
) -> None:
    for each in ("docker", "podman"):
        StubProgram(programs, each).answer("info", code=1)
    with pytest.raises(ImageError, match=message):
        choose_engine(name)


@pytest.fixture
def without_image(programs: Path) -> StubProgram:
    """A podman that does not have the image."""
    podman = engine(programs, "podman")
    podman.answer("inspect", code=1)
    return podman


def test_missing_image_is_pulled(without_image: StubProgram) -> None:
    without_image.answer("pull")
    assert run_in("image:1", ["true"], 0).returncode == 3
    assert "pull" in without_image.commands()


def test_image_that_cannot_be_pulled_is_reported_with_the_reason(
    without_image: StubProgram,
) -> None:
    without_image.answer("pull", errors="first\ndenied\n", code=1)
    with pytest.raises(ImageError, match=r"image:1 .*: denied"):
        run_in("image:1", ["true"], 0)


pytestmark = pytest.mark.timeout(120)


def test_image_check_runs_the_probe_as_an_unknown_user(hvdchart: Command, programs: Path) -> None:
    docker = StubProgram(programs, "docker")
    docker.answer("run", f"banner\n{IMAGE_PROBE_MARK}{json.dumps(GOOD)}\n")
    done = hvdchart("image", "check", "image:1", "--engine", "docker")
    assert (done.code, done.errors) == (0, "")
    assert done.output.startswith("image:1\n  ok  Python 3.8+")
    assert f"--user={UNKNOWN_USER_ID}:0" in docker.calls[-1].arguments


def test_image_check_shows_the_progress_of_a_pull(hvdchart: Command, programs: Path) -> None:
    docker = StubProgram(programs, "docker")
    docker.answer("inspect", code=1)
    docker.answer("pull", "1: Pulling from image\n")
    docker.answer("run", f"{IMAGE_PROBE_MARK}{json.dumps(GOOD)}\n")
    done = hvdchart("image", "check", "image:1", "--engine", "docker")
    assert (done.code, "hvdchart: 1: Pulling from image\n" in done.errors) == (0, True)


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
