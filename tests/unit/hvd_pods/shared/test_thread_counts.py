"""What a rank has that nobody set: a fusion threshold, and threads by its binding, its container's
cgroup or the host.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hvd_pods.rank import fusion
from hvd_pods.shared import thread_counts
from tests.unit.folders import write_files

CHOSEN = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


@pytest.mark.parametrize(
    ("own", "container", "quota", "ranks", "cores"),
    [
        (56, 56, None, 4, 14),
        # Bound: each to 13 of 56, two ranks to each socket of 28, each to one.
        (13, 56, None, 4, 13),
        (28, 56, None, 4, 14),
        # A CPU limit, which all ranks of the container share.
        (56, 56, 8.0, 2, 4),
        (56, 56, 3.5, 2, 1),
        (2, 2, 0.5, 1, 1),
        (2, 2, None, 3, 1),
    ],
)
def test_cores_of_a_rank_are_those_it_was_given(
    own: int, container: int, quota: float | None, ranks: int, cores: int
) -> None:
    assert thread_counts.cores_of_a_rank(own, container, quota, ranks) == cores


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "350000 100000\n"}, 3.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.max": "\n"}, None),
        ({}, None),
    ],
)
def test_cpu_limit_is_read_from_either_cgroup_version(
    tmp_path: Path, files: dict[str, str], quota: float | None
) -> None:
    assert thread_counts.read_quota(write_files(tmp_path, files)) == quota


@pytest.mark.parametrize("name", ["nvidia0", "kfd", "dri/renderD128", "dri/card0", "nvidiactl"])
def test_a_gpu_is_known_by_its_file(tmp_path: Path, name: str) -> None:
    write_files(tmp_path, {name: ""})
    assert thread_counts.has_gpus(tmp_path) == (name in ("nvidia0", "kfd", "dri/renderD128"))


def test_what_is_set_by_hand_stays() -> None:
    cpus = os.sched_getaffinity(0)
    chosen = thread_counts.choose_threads({}, 1, cpus, cpus)
    assert set(chosen) == {*CHOSEN, "TF_ENABLE_ONEDNN_OPTS", thread_counts.YIELD}
    by_hand = {"OMP_NUM_THREADS": "7", "TF_ENABLE_ONEDNN_OPTS": "0", thread_counts.YIELD: "0"}
    rest = {name: number for name, number in chosen.items() if name not in by_hand}
    assert thread_counts.choose_threads(by_hand, 1, cpus, cpus) == rest
    assert thread_counts.choose_threads({**by_hand, **rest}, 1, cpus, cpus) == {}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HOROVOD_CPU_OPERATIONS": "gloo"}, "5"),
        ({"HOROVOD_CPU_OPERATIONS": "gloo", thread_counts.CYCLE: "1"}, None),
        ({"HOROVOD_CPU_OPERATIONS": "gloo", "HOROVOD_AUTOTUNE": "1"}, None),
        ({"HOROVOD_CPU_OPERATIONS": "MPI"}, None),
    ],
)
def test_ranks_ask_each_other_less_often_over_gloo(
    environment: dict[str, str], expected: str | None
) -> None:
    chosen = thread_counts.choose_threads(environment, 1, {0}, {0})
    assert chosen.get(thread_counts.CYCLE) == expected
    assert thread_counts.plan_cycle(4) == {thread_counts.CYCLE: "1.25"}
    assert thread_counts.plan_cycle(5) == {}


WANTED = {fusion.BY_RANKS: "1"}


@pytest.mark.parametrize(("ranks", "kib"), [(1, 512), (2, 1024), (16, 8192), (1000, 131072)])
def test_threshold_grows_with_the_ranks_up_to_horovods_own(ranks: int, kib: int) -> None:
    assert fusion.choose(ranks, WANTED) == {"HOROVOD_FUSION_THRESHOLD": str(kib * 1024)}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {**WANTED, "HOROVOD_FUSION_THRESHOLD": "0"},
        {**WANTED, "HOROVOD_AUTOTUNE": "1"},
        {**WANTED, "HOROVOD_CPU_OPERATIONS": "gloo"},
    ],
)
def test_threshold_stays_where_somebody_decided_it(given: dict[str, str]) -> None:
    assert fusion.choose(2, given) == {}
