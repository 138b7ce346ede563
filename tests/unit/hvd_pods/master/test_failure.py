"""The cause of a launcher's end, from the error output of real launchers."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_pods.master.error_output import ErrorOutput
from hvd_pods.master.stall_reader import StallReader
from hvd_pods.rules.events import Notice
from hvd_pods.shared.untrusted import printable
from tests.unit.hvd_pods.master.launcher_output import OPEN_MPI_4, WORKERS, find_cause, judge_output

OUT_OF_MEMORY = (
    "ended by SIGKILL (killed, as the kernel does when a container is out of memory "
    "(`worker.resources.limits.memory`))"
)
TYPE_ERROR = """\
Traceback (most recent call last):
  File "/app/train.py", line 120, in <module>
    main()
  File "/app/train.py", line 94, in main
    losses(1)
TypeError: 'list' object is not callable
"""
PEER = """\
Traceback (most recent call last):
  File "/usr/lib/horovod/tensorflow/mpi_ops.py", line 20, in allreduce
horovod.common.exceptions.HorovodInternalError: Horovod has been shut down.
"""
# A rank of PyTorch that has lost its peer, and the peer.
GLOO = """\
Traceback (most recent call last):
  File "/usr/lib/torch/distributed/distributed_c10d.py", line 2806, in all_reduce
RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]:4711
"""
ZERO = """\
Traceback (most recent call last):
  File "/code/train.py", line 7, in <module>
ZeroDivisionError: division by zero
"""
OPEN_MPI_4_SIGNAL = """\
mpirun noticed that process rank 1 with PID 0 on node hvd-cpu-0 exited on signal {signal} (Killed).
"""
OTHER = "Process 1 exit with status code 1.\n"
TAGGED = "".join(f"[1]<stderr>:{line}\n" for line in TYPE_ERROR.splitlines())
SYNTAX = '  File "/app/train.py", line 3\n    def (:\n        ^\nSyntaxError: invalid syntax\n'


ERROR = "TypeError: 'list' object is not callable"
LIST_ERROR = f"{ERROR}, train.py:94"


@pytest.mark.parametrize(
    ("text", "expected", "sure"),
    [
        (TYPE_ERROR, f"a rank: {LIST_ERROR}", True),
        (TYPE_ERROR + OPEN_MPI_4.format(code=1), f"rank 3 on hvd-cpu-1: {LIST_ERROR}", True),
        # The rank that lost its peer may be the first to print that, and the first to end.
        (PEER + TYPE_ERROR, f"a rank: {LIST_ERROR}", True),
        (TYPE_ERROR + PEER + OPEN_MPI_4.format(code=1), f"a rank: {LIST_ERROR}", True),
        (TAGGED + PEER, f"rank 1 on hvd-cpu-0: {LIST_ERROR}", True),
        (
            TYPE_ERROR.replace("TypeError", "FloatingPointError"),
            f"a rank: {LIST_ERROR.replace('TypeError', 'FloatingPointError')}",
            True,
        ),
        (
            TYPE_ERROR.replace("TypeError", "ConnectionError"),
            f"a rank: {LIST_ERROR.replace('TypeError', 'ConnectionError')}",
            False,
        ),
        (
            SYNTAX + OPEN_MPI_4.format(code=1),
            "rank 3 on hvd-cpu-1: SyntaxError: invalid syntax, train.py:3",
            True,
        ),
        (OPEN_MPI_4.format(code=2), "rank 3 on hvd-cpu-1: exit code 2", True),
        (
            GLOO + ZERO + OPEN_MPI_4.format(code=1),
            "a rank: ZeroDivisionError: division by zero, train.py:7",
            True,
        ),
        (PEER + OPEN_MPI_4.format(code=3), "rank 3 on hvd-cpu-1: exit code 3", False),
        (
            PEER,
            "a rank: horovod.common.exceptions.HorovodInternalError: Horovod has been shut "
            "down., mpi_ops.py:20",
            False,
        ),
        ("Process 5 exit with status code 3.\n", "rank 5 on hvd-gpu-0: exit code 3", False),
        (
            "Sorry\n[hvd] rank 5 on hvd-gpu-0 ended with exit code 3\n",
            'rank 5 on hvd-gpu-0: exit code 3, after "Sorry"',
            False,
        ),
        (
            "[hvd] rank 5 on hvd-gpu-0 ended by signal 11\n",
            "rank 5 on hvd-gpu-0: ended by SIGSEGV (segmentation fault)",
            False,
        ),
        (
            OPEN_MPI_4_SIGNAL.format(signal=11),
            "rank 1 on hvd-cpu-0: ended by SIGSEGV (segmentation fault)",
            False,
        ),
        (OPEN_MPI_4_SIGNAL.format(signal=999), "rank 1 on hvd-cpu-0: ended by signal 999", False),
    ],
)
def test_the_first_rank_that_failed_is_named_with_its_exception(
    text: str, expected: str, sure: bool
) -> None:
    assert judge_output(text, 2 if "exit code 2" in expected else 3) == (expected, sure)


NOTES = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795361014.279163      10 port.cc:153] oneDNN custom operations are on. You may see slig
[1,0]<stderr>:I0000 00:00:1795361014.283698       9 port.cc:153] oneDNN custom operations are on. Y
[1]<stderr>:WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795361014.283698       9 cpu_feature_guard.cc:227] This TensorFlow binary is optimized
[prterun-hvd-master-1@1,0]<stderr>: I0000 00:00:1795361014.283698 9 port.cc:153] oneDNN custom oper\
ations are on
[hvd-master-1-x:00031] plm:ssh: Warning: setpgid(38,38) failed in parent with errno=Permission deni
"""
KEPT = """\
E0000 00:00:1795361014.283698       9 cuda_executor.cc:1228] failed call to cuInit
WARNING: a script's own
"""


