"""A Kubeflow MPIJob becomes values of this chart."""

from __future__ import annotations

from typing import Any

import pytest

from hvdchart.errors import SpecError
from tests.unit.hvdchart.migrate.old_files import (
    LAUNCHER,
    LAUNCHER_POD,
    WORKER,
    WORKER_POD,
    migrate_file,
    migrate_job,
    results,
)


def test_mpijob_of_two_gpu_workers() -> None:
    migration = migrate_file("mpijob-v1.yaml")
    assert (migration.source, migration.release, migration.namespace) == (
        "MPIJob", "imagenet", "vision",
    )  # fmt: skip
    token = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "token"}}}
    assert migration.values == {
        "queueName": "research",
        "image": {"repository": "registry.example:5000/vision/imagenet", "tag": "latest"},
        "master": {
            "args": ["python", "train.py", "--epochs=90"],
            "env": [token, {"name": "LAUNCHER_ONLY", "value": "1"}],
            "backoffLimit": 2,
            "resources": {"limits": {"cpu": 1, "memory": "2Gi"}},
        },
        "launch": {"options": ["-bind-to", "none", "-map-by", "slot", "-mca", "pml", "ob1"]},
        "worker": {
            "env": [{"name": "NCCL_DEBUG", "value": "INFO"}, token],
            "number": 2, "resources": {"limits": {"nvidia.com/gpu": 8}}, "slots": 8,
            "nodeSelector": {"pool": "gpu"},
            "podAnnotations": {"sidecar.istio.io/inject": "false"},
            "envFrom": [{"secretRef": {"name": "more"}}],
            "initContainers": [{"name": "fetch", "image": "busybox",
                                "command": ["sh", "-c", "cp -r /efs /data"]}],
            "extraContainers": [{"name": "sidecar", "image": "busybox"}],
        },
        "cleanup": "Always", "priorityClassName": "high", "shm": {"sizeLimit": "16Gi"},
        "volumes": [{"name": "efs", "nfs": {"server": "nfs.example", "path": "/",
                                            "readOnly": True}}],
        "volumeMounts": [{"name": "efs", "mountPath": "/efs"}],
    }  # fmt: skip
    starts = ["the pods ran as the image's user, often root; here they run as user 1000",
              "fetch of initContainers are in worker.initContainers, unchanged. Under Pod",
              "sidecar of containers are in worker.extraContainers, unchanged. Under Pod",
              "worker.slots is 8, the number of GPUs; the job had 1",
              "the old command line started 4 ranks; 2 workers x 8 slots start 16"]  # fmt: skip
    for check, start in zip(migration.checks, starts, strict=True):
        assert check.startswith(start)


def test_elastic_mpijob() -> None:
    migration = migrate_file("mpijob-v2beta1.yaml")
    digest = "0123456789abcdef" * 4
    assert (migration.release, migration.namespace) == ("elastic", "")
    assert migration.values == {
        "image": {"repository": "team/elastic", "digest": f"sha256:{digest}"},
        "master": {"args": ["python", "train.py"], "activeDeadlineSeconds": 3600,
                   "ttlSecondsAfterFinished": 60, "suspend": True,
                   "container": {"workingDir": "/work"}},
        "launch": {"mode": "elastic", "elastic": {"minRanks": 2, "maxRanks": 6},
                   "options": ["--network-interface", "eth0"]},
        "worker": {"number": 2, "resources": {"requests": {"cpu": 2}}, "slots": 2},
        "cleanup": "Always",
        "podSecurityContext": {"fsGroup": 2000, "runAsUser": 1000},
    }  # fmt: skip
    assert migration.checks == (
        "the host discovery script /etc/mpi/discover_hosts.sh is not used: the chart has its own, "
        "which lists the workers that are ready",
        "cleanup is Always, because ttlSecondsAfterFinished deletes the Job and would leave the "
        "workers of a failed run",
        "runPolicy.schedulingPolicy asked for gang scheduling: set gang to Volcano or "
        "SchedulerPlugins, and with Volcano queueName to research",
    )


