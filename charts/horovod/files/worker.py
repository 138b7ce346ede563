"""A worker's main program: prepares SSH, then becomes the sshd through which ranks are started."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Mapping

sys.path.insert(0, str(Path(__file__).resolve().parent))
import ssh
import threads
import warm_client
from settings import FILES, RunError, log, report_failure

# Room for the command line of a rank, which replaces that of the warm process in its forks.
TITLE = " " * 2000


def preloaded(environment: Mapping[str, str]) -> list[str]:
    """The modules that ranks find imported: launch.preload, or what the image names."""
    return environment.get("HVD_PRELOAD", "").replace(",", " ").split()


def start_warm_process(python: str, environment: Mapping[str, str]) -> None:
    """Start to import in a process of its own, beside sshd; ranks connect to its socket."""
    for left in (warm_client.SOCKET, warm_client.DESCRIPTION):
        left.unlink(missing_ok=True)
    modules = preloaded(environment)
    if not modules:
        return
    # As files/rank.py sets them: libraries read them when they are imported.
    cpus = os.sched_getaffinity(0)
    slots = int(environment.get("HVD_SLOTS", "1"))
    environment = {**environment, **threads.choose_threads(environment, slots, cpus, cpus)}
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    listener.bind(str(warm_client.SOCKET))
    os.umask(before)
    listener.listen(socket.SOMAXCONN)
    number = listener.detach()
    # Not isolated, and without options: as a rank's Python starts.
    subprocess.Popen(
        [python, str(FILES / "warm_server.py"), str(number), *modules, TITLE],
        env=environment,
        stdin=subprocess.DEVNULL,
        pass_fds=[number],
        start_new_session=True,
    )
    os.close(number)
    described = {"python": python, "modules": modules, "environment": environment}
    # Values may be secrets.
    ssh.write_private_file(warm_client.DESCRIPTION, json.dumps(described).encode())


def start_metrics(environment: Mapping[str, str]) -> None:
    """Make the directory for the ranks' metrics, and serve them if the chart enables that.

    The server is a process of its own. The end of sshd, which this process becomes, is the end of
    the container and of that process.
    """
    folder = Path(environment["HVD_METRICS_DIR"])
    folder.mkdir(exist_ok=True)
    # A container that is restarted finds the files of ranks that have ended.
    for left in folder.iterdir():
        left.unlink()
    if "HVD_METRICS_PORT" in environment:
        command = [sys.executable, "-I", "-S", str(FILES / "metrics.py")]
        subprocess.Popen(command, env=dict(environment), stdin=subprocess.DEVNULL)


def main() -> int:
    """Replace this process by sshd, or return an exit code when that is not possible."""
    try:
        start_warm_process(sys.executable, os.environ)
        command = ssh.prepare_worker(
            int(os.environ["HVD_SSH_PORT"]), os.environ["HVD_REVISION"], sys.executable
        )
        ssh.write_environment(os.environ)
        start_metrics(os.environ)
    except RunError as error:
        return report_failure(error)
    log(f"ready for ranks: sshd on port {os.environ['HVD_SSH_PORT']}")
    os.execv(command[0], command)


if __name__ == "__main__":
    sys.exit(main())
