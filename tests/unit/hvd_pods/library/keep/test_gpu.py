"""What keep keeps of tensors on a GPU, which copies them beside the training."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from hvd_pods.library import keep
from hvd_pods.library.keep.completion import CompletionThread, completion_thread
from tests.support.fakes import pytorch
from tests.support.fakes.faults import TIMEOUT


@pytest.fixture
def gpu(worker: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytorch.Gpu]:
    gpu = pytorch.Gpu()
    monkeypatch.setitem(sys.modules, "torch", gpu.torch())
    yield gpu
    gpu.goes_on.set()
    # The next test has another GPU.
    completion_thread.wait(TIMEOUT)


def train(gpu: pytorch.Gpu, *steps: int, **more: Any) -> Any:
    """A script that makes these steps from where it continues."""
    state: Any = keep.State(weights=gpu.tensor(b"made"), number=1, bias=gpu.tensor(b"b"), **more)
    state.restore()
    for step in steps:
        state.number = step
        state.weights.data[:] = b"%04d" % step
        state.commit(step)
    return state


def resume(gpu: pytorch.Gpu) -> tuple[int, int, bytes, bytes]:
    """Where a new process continues."""
    state = train(gpu)
    return state.step, state.number, bytes(state.weights.data), bytes(state.bias.data)


def hold(gpu: pytorch.Gpu) -> None:
    """Let the GPU end no copy after those that it has begun."""
    completion_thread.wait()
    gpu.goes_on.clear()


def begin(call: Callable[[], Any]) -> Future[Any]:
    """Call this in a thread, and let it come as far as it can without the GPU."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(call)
    pool.shutdown(wait=False)
    wait([future], timeout=0.05)
    return future


def test_a_new_process_continues_with_the_tensors_of_the_last_commit(gpu: pytorch.Gpu) -> None:
    train(gpu, 1, 2, 3)
    assert resume(gpu) == (3, 3, b"0003", b"b")


def test_a_commit_that_the_gpu_has_not_copied_costs_one_step(
    gpu: pytorch.Gpu, worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = train(gpu, 1, 2)
    hold(gpu)
    state.commit(3)
    killed = worker.with_name("killed")
    shutil.copytree(worker, killed)
    gpu.goes_on.set()
    del state
    monkeypatch.setenv("HVD_KEEP", str(killed))
    assert resume(gpu) == (2, 2, b"0002", b"b")


def test_the_training_continues_beside_the_copy_and_changes_nothing_of_it(
    gpu: pytorch.Gpu,
) -> None:
    state = train(gpu, 1)
    hold(gpu)
    state.commit(2)
    state.weights.data[:] = b"next"
    gpu.goes_on.set()
    del state
    assert resume(gpu) == (2, 1, b"0001", b"b")


@pytest.mark.parametrize("call", ["commit", "restore", "save", "wait"])
def test_what_needs_a_commit_waits_for_its_copy(gpu: pytorch.Gpu, call: str) -> None:
    state = train(gpu, 1)
    hold(gpu)
    state.commit(2)
    future = begin(getattr(state, call))
    assert not future.done()
    gpu.goes_on.set()
    future.result(TIMEOUT)
    assert state.step == (3 if call == "commit" else 2)


def test_copy_that_raises_anything_is_not_waited_for(
    capfd: pytest.CaptureFixture[str],
) -> None:
    thread = CompletionThread()
    goes_on = threading.Event()

    def fail() -> None:
        goes_on.wait(TIMEOUT)
        raise ValueError("its memory is gone")

    thread.add(fail)
    future = begin(thread.wait)
    goes_on.set()
    future.result(TIMEOUT)
    assert "its memory is gone" in capfd.readouterr().err


def test_a_copy_that_fails_is_reported_and_leaves_the_older_commit(
    gpu: pytorch.Gpu, capfd: pytest.CaptureFixture[str]
) -> None:
    state = train(gpu, 1, 2)
    completion_thread.wait()
    gpu.fails = True
    state.commit(3)
    del state
    assert resume(gpu)[0] == 2
    assert capfd.readouterr().err.count("GPU") == 1


def test_the_next_commit_takes_the_place_of_one_that_failed(
    gpu: pytorch.Gpu, worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = train(gpu, 1, 2)
    completion_thread.wait()
    gpu.fails = True
    state.commit(3)
    completion_thread.wait()
    gpu.fails = False
    hold(gpu)
    state.commit(4)
    killed = worker.with_name("killed")
    shutil.copytree(worker, killed)
    gpu.goes_on.set()
    del state
    monkeypatch.setenv("HVD_KEEP", str(killed))
    assert resume(gpu)[0] == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"fails": True}, "register"),
        ({"free": 1}, "0 MiB of 0 MiB"),
    ],
)
def test_training_without_a_copy_beside_it_waits_for_each_commit(
    gpu: pytorch.Gpu, capfd: pytest.CaptureFixture[str], change: dict[str, Any], reason: str
) -> None:
    vars(gpu).update(change)
    hold(gpu)
    train(gpu, 1, 2)
    assert resume(gpu) == (2, 2, b"0002", b"b")
    assert capfd.readouterr().err.count(reason) == 1