@pytest.mark.parametrize(
    ("old", "entry"),
    [
        ("apiVersion", ("dropped", "", "the chart makes a StatefulSet and a Job instead")),
        ("metadata.name", ("changed", "helm install NAME", "the name of the release")),
        (f"{WORKER}.image", ("changed", "image", "split into repository and digest")),
        (f"{LAUNCHER}.image", ("dropped", "", "the master uses the workers'")),
        (f"{LAUNCHER}.command[0]",
         ("changed", "master.args", "each part has a line of its own")),
        (f"{LAUNCHER}.args[0]", ("changed", "master.args", "the rest of the command line")),
        ("spec.slotsPerWorker", ("renamed", "worker.slots", "")),
        ("spec.runLauncherAsWorker",
         ("changed", "worker.number", "one more worker, because the master runs no ranks")),
        ("spec.launcherCreationPolicy",
         ("dropped", "", "the master starts at once and waits for the workers")),
        ("spec.sshAuthMountPath",
         ("dropped", "", "the chart has its own mount path for the SSH keys")),
        ("spec.mpiImplementation", ("dropped", "", "the chart detects the image's MPI")),
        ("spec.runPolicy.cleanPodPolicy", ("changed", "cleanup", "the same meaning")),
        ("spec.runPolicy.suspend", ("renamed", "master.suspend", "")),
        ("spec.runPolicy.schedulingPolicy.minAvailable",
         ("dropped", "", "the MPIJob does not name the gang scheduler; set gang")),
        (f"{LAUNCHER}.securityContext.runAsUser",
         ("dropped", "", "the workers' security context is for all pods")),
        (f"{WORKER}.securityContext.runAsUser",
         ("renamed", "podSecurityContext.runAsUser", "set for the pod")),
        (f"{WORKER}.command[0]", ("dropped", "", "the chart starts the workers' SSH server")),
        (f"{LAUNCHER}.workingDir", ("renamed", "master.container.workingDir", "")),
        (f"{LAUNCHER}.name",
         ("dropped", "", "the chart names its containers worker and master")),
    ],
)  # fmt: skip
def test_outcomes_of_the_elastic_mpijob(old: str, entry: tuple[str, str, str]) -> None:
    assert results(migrate_file("mpijob-v2beta1.yaml"))[old] == entry


def test_smallest_mpijob_keeps_one_worker_with_one_slot() -> None:
    migration = migrate_job()
    assert migration.values == {
        "image": {"repository": "team/image", "tag": "1"},
        "master": {"args": ["train"]},
        "worker": {"number": 1, "slots": 1},
    }
    assert [check[:40] for check in migration.checks] == [
        "the pods ran as the image's user, often "
    ]


@pytest.mark.parametrize(
    ("name", "release", "valid"),
    [
        ("job", "job", True),
        ("my.job", "my-job", False),
        ("3d-unet", "run-3d-unet", False),
        ("a" * 60, "a" * 47, False),
        ("a" * 46 + "-b", "a" * 46, False),
        ("", "", True),
    ],
)
def test_release_name_is_the_name_of_the_job_made_valid(
    name: str, release: str, valid: bool
) -> None:
    migration = migrate_job(metadata__name=name)
    assert migration.release == release
    check = f"the release is called {release}: {name} is not a valid release name"
    assert (check in migration.checks) is not valid


