"""Fixtures that the tests of the pods' programs share: their folder on the path, and a pod."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hvd_pods.cluster import kube
from hvd_pods.master import gateway_client
from tests.support.fakes.agents import ScriptedAgents
from tests.support.fakes.api import FakeApi
from tests.support.fakes.server import Certificates
from tests.support.release_keys import ReleaseKeys
from tests.support.runs import make_run
from tests.unit.hvd_pods.rules.recorded_events import RecordedEvents
from tests.unit.hvd_pods.support.master_pod import MasterPod
from tests.unit.hvd_pods.support.workers import Workers


@pytest.fixture(autouse=True, scope="session")
def own_paths() -> Iterator[None]:
    """Fail if a test has written to a pod's folder on this machine: others would read that."""
    folder = Path("/horovod")
    was_there = folder.exists()
    yield
    assert was_there or not folder.exists(), f"a test has written to {folder}: remove it"


@pytest.fixture(autouse=True)
def no_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables of an attempt, which a master's test leaves in the environment."""
    for name in gateway_client.PASSED_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """The test cluster's certificates."""
    return Certificates(tmp_path_factory.mktemp("certificates"), "127.0.0.1", "::1")


@pytest.fixture
def api_server(
    certificates: Certificates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[FakeApi]:
    """An API server, and this process as a pod of the Job `hvd-master-1` that may use it."""
    address = getattr(request, "param", "127.0.0.1")
    account = tmp_path / "account"
    account.mkdir()
    (account / "ca.crt").write_bytes(certificates.authority.certificate)
    (account / "namespace").write_text("team\n")
    (account / "token").write_text("secret\n")
    server = FakeApi("team")
    with server.serve(certificates.tls, address):
        monkeypatch.setattr(kube, "ACCOUNT", account)
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", address)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
        monkeypatch.setenv("HVD_JOB", "hvd-master-1")
        monkeypatch.setenv("HVD_JOB_UID", "uid-1")
        monkeypatch.setenv("HVD_POD_IP", "127.0.0.1")
        # The master sets this variable.
        monkeypatch.setenv("HVD_NOTICES", "")
        yield server


@pytest.fixture
def background() -> Iterator[Callable[..., Future[Any]]]:
    """Run a function in a thread, so that a test can change the cluster while it waits."""
    pool = ThreadPoolExecutor(4)
    yield pool.submit
    pool.shutdown(wait=False)


@pytest.fixture
def workers(api_server: FakeApi, release: ReleaseKeys, tmp_path: Path) -> Iterator[Workers]:
    """The workers' side of a run."""
    started = Workers(api_server, release, tmp_path)
    yield started
    started.close()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The addresses of names in DNS. An empty list: the DNS server does not respond."""
    known: dict[str, list[str]] = {}
    # The address of the tests' API server is a number, which needs no resolver.
    numeric = socket.getaddrinfo

    def resolve(name: str, *arguments: Any, **options: Any) -> Any:
        if not name.endswith(".hvd"):
            return numeric(name, *arguments, **options)
        there = known.get(name)
        if there is None:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        if not there:
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return [
            (socket.AF_INET6 if ":" in address else socket.AF_INET, 1, 6, "", (address, 0))
            for address in there
        ]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return known


@pytest.fixture(scope="session")
def keys(release: ReleaseKeys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the master's pod mounts."""
    return release.write_master(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def pod(
    workers: Workers, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MasterPod]:
    """The master's pod of a release with two workers that respond."""
    workers.start(0, 1)
    handler = signal.getsignal(signal.SIGTERM)
    yield MasterPod(workers, keys, tmp_path, monkeypatch)
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def taken() -> RecordedEvents:
    """The events that the master's sources put on its queue."""
    return RecordedEvents()


@pytest.fixture(scope="session")
def release() -> ReleaseKeys:
    """The keys of the release."""
    return ReleaseKeys()


@pytest.fixture
def agents(release: ReleaseKeys, tmp_path: Path) -> Iterator[ScriptedAgents]:
    """Agents of the workers of make_run(), which run a shell script over each connection."""
    started = ScriptedAgents(release, tmp_path, make_run().workers)
    yield started
    started.close()
