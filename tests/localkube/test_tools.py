"""Tools: their versions, keys, and the Go that builds them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from devtools.common.errors import LocalkubeError
from devtools.toolchain import tools


def test_versions_come_from_go_mod() -> None:
    version = tools.module_version("kube", "k8s.io/kubernetes")
    assert version in (tools.GO_SOURCES / "kube" / "go.mod").read_text()
    assert all(version in flag for flag in [tools._linker_flags(tools.BUILT["kube"])])
    with pytest.raises(LocalkubeError, match=r"requires no example\.org/x"):
        tools.module_version("kube", "example.org/x")


def test_all_staging_modules_have_the_version_of_kubernetes() -> None:
    # v1.34.4 of Kubernetes is published together with v0.34.4 of the modules that it is made of.
    minor = tools.module_version("kube", "k8s.io/kubernetes").removeprefix("v1.")
    lines = (tools.GO_SOURCES / "kube" / "go.mod").read_text().splitlines()
    replaced = [line.split()[-1] for line in lines if " => " in line]
    assert len(replaced) > 30
    assert set(replaced) == {f"v0.{minor}"}


def test_go_releases_are_compared_as_numbers() -> None:
    assert tools._release("go1.26.8") > tools._release("1.26.0") > tools._release("go1.9")
    assert tools._release("go1.27rc1") == (1, 27)


def test_an_unknown_tool_is_refused() -> None:
    with pytest.raises(LocalkubeError, match="no tool is called 'helm'"):
        tools.tool("helm")


def test_a_missing_or_old_go_is_said(machine_with: Callable[[str], None]) -> None:
    with pytest.raises(LocalkubeError, match="Go is not installed"):
        tools.tool("pause")
    machine_with("go1.20.1")
    with pytest.raises(LocalkubeError, match=r"too old: go1\.20\.1 .* 1\.26\.0 is needed"):
        tools.tool("pause")