def test_generated_name_and_metadata() -> None:
    migration = migrate_job(
        metadata__name=None, metadata__generateName="run-", metadata__namespace="ns",
        metadata__labels={"team": "a"}, metadata__annotations={"b": "c"}, metadata__uid="1",
    )  # fmt: skip
    assert (migration.release, migration.namespace) == ("run", "ns")
    result = results(migration)
    assert result["metadata.generateName"][:2] == ("changed", "helm install NAME")
    assert result["metadata.namespace"] == ("changed", "helm --namespace", "an option of Helm")
    for old in ("metadata.labels.team", "metadata.annotations.b"):
        reason = "of the MPIJob object, which Helm does not make"
        assert result[old] == ("dropped", "", reason)
    reason = "Helm sets the metadata of the objects"
    assert result["metadata.uid"] == ("dropped", "", reason)


def test_main_container_is_the_named_or_the_first() -> None:
    containers = [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]
    named = migrate_job(worker_pod__containers=containers, spec__mainContainer="b")
    assert named.values["image"]["repository"] == "b"
    assert named.values["worker"]["extraContainers"] == [containers[0]]
    unknown = migrate_job(worker_pod__containers=containers, spec__mainContainer="c")
    assert unknown.values["image"]["repository"] == "a"
    unnamed = migrate_job(worker_pod__containers=[containers[0], {"name": "c"}])
    assert unnamed.values["worker"]["extraContainers"] == [{"name": "c"}]


def test_containers_beside_the_launcher_become_native_sidecars() -> None:
    first, main, beside = ({"name": name, "image": f"{name}:1"} for name in "abc")
    migration = migrate_job(
        launcher_pod__containers=[main, beside],
        launcher_pod__initContainers=[first],
        worker_container__workingDir="/w",
    )
    values = migration.values
    sidecar = {**beside, "restartPolicy": "Always"}
    assert values["master"]["initContainers"] == [first, sidecar]
    assert values["worker"]["container"] == {"workingDir": "/w"}
    assert "extraContainers" not in values["master"]
    always = "with restartPolicy Always: they run until the master ends"
    assert [
        check.partition(". ")[0] for check in migration.checks if "initContainers" in check
    ] == [
        "a of initContainers are in master.initContainers, unchanged",
        f"c of containers are in master.initContainers, {always}",
    ]
    entry = results(migration)[f"{LAUNCHER_POD}.containers[1].image"]
    assert entry == ("changed", "master.initContainers", always)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"worker_pod__containers": []},
         f"{WORKER_POD}.containers: got []; expected a container: launcher and workers have one"),
        ({"launcher_pod__containers": ["a"]},
         f'{LAUNCHER_POD}.containers[0]: Kubernetes does not accept it: "a" is not of type'),
        ({"worker_container__image": ""}, f'{WORKER}.image: got ""; expected the workers\' image'),
        ({"spec__cleanPodPolicy": "Some"},
         'spec.cleanPodPolicy: got "Some"; expected one of All, Running, None'),
        ({"spec__slotsPerWorker": 0}, "spec.slotsPerWorker: the chart's worker.slots does not"),
        ({"worker__replicas": 0}, "replicas: the chart's worker.number does not accept it"),
        ({"launcher_container__env": ["A=b"]},
         f'{LAUNCHER}.env[0]: Kubernetes does not accept it: "A=b" is not of type'),
    ],
)  # fmt: skip
def test_error_names_the_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as error:
        migrate_job(**fields)
    assert message in str(error.value)


def test_launcher_without_command_gets_a_check() -> None:
    migration = migrate_job(launcher_container__command=None)
    assert "args" not in migration.values.get("master", {})
    assert migration.checks[0] == (
        "the launcher has no command, so the image's own ran; this chart runs a check of "
        "allreduce instead. Put the command into master.args"
    )


def test_launcher_with_args_only() -> None:
    migration = migrate_job(
        launcher_container__command=None, launcher_container__args=["mpirun", "-n", "1", "train"]
    )
    assert migration.values["master"]["args"] == ["train"]
    entry = ("changed", "master.args", "each part has a line of its own")
    assert results(migration)[f"{LAUNCHER}.args[3]"] == entry
    assert results(migration)[f"{LAUNCHER}.args: -n 1"][0] == "dropped"
