"""A worker's main program: runs the sshd through which ranks are started, and looks after them.

It stays the container's first process, because sshd as such would end at once when the pod is asked
to end, and the ranks with it.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO, Mapping

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.common import fast_start, fence, metrics, notices, packages, ssh, threads
from hvd_pods.common.errors import RunError
from hvd_pods.common.metrics import Sample, format_page, script_samples
from hvd_pods.common.paths import CODE, PROGRAMS
from hvd_pods.common.reporting import log, report_failure
from hvd_pods.rank import warm_client
from hvd_pods.worker import draining, rank_watch, sshd

# What sshd prints when a client connects and leaves, as the kubelet's startup probe and the master
# do at the start and the end of each run. No LogLevel hides this message alone.
LEFT = re.compile(
    rb"kex_exchange_identification: "
    rb"(Connection closed by remote host|read: Connection reset by peer)"
)
# Seconds to wait for the last messages of an sshd that has ended; its sessions may go on.
DRAIN_WITHIN = 2.0
# Names of ranks' metrics files (unfinished ones begin with a dot), and how many files are served.
RANK_FILE = re.compile(r"[a-zA-Z0-9][-a-zA-Z0-9_.]*")
MOST_FILES = 256


def start_warm_process(python: str, environment: Mapping[str, str]) -> None:
    """Start a process that imports the modules while sshd starts; ranks connect to its socket."""
    for left in (warm_client.SOCKET, warm_client.DESCRIPTION):
        Path(left).unlink(missing_ok=True)
    # launch.preload, or what the image names.
    modules = environment.get("HVD_PRELOAD", "").replace(",", " ").split()
    if not modules:
        return
    if sys.version_info < (3, 9):
        log("ranks start cold: forks need Python 3.9 or newer (launch.preload)")
        return
    # As rank/start.py sets them: libraries read them when they are imported.
    cpus = os.sched_getaffinity(0)
    slots = int(environment.get("HVD_SLOTS", "1"))
    environment = {**environment, **threads.choose_threads(environment, slots, cpus, cpus)}
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    listener.bind(warm_client.SOCKET)
    os.umask(before)
    listener.listen(socket.SOMAXCONN)
    number = listener.detach()
    # Not isolated, and without options: as a rank's Python starts.
    subprocess.Popen(
        [python, str(PROGRAMS / "warm" / "server.py"), str(number), *modules],
        env=environment,
        stdin=subprocess.DEVNULL,
        pass_fds=[number],
        start_new_session=True,
    )
    os.close(number)
    described = {"python": python, "modules": modules, "environment": environment}
    # Values may be secrets.
    ssh.write_private_file(Path(warm_client.DESCRIPTION), json.dumps(described).encode())


def start_metrics(environment: Mapping[str, str]) -> None:
    """Make the directory for the ranks' metrics, and serve them if the chart enables that."""
    folder = Path(environment["HVD_METRICS_DIR"])
    # A container that is restarted finds what ranks have left.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(exist_ok=True)
    slots = environment.get("HVD_SLOTS", "1")
    metrics.start(lambda: make_page(slots, folder))


def make_page(slots: str, folder: Path) -> str:
    """All metrics of a worker as text; its ranks write theirs to `folder`."""
    samples = [Sample("horovod_slots", slots)]
    files = sorted(file for file in folder.iterdir() if RANK_FILE.fullmatch(file.name))
    for file in files[:MOST_FILES]:
        samples += script_samples(file, f'rank="{file.name}"')
    return format_page(samples)


class Signals:
    """Signal state and wake-up pipe: for requests to end, and for processes that have ended."""

    def __init__(self) -> None:
        self.asked_to_end = False
        self._reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writer)
        # Without handlers, the first process of a container gets no signals.
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.asked_to_end = True

    def wait(self, seconds: float) -> None:
        """Wait for the next signal, at most this many seconds."""
        if select.select([self._reader], [], [], seconds)[0]:
            os.read(self._reader, 4096)


def pass_on(errors: IO[bytes]) -> None:
    """Write sshd's messages to this pod's log, except messages about clients that have left."""
    for line in errors:
        if not LEFT.fullmatch(line.rstrip()):
            os.write(2, line)


def serve(command: list[str], signals: Signals) -> int:
    """Run sshd until this pod is asked to end; its exit code when it ends before."""
    server = subprocess.Popen(command, stderr=subprocess.PIPE)
    assert server.stderr  # noqa: S101
    messages = threading.Thread(target=pass_on, args=[server.stderr], daemon=True)
    messages.start()
    watch = rank_watch.RankWatch(os.environ)

    def wait(seconds: float) -> None:
        signals.wait(seconds)
        # Also orphans, which the container's first process inherits.
        for pid, status in fast_start.ended_children():
            if pid == server.pid:
                is_exit = os.WIFEXITED(status)
                server.returncode = os.WEXITSTATUS(status) if is_exit else 128 + os.WTERMSIG(status)

    while server.returncode is None:
        if signals.asked_to_end:
            grace = float(os.environ.get("HVD_GRACE", "0"))
            draining.leave(server, grace, lambda: wait(draining.LOOK_EVERY))
            return 0
        wait(notices.LOOK_EVERY)
        watch.look()
    messages.join(DRAIN_WITHIN)
    log(f"sshd has ended with exit code {server.returncode}")
    return int(server.returncode)


def main() -> int:
    """Serve ranks until the end of the pod, or return an exit code when that is not possible."""
    with suppress(ImportError, OSError):
        # Orphans come to this process where it is not the first one either (common/fence.py).
        fast_start.set_process_option(fast_start.PR_SET_CHILD_SUBREAPER, 1)
    # In place of what the container has noted before it was started again.
    fence.note_worker(os.getpid())
    signals = Signals()
    slots, hosts = (int(os.environ.get(name, "1")) for name in ("HVD_SLOTS", "HVD_HOSTS"))
    if CODE.is_dir():
        # The packages are installed later: sessions and forks find them at this path then.
        os.environ.update(packages.add_to(os.environ))
    try:
        start_warm_process(sys.executable, os.environ)
        command = sshd.prepare(
            int(os.environ["HVD_SSH_PORT"]),
            os.environ["HVD_REVISION"],
            sys.executable,
            slots,
            hosts,
        )
        sshd.write_environment(os.environ)
        start_metrics(os.environ)
    except RunError as error:
        return report_failure(error)
    log(f"ready for ranks: sshd on port {os.environ['HVD_SSH_PORT']}")
    return serve(command, signals)


if __name__ == "__main__":
    sys.exit(main())
