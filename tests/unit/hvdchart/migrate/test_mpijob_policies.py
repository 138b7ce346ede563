"""What an MPIJob says of workers, slots, clean-up and scheduling."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.hvdchart.migrate.old_files import WORKER, migrate_job, results


@pytest.mark.parametrize(
    ("fields", "number", "slots", "checked"),
    [
        ({"worker__replicas": 3}, 3, 1, False),
        ({"worker__replicas": 3, "spec__runLauncherAsWorker": True}, 4, 1, False),
        ({"spec__runLauncherAsWorker": False}, 1, 1, False),
        ({"spec__slotsPerWorker": 4}, 1, 4, False),
        ({"worker_container__resources": {"limits": {"nvidia.com/gpu": 1}}}, 1, 1, False),
        ({"worker_container__resources": {"limits": {"nvidia.com/gpu": 8}},
          "spec__slotsPerWorker": 8}, 1, 8, False),
        ({"worker_container__resources": {"limits": {"nvidia.com/gpu": 8}}}, 1, 8, True),
        ({"worker_container__resources": {"limits": {"nvidia.com/gpu": 2}},
          "spec__slotsPerWorker": 4}, 1, 2, True),
    ],
)  # fmt: skip
def test_workers_and_slots(fields: dict[str, Any], number: int, slots: int, checked: bool) -> None:
    migration = migrate_job(**fields)
    worker = migration.values["worker"]
    assert (worker["number"], worker["slots"]) == (number, slots)
    checks = [check for check in migration.checks if check.startswith("worker.slots is")]
    had = fields.get("spec__slotsPerWorker", 1)
    text = f"worker.slots is {slots}, the number of GPUs; the job had {had}"
    assert checks == ([text] if checked else [])


@pytest.mark.parametrize(
    ("policy", "cleanup"), [("All", "Always"), ("Running", "Always"), ("None", "Never")]
)
@pytest.mark.parametrize("in_run_policy", [True, False])
def test_clean_pod_policy(policy: str, cleanup: str, in_run_policy: bool) -> None:
    fields = {"spec__runPolicy": {"cleanPodPolicy": policy}}
    migration = migrate_job(**(fields if in_run_policy else {"spec__cleanPodPolicy": policy}))
    assert migration.values["cleanup"] == cleanup


def test_time_to_live_needs_cleanup_always() -> None:
    def checked(**fields: Any) -> tuple[str, bool]:
        migration = migrate_job(**fields)
        return migration.values["cleanup"], any("cleanup" in text for text in migration.checks)

    assert checked(spec__ttlSecondsAfterFinished=9) == ("Always", True)
    never = {"ttlSecondsAfterFinished": 9, "cleanPodPolicy": "None"}
    assert checked(spec__runPolicy=never) == ("Always", True)
    always = {"ttlSecondsAfterFinished": 9, "cleanPodPolicy": "All"}
    assert checked(spec__runPolicy=always) == ("Always", False)


def test_scheduling_policy_without_a_queue() -> None:
    migration = migrate_job(spec__runPolicy={"schedulingPolicy": {"priorityClass": "high"}})
    assert migration.values["priorityClassName"] == "high"
    assert (
        "runPolicy.schedulingPolicy asked for gang scheduling: set gang to Volcano or "
        "SchedulerPlugins"
    ) in migration.checks


def test_other_mpi_implementation_gets_a_check() -> None:
    migration = migrate_job(spec__mpiImplementation="Intel")
    check = "mpiImplementation was Intel: check that the image has it"
    assert check in migration.checks
    assert not any("mpiImplementation" in text for text in migrate_job().checks)


def test_fields_without_an_equivalent() -> None:
    migration = migrate_job(
        launcher__replicas=1, launcher__restartPolicy="Never", worker__restartPolicy="Never",
        worker_container__ports=[{"containerPort": 22}], worker_container__stdin=True,
        spec__runLauncherAsWorker=False,
    )  # fmt: skip
    result = results(migration)
    replicas = "spec.mpiReplicaSpecs"
    for old, reason in {
        f"{replicas}.Launcher.replicas": "the chart has one master",
        f"{replicas}.Launcher.restartPolicy": "master.backoffLimit sets the number of retries",
        f"{replicas}.Worker.restartPolicy": "master.backoffLimit sets the number of retries",
        f"{WORKER}.ports[0].containerPort": "the chart opens ssh.port",
        f"{WORKER}.stdin": "not carried over: see podSpec and container of worker and master",
        "spec.runLauncherAsWorker": "false: the master runs no ranks",
    }.items():
        assert result[old] == ("dropped", "", reason)
