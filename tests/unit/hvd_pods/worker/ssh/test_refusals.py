"""What docs/security.md says that SSH between the pods refuses: a real sshd and a real ssh."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hvd_pods.common import ssh
from tests.unit.hvd_pods.worker.ssh.pods import WORKER, Master, SshPods, also_as_root, make_key

pytestmark = pytest.mark.slow

# What launchers such as horovodrun pass, and what else would switch the check off.
UNCHECKED = ["-o", "StrictHostKeyChecking=no"]
WITHOUT_FILE = [*UNCHECKED, "-o", "UserKnownHostsFile=/dev/null"]
# As the MPI operator, rsync, git and scripts pass options.
OF_USERS = [
    ["-o", "ConnectionAttempts=10", "-otcpkeepalive yes", "-o", "Compression = no", WORKER],
    ["-T", "-e", "none", "-c", "aes128-gcm@openssh.com", WORKER],
    [*WITHOUT_FILE, "-o", "StrictHostKeyChecking no", "-o", "IdentityFile=/gone", WORKER],
]
# As `sshd -T` prints them.
RESTRICTIONS = {
    "allowagentforwarding": "no",
    "allowstreamlocalforwarding": "no",
    "allowtcpforwarding": "no",
    "authenticationmethods": "publickey",
    "gatewayports": "no",
    "hostbasedauthentication": "no",
    "kbdinteractiveauthentication": "no",
    "passwordauthentication": "no",
    "permitemptypasswords": "no",
    "permitrootlogin": "without-password",
    "permittunnel": "no",
    "permituserenvironment": "no",
    "permituserrc": "no",
    "trustedusercakeys": "none",
    "x11forwarding": "no",
}


@pytest.fixture(scope="module")
def impostor(ssh_pods: SshPods) -> Master:
    """A master of a release whose host key is not the worker's."""
    return ssh_pods.add_master("impostor", host_key=make_key())


def test_launcher_that_skips_the_host_key_check_still_logs_in(ssh_pods: SshPods) -> None:
    known_hosts = ssh_pods.master.generated / "known_hosts"
    before = known_hosts.read_text()
    own = [*UNCHECKED, WORKER, "-p", str(ssh_pods.port), "-o", "ConnectTimeout=10"]
    for line in (own, ["-x", "-q", WORKER], ["-xTn", "-oBatchMode=yes", WORKER], *OF_USERS):
        done = ssh_pods.master.ssh(*line, "true")
        assert done.returncode == 0, done.stderr.decode()
    assert known_hosts.read_text() == before


@pytest.mark.parametrize(
    "words",
    [
        ["-oProxyCommand={}"],
        ["-x", "-oProxyCommand={}", "orted"],
        [WORKER, "-o", "ProxyCommand={}", "true"],
        ["-o", " proxycommand {}", WORKER],
        ["-o", '"ProxyCommand" {}', WORKER],
        ["-o", "LocalForward=22 host:22", WORKER],
        ["-E", "/tmp/log", WORKER],
        ["-o", "PermitLocalCommand=yes", "-oLocalCommand={}", WORKER, "true"],
        ["-xoProxyCommand={}", WORKER],
        ["-o", "KnownHostsCommand={}", WORKER],
        ["-F{}", WORKER],
        ["-F", "{}", WORKER],
        ["-J", "{}", WORKER],
    ],
    ids=" ".join,
)
def test_name_of_a_host_or_an_option_starts_no_program(
    ssh_pods: SshPods, tmp_path: Path, words: list[str]
) -> None:
    """Training code names hosts: those of MPI's info key add-host."""
    tmp_path.chmod(0o777)
    command = f"touch {tmp_path}/started"
    done = ssh_pods.master.ssh(*(word.format(command) for word in words))
    assert (done.returncode, done.stdout) == (255, b"")
    assert b"ssh is not to be called with -" in done.stderr
    assert not (tmp_path / "started").exists()


def test_ssh_leaves_the_launchers_output_blocking(ssh_pods: SshPods) -> None:
    """Open MPI drops what is left at its end when a pipe takes no more: lines would be missing."""
    reader, writer = os.pipe()
    # As container runtimes do.
    os.fchown(writer, ssh_pods.master.user.uid, -1)
    line = ssh_pods.master.ssh_command(WORKER, "echo up; exec sleep 60")
    environment = {"PATH": os.environ["PATH"]}
    ssh = ssh_pods.master.start(*line, env=environment, stdout=writer, stderr=writer)
    try:
        assert os.read(reader, 3) == b"up\n"
        assert os.get_blocking(writer)
    finally:
        ssh.kill()
        ssh.wait()
        for end in (reader, writer):
            os.close(end)


