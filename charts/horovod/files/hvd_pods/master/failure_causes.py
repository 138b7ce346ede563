"""Explains an exception, a signal or a lack of memory: whether it repeats, and what to do."""

from __future__ import annotations

import re
import signal

from hvd_pods.master.failure_signs import FULL_VOLUME
from hvd_pods.master.gpu_problems import find_gpu_problem
from hvd_pods.rules.events import Cause
from hvd_pods.shared.container_memory import describe_exceeded
from hvd_pods.shared.python_packages import PACKAGE_OF_MODULE

EXPLANATIONS = {
    signal.SIGKILL: "killed, as the kernel does when a container is out of memory "
    "(`worker.resources.limits.memory`)",
    signal.SIGBUS: "bus error, as when shared memory is full (`shm.sizeLimit`)",
    signal.SIGILL: "illegal instruction: the image was built for other CPUs than this node's",
    signal.SIGSEGV: "segmentation fault",
    signal.SIGABRT: "aborted, after the message above",
}
# Exceptions that the same command raises again wherever it runs.
SURE_TO_REPEAT = {
    "AssertionError",
    "AttributeError",
    "FileNotFoundError",
    "FloatingPointError",
    "ImportError",
    "IndentationError",
    "IndexError",
    "InvalidArgumentError",
    "IsADirectoryError",
    "JSONDecodeError",
    "KeyError",
    "NameError",
    "ModuleNotFoundError",
    "NotADirectoryError",
    "NotImplementedError",
    "OutOfMemoryError",
    "PermissionError",
    "SyntaxError",
    "TabError",
    "TypeError",
    "UnicodeDecodeError",
    "ValueError",
    "ZeroDivisionError",
}
# Exceptions after which no attempt can train until somebody changes something.
PERMANENT = {
    "FileNotFoundError",
    "ImportError",
    "IndentationError",
    "ModuleNotFoundError",
    "SyntaxError",
    "TabError",
}
# The name of the module that a script cannot import.
LACKED = re.compile(r"^ModuleNotFoundError: No module named '([^'.]+)")


def cause_of_exception(rank: int | None, worker: str, text: str) -> Cause:
    """Return the cause for a rank's exception; `text` is the exception's line, with the place."""
    rank_prefix = describe_rank(rank, worker)
    is_full = any(words in text for words in FULL_VOLUME)
    # Some exceptions are named with their module.
    name = text.split(":")[0].rpartition(".")[2]
    lacked = LACKED.match(text)
    gpu = find_gpu_problem(text)
    # Another attempt may succeed after the others, but not after these exceptions.
    if gpu and (gpu.is_permanent or name not in SURE_TO_REPEAT):
        text = f"{text}; {gpu.remedy}"
        broken = worker if gpu.is_broken else ""
        return Cause(
            rank_prefix,
            text,
            is_sure_to_repeat=gpu.is_permanent,
            is_permanent=gpu.is_permanent,
            broken_worker=broken,
        )
    # Some exceptions have a hint of their own (pod/tracebacks.py).
    if lacked and not text.endswith(")"):
        package = PACKAGE_OF_MODULE.get(lacked[1], lacked[1])
        text += f"; add {package} to requirements.txt, or send the folder that has it (`--code`)"
    if name == "FileNotFoundError":
        text += "; send files beside the script with `--code`, and mount data with `--volume`"
    is_sure = is_full or name in SURE_TO_REPEAT
    return Cause(rank_prefix, text, is_sure, is_permanent=name in PERMANENT)


def cause_of_memory(rank_prefix: str, limit: float) -> Cause:
    """Return the cause for a rank that the kernel killed at its container's limit, in MiB."""
    text = describe_exceeded(limit, "`worker.resources.limits.memory`")
    return Cause(rank_prefix, text, is_sure_to_repeat=True, is_permanent=True)


def describe_rank(rank: int | None, worker: str) -> str:
    """Return the prefix of a cause. Without a number it is any rank; `worker` may be empty."""
    if rank is None:
        return "a rank: "
    return f"rank {rank} on {worker}: " if worker else f"rank {rank}: "


def describe_signal(number: int) -> str:
    """Describe the end of a rank that a signal has ended."""
    try:
        explanation: str | None = EXPLANATIONS.get(signal.Signals(number))
        name = signal.Signals(number).name
    except ValueError:
        return f"ended by signal {number}"
    return f"ended by {name} ({explanation})" if explanation else f"ended by {name}"
