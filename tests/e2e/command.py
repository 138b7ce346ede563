"""The command `hvdchart` on the cluster under test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from devtools.toolchain.tools import tool
from tests.support.namespace import Namespace, image_values


def hvdchart(
    namespace: Namespace, *arguments: str, code: int | None = 0
) -> subprocess.CompletedProcess[str]:
    """Run the command on the cluster, which must end with this exit code, or with any for None."""
    done = namespace.call(sys.executable, "-m", "hvdchart", *arguments)
    assert code in (done.returncode, None), done.stdout + done.stderr
    return done


def namespace_options(namespace: Namespace, helm: str = "helm4") -> list[str]:
    """The options that name the namespace and Helm."""
    return ["--namespace", namespace.name, "--helm", str(tool(helm))]


def hvdchart_in_namespace(
    namespace: Namespace, command: str, *arguments: str, code: int | None = 0
) -> subprocess.CompletedProcess[str]:
    """Run a command that needs no Helm in the namespace."""
    return hvdchart(namespace, command, "--namespace", namespace.name, *arguments, code=code)


def write_spec(folder: Path, namespace: Namespace, command: list[str], **more: Any) -> str:
    """A spec of two small workers that share the machine."""
    node = {"name": "n", "count": 2, "shared": True, "coresPerSocket": 1, "memory": "512Mi"}
    spec = {
        "apiVersion": "hvdchart/v1",
        "name": "hvd",
        "nodes": [{**node, "tuning": {"cpu": "50m"}}],
        "image": {**image_values(namespace.image), **more.pop("image", {})},
        "train": {"command": command, "backoffLimit": 0},
        "launch": {"workersTimeoutSeconds": 120},
        # These scripts use no framework, and would wait for its import.
        "values": {"launch": {"preload": []}},
        **more,
    }
    path = folder / "run.spec.yaml"
    path.write_text(json.dumps(spec))
    return str(path)