def test_notes_of_tensorflow_and_open_mpi_are_left_out() -> None:
    find_cause(NOTES + KEPT, passed=KEPT)


KERAS_2 = " (a script for Keras 2 needs TF_USE_LEGACY_KERAS=1 in `worker.env`)"
NO_KERAS_2 = " (add tf-keras of TensorFlow's version to requirements.txt, or to the image)"


# What a script for Keras 2 calls, what it gets, and what to do.
OF_KERAS_2 = [
    ("hvd.broadcast_variables(opt.variables(), 0)", ERROR, KERAS_2),
    ("losses(1)", ERROR, ""),
    ("SGD(lr=0.1)", "ValueError: Argument(s) not recognized: {'lr': 0.1}", KERAS_2),
    ("opt.lr", "AttributeError: 'SGD' object has no attribute 'lr'", KERAS_2),
    ("tf.keras.losses", "ModuleNotFoundError: No module named 'tf_keras'", NO_KERAS_2),
]
KERAS_MESSAGE = """\
ValueError: Exception encountered when calling Dense.call().

\x1b[1mMatrix size-incompatible: In[0]: [2,3]\x1b[0m

Arguments received by Dense.call():
"""
# As TensorFlow writes an error in a function that it has converted.
IN_USER_CODE = """\
Traceback (most recent call last):
  File "/app/train.py", line 30, in <module>
    train_step(images)
  File "/usr/lib/python3/dist-packages/tensorflow/python/util/traceback_utils.py", line 153, in f
    raise e.with_traceback(filtered_tb) from None
  File "/tmp/__autograph_generated_file3k.py", line 15, in tf__train_step
    ag__.converted_call(ag__.ld(hvd).broadcast_variables, ...)
TypeError: in user code:

    File "/app/train.py", line 21, in train_step  *
        hvd.broadcast_variables(opt.variables(), 0)
    File "/usr/local/lib/python3.11/site-packages/horovod/tensorflow/__init__.py", line 9, in g  **
        <source unavailable>

    TypeError: 'list' object is not callable

"""
NO_FILE = "python3: can't open file '/app/tarin.py': [Errno 2] No such file or directory"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (IN_USER_CODE, f"TypeError: 'list' object is not callable, train.py:21{KERAS_2}"),
        (
            IN_USER_CODE.replace("    TypeError: 'list' object is not callable", "    no type"),
            "TypeError: no type, train.py:21",
        ),
        # In a package, called by the user's own line.
        (
            TYPE_ERROR.replace("losses(1)", "fit()").replace(
                "Type", '  File "/usr/lib/python3.11/x.py", line 3, in fit\n    raise y\nType'
            ),
            "TypeError: 'list' object is not callable, train.py:94",
        ),
        (
            TYPE_ERROR.replace("TypeError: 'list' object is not callable\n", KERAS_MESSAGE),
            "ValueError: Matrix size-incompatible: In[0]: [2,3], train.py:94",
        ),
        *(
            (
                TYPE_ERROR.replace("losses(1)", f"{source}\n    ~~~^^^").replace(ERROR, error),
                f"{error}, train.py:94{hint}",
            )
            for source, error, hint in OF_KERAS_2
        ),
    ],
)
def test_message_and_line_of_the_users_own_code_are_reported(text: str, expected: str) -> None:
    assert judge_output(text)[0] == f"a rank: {expected}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("please give --data\n", "please give --data"),
        (
            "usage: train.py --data DATA\ntrain.py: error: these are required: --data\n\n",
            "train.py: error: these are required: --data",
        ),
        (f"{NO_FILE}\n", NO_FILE),
        ("x" * 400, f"{'x' * 296} ..."),
    ],
)
def test_last_line_of_the_rank_is_reported_with_its_exit_code(text: str, expected: str) -> None:
    """Such as that of `sys.exit`, of argparse, or of Python where the script is missing."""
    after = f'exit code 1, after "{expected}"'
    assert (
        judge_output(f"{text}\n{OPEN_MPI_4.format(code=1)}")[0] == f"rank 3 on hvd-cpu-1: {after}"
    )
    tagged = "".join(f"[1]<stderr>:{line}\n" for line in text.splitlines())
    other = "[0]<stderr>:I am another rank\n"
    assert judge_output(f"{tagged}{other}{OTHER}")[0] == f"rank 1 on hvd-cpu-0: {after}"


