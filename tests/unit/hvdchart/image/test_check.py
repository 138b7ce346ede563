"""The requirements of images, checked against the report of the probe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hvdchart.errors import ImageError
from hvdchart.image.check import (
    UNKNOWN_USER,
    check_report,
    check_requirements,
    missing,
    probe_command,
    probe_pod,
    read_probe,
)
from hvdchart.image.probe import MARK

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


@pytest.mark.parametrize("mode", ["mpirun", "horovodrun", "elastic"])
def test_image_that_meets_all_requirements_lacks_nothing(mode: str) -> None:
    findings = check_requirements(GOOD, mode)
    assert missing(findings) == []
    assert "missing" not in check_report("team/train:1", findings)


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
    ("mode", "line"),
    [
        ("mpirun", "mpirun: /usr/bin/mpirun, mpirun (Open MPI) 4.1.4"),
        ("horovodrun", "horovodrun: /usr/bin/horovodrun"),
    ],
)
def test_launcher_is_reported_with_its_version_if_it_is_mpirun(mode: str, line: str) -> None:
    found = {f.requirement: f.details for f in check_requirements(GOOD, mode)}
    name, _, details = line.partition(": ")
    assert found[name] == details


def test_probe_needs_only_python_and_its_report_is_read_among_other_output() -> None:
    done = subprocess.run(
        [sys.executable, "-I", *probe_command()[1:]], capture_output=True, text=True, check=True
    )
    probe = read_probe("this", f"a banner\n{done.stdout}bye\n", "")
    assert probe["python"] == "{}.{}.{}".format(*sys.version_info[:3])
    assert set(probe) == set(GOOD)
    assert set(probe["programs"]) == set(GOOD["programs"])
    check_requirements(probe, "mpirun")


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


@pytest.mark.parametrize(
    ("built", "details"),
    [
        (["mpi", "gloo"], "torch 2.6.0, with mpi, gloo"),
        ([], "torch 2.6.0, with no transport"),
    ],
)
def test_framework_is_reported_with_what_it_was_built_with(built: list[str], details: str) -> None:
    frameworks = {"torch": {"version": "2.6.0", "built": built}}
    found = check_requirements(changed(frameworks=frameworks), "mpirun")
    assert [f.details for f in found if f.requirement == "Horovod on torch"] == [details]


def test_a_broken_framework_does_not_hide_a_working_one() -> None:
    frameworks = {"torch": {"error": "ImportError"}, **GOOD["frameworks"]}
    findings = check_requirements(changed(frameworks=frameworks), "mpirun")
    assert missing(findings) == []
    assert "Horovod on tensorflow" in {finding.requirement for finding in findings}
