"""What a master can do on a worker over SSH: a real sshd, started as a worker starts it."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from subprocess import PIPE

import pytest

from hvd_pods.master import probing
from hvd_pods.worker.sshd import leave_out_unknown
from tests.unit.hvd_pods.worker.ssh.pods import CONTAINER, REVISION, WORKER, SshPods, also_as_root
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def test_log_names_clients_that_send_something_wrong_but_none_that_leave(ssh_pods: SshPods) -> None:
    """As the kubelet's startup probe and the master do; sshd closes when it has logged."""
    for sent in (b"", b"GET / HTTP/1.0\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", ssh_pods.port), 20) as client:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            # sshd resets the connection when it has not read all that was sent.
            with suppress(ConnectionResetError):
                while client.recv(1024):
                    pass
    wait_until(lambda: "invalid protocol identifier" in ssh_pods.worker.log, 20, "sshd logs it")
    assert "closed by remote host" not in ssh_pods.worker.log
    assert "reset by peer" not in ssh_pods.worker.log


@also_as_root
def test_session_has_the_containers_environment(ssh_pods: SshPods) -> None:
    """Whatever the client and the home directory do to change it."""
    home = ssh_pods.worker.user.home
    agent = ssh_pods.master.root / "agent"
    if home is not None:
        (home / ".ssh" / "environment").write_text("FROM_HOME=1\n")
        (home / ".ssh" / "rc").write_text(f"echo >{ssh_pods.worker.generated}/rc-was-run\n")
    with ssh_pods.master.start("ssh-agent", "-D", "-a", str(agent), stdout=PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            # The image's own, since the one of launchers refuses these options.
            done = ssh_pods.master.run(
                "ssh",
                "-F",
                str(ssh_pods.master.generated / "ssh_config"),
                "-A",
                "-Y",
                "-o",
                "SendEnv=FROM_CLIENT LANG",
                "-o",
                "SetEnv=FROM_OPTION=1",
                WORKER,
                "env -0",
                FROM_CLIENT="1",
                LANG="xx",
                DISPLAY=":0",
                SSH_AUTH_SOCK=str(agent),
            )
        finally:
            process.terminate()
    assert done.returncode == 0, done.stderr
    entries = (entry.partition(b"=") for entry in done.stdout.split(b"\0") if entry)
    found = {os.fsdecode(name): os.fsdecode(value) for name, _, value in entries}
    expected = {**CONTAINER, "HVD_SSH_PORT": str(ssh_pods.port), "HVD_REVISION": REVISION}
    # Where the packages of the user's code will be (common/packages.py).
    packages = ssh_pods.worker.root / "code" / ".packages" / "current"
    expected |= {"PATH": f"{CONTAINER['PATH']}:{packages}/bin", "PYTHONPATH": f"{packages}/site"}
    assert {name: found.get(name) for name in expected} == expected
    # Besides, only what sshd, the shell and (LC_CTYPE) Python set, and the epoch: nothing of the
    # client's variables and options, of its agent and display, and of files in the home directory.
    assert found.keys() - expected.keys() <= {
        "HVD_EPOCH",
        "HVD_METRICS_DIR",
        "LC_CTYPE",
        "LOGNAME",
        "MAIL",
        "OLDPWD",
        "PWD",
        "SHELL",
        "SHLVL",
        "USER",
        "_",
        "SSH_CLIENT",
        "SSH_CONNECTION",
        # Where this machine has no mpirun.
        "LD_LIBRARY_PATH",
    }
    assert not (ssh_pods.worker.generated / "rc-was-run").exists()


def test_login_without_a_command_is_a_shell(ssh_pods: SshPods) -> None:
    assert ssh_pods.master.ssh(WORKER, input=b"echo $HVD_REVISION; exit 5\n").returncode == 5


def say_hello(port: int, source: str = "127.0.0.1") -> tuple[socket.socket, str]:
    """Connect from an address of this machine, and read the first line of sshd."""
    connection = socket.create_connection(("127.0.0.1", port), 20, (source, 0))
    return connection, connection.makefile("rb").readline().decode().strip()


def test_connections_that_do_not_log_in_are_few_and_keep_no_one_else_out(ssh_pods: SshPods) -> None:
    """They filled the memory of the worker, until its ranks were killed.

    OpenSSH's own default drops some beyond 10, which launchers of many ranks need.
    """
    with ExitStack() as stack:
        lines = []
        for _ in range(30):
            connection, line = say_hello(ssh_pods.port, "127.0.9.1")
            stack.enter_context(connection)
            lines.append(line)
        # 16, and one for each rank.
        assert [line.endswith(REVISION) for line in lines] == [True] * 17 + [False] * 13
        assert {*lines[17:]} <= {*probing.BUSY}
        assert ssh_pods.master.ssh(WORKER, "true").returncode == 0


def test_all_workers_of_a_large_run_may_connect_at_once(ssh_pods: SshPods) -> None:
    with ExitStack() as stack:
        for number in range(100):
            connection, line = say_hello(ssh_pods.port, f"127.0.8.{number + 1}")
            stack.enter_context(connection)
            assert line.endswith(REVISION), number


def test_worker_reaches_another_worker_by_its_address(ssh_pods: SshPods) -> None:
    """In a run of many hosts, the daemons on some workers start those on others."""
    done = ssh_pods.worker.ssh("127.0.0.1", "echo reached by $SSH_CONNECTION")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"reached by 127.0.2.")


def test_sshd_that_knows_fewer_options_starts(tmp_path: Path) -> None:
    """It is of the image: OpenSSH 8.4 knows no limit for an address, 9.7 no penalties."""
    old = tmp_path / "sshd"
    old.write_text(
        'while read -r key _; do case "$key" in PerSource*|Never) '
        'echo "config: line 1: Bad configuration option: $key" >&2;; esac; done\n'
    )
    config = "Port 1\nPerSourceMaxStartups 17\nNever 1\nPerSourcePenalties no\nPidFile none\n"
    command = ["sh", "-c", f'printf %s "$0" | sh {old}', config]
    assert leave_out_unknown(config, command) == "Port 1\nNever 1\nPidFile none\n"