# A rank, what it told of its exception, and how many seconds before the test.
Words = tuple[int, str, float]
LOST_PEER = 3, "tensorflow.errors.UnknownError: Horovod has been shut down., train.py:7", 0.0
ENDED_FIRST = OPEN_MPI_4.format(code=1)
KILLED = OPEN_MPI_4_SIGNAL.format(signal=9)


@pytest.mark.parametrize(
    ("output", "raised", "expected"),
    [
        (
            TYPE_ERROR + PEER + ENDED_FIRST,
            [LOST_PEER, (1, "KeyError: 'x', train.py:8", 0.0)],
            "rank 1 on worker-of-1: KeyError: 'x', train.py:8",
        ),
        (ENDED_FIRST, [LOST_PEER], "rank 3 on hvd-cpu-1: exit code 1"),
        # The script went on after that exception.
        (ENDED_FIRST, [(1, "KeyError: 'x'", 60.0)], "rank 3 on hvd-cpu-1: exit code 1"),
        # The rank needs long to end after its exception, as with a checkpoint at its exit.
        (ENDED_FIRST, [(3, "KeyError: 'x'", 60.0)], "rank 3 on worker-of-3: KeyError: 'x'"),
        # The script's own end is followed by a crash of its rank; that of another rank is no end.
        (KILLED, [(1, "KeyError: 'x'", 0.0)], "rank 1 on worker-of-1: KeyError: 'x'"),
        (KILLED, [(0, "KeyError: 'x'", 0.0)], f"rank 1 on hvd-cpu-0: {OUT_OF_MEMORY}"),
        # The end of a rank that lost its peer may be known before that of the peer.
        (
            "[hvd] rank 3 on b ended with exit code 1\n[hvd] rank 1 on a ended by signal 9\n",
            [LOST_PEER],
            f"rank 1 on hvd-cpu-0: {OUT_OF_MEMORY}",
        ),
    ],
)
def test_ranks_report_which_of_them_raised_what(
    output: str, raised: list[Words], expected: str
) -> None:
    now = time.monotonic()
    notices: list[Notice] = [
        {"worker": f"worker-of-{rank}", "rank": rank, "text": text, "at": now - ago}
        for rank, text, ago in raised
    ]
    assert judge_output(output, exception_notices=notices)[0] == expected


