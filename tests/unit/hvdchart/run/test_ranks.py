"""Which pod has which rank, and which lines are a rank's."""

from __future__ import annotations

from typing import Any

import pytest

from hvdchart.errors import ClusterError
from hvdchart.run.ranks import check_tagged, lines_of_rank, pod_of, pods_of_ranks, run_of
from tests.unit.hvdchart.runs import job


def run(**more: Any) -> dict[str, Any]:
    return run_of(job(**{"groups": 2, **more}))


def test_ranks_fill_host_by_host_in_the_order_of_the_groups() -> None:
    assert list(pods_of_ranks(run(), {})) == [
        "hvd-worker-0", "hvd-worker-1", "hvd-worker-gpu-0", "hvd-worker-gpu-0",
    ]  # fmt: skip


def test_with_spares_the_record_tells_which_pods_have_ranks() -> None:
    described = run()
    for group, spares in zip(described["groups"], (3, 0), strict=True):
        group["maximum"] = group["number"] + spares
    record = {"hosts": '{"hvd-worker": "0,3-4"}'}
    assert list(pods_of_ranks(described, record)) == [
        "hvd-worker-0", "hvd-worker-3", "hvd-worker-4", "hvd-worker-gpu-0", "hvd-worker-gpu-0",
    ]  # fmt: skip
    assert pod_of(described, "1", record) == "hvd-worker-3"
    assert pod_of(described, "worker-1", record) == "hvd-worker-1", "also one without ranks"


def test_dollars_are_as_the_master_sees_them() -> None:
    assert run()["args"] == ["python", "$HOME/train.py"]


@pytest.mark.parametrize(
    ("target", "pod"),
    [
        ("0", "hvd-worker-0"), ("1", "hvd-worker-1"), ("3", "hvd-worker-gpu-0"),
        ("worker-1", "hvd-worker-1"), ("gpu-0", "hvd-worker-gpu-0"),
        ("hvd-worker-1", "hvd-worker-1"), ("master", "master"),
    ],
)  # fmt: skip
def test_a_pod_is_named_by_a_rank_or_a_part_of_its_name(target: str, pod: str) -> None:
    assert pod_of(run(), target, {}) == pod


@pytest.mark.parametrize("target", ["4", "-1", "worker-9", "orker-1", ""])
def test_an_unknown_pod_is_refused_with_those_there_are(target: str) -> None:
    with pytest.raises(ClusterError, match="name a rank from 0 to 3, master, or a worker such as"):
        pod_of(run(), target, {})


def test_the_job_of_an_older_chart_is_refused() -> None:
    old = job()
    old["spec"]["template"]["spec"]["containers"][0]["env"] = []
    with pytest.raises(ClusterError, match="of an older chart: deploy it again"):
        run_of(old)


@pytest.mark.parametrize(
    "line",
    ["[1]<stdout>:text", "[1,1]<stderr>:text", "[prterun-a@1,1]<stdout>: text", "[1] text"],
    ids=["horovodrun", "Open MPI 4", "Open MPI 5", "Intel MPI"],
)
def test_lines_of_a_rank_lose_what_the_launcher_puts_before_them(line: str) -> None:
    assert list(lines_of_rank([line, "other"], 1)) == ["text"]
    assert list(lines_of_rank([line], 11)) == []


def test_the_line_with_which_a_rank_begins_is_its_own() -> None:
    lines = ["[hvd] rank 1 of 2 on a, CPUs 0-3", "[hvd +0.1s] host a", "[hvd] error: b"]
    assert list(lines_of_rank(lines, 1)) == lines[:1]


def test_a_launcher_that_names_no_rank_is_refused_with_the_option() -> None:
    with pytest.raises(ClusterError, match="--tag-output"):
        check_tagged(run())
    check_tagged(run(options=["--tag-output"]))
    check_tagged(run(options=["-prepend-rank"]))
    check_tagged(run(mode="horovodrun"))


def test_an_unknown_target_is_refused_with_a_worker_of_the_first_rank() -> None:
    described = run()
    described["groups"][0]["number"] = 1
    with pytest.raises(ClusterError) as raised:
        pod_of(described, "none", {})
    assert str(raised.value) == (
        "the run has no 'none': name a rank from 0 to 2, master, or a worker such as hvd-worker-0"
    )
