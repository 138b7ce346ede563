"""Values of other charts become values of this chart, and unknown files are refused."""

from __future__ import annotations

from typing import Any

import pytest
from ruamel.yaml import YAML

from hvdchart.errors import SpecError
from hvdchart.migrate.convert import Migration
from tests.unit.hvdchart.migrate.old_files import (
    PATHS,
    migrate_file,
    migrate_text,
    migrate_tree,
    results,
)


def with_values(name: str, **changes: Any) -> Migration:
    """The migration of a file with other values at its top; None removes one."""
    tree = YAML(typ="safe").load(PATHS[name].read_text())
    tree |= changes
    return migrate_tree({key: value for key, value in tree.items() if value is not None})


def test_arena() -> None:
    migration = migrate_file("arena.yaml")
    assert migration.source == "Arena's chart"
    values: Any = migration.values
    amounts = {"cpu": 32, "memory": "200Gi", "nvidia.com/gpu": 8}
    assert values["worker"] == {
        "number": 4, "slots": 8, "resources": {"requests": amounts, "limits": amounts},
        "env": [{"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "EPOCHS", "value": "90"}],
        "nodeSelector": {"pool": "gpu"}, "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "podLabels": {"team": "vision"}, "podAnnotations": {"note": "1"},
    }  # fmt: skip
    assert values["master"]["args"] == ["python", "/code/train.py", "--lr=0.1"]
    assert values["tensorboard"] == {"enabled": True, "logDir": "/logs"}
    assert values["volumes"][0] == {
        "name": "imagenet-pvc", "persistentVolumeClaim": {"claimName": "imagenet-pvc"},
    }  # fmt: skip
    assert (values["cleanup"], values["shm"]) == ("Always", {"sizeLimit": "16Gi"})
    assert any("https://git.example/code.git" in check for check in migration.checks)


def test_arena_with_rdma_elastic_limits_and_no_local_logs() -> None:
    migration = with_values(
        "arena.yaml", enableRDMA=True, minWorkers=2, maxWorkers=6, isLocalLogging=False,
        podGroupName="g", privileged=True, workingDir="/w", configFiles={"a": {"b": {}}},
        enablePodSecurityContext=True, isNonRoot=False, podSecurityContext={"runAsUser": 5},
        devices={"aliyun.com/x": 1}, command="python train.py", useHostNetwork=True,
    )  # fmt: skip
    values: Any = migration.values
    assert values["worker"]["resources"]["limits"]["rdma/hca"] == 1
    assert values["worker"]["resources"]["limits"]["aliyun.com/x"] == 1
    assert values["worker"]["capabilities"] == ["IPC_LOCK"]
    assert values["launch"] == {"mode": "elastic", "elastic": {"minRanks": 16, "maxRanks": 48}}
    assert values["hostNetwork"] is True
    assert "tensorboard" not in values
    text = "\n".join(migration.checks)
    assert values["master"]["container"] == values["worker"]["container"] == {"workingDir": "/w"}
    for part in ("useTensorboard is true", "podGroupName asked", "configFiles is dropped"):
        assert part in text


def test_nauta() -> None:
    migration = migrate_file("nauta.yaml")
    values: Any = migration.values
    assert migration.release == "unet-3"
    assert (values["worker"]["number"], values["worker"]["slots"]) == (4, 2)
    assert values["worker"]["env"] == [
        {"name": "KMP_BLOCKTIME", "value": "0"}, {"name": "OMP_NUM_THREADS", "value": "20"},
    ]  # fmt: skip
    assert values["worker"]["resources"]["limits"] == {"cpu": "76", "memory": "240Gi"}
    assert values["launch"]["options"][:4] == ["--map-by", "socket:PE=20", "--bind-to", "core"]
    assert values["master"]["args"] == [
        "python", "train.py", "--data_path=/mnt/input/root", "--epochs", "30",
    ]  # fmt: skip
    assert values["volumeMounts"][-1] == {
        "name": "output-home", "mountPath": "/mnt/output/experiment", "subPath": "unet-3",
    }  # fmt: skip
    assert values["network"] == {"interface": "eth1"}


def test_nauta_without_shorthands_and_with_a_line_for_a_shell() -> None:
    migration = with_values(
        "nauta.yaml", cpu=None, memory=None, useHostNetwork=False, cpus=None,
        commandline={"args": ["train.py", "--out $HOME/x"]}, experimentName=None,
        processesPerNode=None,
    )  # fmt: skip
    values: Any = migration.values
    assert values["worker"]["slots"] == 1
    assert values["worker"]["resources"]["requests"] == {"cpu": 38, "memory": "100Gi"}
    assert values["master"]["args"] == ["sh", "-c", "python train.py --out $HOME/x"]
    assert "--map-by" not in values["launch"]["options"]
    assert ("network" in values, len(values["volumeMounts"])) == (False, 2)


def test_intel_transfer_learning_tool() -> None:
    migration = migrate_file("intel-tlt.yaml")
    values: Any = migration.values
    assert (migration.release, migration.namespace) == ("tf-flowers", "ml")
    assert values["launch"] == {"mode": "horovodrun", "options": ["--verbose"]}
    args = values["master"]["args"]
    assert args[args.index("--dataset-name") + 1] == "flowers102"
    assert args[args.index("--batch_size") + 1] == "64"
    assert values["worker"]["resources"] == {"limits": {"cpu": 16, "memory": "32Gi"}}
    assert values["master"]["resources"] == {"limits": {"cpu": 2, "memory": "4Gi"}}
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in values["volumes"]]
    assert claims == ["tlt-data", "tlt-output"]
    assert migration.checks[0].startswith("the image has its program below /tmp")
    slots: Any = with_values("intel-tlt.yaml", slotsPerWorker=2).values
    assert (slots["worker"]["number"], slots["worker"]["slots"]) == (2, 2)


def test_aws() -> None:
    migration = migrate_file("aws.yaml")
    values: Any = migration.values
    amounts = {"vpc.amazonaws.com/efa": 4, "nvidia.com/gpu": 8}
    assert values["worker"]["resources"] == {"requests": amounts, "limits": amounts}
    assert (values["worker"]["number"], values["worker"]["slots"]) == (2, 8)
    env = {entry["name"]: entry["value"] for entry in values["worker"]["env"]}
    assert env["HOME"] == "/fsx/home"
    assert env["TF_ENABLE_AUTO_MIXED_PRECISION"] == "1"
    assert values["master"]["args"][:2] == ["bash", "-c"]
    assert values["master"]["args"][2].splitlines() == [
        "LOG_DIR=$HOME/logs/$(date +%s)",
        "cd /detector",
        "python3 train.py --logdir $LOG_DIR --config MODE='mask'",
    ]
    assert values["launch"]["options"] == ["-bind-to", "none", "-mca", "pml", "ob1", "--tag-output"]
    plain = with_values("aws.yaml", pre_script=[], mpirun=None, train={
        "command": ["python3"], "args": ["a.py", "--lr 0.1"]}, git={"repo_url": "https://g/r"},
        ebs={"storage": "9Gi", "mount_path": "/ebs"})  # fmt: skip
    assert plain.values["master"]["args"] == ["python3", "a.py", "--lr", "0.1"]
    assert any(check.startswith("each rank cloned https://g/r") for check in plain.checks)
    assert plain.values["volumeMounts"][-1] == {"name": "ebs", "mountPath": "/ebs"}


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("arena.yaml", {"workers": None}, "the key workers is missing"),
        ("arena.yaml", {"dataset": {"a": "/x"}, "dataDirs": [
            {"name": "b", "hostPath": "/b", "containerPath": "/x"}]}, "mounted at /x"),
        ("arena.yaml", {"dataDirs": [{"name": "b", "hostPat": "/b"}]}, "dataDirs[0].hostPat: no"),
        ("arena.yaml", {"dataset": {"a": "/tmp"}}, "/tmp belongs to the system or to the chart"),
        ("arena.yaml", {"gpuCuont": 4, "gpuCount": None}, "gpuCuont: no such key; expected gpuC"),
        ("arena.yaml", {"minWorkers": 9}, "does not accept"),
        ("nauta.yaml", {"workersCount": None}, "the key workersCount is missing"),
        ("nauta.yaml", {"processesPerNode": 0}, "worker.slots does not accept it"),
        ("intel-tlt.yaml", {"workers": None}, "the key workers is missing"),
        ("intel-tlt.yaml", {"epochs": None}, "the key epochs is missing"),
        ("intel-tlt.yaml", {"slotsPerWorker": 3}, "4 ranks do not fill hosts of 3 slots"),
        ("aws.yaml", {"resources": {"gpu_nodes": 2}}, "the key gpus_per_node is missing"),
        ("aws.yaml", {"mpirun": {"args": ["--zoom"]}}, "does not understand option --zoom"),
        ("aws.yaml", {"pvc": [{"name": "a", "path": "/a"}]}, "pvc[0].path: no such key"),
    ],
)  # fmt: skip
def test_values_that_do_not_say_enough_are_refused(
    name: str, changes: dict[str, Any], message: str
) -> None:
    if changes == {"minWorkers": 9}:
        changes, message = {"minWorkers": 0}, "launch.elastic.minRanks does not accept it"
    with pytest.raises(SpecError) as error:
        with_values(name, **changes)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("services: {}\nversion: '3'", "its keys are services, version; it looks like a Compose"),
        ("worker: {replicas: 2}\nresources: {}",
         "its keys are resources, worker; no chart that migrate knows has them"),
        ("workers: 2\nimage: a",
         "its keys are image, workers; it has workers in common with Arena's chart, and too"),
        ("maskrcnn: {gpus: 8}\nglobal: {}", "it looks like values of AWS's Mask R-CNN chart"),
        ("useHostNetwork: true\nfoo: 1", "no chart that migrate knows has them"),
        ("kind: PyTorchJob\napiVersion: kubeflow.org/v1", "kind 'PyTorchJob'"),
        ("mpirun -np 2 a", "got 'mpirun -np 2 a'; expected values of"),
    ],
)  # fmt: skip
def test_unknown_file_is_refused_with_what_it_looks_like(text: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        migrate_text(text)
    assert message in str(error.value)
    assert "a shell script needs --command-line" in str(error.value)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("image: {{ .Values.image }}\n", "1:8", "{{ .Values.image }} is a template, which Helm"),
        ("a: 1\nb: '{{ include \"x\" . }}'\n", "2:5", "helm template RELEASE CHART | hvdchart"),
        ("{% for a in b %}\n- a\n{% endfor %}", "1:1", "{% for a in b %} is a template of Jinja"),
        ("experimentName: {{ NAUTA.ExperimentName }}", "1:17", "is a template of Jinja"),
    ],
)
def test_template_is_recognised_before_it_is_parsed(text: str, place: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        migrate_text(text)
    assert str(error.value).startswith(f"<old>:{place}: ")
    assert message in str(error.value)


def test_comments_with_braces_are_no_template() -> None:
    migration = migrate_text("# {{ x }}\nworker: {number: 2} # {% y %}\nmaster: {args: [mpirun a]}")
    assert migration.values["worker"] == {"number": 2}


JOB = PATHS["mpijob-v2beta1.yaml"].read_text()


def test_documents_beside_the_job_are_named() -> None:
    migration = migrate_text(
        f"---\n# nothing\n---\nkind: Secret\nmetadata: {{name: s}}\n---\n{JOB}---\n"
    )
    assert migration.values == migrate_file("mpijob-v2beta1.yaml").values
    assert migration.checks[0] == (
        "the file also has Secret s: apply it yourself if the run needs it"
    )
    assert migrate_text(f"{JOB}\n---\n...\n").checks == migrate_file("mpijob-v2beta1.yaml").checks


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{JOB}---\n{JOB}", "the file has MPIJob elastic, MPIJob elastic; expected one MPIJob"),
        ("kind: Secret\n---\nkind: Service\n", "the file has Secret, Service; expected one"),
        ("---\n---\n", "the file has no documents with a value"),
        (f"a: 1\n---\n{JOB.replace('launcher', 'launcher', 1)}\n---\nb: [", "broken YAML"),
    ],
)
def test_several_jobs_in_a_file_are_refused(text: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        migrate_text(text)
    assert message in str(error.value)


def test_place_in_a_later_document_is_that_of_the_file() -> None:
    broken = JOB.replace("slotsPerWorker: 2", "slotsPerWorker: two")
    line = 3 + broken[: broken.index("two")].count("\n")
    with pytest.raises(SpecError, match=rf"<old>:{line}:19: spec.slotsPerWorker: got \"two\""):
        migrate_text(f"kind: Secret\n---\n{broken}")


def test_volcano_job() -> None:
    migration = migrate_file("volcano.yaml")
    values: Any = migration.values
    assert (migration.release, migration.namespace) == ("lm-train", "nlp")
    assert (values["gang"], values["queueName"]) == ("Volcano", "research")
    assert values["worker"]["env"] == [{"name": "STEPS", "value": "1000"}]
    assert (values["worker"]["number"], values["worker"]["slots"]) == (2, 2)
    assert values["master"]["args"] == ["python", "lm.py"]
    assert values["master"]["backoffLimit"] == 2
    command = "spec.tasks[0].template.spec.containers[0].command"
    assert results(migration)[f"{command}: /usr/sbin/sshd"] == (
        "dropped", "", "the chart starts the SSH servers",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: mpimaster", "name: chief", "the tasks are chief, mpiworker; expected two tasks"),
        ("replicas: 1", "replicas: 3", "spec.tasks[0].replicas: got 3; expected one launcher"),
        ("queue: research", "qeue: research", "spec.qeue: no such key; expected queue, if that"),
        ("- name: mpiworker", "- nmae: mpiworker", "spec.tasks[1].nmae: no such key; expected na"),
    ],
)
def test_volcano_job_of_another_shape_is_refused(old: str, new: str, message: str) -> None:
    text = PATHS["volcano.yaml"].read_text()
    assert old in text
    with pytest.raises(SpecError) as error:
        migrate_text(text.replace(old, new))
    assert message in str(error.value)
