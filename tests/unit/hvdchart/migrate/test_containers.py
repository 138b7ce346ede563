"""Images, resources, commands and variables of the migrated containers."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hvdchart.errors import SpecError
from hvdchart.text import split_image
from tests.unit.hvdchart.migrate.old_files import (
    LAUNCHER,
    WORKER,
    migrate_job,
    migrate_old,
    results,
)

HEX = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("a", ("a", "latest", "")),
        ("a:1", ("a", "1", "")),
        ("registry:5000/a/b", ("registry:5000/a/b", "latest", "")),
        ("registry:5000/a:2", ("registry:5000/a", "2", "")),
        ("a@sha256:1234", ("a", "", "sha256:1234")),
        ("a:1@sha256:1234", ("a", "1", "sha256:1234")),
        ("registry:5000/a@sha256:1234", ("registry:5000/a", "", "sha256:1234")),
    ],
)
def test_image_is_split_into_its_parts(reference: str, parts: tuple[str, str, str]) -> None:
    named = dict(zip(("repository", "tag", "digest"), parts, strict=True))
    assert split_image(reference) == {key: value for key, value in named.items() if value}


def test_images_of_launcher_and_workers_differ() -> None:
    migration = migrate_job(
        launcher_container__image="team/launcher:2",
        launcher_container__imagePullPolicy="Always",
        worker_container__imagePullPolicy="Never",
    )
    assert migration.values["image"] == {
        "repository": "team/image", "tag": "1", "pullPolicy": "Never",
    }  # fmt: skip
    assert migration.values["master"]["image"] == {
        "repository": "team/launcher", "tag": "2", "pullPolicy": "Always",
    }  # fmt: skip


def test_pull_policy_that_launcher_and_workers_share_is_given_once() -> None:
    migration = migrate_job(
        launcher_container__imagePullPolicy="Always", worker_container__imagePullPolicy="Always"
    )
    assert migration.values["image"]["pullPolicy"] == "Always"
    assert migration.values["master"] == {"args": ["train"]}
    reason = "the master uses the workers'"
    assert results(migration)[f"{LAUNCHER}.imagePullPolicy"] == ("dropped", "", reason)


def test_custom_command_gets_the_host_file_of_the_chart() -> None:
    migration = migrate_job(launcher_container__command=["run.sh", "--hosts=/etc/mpi/hostfile"])
    assert migration.values["master"]["args"] == ["run.sh", "--hosts=$(HOSTFILE)"]
    assert migration.values["launch"] == {"mode": "custom"}
    reason = "custom: run.sh is not a launcher that migrate knows"
    part = results(migration)[f"{LAUNCHER}.command: the command line"]
    assert part == ("changed", "launch.mode", reason)


def test_variables_of_launcher_and_workers_stay_apart_and_exports_win() -> None:
    migration = migrate_job(
        launcher_container__command=["mpirun", "-x", "A", "-x", "L", "-x", "W=2", "train"],
        launcher_container__env=[{"name": "L", "value": "1"}],
        worker_container__env=[{"name": "W", "value": "1"}, {"name": "V", "value": "3"},
                               {"name": "V", "value": "4"}],
    )  # fmt: skip
    assert migration.values["master"]["env"] == [{"name": "L", "value": "1"}]
    assert migration.values["worker"]["env"] == [
        {"name": "W", "value": "2"}, {"name": "V", "value": "4"}, {"name": "L", "value": "1"},
    ]  # fmt: skip
    result = results(migration)
    wins = "the launcher sets it for all ranks, which wins as before"
    assert result[f"{WORKER}.env[0].value"] == ("dropped", "", wins)
    later = "a later entry sets the same variable, which wins"
    assert result[f"{WORKER}.env[1].name"] == ("dropped", "", later)
    assert result[f"{WORKER}.env[2].name"] == ("changed", "worker.env", "")
    rank = "every rank has its worker's environment"
    assert result[f"{LAUNCHER}.command: -x A"] == ("dropped", "", rank)
    assert result[f"{LAUNCHER}.command: -x L"] == ("changed", "worker.env", rank)
    assert result[f"{LAUNCHER}.command: -x W=..."] == ("changed", "worker.env", rank)


@pytest.mark.parametrize(
    ("resources", "slots"),
    [
        ({"limits": {"nvidia.com/gpu": 2}}, 2),
        ({"limits": {"nvidia.com/mig-1g.5gb": "3"}}, 3),
        ({"limits": {"cpu": 4, "gpu.intel.com/xe": 1}, "requests": {"gpu.intel.com/xe": 1}}, 1),
        ({"limits": {"nvidia.com/gpu": 0}}, None),
        ({"limits": {"nvidia.com/gpu": 1_000_000}}, None),
        ({"limits": {"cpu": 4}}, None),
        ({}, None),
    ],
)
def test_slots_are_the_gpus_of_a_worker(resources: Any, slots: int | None) -> None:
    migration = migrate_old(resources=resources)
    assert migration.values["worker"].get("slots") == slots
    assert any("whatever its GPUs" in check for check in migration.checks) == ((slots or 1) > 1)


def test_image_of_the_master_is_carried_over_where_it_differs() -> None:
    image = {"repository": "b", "tag": "1", "pullPolicy": None}
    migration = migrate_old(master={"image": image})
    assert migration.values["image"] == {"repository": "a", "tag": "1"}
    assert migration.values["master"]["image"] == {"repository": "b"}
    result = results(migration)
    assert result["master.image.repository"][0] == "carried over"
    assert result["master.image.tag"] == ("dropped", "", "the same as worker.image")
    assert result["master.image.pullPolicy"] == ("dropped", "", "null sets nothing")


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ({"repository": "a@sha256", "tag": HEX}, {"repository": "a"}),
        ({"repository": "r:5000/a", "tag": f"1.0@sha256:{HEX}"},
         {"repository": "r:5000/a", "tag": "1.0"}),
    ],
)  # fmt: skip
def test_digest_in_the_repository_or_the_tag_of_the_old_chart_becomes_one(
    image: dict[str, str], parts: dict[str, str]
) -> None:
    digest = f"sha256:{HEX}"
    migration = migrate_old(worker={"image": {**image, "pullPolicy": "Always"}},
                            master={"image": image})  # fmt: skip
    assert migration.values["image"] == {**parts, "digest": digest, "pullPolicy": "Always"}
    assert migration.values["master"] == {"args": ["a"]}
    result = results(migration)
    reason = f"together they are {', '.join([*parts, 'digest'])}"
    assert result["worker.image.tag"] == ("changed", "image", reason)
    assert result["master.image.tag"] == ("dropped", "", "the same as worker.image")
    other = migrate_old(master={"image": image}).values
    assert other["image"] == {"repository": "a", "tag": "1"}
    assert other["master"]["image"] == {**parts, "digest": digest}


def test_wrong_digest_of_the_old_chart_is_refused_at_its_place() -> None:
    message = re.escape("worker.image.repository: the chart's image.digest does not accept it")
    with pytest.raises(SpecError, match=message):
        migrate_old(worker={"image": {"repository": f"a@sha256:{HEX}", "tag": "latest"}})


def test_variables_are_merged_and_the_line_wins_over_the_master() -> None:
    migration = migrate_old(
        worker={"env": {"A": "worker", "B": 1.50, "C": None}},
        master={"env": {"A": "master", "D": False},
                "args": ["mpirun -x A=line -x D -x HOME -x E= a"]},
    )  # fmt: skip
    assert migration.values["worker"]["env"] == [
        {"name": "A", "value": "line"}, {"name": "D", "value": "false"},
        {"name": "B", "value": "1.5"}, {"name": "E", "value": ""},
    ]  # fmt: skip
    result = results(migration)
    wins = "the launcher sets it for all ranks, which wins as before"
    assert result["worker.env.A"] == result["master.env.A"] == ("dropped", "", wins)
    assert result["worker.env.C"] == ("dropped", "", "null sets nothing")
    assert result["master.args: -x A=..."][:2] == ("changed", "worker.env")
    assert result["master.args: -x D"][:2] == ("changed", "worker.env")
    assert result["master.args: -x HOME"][0] == "dropped"


def test_elastic_limits_and_mode_are_carried_over() -> None:
    line = "horovodrun -np 2 --min-np 1 --max-np 3 --gloo a"
    migration = migrate_old(master={"args": [line]})
    assert migration.values["launch"] == {
        "mode": "elastic", "elastic": {"minRanks": 1, "maxRanks": 3}, "options": ["--gloo"],
    }  # fmt: skip
    result = results(migration)
    assert result["master.args: --min-np 1"] == ("changed", "launch.elastic.minRanks", "unchanged")
    assert result["master.args: --max-np 3"] == ("changed", "launch.elastic.maxRanks", "unchanged")
    assert result["master.args: horovodrun"] == ("changed", "launch.mode", "elastic")
    assert result["master.args: --gloo"] == ("changed", "launch.options", "unchanged")


@pytest.mark.parametrize(
    ("word", "argument"),
    [
        ("$(A)/x", "1/x"),
        ("$$(A)", "$(A)"),
        ("$(NONE)", "$(NONE)"),
        ("$(B)", "is 1"),
        ("a$b", "a$b"),
        ("$(A", "$(A"),
    ],
)
def test_names_that_kubernetes_replaces_are_expanded_from_the_file(
    word: str, argument: str
) -> None:
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "is $(A)"}]
    migration = migrate_job(
        launcher_container__command=["mpirun", "train", word], launcher_container__env=env
    )
    assert migration.values["master"]["args"] == ["train", argument]


def test_name_whose_value_only_the_cluster_has_is_refused() -> None:
    token = {"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    with pytest.raises(SpecError, match=r"\$\(T\) has its value from the cluster \(valueFrom\)"):
        migrate_job(
            launcher_container__command=["mpirun", "train", "$(T)"],
            launcher_container__env=[token],
        )


def test_names_are_expanded_before_the_shell_reads_them() -> None:
    env = [{"name": "DIR", "value": "/data"}]
    migration = migrate_job(
        launcher_container__command=["sh", "-c", "mpirun python a.py --data $(DIR)"],
        launcher_container__env=env,
    )
    assert migration.values["master"]["args"] == ["python", "a.py", "--data", "/data"]
    old = migrate_old(master={"args": ["mpirun a $(DIR)"], "env": {"DIR": "/data"}})
    assert old.values["master"]["args"] == ["a", "/data"]


def test_dollars_of_an_export_stay_as_they_are() -> None:
    """Kubernetes would replace $(A) and $$ in the values of variables."""
    migration = migrate_job(
        launcher_container__command=["mpirun", "-x", "E=$$$$(A)$$$$$b", "train"]
    )
    assert migration.values["worker"]["env"] == [{"name": "E", "value": "$$$$(A)$$$$$b"}]


def test_horovodrun_gives_all_variables_of_the_launcher_to_the_ranks() -> None:
    env = [{"name": "L", "value": "1"}]
    line = ["horovodrun", "-np", "1", "train"]
    migration = migrate_job(launcher_container__command=line, launcher_container__env=env)
    assert migration.values["worker"]["env"] == env
    intel = migrate_job(launcher_container__env=env, spec__mpiImplementation="Intel")
    assert intel.values["worker"]["env"] == env
    assert "env" not in migrate_job(launcher_container__env=env).values["worker"]
