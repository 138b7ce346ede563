"""Programs of the chart that the master runs in workers, over the SSH that launchers use."""

from __future__ import annotations

import os
import select
import shlex
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Mapping, Sequence

from hvd_pods.common.errors import BAD_CONFIGURATION
from hvd_pods.common.hostile import one_line, parse_count
from hvd_pods.common.paths import GENERATED, PROGRAMS
from hvd_pods.common.reporting import log
from hvd_pods.common.run import Host
from hvd_pods.common.ssh import KEYS_DIFFER, tells_other_keys

# The exit code of ssh itself.
SSH_FAILED = 255
# Clients at a time: each is a process of the master's container.
CLIENTS = 32
# Ranks of one host.
MOST_RANKS = 10_000
# Seconds in which a worker has to ask its ranks to end or to tell which have ended, and in which it
# has to tell whether its ranks may stay.
ASK_WITHIN = 10.0
LOOK_WITHIN = 4.0
LOOK = ("worker/draining.py", "look")
# Bytes of a program's output: training code can change what programs in its worker print.
LONGEST_OUTPUT = 1 << 20
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
        line = command_line(host, *program)
        pipe = subprocess.PIPE
        one = subprocess.STDOUT
        try:
            with tempfile.TemporaryFile() as given:
                given.write(content)
                given.seek(0)
                with subprocess.Popen(line, stdin=given, stdout=pipe, stderr=one) as process:
                    return _follow(process, seconds, is_stopped)
        except OSError as problem:
            return 1, str(problem)

    with ThreadPoolExecutor(CLIENTS) as pool:
        return dict(zip(hosts, pool.map(run, hosts)))


def _follow(
    process: subprocess.Popen[bytes], seconds: float, is_stopped: Callable[[], bool]
) -> tuple[int, str]:
    """Wait for the end of a client; its exit code and its output."""
    assert process.stdout  # noqa: S101
    until = time.monotonic() + seconds
    output = b""
    stream = process.stdout.fileno()
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    while True:
        is_ready = poll.poll(1000 * min(LOOK_EVERY, seconds))
        part = os.read(stream, 1 << 16) if is_ready else b""
        output += part
        if is_ready and not part:
            break
        why = f"no answer within {seconds:.0f} s" if time.monotonic() > until else ""
        why = "asked to end" if is_stopped() else why
        if why or len(output) > LONGEST_OUTPUT:
            process.kill()
            return 1, why or "it prints too much"
    code = process.wait()
    text = output.decode(errors="replace").strip()
    if code == SSH_FAILED and tells_other_keys(text):
        return BAD_CONFIGURATION, KEYS_DIFFER
    return code, text or f"exit code {code}"


def _numbers(answers: Mapping[Host, tuple[int, str]]) -> dict[Host, list[str]]:
    """The numbers that worker/draining.py has printed on each host; none where it has failed."""
    # ssh and the worker's Python may print warnings before them.
    lines = {host: [] if code else text.splitlines()[-1:] for host, (code, text) in answers.items()}
    return {host: line[0].split() if line else [] for host, line in lines.items()}


def may_stay(hosts: Sequence[Host]) -> bool:
    """Whether all ranks on these hosts run, and lose nothing when they are killed later."""
    said = _numbers(call(hosts, LOOK, seconds=LOOK_WITHIN))
    return all(said[host][:1] == [str(host.slots)] for host in hosts)


def count_finished(hosts: Sequence[Host], epoch: int, is_stopped: Callable[[], bool]) -> int:
    """How many ranks of the launch of this epoch have ended with 0, on hosts where all have."""
    said = _numbers(call(hosts, LOOK, seconds=ASK_WITHIN, is_stopped=is_stopped)).values()
    own = (numbers for numbers in said if len(numbers) == 3 and numbers[1] == str(epoch))
    return sum(parse_count(numbers[2], MOST_RANKS) or 0 for numbers in own)


def ask_ranks(hosts: Sequence[Host]) -> int:
    """Ask all ranks on these hosts to end; return how many were asked. Failures are logged."""
    asked = 0
    for host, (code, output) in call(hosts, ["worker/draining.py"], seconds=ASK_WITHIN).items():
        # ssh and the worker's Python may print warnings before and after it.
        counts = (parse_count(line, MOST_RANKS) for line in reversed(output.splitlines()))
        number = next((count for count in counts if count is not None), None)
        if code or number is None:
            log(f"cannot ask the ranks on {host.name} to end: {one_line(output)}")
        asked += 0 if code else number or 0
    return asked
