"""Runs programs of the chart in workers, through their agents."""

from __future__ import annotations

import json
import select
import selectors
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Mapping, NamedTuple, Sequence

from hvd_pods.master.agent_connection import (
    AgentAddresses,
    AgentConnection,
    AgentConnectionError,
    make_request,
)
from hvd_pods.master.gateway_client import REMOTE_NOT_STARTED
from hvd_pods.pod.reporting import log
from hvd_pods.protocol import frames
from hvd_pods.protocol.keys import Keys
from hvd_pods.rank.warm_client import WARM_TIMEOUT_SECONDS
from hvd_pods.shared.binding import Binding
from hvd_pods.shared.errors import RunError
from hvd_pods.shared.exit_codes import BAD_CONFIGURATION
from hvd_pods.shared.paths import PROGRAMS
from hvd_pods.shared.run import Worker
from hvd_pods.shared.untrusted import one_line, parse_count

# Agent connections at a time: each blocks a thread.
CONNECTIONS = 512
# Ranks of one worker.
MAX_WORKER_RANKS = 10_000
# Timeouts in seconds: for a worker to ask its ranks to end or to report which have ended, and to
# report whether its ranks may stay.
RANKS_ASK_TIMEOUT_SECONDS = 10.0
RANKS_CHECK_TIMEOUT_SECONDS = 4.0
# Timeout in seconds for a worker to save the states of an earlier run: they may have many GiB.
STATES_SAVE_TIMEOUT_SECONDS = 600.0
RANKS_QUERY = ("worker/graceful_termination.py", "look")
# Timeout in seconds for the warm process of a new worker, and some seconds for the response.
WARM_ANSWER_TIMEOUT_SECONDS = WARM_TIMEOUT_SECONDS + 10.0
# Timeout in seconds for a worker to show stacks.
STACKS_SHOW_TIMEOUT_SECONDS = 15.0
# Bytes of a program's output: training code can change what programs in its worker print.
MAX_ANSWER_BYTES = 1 << 20
# Seconds between two checks whether the master was asked to end.
STOP_POLL_INTERVAL_SECONDS = 0.5


class AgentAccess(NamedTuple):
    """How the master reaches the workers: its keys, and the workers' addresses.

    variables: the run, the attempt and the fence number for requests, and the address at which the
    master accepts notices.
    """

    keys: Keys
    agents: AgentAddresses
    variables: Mapping[str, str]


def command_line(program: str, *arguments: str) -> list[str]:
    """Return the arguments that run a program of the package, such as shared/binding.py."""
    return ["python3", "-I", "-S", f"{PROGRAMS}/{program}", *arguments]


def begin(access: AgentAccess, worker: Worker, argv: Sequence[str]) -> AgentConnection:
    """Open an agent connection to a worker. Raises AgentConnectionError and RunError."""
    address = access.agents.address(worker.name)
    request = make_request(argv, access.variables)
    return AgentConnection(address, access.agents.port, access.keys, request)


def call(
    access: AgentAccess,
    workers: Sequence[Worker],
    program: Sequence[str],
    content: bytes = b"",
    *,
    seconds: float,
    is_stopped: Callable[[], bool] = lambda: False,
) -> dict[Worker, tuple[int, str]]:
    """Run a program of the package on workers; return the exit code and the output of each.

    `content` is its standard input. A worker that needs longer than `seconds` counts as failed, and
    so does one that has not answered when the master is asked to end.
    """

    def run(worker: Worker) -> tuple[int, str]:
        try:
            connection = begin(access, worker, command_line(*program))
        except AgentConnectionError as problem:
            return _code_of(problem), str(problem)
        except RunError as problem:
            return problem.exit_code, str(problem)
        try:
            connection.send(frames.INPUT, content)
            if content:
                connection.send(frames.INPUT)
            return _follow(connection, seconds, is_stopped)
        except AgentConnectionError as problem:
            return _code_of(problem), str(problem)
        finally:
            connection.close()

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return dict(zip(workers, pool.map(run, workers)))


def _code_of(problem: AgentConnectionError) -> int:
    return BAD_CONFIGURATION if problem.is_sure else REMOTE_NOT_STARTED


def wait_for(connection: AgentConnection, until: float, also: int | None = None) -> None:
    """Wait until an agent connection is ready, at most until a time of time.monotonic().

    The wait also ends when the descriptor `also` is readable.
    """
    poll = select.poll()
    is_sending = connection.events & selectors.EVENT_WRITE
    poll.register(connection.fileno(), select.POLLIN | (select.POLLOUT if is_sending else 0))
    if also is not None:
        poll.register(also, select.POLLIN)
    at = min(until, connection.due)
    poll.poll(None if at == float("inf") else 1000 * max(0.0, at - time.monotonic()))


def _follow(
    connection: AgentConnection, seconds: float, is_stopped: Callable[[], bool]
) -> tuple[int, str]:
    """Wait for a program's end; return its exit code and output. Raises AgentConnectionError."""
    until = time.monotonic() + seconds
    output = b""
    while connection.exit_code is None:
        wait_for(connection, min(until, time.monotonic() + STOP_POLL_INTERVAL_SECONDS))
        for kind, part in connection.step():
            output += b"" if kind == frames.EXIT else part
        reason = f"no answer within {seconds:.0f} s" if time.monotonic() > until else ""
        reason = "asked to end" if is_stopped() else reason
        if connection.exit_code is None and (reason or len(output) > MAX_ANSWER_BYTES):
            return 1, reason or "it prints too much"
    text = output.decode(errors="replace").strip()
    return connection.exit_code, text or f"exit code {connection.exit_code}"