@pytest.mark.parametrize("options", [[], UNCHECKED, WITHOUT_FILE], ids=["default", "no", "no file"])
def test_wrong_host_key_is_refused(impostor: Master, options: list[str]) -> None:
    done = impostor.ssh(*options, WORKER, "echo logged in")
    assert (done.returncode, done.stdout) == (255, b"")
    assert ssh.OTHER_KEYS.search(done.stderr.decode())


def test_worker_refuses_another_host_key(ssh_pods: SshPods) -> None:
    known_hosts = ssh_pods.worker.generated / "known_hosts"
    before = known_hosts.read_text()
    known_hosts.write_text(f"other {before}")
    done = ssh_pods.worker.ssh(*WITHOUT_FILE, "127.0.0.1", "echo logged in")
    known_hosts.write_text(before)
    assert (done.returncode, done.stdout) == (255, b"")
    assert b"Host key verification failed" in done.stderr


@also_as_root
def test_foreign_user_key_is_refused(ssh_pods: SshPods) -> None:
    done = ssh_pods.add_master("foreign", user_key=make_key()).ssh(WORKER, "echo logged in")
    assert (done.returncode, done.stdout) == (255, b"")
    assert ssh.OTHER_KEYS.search(done.stderr.decode())


@also_as_root
def test_other_user_is_refused(ssh_pods: SshPods) -> None:
    """The key is the right one. Another sshd than root's cannot become that user."""
    done = ssh_pods.master.ssh("-l", "other", WORKER, "echo logged in")
    assert (done.returncode, done.stdout) == (255, b"")
    if ssh_pods.worker.user.name == "root":
        assert b"Permission denied (publickey)" in done.stderr


def test_no_other_method_than_a_key_is_offered(ssh_pods: SshPods) -> None:
    others = "PreferredAuthentications=password,keyboard-interactive,hostbased"
    done = ssh_pods.master.plain_ssh("-o", others, WORKER, "echo logged in")
    assert (done.returncode, done.stdout) == (255, b"")
    assert b"Permission denied (publickey)." in done.stderr, "the methods that the server offers"


@pytest.mark.parametrize(
    "forward", [["-W", "127.0.0.1:22"], ["-R", "0:127.0.0.1:22"]], ids=["to a port", "from a port"]
)
def test_forwarding_is_refused(ssh_pods: SshPods, forward: list[str]) -> None:
    options = ["-o", "ExitOnForwardFailure=yes", *forward, WORKER]
    done = ssh_pods.master.plain_ssh(*options, *([] if "-W" in forward else ["echo logged in"]))
    assert (done.returncode, done.stdout) == (255, b"")
    assert b"forwarding failed" in done.stderr


def test_sftp_is_refused(ssh_pods: SshPods) -> None:
    done = ssh_pods.master.plain_ssh("-s", WORKER, "sftp")
    assert done.returncode != 0
    assert b"subsystem request failed" in done.stderr


def test_sshd_runs_with_every_restriction(ssh_pods: SshPods) -> None:
    """Two settings forbid most things, so no login shows that one of them is missing."""
    config = str(ssh_pods.worker.generated / "sshd_config")
    brought = ssh_pods.worker.user.openssh
    sshd = str(brought / "sshd") if brought else ssh.find_program("sshd")
    printed = ssh_pods.worker.run(sshd, "-T", "-f", config).stdout.decode()
    settings = dict(line.split(" ", 1) for line in printed.splitlines())
    is_root = ssh_pods.worker.user.name == "root"
    assert settings.get("allowusers") == ("root" if is_root else None)
    assert {name: settings[name] for name in RESTRICTIONS} == RESTRICTIONS
    accepted = {line for line in printed.splitlines() if line.startswith("acceptenv ")}
    names = ("HVD_EPOCH", "HVD_ATTEMPT", "HVD_NOTICES", "HVD_MEETING", "HVD_RUN_ID")
    assert accepted == {f"acceptenv {name}" for name in names}
    assert "subsystem" not in settings


def test_authorized_key_is_the_masters_with_every_restriction(ssh_pods: SshPods) -> None:
    private = str(ssh_pods.master.generated / "user-key")
    public = ssh_pods.master.run("ssh-keygen", "-y", "-f", private).stdout.decode().strip()
    authorized = (ssh_pods.worker.generated / "authorized_keys").read_text()
    assert authorized == f"restrict,pty {public}\n"
