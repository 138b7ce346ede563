"""What status and events print of a run."""

from __future__ import annotations

import pytest

from hvdchart.run.release import event_order, is_about
from hvdchart.run.report import event_lines, status_report
from tests.unit.hvdchart.run.test_status import status
from tests.unit.hvdchart.runs import (
    CREATING,
    MASTER,
    RUNNING,
    STATEFUL_SET,
    event,
    job,
    pod,
    terminated,
)


def test_report_lists_pods_in_order_with_restarts() -> None:
    workers = [pod(f"hvd-worker-{n}", "worker", RUNNING, ready=True) for n in (10, 2)]
    workers[0]["status"]["containerStatuses"][0]["restartCount"] = 3
    text = status_report(status([MASTER, *workers]), "team")
    assert text.startswith("hvd: running, 2 of 2 workers up\n")
    assert text.index("hvd-worker-2 ") < text.index("hvd-worker-10 ")
    assert (
        f"  {'hvd-worker-10':<{len(MASTER['metadata']['name'])}}  Running on n1, restarted 3 times"
        in text
    )
    assert text.endswith("next: hvdchart logs hvd -n team\n")


def test_event_is_one_line() -> None:
    mine = event("hvd-worker-0", "Pod", "Pulled", "done\n twice", type="Normal")
    mine["count"] = 2
    other = event("hvdx", "Pod", "Pulled", "")
    assert [is_about(e, "hvd") for e in (mine, other)] == [True, False]
    (line,) = event_lines([mine])
    assert line == "2026-01-01T10:00:01Z Normal Pod/hvd-worker-0 Pulled: done twice (2 times)"
    del mine["count"]
    assert list(event_lines([mine])) == [line.removesuffix(" (2 times)")]


def test_events_of_one_second_are_sorted_by_name() -> None:
    first, second = (event("hvd", "Job", reason, "") for reason in ("Waiting", "Training"))
    first["metadata"]["name"] = "hvd.20260101100000"
    second["metadata"]["name"] = "hvd.20260101100001"
    assert sorted([second, first], key=event_order) == [first, second]


def test_report_of_many_pods_lists_those_that_do_not_just_run() -> None:
    number = 200
    many = [pod(f"hvd-worker-{n}", "worker", RUNNING, ready=True) for n in range(number)]
    many[150] = pod("hvd-worker-150", "worker", CREATING)
    many[7] = pod("hvd-worker-7", "worker", RUNNING, ready=True, restarts=2)
    sets = [{**STATEFUL_SET, "spec": {"replicas": number}}]
    lines = status_report(status([MASTER, *many], sets=sets), "team").splitlines()
    assert lines[0] == "hvd: waiting, 199 of 200 workers up"
    assert [line for line in lines if line.startswith("  ")] == [
        "  hvd-worker-7    Running on n1, restarted 2 times",
        "  hvd-worker-150  ContainerCreating on n1",
        "  199 other pods run; -o json lists all",
    ]
    healthy = status([MASTER, *many[:7], *many[8:150]], sets=sets)
    assert "  150 pods run; -o json lists all" in status_report(healthy, "team")


@pytest.mark.parametrize(("number", "lines"), [(30, 30), (31, 1)])
def test_report_lists_the_pods_that_fit_on_a_screen(number: int, lines: int) -> None:
    many = [pod(f"hvd-worker-{n}", "worker", RUNNING, ready=True) for n in range(1, number)]
    text = status_report(status([MASTER, *many]), "team")
    assert len([line for line in text.splitlines() if line.startswith("  ")]) == lines


def test_report_shows_what_each_pod_waits_for() -> None:
    creating = pod("hvd-worker-0", "worker", CREATING, node="")
    deleting = pod("hvd-worker-1", "worker", RUNNING)
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T10:00:00Z"
    killed = pod("hvd-worker-2", "worker", terminated(137, reason="OOMKilled"))
    current = status([MASTER, creating, deleting, killed], jobs=[job(failed=1)])
    assert [(each.state, each.node) for each in current.pods] == [
        ("Running", "n1"), ("ContainerCreating", ""), ("Terminating", "n1"), ("Pending", "n1"),
    ]  # fmt: skip
    assert [bool(each.problem) for each in current.pods] == [False, False, False, True]
    text = status_report(current, "team")
    assert text.startswith("hvd: waiting, 0 of 2 workers up, attempt 2 of 4\nwhy: ")
    assert "\nwhat to do: " in text
    assert text.endswith("next: hvdchart events hvd -n team\n")


def test_many_pods_of_one_reason_are_shortened() -> None:
    workers = [pod(f"hvd-worker-{n}", "worker") for n in range(5)]
    reason = status([MASTER, *workers]).reason
    assert reason.endswith("hvd-worker-0, hvd-worker-1, hvd-worker-2 and 2 more: Pending")
