"""Programs of the chart that the master runs in workers, over the SSH that launchers use."""

from __future__ import annotations

import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Sequence

from settings import FILES, GENERATED, Host, log

# Clients at a time: each is a process of the master's container.
CLIENTS = 32
# Seconds in which a worker has to ask its ranks to end.
ASK_WITHIN = 10.0


def command_line(host: Host, program: str, *arguments: str) -> list[str]:
    """The command that runs a program of this folder on a host."""
    line = shlex.join(["python3", "-I", "-S", str(FILES / program), *arguments])
    return [str(GENERATED / "bin" / "ssh"), host.address, line]


def call(
    hosts: Sequence[Host], program: Sequence[str], content: bytes = b"", *, seconds: float
) -> dict[Host, tuple[int, str]]:
    """Run a program of this folder on hosts; the exit code of each, and what it printed.

    `content` is its standard input. A host that needs longer than `seconds` counts as failed.
    """

    def run(host: Host) -> tuple[int, str]:
        try:
            done = subprocess.run(
                command_line(host, *program),
                input=content,
                capture_output=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 1, f"no answer within {seconds:.0f} s"
        except OSError as problem:
            return 1, str(problem)
        output = (done.stderr + done.stdout).decode(errors="replace").strip()
        return done.returncode, output or f"exit code {done.returncode}"

    with ThreadPoolExecutor(CLIENTS) as pool:
        return dict(zip(hosts, pool.map(run, hosts)))


def ask_ranks(hosts: Sequence[Host]) -> int:
    """Ask all ranks on these hosts to end; how many were asked. What fails is logged."""
    asked = 0
    for host, (code, output) in call(hosts, ["leaving.py"], seconds=ASK_WITHIN).items():
        if code or not output.isdigit():
            log(f"cannot ask the ranks on {host.name} to end: {output}")
        else:
            asked += int(output)
    return asked
