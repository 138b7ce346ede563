"""The versions of the modules that tools are built from."""

from __future__ import annotations

import pytest

from devtools.common.errors import DevtoolsError
from devtools.toolchain import tools


def test_staging_modules_have_the_version_of_kubernetes() -> None:
    # v1.34.4 of Kubernetes is released together with v0.34.4 of its staging modules.
    minor = tools.module_version("kube", "k8s.io/kubernetes").removeprefix("v1.")
    lines = (tools.GO_SOURCES / "kube" / "go.mod").read_text().splitlines()
    replaced = [line.split()[-1] for line in lines if " => " in line]
    assert len(replaced) > 30
    assert set(replaced) == {f"v0.{minor}"}
    with pytest.raises(DevtoolsError, match=r"does not require example\.org/x"):
        tools.module_version("kube", "example.org/x")
