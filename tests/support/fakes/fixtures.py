"""Fixtures: a cluster and a Helm for the tests of the command, without Kubernetes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hvdchart.chart_files import chart_dir
from hvdchart.cli.app import main
from tests.support.fakes.cluster import FakeCluster, write_kubeconfig
from tests.support.fakes.program import StubProgram


@dataclass(frozen=True)
class Outcome:
    """How a command ended and what it printed."""

    code: int
    output: str
    errors: str


Command = Callable[..., Outcome]


@pytest.fixture
def hvdchart(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command `hvdchart` with arguments, in this process."""

    def run(*arguments: str | Path) -> Outcome:
        monkeypatch.setattr("sys.argv", ["hvdchart", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Outcome(ended.value.code, printed.out, printed.err)

    return run


@pytest.fixture
def kubeconfig_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the kubeconfig that KUBECONFIG names; no test reads the user's own."""
    path = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(path))
    # The authorities of this machine take 20 ms to read, for each connection.
    monkeypatch.setenv("SSL_CERT_FILE", "/dev/null")
    return path


@pytest.fixture
def fake_cluster(kubeconfig_file: Path) -> Iterator[FakeCluster]:
    """A cluster that the kubeconfig names; its current context has the namespace `team`."""
    fake = FakeCluster()
    with fake.serve() as address:
        write_kubeconfig(kubeconfig_file, address)
        yield fake


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that comes first on PATH; only the system's own programs come after it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


@pytest.fixture
def helm(programs: Path) -> StubProgram:
    """A Helm that answers as Helm 4 does, and installs revision 2."""
    stub = StubProgram(programs, "helm")
    stub.answer("version", "v4.3.1")
    stub.answer("get", errors="Error: release: not found", code=1)
    stub.answer("show", (chart_dir() / "Chart.yaml").read_text())
    answer_as(stub, "run")
    return stub


def answer_as(stub: StubProgram, release: str) -> None:
    """Let a Helm install this release as revision 2."""
    info = {"status": "deployed", "last_deployed": "2026-01-01T10:00:00Z", "description": "done"}
    installed = {"name": release, "namespace": "team", "version": 2, "info": info, "manifest": ""}
    stub.answer("upgrade", json.dumps(installed))
