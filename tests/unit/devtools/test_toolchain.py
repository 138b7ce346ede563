"""Versions of the tools, the Go that builds them, and kubectl's watch."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.common.errors import ToolError
from devtools.toolchain import kubectl, tools
from devtools.toolchain.kubectl import Kubectl


def test_staging_modules_have_the_version_of_kubernetes() -> None:
    # v1.34.4 of Kubernetes is released together with v0.34.4 of its staging modules.
    minor = tools.module_version("kube", "k8s.io/kubernetes").removeprefix("v1.")
    lines = (tools.GO_SOURCES / "kube" / "go.mod").read_text().splitlines()
    replaced = [line.split()[-1] for line in lines if " => " in line]
    assert len(replaced) > 30
    assert set(replaced) == {f"v0.{minor}"}
    with pytest.raises(ToolError, match=r"does not require example\.org/x"):
        tools.module_version("kube", "example.org/x")


def test_unknown_tool_and_missing_or_old_go_raise_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(ToolError, match="no tool is called 'helm'"):
        tools.tool("helm")
    monkeypatch.setenv("PATH", str(tmp_path))
    tools._go_version.cache_clear()
    with pytest.raises(ToolError, match="Go is not installed"):
        tools.tool("pause")
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho go1.9.1\n")
    go.chmod(0o755)
    with pytest.raises(ToolError, match=r"too old: go1\.9\.1 .* is needed"):
        tools.tool("pause")


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    """A client whose kubectl prints $PRINTED and stays for $STAYS seconds."""
    program = tmp_path / "kubectl"
    program.write_text('#!/bin/sh\nprintf "$PRINTED"\nexec sleep "$STAYS"\n')
    program.chmod(0o755)
    monkeypatch.setattr(kubectl, "tool", lambda _: program)
    monkeypatch.setenv("STAYS", "60")
    return Kubectl("space")


@pytest.mark.parametrize(
    ("printed", "end"),
    [("\\nSuspended\\nSuccessCriteriaMet Complete\\n", "Complete"), ("Failed\\n", "Failed")],
)
def test_job_end_is_its_final_condition(
    client: Kubectl, monkeypatch: pytest.MonkeyPatch, printed: str, end: str
) -> None:
    monkeypatch.setenv("PRINTED", printed)
    assert client.wait_for_job_end("job", 60) == end
