"""Values of other charts become values of this chart; files of another kind are refused."""

from __future__ import annotations

from typing import Any

import pytest

from hvdchart.errors import SpecError
from hvdchart.spec.paths import value_at
from tests.support.migrations import PATHS, migrate_old, migrate_path, migrate_text

OLD = "ssh: {useSecrets: true}\n"
JOB = PATHS["mpijob-v2beta1.yaml"].read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "workersCount: 2\nexperimentName: a",
            "experimentName, workersCount",
        ),
        ("kind: TFJob\napiVersion: kubeflow.org/v1", "kind 'TFJob'"),
        ("some text", "got 'some text'"),
        (
            "worker: {number: 2}\nworkerGroups: []",
            "<old>:2:15: workerGroups ",
        ),
        (
            "image: {{ .Values.image }}\n",
            "<old>:1:9: ",
        ),
        (f"{JOB}---\n{JOB}", "MPIJob elastic, MPIJob elastic"),
        ("# nothing\n", "<old>: "),
        (
            f"kind: Secret\n---\n{JOB.replace('slotsPerWorker: 2', 'slotsPerWorker: two')}",
            f"<old>:{3 + JOB[: JOB.index('slotsPerWorker')].count(chr(10))}:19: "
            'spec.slotsPerWorker: got "two"',
        ),
    ],
)
def test_file_that_is_no_one_input_is_refused_with_what_it_is(text: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        migrate_text(text)
    assert message in str(error.value)


@pytest.mark.parametrize(("text", "mode"), [("0700", 0o700), ("0o17", 15), ("1_000", 1000)])
def test_numbers_are_those_of_the_yaml_that_kubectl_and_helm_read(text: str, mode: int) -> None:
    volume = f"volumes: [{{name: a, secret: {{secretName: a, defaultMode: {text}}}}}]\n"
    (volume,) = migrate_text(f"{OLD}{volume}").values["volumes"]
    assert volume["secret"]["defaultMode"] == mode


def test_documents_beside_the_job_are_named() -> None:
    secret = "kind: Secret\nmetadata: {name: s}"
    migration = migrate_text(f"# nothing\n---\n{secret}\n---\n{JOB}---\na: 1\n")
    assert migration.values == migrate_path(PATHS["mpijob-v2beta1.yaml"]).values
    first, second = (check.partition(":")[0] for check in migration.checks[:2])
    assert first.endswith("Secret s")
    assert second.endswith(" kind")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"worker": {"number": "many"}}, 'worker.number: got "many"; '),
        (
            {"worker": {"number": 0}},
            "worker.number: the chart's worker.number does not accept it: 0 ",
        ),
        ({"worker": {"image": "a:1"}}, 'worker.image: got "a:1"; '),
        (
            {"volumes": [{"name": "keys", "emptyDir": {}}]},
            "volumes[0]: the chart has a volume keys ",
        ),
        (
            {"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
            "volumeMounts[0]: no volume is called data",
        ),
        (
            {"a": 1, "b": 2, "c": 3, "d": 4, "e": [5, 6], "f": 7},
            ": a, b, c and 4 more",
        ),
    ],
)
def test_wrong_value_of_a_chart_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as error:
        migrate_old(**values)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("values", "path", "value"),
    [
        ({"worker": {"number": "4"}}, "worker.number", 4),
        ({"useHostPID": "On"}, "worker.podSpec.hostPID", True),
        # One rank for each GPU; shares and parts of GPUs count.
        ({"resources": {"limits": {"nvidia.com/mig-1g.5gb": "3"}}}, "worker.slots", 3),
        ({"master": {"args": ["mpirun -np 4 -npernode 2 a"]}}, "worker", {"number": 2, "slots": 2}),
        (
            {"master": {"args": ["cd /work &&", "mpirun python train.py --out $HOME"]}},
            "master.args",
            ["bash", "-c", "cd /work && mpirun python train.py --out $HOME"],
        ),
        (
            {"master": {"args": ["horovodrun -np 2 --min-np 1 --max-np 3 --gloo a"]}},
            "worker.minimum",
            1,
        ),
        (
            {
                "worker": {"env": {"A": "worker", "B": 1.50, "C": None}},
                "master": {
                    "env": {"A": "master", "D": False},
                    "args": ["mpirun -x A=line -x D -x E= a"],
                },
            },
            "worker.env",
            [
                {"name": "A", "value": "line"},
                {"name": "D", "value": "false"},
                {"name": "B", "value": "1.5"},
                {"name": "E", "value": ""},
            ],
        ),
    ],
)
def test_value_of_the_old_chart_becomes_one_of_this_chart(
    values: Any, path: str, value: Any
) -> None:
    assert value_at(migrate_old(**values).values, path.split(".")) == value


@pytest.mark.parametrize(
    ("number", "ranks", "gpus", "workers", "check"),
    [
        (2, 3, 0, 3, ""),
        (2, 1, 0, 2, "1 ranks; 2 workers x 1 slots start 2"),
        (2, 8, 4, 2, ""),
        (2, 9, 4, 3, "9 ranks; 3 workers x 4 slots start 12"),
        # The old master was one host.
        (3, 99, 0, 3, "99 ranks; 3 workers x 1 slots start 3"),
    ],
)
def test_workers_are_added_for_the_ranks_of_the_old_master(
    number: int, ranks: int, gpus: int, workers: int, check: str
) -> None:
    resources = {"limits": {"amd.com/gpu": gpus}} if gpus else {}
    migration = migrate_old(
        worker={"number": number}, master={"args": [f"mpirun -np {ranks} a"]}, resources=resources
    )
    assert migration.values["worker"]["number"] == workers
    texts = [text for text in migration.checks if " slots start " in text]
    assert len(texts) == bool(check)
    assert check in "".join(texts)


def test_what_a_file_lacks_is_a_default_or_a_check() -> None:
    migration = migrate_text(OLD)
    assert migration.values == {"worker": {"number": 3, "slots": 1}}
    for part in ("repository", "command", "default, 3", "root"):
        assert any(part in check for check in migration.checks), part
