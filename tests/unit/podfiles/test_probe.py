"""The probe of a worker: real sockets, and what else than an SSH server may listen."""

from __future__ import annotations

import hosts
import pytest

from tests.unit.podfiles.fake_worker import FakeWorker


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
@pytest.mark.parametrize(
    ("banner", "answer"),
    [
        (b"SSH-2.0-OpenSSH_9.2p1 Debian-2 hvd-r1\r\n", None),
        (
            b"SSH-2.0-OpenSSH_9.2p1 hvd-r0\r\n",
            "from before the last upgrade: WHERE sent 'SSH-2.0-OpenSSH_9.2p1 hvd-r0', "
            "this run needs hvd-r1",
        ),
        (b"HTTP/1.1 400\r\n", "WHERE is not an SSH server: it sent 'HTTP/1.1 400'"),
        (b"\xff" * 300, "WHERE is not an SSH server: it sent '" + "\ufffd" * 256 + "'"),
        (b"", "WHERE is not an SSH server: it sent ''"),
        (None, "WHERE does not answer: timed out"),
    ],
    ids=["right", "stale", "HTTP", "binary", "nothing", "silent"],
)
def test_probe(
    address: str, banner: bytes | None, answer: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if banner is None:
        monkeypatch.setattr(hosts, "PROBE_TIMEOUT", 0.1)
    with FakeWorker(banner, address) as worker:
        where = f"[::1]:{worker.port}" if address == "::1" else f"127.0.0.1:{worker.port}"
        expected = answer and answer.replace("WHERE", where)
        assert hosts.probe(address, worker.port, "r1") == expected


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_probe_of_a_closed_port(address: str) -> None:
    with FakeWorker(b"", address) as worker:
        worker.close()
    where = f"[::1]:{worker.port}" if address == "::1" else f"127.0.0.1:{worker.port}"
    expected = f"{where} does not answer: Connection refused"
    assert hosts.probe(address, worker.port, "r1") == expected
