"""Whether an image has what the chart's pods need of it: pure judgement of what a probe found."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from hvdchart.errors import ImageError
from hvdchart.image.probe import MARK
from hvdchart.run.release import Object

# The chart's files that run in pods are written for this Python or newer.
OLDEST_PYTHON = (3, 8)
# A user that no image has heard of, as OpenShift gives to pods, and the group it has there.
STRANGE_USER = 1000680000
# Inside the image; a volume of the pod's own.
_SCRATCH = "/tmp"  # noqa: S108
_PACKAGES = {"ssh": "openssh-client", "ssh-keygen": "openssh-client", "sshd": "openssh-server"}
# What each launch mode starts ranks with, and what Horovod must have been compiled with for it.
_LAUNCHERS = {"mpirun": ("mpirun", "mpi"), "horovodrun": ("horovodrun", "gloo")}
MODES = (*_LAUNCHERS, "elastic")


@dataclass(frozen=True)
class Finding:
    """One line of the verdict. `way_out` says what to do when it is not `good`."""

    what: str
    good: bool
    found: str
    way_out: str = ""


def probe_command() -> list[str]:
    """What to run in an image so that it tells what it has."""
    return ["python3", "-c", files("hvdchart.image").joinpath("probe.py").read_text("utf-8")]


def probe_pod(image: str) -> Object:
    """A pod that runs the probe as the chart runs its own: Pod Security `restricted` admits it."""
    container = {
        "name": "probe",
        "image": image,
        "command": probe_command(),
        "env": [{"name": "HOME", "value": _SCRATCH}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": _SCRATCH}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "hvdchart-image-check-",
            "labels": {"app.kubernetes.io/name": "hvdchart-image-check"},
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": 600,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": STRANGE_USER,
                "runAsGroup": 0,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    }


def read_probe(image: str, output: str, errors: str) -> Mapping[str, Any]:
    """What the probe printed. Raises ImageError, with what was printed instead, when it did not
    run to its end.
    """
    for line in output.splitlines():
        if line.startswith(MARK):
            found: Mapping[str, Any] = json.loads(line.removeprefix(MARK))
            return found
    last = (errors.strip() or output.strip()).splitlines()[-5:]
    raise ImageError(
        f"{image}: its python3 could not be run as user {STRANGE_USER}: "
        + ("; ".join(last) or "it printed nothing")
        + ". The chart needs Python 3.8 or newer as python3 on PATH, readable for every user"
    )


def judge(probe: Mapping[str, Any], mode: str) -> list[Finding]:
    """What of the documented minimum is there, for one of the chart's launch modes."""
    return [
        _python(str(probe["python"])),
        *(_program(name, probe["programs"][name]) for name in _PACKAGES),
        *_launcher(probe, mode),
        *_frameworks(probe, mode),
    ]


def missing(findings: Sequence[Finding]) -> list[Finding]:
    """What the image lacks."""
    return [finding for finding in findings if not finding.good]


def report(image: str, findings: Sequence[Finding]) -> str:
    """The findings as lines for a person, the way out below each that is missing."""
    width = max(len(finding.what) for finding in findings)
    lines = [image]
    for finding in findings:
        lines.append(
            f"  {'ok' if finding.good else '--'}  {finding.what:<{width}}  {finding.found}"
        )
        if not finding.good:
            lines.append(f"      {'':<{width}}  {finding.way_out}")
    return "".join(f"{line}\n" for line in lines)


def _python(version: str) -> Finding:
    new = tuple(int(part) for part in version.split(".")[:2]) >= OLDEST_PYTHON
    wanted = ".".join(map(str, OLDEST_PYTHON))
    return Finding(f"Python {wanted}+", new, version, f"install Python {wanted} or newer")


def _program(name: str, path: str | None) -> Finding:
    package = _PACKAGES[name]
    return Finding(
        name, path is not None, path or "not there", f"install {package} (Debian's name)"
    )


def _launcher(probe: Mapping[str, Any], mode: str) -> list[Finding]:
    program = "mpirun" if mode == "mpirun" else "horovodrun"
    path = probe["programs"][program]
    found = path or "not there"
    if path and program == "mpirun":
        found = f"{path}, {probe['mpi']}"
    way_out = {
        "mpirun": "install an MPI before Horovod is compiled, e.g. openmpi-bin and libopenmpi-dev",
        "horovodrun": "install Horovod; horovodrun is a part of it",
    }
    return [Finding(program, path is not None, found, way_out[program])]


def _frameworks(probe: Mapping[str, Any], mode: str) -> list[Finding]:
    feature = "mpi" if mode == "mpirun" else "gloo"
    if not probe["horovod"]:
        way_out = f"pip install horovod, with HOROVOD_WITH_{feature.upper()}=1"
        return [Finding("Horovod", False, "not there", way_out)]
    if not probe["frameworks"]:
        way_out = "install tensorflow or torch, then Horovod, which is compiled for it"
        return [Finding("a framework", False, "not there", way_out)]
    findings = []
    for name, told in probe["frameworks"].items():
        what = f"Horovod on {name}"
        if "error" in told:
            way_out = f"compile Horovod with HOROVOD_WITH_{_switch(name)}=1 for this {name}"
            findings.append(Finding(what, False, told["error"], way_out))
            continue
        found = f"{name} {told['version']}, with {', '.join(told['built']) or 'nothing'}"
        way_out = f"compile Horovod with HOROVOD_WITH_{feature.upper()}=1"
        findings.append(Finding(what, feature in told["built"], found, way_out))
    # One framework that works is enough: the others came along.
    return [finding for finding in findings if finding.good] or findings


def _switch(framework: str) -> str:
    return "PYTORCH" if framework == "torch" else framework.upper()
