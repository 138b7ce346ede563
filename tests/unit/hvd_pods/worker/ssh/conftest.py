"""Pods that log in to each other, once for all tests of SSH."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.unit.hvd_pods.worker.ssh.pods import SshPods, require_sshd, start_ssh_pods


@pytest.fixture(scope="session")
def sshd() -> None:
    """OpenSSH's server: installed when it is missing; the tests fail where that is not possible."""
    require_sshd()


@pytest.fixture(scope="session")
def ssh_pods(request: pytest.FixtureRequest, sshd: None) -> Iterator[SshPods]:
    """A worker that serves SSH and its master: of a user without any capability, or of root."""
    user = getattr(request, "param", 4321)
    if user == 0 and os.geteuid() != 0:
        pytest.skip("only root can run a worker as root")
    with start_ssh_pods(user) as pods:
        yield pods
