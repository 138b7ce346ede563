"""SSH to a host that has an IPv6 address only."""

from __future__ import annotations

import ssh
from settings import Host


def test_ssh_is_given_an_ipv6_address_without_brackets() -> None:
    """As `ssh -G` shows, HostName takes colons as they are and would look brackets up in DNS."""
    host = Host("hvd-worker-0", "hvd-worker-0.hvd", 1, "hvd-worker", "r1")
    assert "\n  HostName fd00::7\n" in ssh.client_config(2222, {host: "fd00::7"})
