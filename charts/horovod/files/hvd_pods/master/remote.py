"""Programs of the chart that the master runs in workers, over the SSH that launchers use."""

from __future__ import annotations

import shlex
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Sequence

from hvd_pods.common.errors import BAD_CONFIGURATION
from hvd_pods.common.hostile import one_line, parse_count
from hvd_pods.common.paths import GENERATED, PROGRAMS
from hvd_pods.common.reporting import log
from hvd_pods.common.run import Host
from hvd_pods.common.ssh import KEYS_DIFFER, OTHER_KEYS

# Clients at a time: each is a process of the master's container.
CLIENTS = 32
# Ranks of one host.
MOST_RANKS = 10_000
# Seconds in which a worker has to ask its ranks to end.
ASK_WITHIN = 10.0
# Seconds between two looks at whether the master was asked to end.
LOOK_EVERY = 0.5


def command_line(host: Host, program: str, *arguments: str) -> list[str]:
    """The command that runs a program of the package, such as worker/draining.py, on a host."""
    line = shlex.join(["python3", "-I", "-S", str(PROGRAMS / program), *arguments])
    return [str(GENERATED / "bin" / "ssh"), host.address, line]


def call(
    hosts: Sequence[Host],
    program: Sequence[str],
    content: bytes = b"",
    *,
    seconds: float,
    is_stopped: Callable[[], bool] = lambda: False,
) -> dict[Host, tuple[int, str]]:
    """Run a program of the package on hosts; the exit code and the output of each.

    `content` is its standard input. A host that needs longer than `seconds` counts as failed, and
    so does one that has not answered when the master is asked to end.
    """

    def run(host: Host) -> tuple[int, str]:
        line, pipe = command_line(host, *program), subprocess.PIPE
        try:
            with subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=pipe) as process:
                return _follow(process, content, seconds, is_stopped)
        except OSError as problem:
            return 1, str(problem)

    with ThreadPoolExecutor(CLIENTS) as pool:
        return dict(zip(hosts, pool.map(run, hosts)))


def _follow(
    process: subprocess.Popen[bytes],
    content: bytes,
    seconds: float,
    is_stopped: Callable[[], bool],
) -> tuple[int, str]:
    """Wait for the end of a client; its exit code and its output."""
    until, given = time.monotonic() + seconds, content or None
    while True:
        try:
            output, errors = process.communicate(given, timeout=min(LOOK_EVERY, seconds))
            break
        except subprocess.TimeoutExpired:
            given = None
            if is_stopped() or time.monotonic() > until:
                process.kill()
                return 1, "asked to end" if is_stopped() else f"no answer within {seconds:.0f} s"
    text = (errors + output).decode(errors="replace").strip()
    if process.returncode and OTHER_KEYS.search(text):
        return BAD_CONFIGURATION, KEYS_DIFFER
    return process.returncode, text or f"exit code {process.returncode}"


def ask_ranks(hosts: Sequence[Host]) -> int:
    """Ask all ranks on these hosts to end; return how many were asked. Failures are logged."""
    asked = 0
    for host, (code, output) in call(hosts, ["worker/draining.py"], seconds=ASK_WITHIN).items():
        number = parse_count(output.rpartition("\n")[2], MOST_RANKS)
        if code or number is None:
            log(f"cannot ask the ranks on {host.name} to end: {one_line(output)}")
        asked += 0 if code else number or 0
    return asked
