"""A call of a function on ranks: the call server and the ranks are processes of this machine."""

from __future__ import annotations

import linecache
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import cloudpickle
import pytest

from devtools.common.waiting import wait_until
from hvdchart.calls.connection import Connection, RemoteTraceback, pack_call
from hvdchart.calls.in_pod import call_server, rank, wire
from hvdchart.errors import CallError, ClusterError, HvdchartError, RunFailedError, TimeLimitError
from tests.unit.hvdchart.calls.pod import (
    SECRET,
    Pod,
    assert_ended,
    give_back,
    own_rank,
    write_pid_and_wait,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
# These functions travel by value, as those of a notebook do: the ranks do not have this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    fake_pod = Pod(tmp_path_factory.mktemp("pod"))
    process = fake_pod.start()
    yield fake_pod
    process.kill()
    process.wait()


@pytest.fixture
def connection(pod: Pod) -> Iterator[Connection]:
    with closing(pod.connect()) as connected:
        yield connected


def call(
    connection: Connection, function: Callable[..., Any], *args: Any, seconds: float | None = None
) -> tuple[list[Any], str]:
    """The results of a call, and the output of its ranks."""
    output: list[str] = []
    results = connection.call(pack_call(function, args, {}).content, 2, seconds, output.append)
    return results, "".join(output)


def add(offset: int) -> int:
    print(f"I am rank {own_rank()}", file=sys.stderr if own_rank() else sys.stdout)
    return own_rank() + offset


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[tuple[Pod, Pod]]:
    """Pods whose servers take a caller for gone that has said nothing for 5 seconds."""
    pods = []
    processes = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        pods.append(Pod(tmp_path / name))
        processes.append(pods[-1].start(silent=5.0))
    yield pods[0], pods[1]
    for process in processes:
        process.kill()
        process.wait()


def test_results_and_output_of_all_ranks_are_the_callers(connection: Connection) -> None:
    results, output = call(connection, add, 10)
    assert results == [10, 11]
    assert sorted(output.splitlines()) == ["[0] I am rank 0", "[1] I am rank 1"]
    assert call(connection, add, 20)[0] == [20, 21], "another call follows"


def test_log_of_the_pod_has_the_output_and_no_secret(connection: Connection, pod: Pod) -> None:
    call(connection, add, 10)
    wait_until(lambda: "I am rank 1" in pod.log.read_text(), 30, "the log has the output")
    assert SECRET not in pod.log.read_text()


def test_large_results_arrive_complete(connection: Connection) -> None:
    def much(size: int) -> bytes:
        return bytes([own_rank()]) * size

    results, _ = call(connection, much, 3 * wire.FRAME_BYTES)
    assert results == [bytes([number]) * 3 * wire.FRAME_BYTES for number in range(2)]


def test_much_output_arrives_complete(connection: Connection) -> None:
    def much() -> None:
        print("line\n" * 200_000, end="")

    assert call(connection, much)[1].count("\n") == 400_000


def test_output_is_complete_however_slow_the_caller_is() -> None:
    """The launcher has ended before the caller reads."""
    server, caller = socket.socketpair()
    rank, output = socket.socketpair()
    output_call = call_server.Call(1, b"", server, output_silence_seconds=1.0)
    output_call.take(0, 1, output)
    with caller, rank, caller.makefile("rb") as frames, ThreadPoolExecutor() as threads:
        written = threads.submit(rank.sendall, b"line\n" * 200_000)
        ended = threads.submit(output_call.end, 0)
        with pytest.raises(TimeoutError):
            ended.result(timeout=1.5)
        written.add_done_callback(lambda _: rank.shutdown(socket.SHUT_WR))
        received = b""
        for frame in iter(partial(wire.read_frame, frames), None):
            if frame.kind == wire.END:
                break
            received += frame.data
    assert received.count(b"\n") == 200_000


def test_lines_of_ranks_do_not_mix(connection: Connection) -> None:
    """Whatever pieces a launcher passes on: here, ranks write parts of lines in turns."""

    def write_parts() -> None:
        for number in range(300):
            os.write(1, f"<rank {own_rank()}".encode())
            time.sleep(0.001)
            os.write(1, f" line {number}>\n".encode())

    lines = call(connection, write_parts)[1].splitlines()
    assert sorted(lines) == sorted(
        f"[{rank}] <rank {rank} line {number}>" for rank in (0, 1) for number in range(300)
    )


def leave_a_helper(folder: str) -> str:
    helper = subprocess.Popen(["sleep", "300"])
    Path(folder, str(own_rank())).write_text(str(helper.pid))
    return "returned"


def test_helper_that_a_function_leaves_does_not_keep_the_results(
    connection: Connection, tmp_path: Path
) -> None:
    """It holds the rank's output open."""
    try:
        assert call(connection, leave_a_helper, str(tmp_path), seconds=20)[0] == ["returned"] * 2
    finally:
        for file in tmp_path.iterdir():
            os.kill(int(file.read_text()), signal.SIGKILL)


def test_line_of_any_length_arrives(connection: Connection) -> None:
    def print_much() -> None:
        os.write(1, b"x" * 3 * wire.FRAME_BYTES)

    assert call(connection, print_much)[1].count("x") == 6 * wire.FRAME_BYTES


def test_last_words_of_a_rank_that_crashes_arrive(connection: Connection) -> None:
    def crash() -> None:
        os.write(2, b"last words")
        os._exit(3)

    output: list[str] = []
    with pytest.raises(RunFailedError):
        connection.call(pack_call(crash, (), {}).content, 2, None, output.append)
    assert "last words" in "".join(output)


class OwnError(Exception):
    """Of the caller's module."""


class ManyArgumentsError(Exception):
    """Cannot be unpickled: its constructor wants more than its message."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"{text} {number}")


def fail_on_rank_1() -> None:
    if own_rank() == 1:
        raise OwnError("too warm")
    time.sleep(60)


def test_the_first_exception_of_a_rank_is_raised_with_its_traceback(
    connection: Connection,
) -> None:
    """Without hvdchart's own lines."""
    with pytest.raises(OwnError, match="too warm") as caught:
        call(connection, fail_on_rank_1)
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    shown = str(caught.value.__cause__)
    assert f"rank 1 on {socket.gethostname()}" in shown
    assert ", in fail_on_rank_1" in shown
    assert "in fail_on_rank_1\nhvdchart" not in shown


def cell(text: str, name: str) -> Any:
    """A function of a notebook's cell, which no file has; `linecache` knows its text."""
    file = f"/tmp/ipykernel_1/{name}.py"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    known: dict[str, Any] = {"__name__": "a_notebook"}
    code = next(
        constant
        for constant in compile(text, file, "exec").co_consts
        if hasattr(constant, "co_name")
    )
    known[name] = FunctionType(code, known)
    return known[name]


def test_traceback_has_the_lines_of_a_notebooks_cell(connection: Connection) -> None:
    function = cell("def halve(x):\n    half = x / 0  # of the cell\n    return half\n", "halve")
    with pytest.raises(ZeroDivisionError) as caught:
        call(connection, function, 3)
    assert "half = x / 0  # of the cell\n" in str(caught.value.__cause__)


def test_function_of_a_cell_can_read_its_own_source(connection: Connection) -> None:
    """TensorFlow and PyTorch compile functions from it."""
    text = "def look():\n    import inspect\n    return inspect.getsource(look)\n"
    assert call(connection, cell(text, "look"))[0] == [text, text]


def test_code_keeps_its_file_where_cloudpickle_leaves_it_out(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As version 3.1.3 and later ones do."""
    table = cloudpickle.Pickler.dispatch_table
    reduce = table[CodeType]

    def reduce_without_file(code: CodeType) -> Any:
        return reduce(code.replace(co_filename="<dynamic-code>"))

    monkeypatch.setitem(table, CodeType, reduce_without_file)
    text = "def look():\n    import inspect\n    return [inspect.getsource(look) for _ in 'ab']\n"
    assert call(connection, cell(text, "look"))[0] == [[text, text]] * 2


def unloadable() -> None:
    raise ManyArgumentsError(3, "unlike")


def leave() -> None:
    raise SystemExit("enough")


def end_hard() -> None:
    os._exit(3)


def end_in_silence() -> None:
    if own_rank() == 0:
        os._exit(0)
    time.sleep(60)


def return_a_lock() -> object:
    return threading.Lock()


def return_what_only_ranks_have() -> object:
    class Only:
        def __reduce__(self) -> Any:
            return exec, ("raise OSError('not here')",)

    return Only()


@pytest.mark.parametrize(
    ("function", "error", "says"),
    [
        (unloadable, RunFailedError, "ManyArgumentsError: unlike 3"),
        (leave, RunFailedError, "SystemExit: enough"),
        (end_hard, RunFailedError, "rank [01] "),
        (end_in_silence, RunFailedError, "rank 0 "),
        (return_a_lock, CallError, "lock"),
        (return_what_only_ranks_have, CallError, "rank 0 .*not here"),
    ],
)
def test_a_rank_that_gives_no_result_fails_this_call_alone(
    connection: Connection, function: Callable[[], object], error: type[HvdchartError], says: str
) -> None:
    with pytest.raises(error, match=f"(?s){says}"):
        call(connection, function)
    assert call(connection, own_rank)[0] == [0, 1]


def test_module_that_the_image_lacks_is_named_with_the_way_out(connection: Connection) -> None:
    class Foreign:
        def __reduce__(self) -> Any:
            return __import__, ("no_such_module",)

    with pytest.raises(CallError, match=r"'no_such_module'.*code="):
        call(connection, give_back, Foreign())


def test_function_that_does_not_return_in_time_is_ended(pod: Pod, tmp_path: Path) -> None:
    with closing(pod.connect()) as connection, pytest.raises(TimeLimitError, match=" 10 s"):
        call(connection, write_pid_and_wait, str(tmp_path), seconds=10)
    assert_ended(tmp_path)


def test_ctrl_c_ends_the_ranks(pod: Pod, tmp_path: Path) -> None:
    def interrupt() -> None:
        wait_until(
            lambda: sum(file.stat().st_size > 0 for file in tmp_path.iterdir()) == 2, 30, "both run"
        )
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with closing(pod.connect()) as connection, pytest.raises(KeyboardInterrupt):
        call(connection, write_pid_and_wait, str(tmp_path))
    assert_ended(tmp_path)
    with closing(pod.connect()) as connection:
        assert call(connection, own_rank)[0] == [0, 1]


# A rank in a container of 3 GiB, in which the kernel then kills once for that.
SHORT_OF_MEMORY = f"""\
import runpy
from hvd_pods.shared import container_memory
killed = iter((4, 5))
container_memory.limit = lambda: 3 << 30
container_memory.count_killed = lambda: next(killed)
runpy.run_path({rank.__file__!r}, run_name="__main__")
"""


def test_a_rank_killed_for_memory_is_reported_with_the_remedy(tmp_path: Path) -> None:
    """A call that returns all the same is no failure."""

    def use_much() -> None:
        if own_rank() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    pod = Pod(tmp_path)
    process = pod.start(start=(sys.executable, "-c", SHORT_OF_MEMORY))
    with closing(pod.connect()) as connection:
        reason = r"rank [01]: .* 3\.0 of 3\.0 GiB.*`memory=.* 6Gi"
        with pytest.raises(RunFailedError, match=reason):
            call(connection, use_much)
        assert call(connection, own_rank)[0] == [0, 1]
    process.kill()
    process.wait()


@pytest.mark.promise("a rank without the secret gets nothing")
def test_a_rank_without_the_secret_gets_nothing(connection: Connection, tmp_path: Path) -> None:
    def knock() -> bytes:
        port, number = sys.argv[1:]
        with socket.create_connection(("127.0.0.1", int(port))) as stranger:
            stranger.sendall(f"{'f' * 16} {number} 0\n".encode())
            return stranger.recv(100)

    assert call(connection, knock)[0] == [b"", b""]


def test_server_ends_when_no_call_comes(tmp_path: Path) -> None:
    pod = Pod(tmp_path)
    process = pod.start(idle=5.0)
    with closing(pod.connect()) as connection:
        assert call(connection, own_rank)[0] == [0, 1]
        assert process.wait(20) == 0
        wait_until(lambda: not connection.is_open, 20, "the connection ends")


def test_server_fails_when_its_caller_misses_a_worker(tmp_path: Path) -> None:
    pod = Pod(tmp_path)
    process = pod.start()
    with closing(pod.connect()) as connection:
        connection.end_server()
        assert process.wait(20) == 1


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        (threading.Lock(), "lock"),
        (bytes(wire.MAX_CALL_BYTES), "64.0 MiB .* 64 MiB"),
    ],
)
def test_call_that_does_not_fit_is_refused_here(argument: object, says: str) -> None:
    with pytest.raises(CallError, match=f"(?s)give_back.*{says}"):
        pack_call(give_back, [argument], {})


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "says"),
    [
        (3, [], {}, "^3 "),
        ("own_rank", [], {}, "^'own_rank' "),
        (own_rank, 2.0, {}, "^args: got 2.0"),
        (own_rank, "ab", {}, "^args: got 'ab'"),
        (own_rank, [], [1], "^kwargs: got"),
        (own_rank, [3], {}, "own_rank .*: too many"),
        (give_back, [], {"values": 3}, "give_back .*: missing"),
    ],
)
def test_what_is_no_call_is_refused(function: Any, args: Any, kwargs: Any, says: str) -> None:
    with pytest.raises(CallError, match=says):
        pack_call(function, args, kwargs)


HELLO = wire.Frame(wire.HELLO, 0, f'{{"python": {list(sys.version_info[:2])}}}'.encode())
PART = wire.Frame(wire.RESULT, 1, bytes(wire.FRAME_BYTES))


@pytest.mark.parametrize(
    ("frames", "error", "says"),
    [
        ([HELLO._replace(data=b'{"python": [3, 99]}')], CallError, r"Python 3\.99"),
        ([], ClusterError, " 0.5 s"),
        ([HELLO], ClusterError, " 0.5 s"),
        # The ranks have ended while a result was on its way.
        (
            [HELLO, PART, wire.Frame(wire.END, 0, b'{"code": 137}')],
            RunFailedError,
            "137, .* rank 0, 1",
        ),
    ],
)
def test_server_that_says_too_little_is_reported(
    tmp_path: Path,
    frames: list[wire.Frame],
    error: type[HvdchartError],
    says: str,
) -> None:
    silence_timeout_seconds = 0.5 if error is ClusterError else 60.0
    command = ["sh", "-c", f"cat {tmp_path}/said; exec sleep 60"]
    (tmp_path / "said").write_bytes(b"".join(frame.encode() for frame in frames))
    with pytest.raises(error, match=says):
        call(
            Connection(
                command, heartbeat_seconds=0.1, silence_timeout_seconds=silence_timeout_seconds
            ),
            own_rank,
        )


def wait_for_file(folder: str, name: str) -> None:
    Path(folder, str(own_rank())).touch()
    while not Path(folder, name).exists():
        time.sleep(0.05)


def test_only_a_caller_that_says_nothing_counts_as_gone(
    impatient: tuple[Pod, Pod], tmp_path: Path
) -> None:
    """A caller that waits long has waited longer than the one for which the ranks were ended."""
    folders = [tmp_path / name for name in ("waiting", "pids")]
    for folder in folders:
        folder.mkdir()
    waits = impatient[0].connect(heartbeat_seconds=0.1, silence_timeout_seconds=60.0)
    quiet = impatient[1].connect(heartbeat_seconds=60.0, silence_timeout_seconds=60.0)
    with closing(waits), closing(quiet), ThreadPoolExecutor() as threads:
        longer = threads.submit(call, waits, wait_for_file, str(folders[0]), "end")
        try:
            wait_until(lambda: len([*folders[0].iterdir()]) == 2, 60, "the ranks wait")
            with pytest.raises(ClusterError):
                call(quiet, write_pid_and_wait, str(folders[1]))
            assert_ended(folders[1])
            assert not longer.done()
        finally:
            (folders[0] / "end").touch()
        assert longer.result()[0] == [None, None]


def test_server_that_cannot_be_reached_is_reported_with_the_reason() -> None:
    with pytest.raises(ClusterError, match=r"pods \"m\" is forbidden"):
        Connection([sys.executable, "-c", "import sys; sys.exit('pods \"m\" is forbidden')"])
