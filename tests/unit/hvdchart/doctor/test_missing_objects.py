"""A run whose pods name an object that does not exist is refused before anything is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hvdchart.doctor.needs import objects_named
from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.command import Command
from tests.unit.hvdchart.played_runs import list_upgrades


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"worker": {"envFrom": [{"secretRef": {"name": "a"}}]}}, [("Secret", "a")]),
        ({"master": {"envFrom": [{"configMapRef": {"name": "a"}}]}}, [("ConfigMap", "a")]),
        (
            {"worker": {"env": [{"valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}]}},
            [("Secret", "a")],
        ),
        ({"workerGroups": [{"volumes": [{"secret": {"secretName": "a"}}]}]}, [("Secret", "a")]),
        (
            {"volumes": [{"persistentVolumeClaim": {"claimName": "a"}}]},
            [("PersistentVolumeClaim", "a")],
        ),
        ({"volumes": [{"configMap": {"name": "a", "optional": True}}]}, []),
        (
            {
                "volumes": [{"secret": {"secretName": "a"}}],
                "extraObjects": [{"kind": "Secret", "metadata": {"name": "a"}}],
            },
            [],
        ),
        ({"extraObjects": [{"spec": {"volumes": [{"secret": {"secretName": "a"}}]}}]}, []),
    ],
    ids=[
        "secret as environment",
        "config map as environment",
        "variable",
        "volume of a group",
        "claim",
        "optional",
        "made by the release",
        "of another object",
    ],
)
def test_objects_that_pods_cannot_start_without(
    values: dict[str, Any], named: list[tuple[str, str]]
) -> None:
    assert objects_named(values) == named


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        (["--secret", "wandb"], "Secret wandb"),
        (["--volume", "data=pvc:scans"], "PersistentVolumeClaim scans"),
    ],
    ids=["secret", "claim"],
)
def test_run_that_names_a_missing_object_is_refused_before_it_is_installed(
    hvdchart: Command,
    fake_cluster: FakeCluster,
    helm: StubProgram,
    script: Path,
    options: list[str],
    missing: str,
) -> None:
    done = hvdchart("run", script, "--detach", *options)
    assert (done.code, list_upgrades(helm)) == (7, [])
    assert f" {missing} in namespace team" in done.errors


def test_missing_object_that_comes_later_may_be_forced(
    hvdchart: Command, fake_cluster: FakeCluster, script: Path
) -> None:
    assert hvdchart("run", script, "--detach", "--secret", "wandb", "--force").code == 0


def test_who_may_not_read_secrets_learns_it_from_the_run(
    hvdchart: Command, fake_cluster: FakeCluster, script: Path
) -> None:
    fake_cluster.refusals["secrets get"] = (403, "secrets is forbidden")
    assert hvdchart("run", script, "--detach", "--secret", "wandb").code == 0


def test_doctor_names_each_missing_object_once(
    hvdchart: Command, fake_cluster: FakeCluster, script: Path
) -> None:
    fake_cluster.put("namespaces", {"metadata": {"name": "team"}})
    options = ["--secret", "wandb", "--volume", "data=pvc:scans"]
    lines = hvdchart("doctor", script, *options).output.splitlines()
    missing = [line for line in lines if line.startswith("PROBLEM")]
    assert [sum(name in line for line in missing) for name in ("wandb", "scans")] == [1, 1]
