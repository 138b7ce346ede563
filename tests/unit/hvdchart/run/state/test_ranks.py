"""Which pod has which rank, and which lines are a rank's."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from hvd_pods.shared.run import Run
from hvdchart.errors import ClusterError
from hvdchart.run.state.ranks import check_tagged, lines_of_rank, pod_of, pods_of_ranks, run_of
from tests.unit.hvdchart.objects import job


def run(**more: Any) -> Run:
    return run_of(job(**{"groups": 2, **more}))


WITH_SPARES = {"workers": '{"hvd-worker": "0,2-3"}'}


def test_with_spares_the_record_shows_which_pods_have_ranks() -> None:
    assert list(pods_of_ranks(run(), WITH_SPARES)) == [
        "hvd-worker-0",
        "hvd-worker-2",
        "hvd-worker-3",
        "hvd-worker-gpu-0",
        "hvd-worker-gpu-0",
    ]
    assert pod_of(run(), "1", WITH_SPARES) == "hvd-worker-2"


def test_a_pod_without_ranks_can_be_named() -> None:
    assert pod_of(run(), "worker-1", WITH_SPARES) == "hvd-worker-1"


@pytest.mark.parametrize(
    ("target", "pod"),
    [
        ("0", "hvd-worker-0"),
        ("1", "hvd-worker-1"),
        ("3", "hvd-worker-gpu-0"),
        ("worker-1", "hvd-worker-1"),
        ("gpu-0", "hvd-worker-gpu-0"),
        ("hvd-worker-1", "hvd-worker-1"),
        ("master", "master"),
    ],
)
def test_a_pod_is_named_by_a_rank_or_a_part_of_its_name(target: str, pod: str) -> None:
    assert pod_of(run(), target, {}) == pod


@pytest.mark.parametrize("target", ["4", "-1", "worker-9", "orker-1", ""])
def test_an_unknown_pod_is_refused_with_those_there_are(target: str) -> None:
    with pytest.raises(ClusterError, match=r"0 to 3\b.*\bmaster\b"):
        pod_of(run(), target, {})


@pytest.mark.parametrize("env", [[], [{"name": "HVD_RUN", "value": '{"service": "hvd"}'}]])
def test_the_job_of_another_chart_is_refused(env: list[dict[str, str]]) -> None:
    old = job()
    old["spec"]["template"]["spec"]["containers"][0]["env"] = env
    with pytest.raises(ClusterError, match=old["metadata"]["name"]):
        run_of(old)


@pytest.mark.parametrize(
    "line",
    ["[1]<stdout>:text", "[1,1]<stderr>:text", "[prterun-a@1,1]<stdout>: text", "[1] text"],
    ids=["direct", "Open MPI 4", "Open MPI 5", "Intel MPI"],
)
def test_lines_of_a_rank_lose_what_the_launcher_puts_before_them(line: str) -> None:
    assert list(lines_of_rank([line, "other"], 1)) == ["text"]
    assert list(lines_of_rank([line], 11)) == []


@pytest.mark.parametrize(
    ("launch", "asks", "is_refused"),
    [
        ({}, False, True),
        ({"options": ["--tag-output"]}, False, False),
        ({"options": ["-prepend-rank"]}, False, False),
        ({}, True, False),
        ({"mode": "direct"}, False, True),
        ({"mode": "direct"}, True, False),
        # What a command of the user's own prints is not known.
        ({"mode": "custom"}, True, True),
    ],
)
def test_a_run_whose_lines_name_no_rank_is_refused(
    launch: dict[str, Any], asks: bool, is_refused: bool
) -> None:
    env = [{"name": "HVD_TAG_OUTPUT", "value": "1"}] if asks else []
    sets = [{"spec": {"template": {"spec": {"containers": [{"name": "worker", "env": env}]}}}}]
    with pytest.raises(ClusterError) if is_refused else nullcontext():
        check_tagged(run(**launch), sets)