# What the horovodrun of a custom command raises, with Gloo and with MPI.
ITS_OWN = """\
Traceback (most recent call last):
  File "/usr/lib/horovod/runner/gloo_run.py", line 286, in launch_gloo
    raise RuntimeError(
RuntimeError: {}
"""
OVER_GLOO = ITS_OWN.format(
    "Horovod detected that one or more processes exited with non-zero status, thus"
)
OVER_MPI = ITS_OWN.format("mpirun failed with exit code 3")


@pytest.mark.parametrize(
    ("output", "failed", "expected", "sure"),
    [
        # Hydra says nothing, and ranks that have lost their peer fail later.
        (PEER, [(1, -9), (0, 1)], f"rank 1 on hvd-cpu-0: {OUT_OF_MEMORY}", False),
        ("", [(3, 3)], "rank 3 on hvd-cpu-1: exit code 3", False),
        ("", [(0, -15), (3, 3)], "rank 3 on hvd-cpu-1: exit code 3", False),
        ("", [(3, 2)], "rank 3 on hvd-cpu-1: exit code 2", True),
        (
            TYPE_ERROR,
            [(3, 1)],
            "rank 3 on hvd-cpu-1: TypeError: 'list' object is not callable, train.py:94",
            True,
        ),
        (OTHER, [(0, 1), (1, -9)], f"rank 1 on hvd-cpu-0: {OUT_OF_MEMORY}", False),
        (OTHER, [(0, -9)], "rank 1 on hvd-cpu-0: exit code 1", False),
        (KILLED, [(1, 1)], f"rank 1 on hvd-cpu-0: {OUT_OF_MEMORY}", False),
        # Rank 0 has lost its peer, and is the first to end.
        (
            TAGGED + PEER,
            [(0, 1), (1, 1)],
            "rank 1 on hvd-cpu-0: TypeError: 'list' object is not callable, train.py:94",
            True,
        ),
        (OVER_GLOO, [(1, 3)], "rank 1 on hvd-cpu-0: exit code 3", False),
        (OVER_MPI, [(1, 2)], "rank 1 on hvd-cpu-0: exit code 2", True),
    ],
)
def test_rank_that_no_launcher_names_has_reported_how_it_ended(
    output: str, failed: list[tuple[int, int]], expected: str, sure: bool
) -> None:
    now = time.monotonic()
    notices: list[Notice] = [
        {"rank": rank, "worker": WORKERS[rank // 2].name, "status": code, "at": now}
        for rank, code in failed
    ]
    old: Notice = {"rank": 2, "worker": "hvd-cpu-1", "status": -9, "at": now - 60}
    assert judge_output(output, exit_notices=[old, *notices]) == (expected, sure)


def test_exception_counts_however_long_its_rank_needs_to_end() -> None:
    """Its notice came 20 s before the notice of its end, which no launcher names."""
    now = time.monotonic()
    raised: list[Notice] = [
        {"worker": "hvd-cpu-0", "rank": rank, "text": text, "at": now - ago}
        for rank, text, ago in ((0, "KeyError: handled", 90.0), (1, "ValueError: real", 20.0))
    ]
    failed: list[Notice] = [{"rank": 1, "worker": "hvd-cpu-0", "status": 1, "at": now}]
    assert (
        judge_output("", exception_notices=raised, exit_notices=failed)[0]
        == "rank 1 on hvd-cpu-0: ValueError: real"
    )


@pytest.mark.parametrize("text", ["", "mpirun: nothing to do\n", "x" * 9_000, "Error: alone\n"])
def test_output_without_a_cause_has_none(text: str) -> None:
    assert find_cause(text) is None


def test_lines_may_come_in_parts() -> None:
    """A pipe has no lines."""
    result = find_cause(TAGGED[-20:], before=TAGGED[:-20])
    assert result
    assert result.text.startswith("rank 1 on hvd-cpu-0: TypeError: 'list' object is not callable,")


PARTS = [
    TYPE_ERROR,
    PEER,
    SYNTAX,
    NOTES,
    OPEN_MPI_4,
    KILLED,
    "\n",
    "[",
    "[1]<stderr>:",
    "9" * 5000,
    "Process 1 exit with status code ",
    "Traceback (most recent call last):\n",
    "E: ",
    "\x1b[1m",
    "x are waiting for remainder of ranks for more than 60 seconds.\n",
    "3: [x]",
    "\udcff",
    f"[{'9' * 5000}]<stderr>:x\n",
    "TypeError: in user code:\n",
    '    File "<string>", line 1, in f  *\n',
    "  | A: b\n",
]
OUTPUT = st.lists(st.sampled_from(PARTS) | st.text(), max_size=20).map("".join)


@pytest.mark.fuzz
@given(OUTPUT, st.integers(0, 255))
def test_any_output_gives_no_cause_or_one_line_that_can_be_printed(output: str, code: int) -> None:
    reader, writer = os.pipe()
    stalls = StallReader(lambda: 0.0)
    with Path(os.devnull).open("wb") as passed, os.fdopen(reader, "rb") as source:
        errors = ErrorOutput(source, passed.fileno(), lambda line: stalls.read(line) and None)
        with os.fdopen(writer, "wb") as launcher:
            launcher.write(output.encode(errors="surrogatepass"))
        found = errors.find_cause(WORKERS, code)
    assert found is None or (printable(found.text, "") == found.text and len(found.text) < 1000)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (3072.0, "used 3.0 of 3.0 GiB; raise `worker.resources.limits.memory` to 6Gi"),
        (512.0, "1024Mi"),
    ],
)
def test_rank_that_was_killed_for_memory_reports_how_much_it_had(
    limit: float, expected: str
) -> None:
    now = time.monotonic()
    failed: Notice = {"rank": 1, "worker": "hvd-cpu-0", "status": -9, "at": now, "limit": limit}
    result = find_cause("", 137, exit_notices=[failed])
    assert result
    assert result.is_sure_to_repeat
    assert result.is_permanent
    assert expected in result.text


@pytest.mark.parametrize(
    ("text", "expected", "is_permanent"),
    [
        ("ModuleNotFoundError: No module named 'sklearn.svm'", "add scikit-learn to", True),
        ("ModuleNotFoundError: No module named 'pandas'", "add pandas to requirements.txt", True),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'a'", "--code", True),
        ("SyntaxError: invalid syntax", "invalid syntax", True),
        ("KeyError: 'x'", "'x'", False),
    ],
)
def test_cause_that_no_attempt_can_avoid_is_permanent(
    text: str, expected: str, is_permanent: bool
) -> None:
    raised: Notice = {"rank": 1, "worker": "hvd-cpu-0", "text": text, "at": time.monotonic()}
    result = find_cause("", 1, exception_notices=[raised])
    assert result
    assert expected in result.text
    assert result.is_permanent == is_permanent
    assert result.is_sure_to_repeat