def _printed_numbers(answers: Mapping[Worker, tuple[int, str]]) -> dict[Worker, list[str]]:
    """Return the numbers that graceful_termination.py printed on each worker; none if it failed."""
    # The worker's Python may print warnings before them.
    lines = {
        worker: [] if code else text.splitlines()[-1:] for worker, (code, text) in answers.items()
    }
    return {worker: line[0].split() if line else [] for worker, line in lines.items()}


def are_states_kept(
    access: AgentAccess, workers: Sequence[Worker], seconds: float = RANKS_CHECK_TIMEOUT_SECONDS
) -> bool:
    """Return whether all ranks on these workers run, and their state fits any number of ranks."""
    program = ("worker/graceful_termination.py", "kept")
    printed = _printed_numbers(call(access, workers, program, seconds=seconds))
    return all(printed[worker] == [str(worker.slots)] for worker in workers)


def wait_until_warm(
    access: AgentAccess, workers: Sequence[Worker], is_stopped: Callable[[], bool]
) -> list[Worker]:
    """Return the workers whose ranks could begin without an import; log failures."""
    program = ["worker/wait_for_warm.py"]
    answers = call(
        access, workers, program, seconds=WARM_ANSWER_TIMEOUT_SECONDS, is_stopped=is_stopped
    )
    for worker, (code, output) in answers.items():
        if code and not is_stopped():
            log(f"{worker.name} is not ready for ranks: {one_line(output)}")
    return [worker for worker, (code, _) in answers.items() if not code]


def may_continue(
    access: AgentAccess, workers: Sequence[Worker], seconds: float = RANKS_CHECK_TIMEOUT_SECONDS
) -> bool:
    """Return whether all ranks on these workers run, and lose nothing if they are killed later."""
    printed = _printed_numbers(call(access, workers, RANKS_QUERY, seconds=seconds))
    return all(printed[worker][:1] == [str(worker.slots)] for worker in workers)


def count_finished(
    access: AgentAccess, workers: Sequence[Worker], fence: int, is_stopped: Callable[[], bool]
) -> int:
    """Count the ranks of the launch `fence` that ended with 0, on workers where all have."""
    printed = _printed_numbers(
        call(access, workers, RANKS_QUERY, seconds=RANKS_ASK_TIMEOUT_SECONDS, is_stopped=is_stopped)
    ).values()
    launch_numbers = (
        numbers for numbers in printed if len(numbers) == 3 and numbers[1] == str(fence)
    )
    return sum(parse_count(numbers[2], MAX_WORKER_RANKS) or 0 for numbers in launch_numbers)


def find_binding_problem(access: AgentAccess, workers: Sequence[Worker], binding: Binding) -> str:
    """Return a worker's name and why it cannot bind its ranks; empty if no worker reports it."""
    program = ["shared/binding.py", *map(str, binding)]
    for worker, (code, output) in call(
        access, workers, program, seconds=RANKS_CHECK_TIMEOUT_SECONDS
    ).items():
        if code == BAD_CONFIGURATION:
            return f"{worker.name}: {one_line(output.splitlines()[-1])}"
    return ""


def save_kept(
    access: AgentAccess, workers: Sequence[Worker], is_stopped: Callable[[], bool]
) -> None:
    """Make workers write the states of an earlier run to its checkpoints; log their output."""
    program = ["worker/save_states.py"]
    answers = call(
        access, workers, program, seconds=STATES_SAVE_TIMEOUT_SECONDS, is_stopped=is_stopped
    )
    for worker, (code, output) in answers.items():
        printed = [line for line in output.splitlines() if line.startswith("[hvd ")]
        for line in printed if printed or not code else [output]:
            log(f"{worker.name}: {one_line(line)}")


def show_stacks(access: AgentAccess, worker: Worker, ranks: Sequence[int]) -> list[tuple[int, str]]:
    """Log the activity and the Python stacks of a worker's ranks.

    Return the place of each script that shows one: rank, FILE:LINE in FUNCTION.
    """
    places = []
    program = ["worker/stacks.py", "--json", *map(str, ranks)]
    _, output = call(access, [worker], program, seconds=STACKS_SHOW_TIMEOUT_SECONDS)[worker]
    for line in output.splitlines():
        try:
            answer = json.loads(line)
            rank = ranks[ranks.index(answer["rank"])]
            text = f"rank {rank} {answer['shown']}"
            place = one_line(str(answer["place"]))
        except (ValueError, TypeError, LookupError, RecursionError):
            # A warning of the worker's Python, or the reason why it did not respond.
            text = line
            place = ""
        for shown in text.splitlines():
            log(f"{worker.name}: {shown}")
        places += [(rank, place)] if place else []
    return places


def ask_ranks_to_end(access: AgentAccess, workers: Sequence[Worker]) -> int:
    """Ask all ranks on these workers to end; return how many were asked. Failures are logged."""
    rank_count = 0
    for worker, (code, output) in call(
        access, workers, ["worker/graceful_termination.py"], seconds=RANKS_ASK_TIMEOUT_SECONDS
    ).items():
        # The worker's Python may print warnings before and after it.
        counts = (parse_count(line, MAX_WORKER_RANKS) for line in reversed(output.splitlines()))
        number = next((count for count in counts if count is not None), None)
        if code or number is None:
            log(f"cannot ask the ranks on {worker.name} to end: {one_line(output)}")
        rank_count += 0 if code else number or 0
    return rank_count
