"""The requirements of images, checked against the report of the probe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hvdchart.errors import ImageError
from hvdchart.image.build import choose_engine
from hvdchart.image.check import (
    UNKNOWN_USER,
    check_report,
    check_requirements,
    missing,
    probe_command,
    probe_pod,
    read_probe,
)
from hvdchart.image.engines import run_in, runtime_options
from hvdchart.image.probe import MARK
from tests.fakes.program import StubProgram

GOOD: dict[str, Any] = {
    "python": "3.8.10",
    "user": UNKNOWN_USER,
    "programs": {
        "python3": "/usr/bin/python3",
        "ssh": "/usr/bin/ssh",
        "sshd": "/usr/sbin/sshd",
        "ssh-keygen": "/usr/bin/ssh-keygen",
        "mpirun": "/usr/bin/mpirun",
        "horovodrun": "/usr/bin/horovodrun",
    },
    "mpi": "mpirun (Open MPI) 4.1.4",
    "horovod": True,
    "frameworks": {"tensorflow": {"version": "2.15.1", "built": ["mpi", "gloo"]}},
}


def changed(**changes: object) -> dict[str, Any]:
    """A report without a problem, apart from the changes; those of programs are merged."""
    programs = {**GOOD["programs"], **dict(changes.pop("programs", {}))}  # type: ignore[call-overload]
    return {**GOOD, "programs": programs, **changes}


@pytest.mark.parametrize(
    ("changes", "mode", "lacking", "remedy"),
    [
        ({"python": "3.7.9"}, "mpirun", "Python 3.8+", "install Python 3.8"),
        ({"python": "3.10.1"}, "mpirun", None, ""),
        ({"programs": {"sshd": None}}, "mpirun", "sshd", "openssh-server"),
        ({"programs": {"ssh": None}}, "mpirun", "ssh", "openssh-client"),
        ({"programs": {"mpirun": None}}, "mpirun", "mpirun", "before Horovod is compiled"),
        ({"programs": {"mpirun": None}}, "horovodrun", None, ""),
        ({"programs": {"horovodrun": None}}, "elastic", "horovodrun", "install Horovod"),
        ({"horovod": False, "frameworks": {}}, "mpirun", "Horovod", "HOROVOD_WITH_MPI=1"),
        ({"frameworks": {}}, "mpirun", "a framework", "tensorflow or torch"),
        (
            {"frameworks": {"torch": {"version": "2.6.0", "built": ["gloo"]}}},
            "mpirun", "Horovod on torch", "HOROVOD_WITH_MPI=1",
        ),
        (
            {"frameworks": {"torch": {"version": "2.6.0", "built": ["gloo"]}}},
            "elastic", None, "",
        ),
        (
            {"frameworks": {"torch": {"error": "ImportError: no mpi_lib_v2"}}},
            "mpirun", "Horovod on torch", "HOROVOD_WITH_PYTORCH=1",
        ),
        # PyTorch is installed as a dependency in an image for TensorFlow.
        (
            {"frameworks": {**GOOD["frameworks"], "torch": {"error": "ImportError"}}},
            "mpirun", None, "",
        ),
    ],
)  # fmt: skip
def test_missing_requirement_is_named_with_its_remedy(
    changes: dict[str, object], mode: str, lacking: str | None, remedy: str
) -> None:
    findings = check_requirements(changed(**changes), mode)
    assert [finding.requirement for finding in missing(findings)] == ([lacking] if lacking else [])
    text = check_report("team/train:1", findings)
    assert text.startswith("team/train:1\n")
    assert remedy in text
    assert ("\n  --  " in text) == (lacking is not None)


@pytest.mark.parametrize(
    ("output", "errors", "message"),
    [
        ("", "exec: python3: executable file not found", "executable file not found"),
        ("a banner\n", "", "a banner"),
        ("", "1\n2\n3\n4\n5\n6\n", f"user {UNKNOWN_USER}: 2; 3; 4; 5; 6. The chart"),
        ("", "", "it printed nothing"),
    ],
)
def test_image_without_a_usable_python_is_an_error_with_its_output(
    output: str, errors: str, message: str
) -> None:
    assert MARK not in output
    with pytest.raises(ImageError, match="team/train:1: cannot run python3") as raised:
        read_probe("team/train:1", output, errors)
    assert message in str(raised.value)
    assert "Python 3.8 or newer" in str(raised.value)


def test_probe_pod_meets_pod_security_restricted() -> None:
    pod = probe_pod("team/train:1")
    spec = pod["spec"]
    assert spec["securityContext"] == {
        "runAsNonRoot": True, "runAsUser": UNKNOWN_USER, "runAsGroup": 0,
        "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    assert spec["automountServiceAccountToken"] is False
    (container,) = spec["containers"]
    assert container["image"] == "team/train:1"
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip


@pytest.mark.slow
def test_probe_reports_broken_programs_and_modules(tmp_path: Path) -> None:
    (tmp_path / "mpirun").write_text("#!/bin/sh\necho no fabric >&2\nexit 3\n")
    (tmp_path / "mpirun").chmod(0o755)
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").write_text("")
    (tmp_path / "horovod" / "torch.py").write_text("raise ImportError('no mpi_lib_v2')")
    (tmp_path / "horovod" / "tensorflow.py").write_text("def gloo_built(): return 1")
    (tmp_path / "torch.py").write_text("")
    (tmp_path / "tensorflow.py").write_text("__version__ = '2.15.1'")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, *probe_command()[1:]],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    probe = read_probe("this", done.stdout, "")
    assert (probe["horovod"], probe["mpi"]) == (True, "no fabric")
    assert probe["programs"]["mpirun"] == str(tmp_path / "mpirun")
    assert probe["frameworks"] == {
        "tensorflow": {"version": "2.15.1", "built": ["gloo"]},
        "torch": {"error": "ImportError: no mpi_lib_v2"},
    }


RESTRICTIONS = [
    *("--rm", "--read-only", "--network=none", "--tmpfs=/tmp", "--entrypoint=", "--cap-drop=ALL"),
    *("--security-opt=no-new-privileges", "--env=HOME=/tmp", "--user=7:0", "image:1", "id", "-u"),
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


def test_an_engine_that_is_unknown_or_does_not_work_is_refused(programs: Path) -> None:
    with pytest.raises(
        ImageError, match="'kaniko' is not a builder: use one of docker, podman, bu"
    ):
        choose_engine("kaniko")
    for name in ("docker", "podman", "buildah"):
        StubProgram(programs, name).answer("info", code=1)
    with pytest.raises(ImageError, match="docker does not work here: install or start it"):
        choose_engine("docker")
    with pytest.raises(ImageError, match="without an image of its own: deploy --code"):
        choose_engine(None)


@pytest.mark.parametrize(("user", "runc"), [(0, True), (0, False), (1000, True)])
def test_runc_is_used_by_root_where_it_is_installed(
    programs: Path, monkeypatch: pytest.MonkeyPatch, user: int, runc: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    if runc:
        StubProgram(programs, "runc")
    expected = ["--runtime=runc"] if user == 0 and runc else []
    assert runtime_options() == expected
    podman, buildah = engine(programs, "podman"), engine(programs, "buildah")
    run_in("image:1", ["id", "-u"], 7, "podman")
    assert podman.calls[-1].arguments == [*expected, "run", *RESTRICTIONS]
    run_in("image:1", ["id", "-u"], 7, "buildah")
    isolation = ["--isolation", "oci", *expected] if expected else []
    assert buildah.calls[-2].arguments == [
        *("run", "--user", "7:0", "--env", "HOME=/tmp", "--cap-drop", "all", *isolation),
        *("container-1", "--", "id", "-u"),
    ]


def test_missing_image_is_pulled(programs: Path) -> None:
    docker = engine(programs, "docker")
    docker.answer("inspect", code=1)
    assert run_in("image:1", ["true"], 0).returncode == 3
    assert docker.commands() == ["info", "inspect", "pull", "run"]
    assert docker.calls[2].arguments == ["pull", "image:1"]


@pytest.mark.parametrize(
    ("output", "errors", "reason"),
    [
        ("", "first\nno such host\n", "no such host"),
        ("denied\n", "", "denied"),
        ("", "", "it printed no reason"),
    ],
)
def test_image_that_no_engine_can_pull_is_an_error_with_each_reason(
    programs: Path, output: str, errors: str, reason: str
) -> None:
    for name in ("docker", "podman"):
        stub = engine(programs, name)
        stub.answer("inspect", code=1)
        stub.answer("pull", output, errors, 1)
    with pytest.raises(ImageError) as raised:
        run_in("image:1", ["true"], 0)
    assert str(raised.value) == (
        f"image:1 is not on this machine and cannot be pulled: docker: {reason}; podman: {reason}"
    )
