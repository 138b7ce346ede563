"""The files that SSH needs in a pod, and the messages when something in the pod forbids SSH."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hvd_pods.common import errors, fast_start, ssh
from hvd_pods.worker import session, sshd
from tests.unit.hvd_pods.runs import make_run
from tests.unit.hvd_pods.worker.ssh.pods import PYTHON, Pod, make_key, make_user

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@pytest.fixture
def volumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a pod's volumes: `generated`, and `ssh` with two good keys in it."""
    for folder, attribute in (("generated", "GENERATED"), ("ssh", "SECRETS")):
        (tmp_path / folder).mkdir()
        monkeypatch.setattr(ssh, attribute, tmp_path / folder)
    monkeypatch.setattr(sshd, "GENERATED", tmp_path / "generated")
    for name in ("user-key", "host-key"):
        (tmp_path / "ssh" / name).write_bytes(make_key())
    monkeypatch.setattr(sshd, "PRIVILEGE_SEPARATION", tmp_path / "sshd")
    return tmp_path


@pytest.mark.slow
@given(st.dictionaries(NAMES, VALUES))
@example({"A": "b=c=d", "B": "\n'\" $HOME", "C": ""})
@hypothesis_settings(max_examples=20, deadline=None)
def test_any_environment_is_read_as_it_was_written(environment: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast_start, "ENVIRONMENT", f"{directory}/environment")
        sshd.write_environment(environment)
        assert session.read_environment() == environment
        assert Path(directory, "environment").stat().st_mode & 0o777 == 0o600
        # A restarted container writes it again.
        sshd.write_environment({"A": "1"})
        assert session.read_environment() == {"A": "1"}


def test_no_login_uses_the_slow_key_exchange(tmp_path: Path) -> None:
    config = tmp_path / "ssh_config"
    config.write_text(ssh.client_config(2222, {}, {}))
    command = ["ssh", "-G", "-F", str(config), "host"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (algorithms,) = (line for line in shown.splitlines() if line.startswith("kexalgorithms "))
    assert "curve25519-sha256" in algorithms
    assert "sntrup" not in algorithms


def test_client_reaches_a_host_by_its_ipv6_address() -> None:
    first = make_run().hosts[0]
    # HostName takes the colons of IPv6 as they are, and would look up brackets in DNS.
    assert "\n  HostName fd00::7\n" in ssh.client_config(2222, {first: "fd00::7"}, {})


def test_private_keys_are_readable_by_the_pods_user_only(volumes: Path) -> None:
    before = os.umask(0)
    sshd.prepare(2222, "r1", "python3", 1, 1)
    # A container that is restarted finds its files.
    sshd.prepare(2222, "r1", "python3", 1, 1)
    ssh.prepare_client()
    ssh.prepare_client()
    os.umask(before)
    for name in ("user-key", "host-key"):
        installed = volumes / "generated" / name
        assert installed.stat().st_mode & 0o777 == 0o600
        assert installed.read_bytes() == (volumes / "ssh" / name).read_bytes()


@pytest.mark.parametrize(
    "content", [b"garbage\n", make_key("secret")], ids=["garbage", "passphrase"]
)
def test_unusable_key_is_named_with_what_to_do(volumes: Path, content: bytes) -> None:
    key = volumes / "ssh" / "user-key"
    key.unlink()
    key.write_bytes(content)
    problem = r"(?s)cannot use key 'user-key' .*SSH Secret.* in PEM format without a passphrase"
    with pytest.raises(errors.ConfigurationError, match=problem):
        sshd.prepare(2222, "r1", "python3", 1, 1)


@pytest.mark.slow
def test_worker_that_cannot_start_ends_with_the_reason_and_no_retry(tmp_path: Path) -> None:
    """The kubelet shows the termination message, and the Job gives up on exit code 78."""
    pod = Pod(tmp_path / "pod", make_user(os.geteuid(), tmp_path), {})
    program = str(pod.files / "hvd_pods/worker/main.py")
    done = pod.run(PYTHON, "-I", program, HVD_SSH_PORT="2222", HVD_REVISION="r1")
    assert done.returncode == errors.BAD_CONFIGURATION
    for shown in (done.stderr.decode(), (pod.generated / "termination-log").read_text()):
        assert "cannot read key 'user-key' of the SSH Secret" in shown


def test_worker_of_root_without_a_capability_does_not_start() -> None:
    needed = sum(1 << bit for name, bit in sshd.CAPABILITIES.items() if name != "SETUID")
    reason = "without the capabilities SETUID: set podSecurityContext.runAsUser"
    with pytest.raises(errors.ConfigurationError, match=reason):
        sshd.check_capabilities(f"Name:\tpython3\nCapEff:\t{needed:016x}\n")
