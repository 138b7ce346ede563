"""What master and worker write for SSH, and what they refuse to start with."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import session
import ssh
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.podfiles.runs import make_run

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(st.dictionaries(NAMES, VALUES))
def test_any_environment_reaches_the_session(environment: dict[str, str]) -> None:
    """Quotes, line breaks, dollar signs: nothing is lost between container and rank."""
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssh, "ENVIRONMENT", Path(directory) / "environment")
        ssh.write_environment(environment)
        assert ssh.ENVIRONMENT.stat().st_mode & 0o077 == 0
        assert ssh.read_environment() == environment


def test_a_session_runs_the_command_with_the_containers_values() -> None:
    of_sshd = {"SSH_ORIGINAL_COMMAND": "orted -x", "PATH": "/bin", "SSH_CLIENT": "a"}
    command, environment = session.session(of_sshd, {"PATH": "/opt/bin", "SECRET": "s"})
    assert command == ["/bin/sh", "-c", "orted -x"]
    assert environment == {"PATH": "/opt/bin", "SSH_CLIENT": "a", "SECRET": "s"}
    assert session.session({}, {})[0] == ["/bin/sh", "-i"]


def test_the_client_reaches_hosts_by_address_and_checks_their_key() -> None:
    first = make_run().hosts[0]
    config = ssh.client_config(2200, {first: "10.1.2.3"})
    assert config.startswith("Host hvd-cpu-0.hvd hvd-cpu-0\n  HostName 10.1.2.3\n")
    assert f"HostKeyAlias {ssh.HOST_KEY_ALIAS}" in config
    assert "Port 2200" in config
