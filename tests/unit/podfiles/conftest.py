"""What the tests of the pods' files share: their folder on the path, and a pod to run in."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

# The pods' files import one another from their own folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "charts" / "horovod" / "files"))

import addresses
import hosts
import kube

from tests.unit.podfiles.fake_api import Certificates, FakeApi, serve
from tests.unit.podfiles.fake_worker import Workers
from tests.unit.podfiles.master_pod import MasterPod, make_keys


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """The test cluster's certificates."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


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
    with serve(certificates, account, address) as server:
        monkeypatch.setattr(kube, "ACCOUNT", account)
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", address)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
        monkeypatch.setenv("HVD_JOB", "hvd-master-1")
        monkeypatch.setenv("HVD_JOB_UID", "uid-1")
        yield server


@pytest.fixture
def background() -> Iterator[Callable[..., Future[Any]]]:
    """Runs a function in a thread, so that a test can change the world while it waits."""
    pool = ThreadPoolExecutor(4)
    yield pool.submit
    pool.shutdown(wait=False)


@pytest.fixture
def workers(api_server: FakeApi, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    """The workers' side, and a rendezvous that loses no time."""
    for name in ("FIRST_REPORT_AFTER", "REPORT_EVERY", "STOP_CHECK_EVERY", "ADDRESS_CHECK_EVERY"):
        monkeypatch.setattr(hosts, name, 0.02)
    monkeypatch.setattr(addresses.DnsAddresses, "poll_seconds", 0.02)
    started = Workers(api_server)
    yield started
    started.close()


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The SSH Secret."""
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def pod(
    workers: Workers, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MasterPod]:
    """The master's pod of a release with two workers that answer."""
    workers.start(0, 1)
    handler = signal.getsignal(signal.SIGTERM)
    yield MasterPod(workers, keys, tmp_path, monkeypatch)
    signal.signal(signal.SIGTERM, handler)
