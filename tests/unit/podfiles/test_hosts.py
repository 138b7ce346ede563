"""How the master finds its hosts, and what it says of those that are missing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import addresses
import hosts
import podstatus
import pytest


def endpoint(name: str, address: str, **conditions: bool) -> dict[str, Any]:
    return {
        "addresses": [address],
        "conditions": conditions,
        "targetRef": {"kind": "Pod", "name": name},
    }


def test_addresses_of_pods_on_their_way_out_do_not_count() -> None:
    slices: list[dict[str, Any]] = [
        {"endpoints": [endpoint("a-0", "10.0.0.1", ready=False)]},
        {"endpoints": [endpoint("a-1", "10.0.0.2", terminating=True)]},
        {"endpoints": None},
    ]
    assert addresses.pod_addresses(slices) == {"a-0": "10.0.0.1"}


@contextmanager
def server(banner: bytes) -> Iterator[int]:
    """A server that says `banner` to whoever connects."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(banner)

        thread = threading.Thread(target=answer)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


@pytest.mark.parametrize(
    ("banner", "answer"),
    [
        (b"SSH-2.0-OpenSSH_9.2p1 Debian-2 hvd-r1\r\n", None),
        (b"SSH-2.0-OpenSSH_9.2p1 hvd-r0\r\n", "from before the last upgrade"),
        (b"HTTP/1.1 400\r\n", "not an SSH server"),
    ],
)
def test_probe(banner: bytes, answer: str | None) -> None:
    with server(banner) as port:
        got = hosts.probe("127.0.0.1", port, "r1")
    assert (got is None) if answer is None else answer in str(got)


def test_probe_of_a_closed_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert "does not answer: Connection refused" in str(hosts.probe("127.0.0.1", port, "r1"))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            {
                "containerStatuses": [
                    {
                        "name": "worker",
                        "image": "nope:1",
                        "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}},
                    }
                ]
            },
            "ErrImagePull: not found (image nope:1)",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "name": "worker",
                        "image": "a",
                        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        "lastState": {"terminated": {"exitCode": 78, "message": "no sshd\n"}},
                    }
                ]
            },
            "container worker exited with 78: no sshd",
        ),
        (
            {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/1 nodes",
                    }
                ],
            },
            "Unschedulable: 0/1 nodes",
        ),
        ({"phase": "Pending"}, "phase Pending"),
    ],
)
def test_a_pods_status_in_words(status: dict[str, Any], words: str) -> None:
    assert podstatus.describe({"status": status}) == words