def test_the_training_waits_for_the_copies_of_several_gpus(
    gpu: pytorch.Gpu, capfd: pytest.CaptureFixture[str]
) -> None:
    hold(gpu)
    state: Any = keep.State(one=gpu.tensor(b"1"), two=gpu.tensor(b"22", "cuda:1"))
    state.commit()
    del state
    state = keep.State(one=gpu.tensor(b"?"), two=gpu.tensor(b"??", "cuda:1"))
    assert state.restore() == 1
    assert (bytes(state.one.data), bytes(state.two.data)) == (b"1", b"22")
    assert capfd.readouterr().err.count("GPUs") == 1


@pytest.mark.parametrize(
    ("device", "change"),
    [("cuda:0", {}), ("cuda:0", {"free": 1}), ("cuda:0", {"fails": True}), ("cpu", {})],
)
@pytest.mark.parametrize(
    ("strides", "restored"),
    [
        ((6, 3, 1), (6, 3, 1)),
        ((6, 1, 2), (6, 1, 2)),
        ((1, 2, 4), (1, 2, 4)),
        # With gaps, with memory that is used twice, and with both.
        ((9, 3, 1), (6, 3, 1)),
        ((0, 3, 1), (6, 3, 1)),
        ((6, 1, 1), (6, 3, 1)),
    ],
)
def test_a_tensor_in_any_order_of_its_memory_is_kept(
    gpu: pytorch.Gpu,
    strides: tuple[int, ...],
    restored: tuple[int, ...],
    device: str,
    change: dict[str, Any],
) -> None:
    vars(gpu).update(change)

    def make(begin: int) -> Any:
        data = bytes(range(begin, begin + 20))
        return keep.State(weights=gpu.tensor(data, device, shape=(2, 2, 3), strides=strides))

    state = make(0)
    state.commit()
    values = state.weights.tolist()
    del state
    state = make(100)
    assert (state.restore(), state.weights.tolist()) == (1, values)
    # What the CPU reads is kept in the order of its dimensions.
    assert state.weights.stride() == (restored if device != "cpu" else (6, 3, 1))


def test_tensors_in_any_dense_order_are_copied_by_one_kernel(gpu: pytorch.Gpu) -> None:
    columns = gpu.tensor(b"123456", shape=(2, 3), strides=(1, 2))
    state = keep.State(weights=[gpu.tensor(b"1234"), columns, gpu.tensor(b"1")])
    state.commit()
    # And one brings the snapshot to the memory of the packed state.
    assert gpu.kernels == 2


def test_memory_is_registered_once_while_its_description_grows(gpu: pytorch.Gpu) -> None:
    state = train(gpu, 1, 2, 10, 1000)
    assert gpu.registers == 2
    state.number = "x" * 200_000
    state.commit()
    state.commit()
    completion_thread.wait()
    assert (gpu.registers, len(gpu.registered)) == (4, 2)


def test_memory_is_released_with_its_state(gpu: pytorch.Gpu) -> None:
    train(gpu, 1, 2)
    completion_thread.wait()
    assert gpu.registered == []


ENDS = """
import sys, threading
from hvd_pods.library import keep
from hvd_pods.library.keep.completion import completion_thread
from tests.support.fakes import pytorch
gpu = pytorch.Gpu()
sys.modules["torch"] = gpu.torch()
gpu.goes_on.wait = lambda _timeout: threading.main_thread().join() is None
state = keep.State(weights=gpu.tensor(b"last"), number=7, bias=gpu.tensor(b"b"))
state.commit(1)
"""


def test_the_end_of_a_process_waits_for_its_last_commit(gpu: pytorch.Gpu) -> None:
    subprocess.run([sys.executable, "-c", ENDS], check=True, timeout=TIMEOUT)
    assert resume(gpu) == (1, 7, b"last", b"b")
