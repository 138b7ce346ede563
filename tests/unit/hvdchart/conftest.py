"""The command, the cluster and the programs that it reaches, and a spec with its run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvdchart.chart_files import chart_dir
from hvdchart.cli.app import main
from tests.support.fakes.cluster import FakeCluster, write_kubeconfig
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.command import Command, Outcome
from tests.unit.hvdchart.objects import DONE, ENDED_MASTER, MASTER, job
from tests.unit.hvdchart.played_runs import SPEC, answer_as, play_run


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


@pytest.fixture
def spec(tmp_path: Path, helm: StubProgram) -> Path:
    """A spec's file. Helm installs it as `hvd`."""
    path = tmp_path / "run.spec.yaml"
    path.write_text(json.dumps(SPEC))
    answer_as(helm, "hvd")
    return path


@pytest.fixture
def running(fake_cluster: FakeCluster) -> FakeCluster:
    return play_run(fake_cluster, job(), MASTER)


@pytest.fixture
def finished(fake_cluster: FakeCluster) -> FakeCluster:
    """A run that has finished; its workers' logs go on."""
    return play_run(fake_cluster, DONE, ENDED_MASTER)


@pytest.fixture
def kubectl(programs: Path) -> StubProgram:
    """A kubectl that does nothing."""
    return StubProgram(programs, "kubectl")


@pytest.fixture
def docker(programs: Path) -> StubProgram:
    """A Docker that builds, and has no image yet."""
    stub = StubProgram(programs, "docker")
    stub.answer("inspect", code=1)
    stub.answer("build", "STEP 1/1: FROM a\nother\nSTEP 1/1: FROM a\n")
    return stub
