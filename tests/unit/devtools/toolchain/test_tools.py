"""Versions of the tools, and the Go that builds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devtools.common.errors import ToolError
from devtools.toolchain import tools


@pytest.fixture
def install_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Empties PATH; the function adds a `go` that prints the given text."""
    monkeypatch.setenv("PATH", str(tmp_path))
    tools._go_version.cache_clear()

    def install(text: str) -> None:
        (tmp_path / "go").write_text(f"#!/bin/sh\necho {text}\n")
        (tmp_path / "go").chmod(0o755)

    yield install
    tools._go_version.cache_clear()


def test_module_version_comes_from_go_mod() -> None:
    version = tools.module_version("kube", "k8s.io/kubernetes")
    assert version in (tools.GO_SOURCES / "kube" / "go.mod").read_text()
    assert version in tools._linker_flags(tools.BUILT["kube"])
    with pytest.raises(ToolError, match=r"does not require example\.org/x"):
        tools.module_version("kube", "example.org/x")


def test_staging_modules_have_the_version_of_kubernetes() -> None:
    # v1.34.4 of Kubernetes is released together with v0.34.4 of its staging modules.
    minor = tools.module_version("kube", "k8s.io/kubernetes").removeprefix("v1.")
    lines = (tools.GO_SOURCES / "kube" / "go.mod").read_text().splitlines()
    replaced = [line.split()[-1] for line in lines if " => " in line]
    assert len(replaced) > 30
    assert set(replaced) == {f"v0.{minor}"}


def test_go_releases_are_compared_as_numbers() -> None:
    assert tools._release("go1.26.8") > tools._release("1.26.0") > tools._release("go1.9")
    assert tools._release("go1.27rc1") == (1, 27)


def test_unknown_tool_raises_an_error() -> None:
    with pytest.raises(ToolError, match="no tool is called 'helm'"):
        tools.tool("helm")


def test_missing_or_old_go_raises_an_error(install_go: Callable[[str], None]) -> None:
    with pytest.raises(ToolError, match="Go is not installed"):
        tools.tool("pause")
    install_go("go1.20.1")
    with pytest.raises(ToolError, match=rf"too old: go1\.20\.1 .* {tools._needed_go()} is needed"):
        tools.tool("pause")
