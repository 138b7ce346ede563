"""Fields of MPIJobs that no file of of_users/ or every_key/ has, or not so."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hvdchart.errors import SpecError
from hvdchart.spec.paths import value_at
from tests.support.migrations import WORKER_POD, migrate_job, migrate_text

SECRET = {"secretKeyRef": {"name": "s", "key": "k"}}
LAUNCHERS_ENV = [{"name": "L", "value": "1"}]
POD_IP = {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
PULL = [{"name": "registry"}]
OTHER_PULL = [{"name": "other"}]
CLAIMS = [{"name": "c", "resourceClaimTemplateName": "t"}]
GPUS = {"limits": {"nvidia.com/gpu": 4}}


def mounted(*volumes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in volumes]


@pytest.mark.parametrize(
    ("fields", "path", "value"),
    [
        # Variables of launcher and workers stay apart, but for exported ones, which win.
        (
            {"worker_container__securityContext": {"runAsUser": 0}},
            "podSecurityContext",
            {"runAsUser": 0, "runAsNonRoot": False},
        ),
        ({"launcher_container__env": LAUNCHERS_ENV}, "master.env", LAUNCHERS_ENV),
        ({"launcher_container__env": LAUNCHERS_ENV}, "worker.env", None),
        (
            {
                "launcher_container__env": LAUNCHERS_ENV,
                "launcher_container__command": [
                    "mpirun",
                    "-x",
                    "A",
                    "-x",
                    "L",
                    "-x",
                    "W=2",
                    "train",
                ],
                "worker_container__env": [{"name": "W", "value": "1"}, {"name": "V", "value": "4"}],
            },
            "worker.env",
            [{"name": "W", "value": "2"}, {"name": "V", "value": "4"}, *LAUNCHERS_ENV],
        ),
        # Some launchers give all their variables to the ranks.
        (
            {
                "launcher_container__env": LAUNCHERS_ENV,
                "launcher_container__command": ["horovodrun", "-np", "1", "train"],
            },
            "worker.env",
            LAUNCHERS_ENV,
        ),
        # Kubernetes would replace $(NAME) and $$ in the values of variables.
        (
            {"launcher_container__command": ["mpirun", "-x", "E=$$$$(A)$$$$$b", "train"]},
            "worker.env",
            [{"name": "E", "value": "$$$$(A)$$$$$b"}],
        ),
        # What only the launcher had is not for the workers.
        ({"launcher_pod__hostNetwork": True}, "hostNetwork", None),
        ({"launcher_pod__priorityClassName": "low"}, "priorityClassName", None),
        ({"worker_pod__hostNetwork": True}, "hostNetwork", True),
        # The master's image may need a pull secret that the workers' image does not need.
        ({"launcher_pod__imagePullSecrets": PULL}, "imagePullSecrets", PULL),
        (
            {"launcher_pod__imagePullSecrets": PULL, "worker_pod__imagePullSecrets": OTHER_PULL},
            "imagePullSecrets",
            OTHER_PULL,
        ),
        ({"worker_pod__resourceClaims": CLAIMS}, "worker.podSpec.resourceClaims", CLAIMS),
        # The ranks of the launcher are those of one more worker.
        (
            {"spec__runLauncherAsWorker": True, "launcher_container__resources": GPUS},
            "master.resources",
            None,
        ),
        ({"launcher_container__resources": GPUS}, "master.resources", GPUS),
    ],
)
def test_field_of_a_job_becomes_a_value(fields: dict[str, Any], path: str, value: Any) -> None:
    assert value_at(migrate_job(**fields).values, path.split(".")) == value


HUGE = {"name": "huge", "emptyDir": {"medium": "HugePages"}}
DATA = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
OUT = {"name": "out", "persistentVolumeClaim": {"claimName": "out"}}


def test_volumes_of_the_workers_alone_are_not_mounted_in_the_master() -> None:
    migration = migrate_job(
        worker_pod__volumes=[HUGE, DATA],
        worker_container__volumeMounts=mounted(HUGE, DATA),
        launcher_pod__volumes=[DATA, OUT],
        launcher_container__volumeMounts=mounted(DATA, OUT),
    )
    values = migration.values
    group = {"name": "worker", "volumes": [HUGE], "volumeMounts": mounted(HUGE)}
    assert values["workerGroups"] == [group]
    assert values["volumes"] == [DATA, OUT]
    assert values["volumeMounts"] == mounted(DATA, OUT)


def test_volume_at_tmp_is_mounted_in_the_place_of_the_charts() -> None:
    volume = {"name": "scratch", "persistentVolumeClaim": {"claimName": "scratch"}}
    mount = {"name": "scratch", "mountPath": "/tmp"}
    migration = migrate_job(
        worker_pod__volumes=[volume],
        worker_container__volumeMounts=[mount, {**mount, "mountPath": "/etc/"}],
        launcher_pod__volumes=[volume],
        launcher_container__volumeMounts=[mount],
    )
    assert migration.values["volumeMounts"] == [mount]
    assert "the mount at /etc is dropped" in "\n".join(migration.checks)


@pytest.mark.parametrize(
    ("name", "release"), [("job", "job"), ("", ""), ("my.job", ""), ("a" * 48, "")]
)
def test_release_has_the_name_of_the_job_where_that_is_valid(name: str, release: str) -> None:
    assert migrate_job(metadata__name=name).release == release


@pytest.mark.parametrize(
    ("word", "argument"),
    [
        ("$(A)/x", "1/x"),
        ("$$(A)", "$(A)"),
        ("$(NONE)", "$(NONE)"),
        ("$(B)", "is 1"),
        ("a$b", "a$b"),
        ("$(A", "$(A"),
        ("$(C)", "x$y"),
    ],
)
def test_names_that_kubernetes_replaces_are_expanded_from_the_file(
    word: str, argument: str
) -> None:
    env = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "is $(A)"},
        {"name": "C", "value": "x$$y"},
    ]
    values = migrate_job(
        launcher_container__command=["sh", "-c", f"mpirun train '{word}'"],
        launcher_container__env=env,
    ).values
    assert values["master"]["args"] == ["train", argument]


WAITER = {"name": "w", "image": "a", "command": ["kubectl", "wait", "-lmpi-job-name=job", "pod"]}


@pytest.mark.parametrize(
    ("fields", "check"),
    [
        (
            {"worker_container__command": ["bash", "-c", "source env.sh; sshd -D"]},
            f"{WORKER_POD}.containers[0].command is dropped: ",
        ),
        (
            {"worker_container__volumeMount": ["a"]},
            f"{WORKER_POD}.containers[0].volumeMount[0]",
        ),
        (
            {
                "worker_pod__volumes": [{"name": "m", "emptyDir": {"medium": "Memory"}}],
                "worker_container__volumeMounts": [{"name": "m", "mountPath": "/dev/shm"}],
            },
            "shm.sizeLimit",
        ),
        (
            {"worker_container__securityContext": {"runAsUser": 1000}},
            "read-only",
        ),
        (
            {"worker_container__securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}},
            "read-only",
        ),
        (
            {"launcher_pod__hostNetwork": True},
            "spec.mpiReplicaSpecs.Launcher.template.spec.hostNetwork is dropped: ",
        ),
        (
            {"launcher_pod__imagePullSecrets": PULL, "worker_pod__imagePullSecrets": OTHER_PULL},
            "spec.mpiReplicaSpecs.Launcher.template.spec.imagePullSecrets is dropped: ",
        ),
        ({"worker_pod__hostIPC": True}, f"{WORKER_POD}.hostIPC is dropped: "),
        (
            {
                "worker_container__env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
                "worker_container__resources": {"limits": {"nvidia.com/gpu": 1}},
            },
            f"{WORKER_POD}.containers[0].env[0] is dropped: ",
        ),
        (
            {
                "launcher_container__command": [
                    "mpirun",
                    "-x",
                    "NVIDIA_VISIBLE_DEVICES=all",
                    "train",
                ],
                "worker_container__resources": {"limits": {"nvidia.com/gpu": 1}},
            },
            "NVIDIA_VISIBLE_DEVICES, ",
        ),
        (
            {"worker_pod__initContainers": [WAITER]},
            "mpi-job-name",
        ),
    ],
)
def test_what_the_result_lacks_is_to_be_checked(fields: dict[str, Any], check: str) -> None:
    checks = migrate_job(**fields).checks
    assert [text for text in checks if check in text], checks


def test_variable_of_the_workers_that_the_launcher_sets_is_dropped() -> None:
    migration = migrate_job(
        launcher_container__command=["mpirun", "-x", "W=2", "train"],
        worker_container__env=[{"name": "W", "value": "1"}],
    )
    (entry,) = [entry for entry in migration.entries if entry.old.endswith("containers[0].env[0]")]
    assert entry.outcome == "dropped"
    assert entry.reason == "the launcher sets it for all ranks, which wins as before"


def test_document_in_a_text_is_none_of_the_file() -> None:
    text = 'kind: ConfigMap\ndata:\n  run.sh: |\n    echo "--- not a document ---"\n---\n'
    job = json.dumps(migrate_job().tree)
    assert migrate_text(f"{text}{job}").values == migrate_job().values


def test_pull_secrets_that_are_carried_over_need_no_check() -> None:
    checks = migrate_job(launcher_pod__imagePullSecrets=PULL).checks
    assert not [text for text in checks if "imagePullSecrets" in text]


def test_variable_of_the_device_plugin_stays_where_no_plugin_sets_it() -> None:
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}]
    assert migrate_job(worker_container__env=env).values["worker"]["env"] == env


TOKEN = [{"name": "T", "valueFrom": SECRET}, {"name": "A", "value": "$(T)/x"}]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"worker_pod__containers": []},
            f"{WORKER_POD}.containers: got []; ",
        ),
        (
            {"spec__runPolicy": {"backoffLimit": 1}, "spec__backoffLimit": 2},
            "master.backoffLimit is 1 ",
        ),
        (
            {"worker_container__env": [{"name": "V", "value": "3"}, {"name": "V", "value": "4"}]},
            "containers[0].env[1]: the variable V ",
        ),
        (
            {
                "launcher_container__command": ["mpirun", "train", "$(T)"],
                "launcher_container__env": TOKEN,
            },
            "$(T) ",
        ),
        (
            {
                "launcher_container__command": ["mpirun", "-x", "A", "t"],
                "launcher_container__env": TOKEN,
            },
            "expected -x T ",
        ),
        (
            {
                "launcher_container__command": ["horovodrun", "-np", "1", "train"],
                "launcher_container__env": [POD_IP],
            },
            "IP ",
        ),
        (
            {"worker_pod__volumes": [OUT], "launcher_pod__volumes": [{**OUT, "emptyDir": {}}]},
            "Launcher.template.spec.volumes[0]: out ",
        ),
    ],
)
def test_job_that_cannot_be_converted_is_refused_at_its_place(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError) as error:
        migrate_job(**fields)
    assert message in str(error.value)


@pytest.mark.parametrize("queue", [None, "team"])
def test_job_for_a_queue_of_kueue_is_not_suspended(queue: str | None) -> None:
    """Kueue starts the chart's pods, and never changes master.suspend."""
    migration = migrate_job(
        metadata__labels={"kueue.x-k8s.io/queue-name": queue} if queue else {},
        spec__runPolicy={"suspend": True},
    )
    assert migration.values.get("queueName") == queue
    assert migration.values["master"].get("suspend") == (None if queue else True)


def test_labels_that_select_the_charts_pods_are_dropped() -> None:
    """A job of another chart has all of these."""
    kinds = ("name", "instance", "component")
    labels = {**{f"app.kubernetes.io/{kind}": "other" for kind in kinds}, "team": "a"}
    migration = migrate_job(worker_metadata__labels=labels)
    assert migration.values["worker"]["podLabels"] == {"team": "a"}
    for kind in kinds:
        assert [check for check in migration.checks if f"/{kind} is dropped" in check]
