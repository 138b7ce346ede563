"""The cause of an end for which a GPU, its driver or NCCL is named."""

from __future__ import annotations

import time

import pytest

from hvd_pods.rules.events import Notice
from tests.unit.hvd_pods.master.launcher_output import find_cause, judge_output

# What a rank of an H200 printed that shared its GPU with another rank, in mode mpirun.
ONE_GPU = """\
Traceback (most recent call last):
  File "/app/two_ranks.py", line 23, in main
    total = hvd.allreduce(ones, op=hvd.Sum)
  File "/usr/lib/python3.12/site-packages/horovod/torch/mpi_ops.py", line 1316, in synchronize
    raise HorovodInternalError(e)
horovod.common.exceptions.HorovodInternalError: ncclCommInitRank failed: invalid usage (run with \
NCCL_DEBUG=WARN for details)
--------------------------------------------------------------------------
prterun detected that one or more processes exited with non-zero status,
thus causing the job to be terminated. The first process to do so was:

   Process name: [prterun-vm-1670@1,1]
   Exit code:    1
--------------------------------------------------------------------------
"""


def test_two_ranks_on_one_gpu_are_named_as_that() -> None:
    result = find_cause(ONE_GPU, 1)
    assert result
    assert result.text.startswith("rank 1 on hvd-cpu-0: ")
    assert "`worker.slots`" in result.text


@pytest.mark.parametrize(
    ("text", "remedy", "is_permanent", "broken_worker"),
    [
        ("AcceleratorError: CUDA error: invalid device ordinal", "worker.slots", True, ""),
        ("X: NCCL WARN Multiple Ranks are using the same GPU/Partition. Set", "slots", True, ""),
        (
            "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
            "update the driver",
            True,
            "",
        ),
        (
            "RuntimeError: CUDA error: no kernel image is available for execution on the device",
            "not built for this kind of GPU",
            True,
            "",
        ),
        (
            "RuntimeError: No CUDA GPUs; no CUDA-capable device is detected",
            "nvidia.com/gpu",
            True,
            "",
        ),
        (
            "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
            "--gpus",
            True,
            "",
        ),
        (
            "RuntimeError: CUDA error: uncorrectable ECC error encountered",
            "kubectl cordon",
            False,
            "hvd-cpu-0",
        ),
        ("AcceleratorError: CUDA error: system not yet initialized", "fabric", False, ""),
        (
            "RuntimeError: Error 803: system has unsupported display driver / cuda driver "
            "combination",
            "cuda-compat",
            False,
            "",
        ),
    ],
)
def test_message_of_cuda_has_its_remedy(
    text: str, remedy: str, is_permanent: bool, broken_worker: str
) -> None:
    raised: Notice = {"rank": 1, "worker": "hvd-cpu-0", "text": text, "at": time.monotonic()}
    result = find_cause("", 1, exception_notices=[raised])
    assert result
    assert remedy in result.text
    assert result.is_permanent == is_permanent
    assert result.broken_worker == broken_worker


# What the watchdogs of PyTorch write before they abort their ranks; no exception of Python follows.
WATCHDOGS = """\
[rank0]:[E1128 09:00:02 ProcessGroupNCCL.cpp:688] [Rank 0] Watchdog caught collective operation \
timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE) ran for 600000 milliseconds before timing out.
{tag}[E1128 09:00:02 ProcessGroupNCCL.cpp:2068] [PG ID 0] Process group watchdog thread terminated \
with exception: CUDA error: uncorrectable ECC error encountered
[hvd] rank 0 on hvd-cpu-0 ended by signal 6
"""


@pytest.mark.parametrize(
    ("tag", "who", "worker"),
    [
        ("[rank3]:", "rank 3 on hvd-cpu-1: ", "hvd-cpu-1"),
        ("[1,3]<stderr>:", "rank 3 on hvd-cpu-1: ", "hvd-cpu-1"),
        # The line may be that of any rank: no worker is avoided for it.
        ("", "a rank: ", ""),
    ],
)
def test_broken_gpu_that_a_watchdog_reports_is_the_cause(tag: str, who: str, worker: str) -> None:
    """Whichever rank has ended first."""
    result = find_cause(WATCHDOGS.format(tag=tag), 134)
    assert result
    assert result.text.startswith(who)
    assert "uncorrectable ECC error" in result.text
    assert result.broken_worker == worker


def test_worker_of_the_broken_gpu_is_that_of_the_rank_which_has_met_it() -> None:
    """Although a sound rank has ended first, and the lines have no rank."""
    text = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    raised: Notice = {"rank": 3, "worker": "hvd-cpu-1", "text": text, "at": time.monotonic()}
    result = find_cause(
        f"{text}\n[hvd] rank 0 on hvd-cpu-0 ended by signal 6\n", 134, exception_notices=[raised]
    )
    assert result
    assert result.broken_worker == "hvd-cpu-1"


def test_what_a_rank_has_printed_of_a_sound_gpu_is_not_the_cause() -> None:
    """It may have handled that."""
    printed = "no second GPU: CUDA error: invalid device ordinal\n"
    assert judge_output(f"{printed}[hvd] rank 0 on hvd-cpu-0 ended with exit code 7\n", 7) == (
        f'rank 0 on hvd-cpu-0: exit code 7, after "{printed.strip()}"',
        False,
    )


@pytest.mark.parametrize(
    "lost",
    [
        "DistBackendError: remote process exited or there was a network error, NCCL version 2.28",
        # What CUDA says of a peer on NVLink that was killed.
        "AcceleratorError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware "
        "error",
    ],
)
def test_rank_whose_nccl_lost_its_peer_is_not_the_cause(lost: str) -> None:
    """Its message came first."""
    now = time.monotonic()
    raised: list[Notice] = [
        {"rank": rank, "worker": "hvd-cpu-0", "text": text, "at": now}
        for rank, text in ((0, lost), (1, "KeyError: 'x'"))
    ]
    result = find_cause("", 1, exception_notices=raised)
    assert result
    assert result.text == "rank 1 on hvd-cpu-0: KeyError: 'x'"
