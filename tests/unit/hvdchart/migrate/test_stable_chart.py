"""Values of the old published charts become values of this chart."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.hvdchart.migrate.old_files import migrate_file, migrate_old, migrate_text, results
from tests.unit.hvdchart.migrate.test_ignored_keys import GONE


def test_gpu_values_file() -> None:
    migration = migrate_file("stable-gpu.yaml")
    assert (migration.source, migration.release) == ("the old horovod chart", "")
    assert migration.values == {
        "image": {"repository": "uber/horovod", "tag": "0.12.1-tf1.8.0-py3.5",
                  "pullPolicy": "Always"},
        "worker": {
            "resources": {"limits": {"nvidia.com/gpu": 4, "memory": "60Gi"},
                          "requests": {"nvidia.com/gpu": 4}},
            "env": [{"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "EPOCHS", "value": "3"},
                    {"name": "VERBOSE", "value": "true"}, {"name": "LOST", "value": "1"},
                    {"name": "NCCL_IB_DISABLE", "value": "1"}],
            "slots": 4, "number": 2, "capabilities": ["IPC_LOCK"],
        },
        "master": {
            "args": ["sh", "-c", "LD_LIBRARY_PATH=/usr/lib/stubs python /examples/train.py"],
            "podAnnotations": {"team": "vision"},
        },
        "launch": {"options": ["--mca", "btl_tcp_if_include", "eth0", "--display-map",
                               "--tag-output"]},
        "hostNetwork": True,
        "volumes": [{"name": "data", "hostPath": {"path": "/mnt/data"}},
                    {"name": "user-tmp", "emptyDir": {}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"},
                         {"name": "user-tmp", "mountPath": "/scratch"}],
        "podSecurityContext": {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False},
    }  # fmt: skip
    assert migration.checks == (
        "the old command line started 3 ranks; 2 workers x 4 slots start 8",
        "the Pod Security levels baseline and restricted reject hostNetwork",
        "for worker.capabilities the pods run as root, as before. The Pod Security level "
        "restricted rejects root, and baseline rejects capabilities such as IPC_LOCK",
        "no chart has these keys, so they are dropped: someKey.of",
        "the old chart ran one rank on each worker, whatever its GPUs; now it runs 4",
    )


def test_outcomes_of_the_gpu_values_file() -> None:
    result = results(migrate_file("stable-gpu.yaml"))
    assert result["worker.number"] == ("carried over", "worker.number", "")
    assert result["master.image.tag"] == ("dropped", "", "the same as worker.image")
    keys = "the chart makes the SSH keys; to use your own set ssh.existingSecret"
    for key in ("useSecrets", "hostKey", "hostKeyPub"):
        assert result[f"ssh.{key}"] == ("dropped", "", keys)
    assert result["ssh.port"][2] == (
        "on the host network this port belongs to Kubernetes; the chart's default is 2222"
    )
    assert result["useHostPID"] == ("dropped", "", "false is the default")
    assert result["worker.podManagementPolicy"][2] == "the workers always start in parallel"
    assert result["worker.privileged"][2].startswith("not carried over: request devices")
    assert result["worker.env.LOST"] == ("changed", "worker.env", "the old chart ignored it")
    assert result["master.env.EPOCHS"][2] == "the old chart set it on the workers too"
    rank = "every rank has its worker's environment"
    assert result["master.args: -x PATH"] == ("dropped", "", rank)
    assert result["master.args: -x NCCL_IB_DISABLE=..."] == ("changed", "worker.env", rank)
    assert result["resources: 4 GPUs"] == ("changed", "worker.slots", "one rank for each GPU")
    tmp = "called user-tmp: the chart has a volume tmp of its own"
    assert result["volumes[1].name"] == ("changed", "volumes", tmp)
    assert result["volumes[0].name"] == ("changed", "volumes", "for master and workers")
    assert result["volumeMounts[1].name"][1] == "volumeMounts"
    assert result["someKey.of[0]"] == ("dropped", "", GONE)
    assert result["someKey.and"] == ("dropped", "", "null sets nothing")
    assert result["someKey.empty"] == ("dropped", "", "an empty value sets nothing")


def test_cpu_values_file_whose_line_needs_a_shell() -> None:
    migration = migrate_file("docker-helm-cpu.yaml")
    line = (
        "cd /work && mpirun -np 4 --hostfile /horovod/generated/hostfile python train.py "
        "--out $HOME"
    )
    assert migration.values == {
        "image": {"tag": "0.24.3", "repository": "horovod/horovod"},
        "master": {"image": {"pullPolicy": "IfNotPresent"}, "args": ["bash", "-c", line]},
        "worker": {"resources": {}, "number": 3},
        "launch": {"mode": "custom"},
    }
    assert migration.checks[0] == "image.repository is the old chart's default, horovod/horovod"
    assert migration.checks[1].startswith("launch.mode is custom: the master runs the command")
    result = results(migration)
    assert result["driver.args[0]"] == ("changed", "master.args", "")
    assert result["driver.args: the command line"] == (
        "changed", "launch.mode", "custom: the line needs a shell before the launcher starts",
    )  # fmt: skip
    port = "this chart takes ports from 1024; its default is 2222"
    assert result["ssh.port"] == ("dropped", "", port)


def test_file_without_image_command_and_number_gets_defaults_and_checks() -> None:
    migration = migrate_text("ssh: {useSecrets: true}\n")
    assert migration.values == {"worker": {"number": 3}}
    starts = ["the file names no worker image: the old chart ran horovod/horovod, this one",
              "the file has no training command: the old master waited for ever, this one",
              "worker.number is the old chart's default, 3",
              "the pods ran as root; here they run as user 1000"]  # fmt: skip
    for check, start in zip(migration.checks, starts, strict=True):
        assert check.startswith(start)


@pytest.mark.parametrize(
    ("number", "ranks", "gpus", "workers", "check"),
    [
        (2, 2, 0, 2, ""),
        (2, 3, 0, 3, ""),
        (2, 4, 0, 4, ""),
        (2, 1, 0, 2, "the old command line started 1 ranks; 2 workers x 1 slots start 2"),
        (2, 8, 4, 2, ""),
        (2, 9, 4, 3, "the old command line started 9 ranks; 3 workers x 4 slots start 12"),
        (2, 17, 4, 5, "the old command line started 17 ranks; 5 workers x 4 slots start 20"),
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
    assert [text for text in migration.checks if "command line" in text] == [check] * bool(check)
    entry = results(migration)["worker.number"]
    if workers == number:
        assert entry == ("carried over", "worker.number", "")
    else:
        reason = f"-np {ranks}: the old master ran ranks too, this one runs none"
        assert entry == ("changed", "worker.number", reason)


def test_quoted_number_is_read() -> None:
    assert migrate_old(worker={"number": "4"}).values["worker"]["number"] == 4


@pytest.mark.parametrize(
    ("port", "host_network", "new"),
    [
        (1023, False, None), (1024, False, 1024), (32222, False, 32222), (2222, True, 2222),
        (2378, True, 2378), (2379, True, None), (2382, True, None), (2383, True, 2383),
        (6442, True, 6442), (6443, True, None), (6444, True, 6444),
        (10247, True, 10247), (10248, True, None), (10260, True, None), (10261, True, 10261),
        (29999, True, 29999), (30000, True, None), (32767, True, None), (32768, True, 32768),
    ],
)  # fmt: skip
def test_ssh_port_of_root_or_of_kubernetes_is_dropped(
    port: int, host_network: bool, new: int | None
) -> None:
    migration = migrate_old(ssh={"port": port}, useHostNetwork=host_network)
    assert migration.values.get("ssh", {}).get("port") == new


@pytest.mark.parametrize("word", ["yes", "On", "true", "y", True])
def test_words_for_true(word: Any) -> None:
    migration = migrate_old(useHostPID=word)
    assert migration.values["hostPID"] is True
    assert "the Pod Security levels baseline and restricted reject hostPID" in migration.checks


@pytest.mark.parametrize("word", ["no", "Off", "false", "n", False])
def test_words_for_false(word: Any) -> None:
    migration = migrate_old(useHostPID=word)
    assert "hostPID" not in migration.values
    assert results(migration)["useHostPID"] == ("dropped", "", "false is the default")


def test_pod_settings_are_carried_over() -> None:
    migration = migrate_old(
        nodeSelector={"pool": "gpu"}, affinity={"podAffinity": {}}, tolerations=[{"key": "gpu"}],
        imagePullSecrets=[{"name": "registry"}], fullnameOverride="train", nameOverride="n",
        annotations={"a": "b"}, worker={"privileged": False}, master={"privileged": True},
    )  # fmt: skip
    values = migration.values
    assert values["worker"]["nodeSelector"] == {"pool": "gpu"}
    assert values["worker"]["affinity"] == {"podAffinity": {}}
    assert values["worker"]["tolerations"] == [{"key": "gpu"}]
    assert values["imagePullSecrets"] == [{"name": "registry"}]
    assert values["fullnameOverride"] == "train"
    assert values["master"]["podAnnotations"] == {"a": "b"}
    result = results(migration)
    ignored = "for the workers; the old chart ignored it"
    assert result["nodeSelector.pool"] == ("renamed", "worker.nodeSelector.pool", ignored)
    assert values["nameOverride"] == "n"
    assert result["worker.privileged"] == ("dropped", "", "false is the default")
    assert result["master.privileged"][2].startswith("not carried over: ")


def test_mode_mpirun_is_the_default_and_not_written() -> None:
    assert "launch" not in migrate_old().values


def test_ranks_for_each_host_are_slots() -> None:
    migration = migrate_old(master={"args": ["mpirun -np 4 -npernode 2 a"]})
    assert migration.values["worker"] == {"number": 2, "slots": 2}
    assert not any("old command line" in text for text in migration.checks)
    gpus = migrate_old(
        master={"args": ["mpirun -npernode 2 a"]}, resources={"limits": {"nvidia.com/gpu": 4}}
    )
    assert "the old command line started 2 ranks on each host; worker.slots is 4" in gpus.checks
