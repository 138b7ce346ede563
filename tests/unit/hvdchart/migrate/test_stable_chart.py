"""Values of the old published charts become values of this chart."""

from __future__ import annotations

from typing import Any

import pytest

from hvdchart.migrate.convert import Migration
from tests.unit.hvdchart.migrate.old_files import migrate_file, migrate_text, migrate_tree, results

GONE = "neither the old chart nor this one has such a key"


def migrate_old(**values: Any) -> Migration:
    """The migration of values with two workers of an image, a command, and these."""
    worker = {"number": 2, "image": {"repository": "a", "tag": "1"}, **values.pop("worker", {})}
    master = {"args": ["mpirun a"], **values.pop("master", {})}
    return migrate_tree({"worker": worker, "master": master, **values})


def test_gpu_values_file() -> None:
    migration = migrate_file("stable-gpu.yaml")
    assert (migration.source, migration.release, migration.namespace) == ("old chart", "", "")
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
    migration = migrate_text("ssh: {}\n")
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


@pytest.mark.parametrize(
    ("resources", "slots"),
    [
        ({"limits": {"nvidia.com/gpu": 2}}, 2),
        ({"requests": {"nvidia.com/mig-1g.5gb": "3"}}, 3),
        ({"limits": {"cpu": 4, "gpu.intel.com/xe": 1}, "requests": {"nvidia.com/gpu": 9}}, 1),
        ({"limits": {"nvidia.com/gpu": 0}}, None),
        ({"limits": {"cpu": 4}}, None),
        ({"limits": {"nvidia.com/gpu": "all"}}, None),
        ({"limits": 3}, None),
        ({}, None),
    ],
)
def test_slots_are_the_gpus_of_a_worker(resources: Any, slots: int | None) -> None:
    migration = migrate_old(resources=resources)
    assert migration.values["worker"].get("slots") == slots
    assert any("whatever its GPUs" in check for check in migration.checks) == ((slots or 1) > 1)


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


def test_image_of_the_master_is_carried_over_where_it_differs() -> None:
    image = {"repository": "b", "tag": "1", "pullPolicy": None}
    migration = migrate_old(master={"image": image})
    assert migration.values["image"] == {"repository": "a", "tag": "1"}
    assert migration.values["master"]["image"] == {"repository": "b"}
    result = results(migration)
    assert result["master.image.repository"][0] == "carried over"
    assert result["master.image.tag"] == ("dropped", "", "the same as worker.image")
    assert result["master.image.pullPolicy"] == ("dropped", "", "null sets nothing")


def test_variables_are_merged_and_the_master_wins() -> None:
    migration = migrate_old(
        worker={"env": {"A": "worker", "B": 1.50, "C": None}},
        master={"env": {"A": "master", "D": False},
                "args": ["mpirun -x A=line -x D -x HOME -x E= a"]},
    )  # fmt: skip
    assert migration.values["worker"]["env"] == [
        {"name": "A", "value": "master"}, {"name": "D", "value": "false"},
        {"name": "B", "value": "1.5"}, {"name": "E", "value": ""},
    ]  # fmt: skip
    result = results(migration)
    twice = "the variable is set twice: the launcher's value is used"
    assert result["worker.env.A"] == ("dropped", "", twice)
    assert result["worker.env.C"] == ("dropped", "", "null sets nothing")
    already = "worker.env already sets A to another value"
    assert result["master.args: -x A=..."] == ("dropped", "", already)
    assert result["master.args: -x D"][:2] == ("changed", "worker.env")
    assert result["master.args: -x HOME"][0] == "dropped"


def test_capabilities_make_the_pods_run_as_root() -> None:
    migration = migrate_old(capabilities={"add": ["CAP_SYS_PTRACE", "IPC_LOCK"], "drop": ["X"]})
    assert migration.values["worker"]["capabilities"] == ["SYS_PTRACE", "IPC_LOCK"]
    context = {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False}
    assert migration.values["podSecurityContext"] == context
    result = results(migration)
    assert result["capabilities.add[0]"] == ("changed", "worker.capabilities", "for the workers")
    reason = "the chart drops all capabilities that it does not add"
    assert result["capabilities.drop[0]"] == ("dropped", "", reason)


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
    assert result["nameOverride"][2] == "objects are named after the release, or fullnameOverride"
    assert result["worker.privileged"] == ("dropped", "", "false is the default")
    assert result["master.privileged"][2].startswith("not carried over: ")


@pytest.mark.parametrize(
    ("values", "old", "reason"),
    [
        ({"queueName": "q"}, "queueName",
         "the old chart ignored it; to use it now, set queueName in the new values"),
        ({"worker": {"slots": 2}}, "worker.slots",
         "the old chart ignored it; to use it now, set worker.slots in the new values"),
        ({"worker": {"nodeSelector": {"pool": "gpu"}}}, "worker.nodeSelector.pool",
         "the old chart ignored it; to use it now, set worker.nodeSelector.pool in the new values"),
        ({"worker": {"tolerations": [{"key": "k"}]}}, "worker.tolerations[0].key",
         "the old chart ignored it; to use it now, set worker.tolerations in the new values"),
        ({"driver": {"args": ["mpirun a"], "suspend": True}}, "driver.suspend",
         "the old chart ignored it; to use it now, set master.suspend in the new values"),
        ({"driver": {"args": ["mpirun a"]}}, "master.args[0]",
         "the old chart ignored it; to use it now, set master.args in the new values"),
        ({"worker": {"port": 22}}, "worker.port", GONE),
        ({"ssh": {"keys": 1}}, "ssh.keys", GONE),
        ({"other": {"image": 1}}, "other.image", GONE),
        ({"worker": {"env": {}}}, "worker.env", "an empty value sets nothing"),
        ({"resources": None}, "resources", "null sets nothing"),
    ],
)  # fmt: skip
def test_key_that_the_old_chart_ignored_is_dropped_with_the_true_reason(
    values: Any, old: str, reason: str
) -> None:
    assert results(migrate_old(**values))[old] == ("dropped", "", reason)


def test_nulls_inside_a_value_are_dropped() -> None:
    migration = migrate_old(resources={"limits": {"cpu": 1, "memory": None}, "claims": [None, 1]})
    assert migration.values["worker"]["resources"] == {"limits": {"cpu": 1}, "claims": [1]}
    result = results(migration)
    assert result["resources.limits.memory"] == ("dropped", "", "null sets nothing")
    assert result["resources.limits.cpu"][:2] == ("renamed", "worker.resources.limits.cpu")


def test_two_volumes_of_one_name_or_mount_path_are_not_both_carried_over() -> None:
    migration = migrate_old(
        volumes=[{"name": "a", "emptyDir": {}}, {"name": "a", "hostPath": {"path": "/a"}},
                 {"name": "ssh", "emptyDir": {}}],
        volumeMounts=[{"name": "a", "mountPath": "/a/"}, {"name": "ssh", "mountPath": "/a"},
                      {"name": "ssh", "mountPath": "/proc"},
                      {"name": "ssh", "mountPath": "/horovod/x"}],
    )  # fmt: skip
    assert migration.values["volumes"] == [
        {"name": "a", "emptyDir": {}}, {"name": "user-ssh", "emptyDir": {}},
    ]  # fmt: skip
    assert migration.values["volumeMounts"] == [{"name": "a", "mountPath": "/a/"}]
    result = results(migration)
    assert result["volumes[1].name"] == ("dropped", "", "another volume is already called a")
    mounted = "another volume is already mounted at /a"
    assert result["volumeMounts[1].name"] == ("dropped", "", mounted)
    for index, place in ((2, "/proc"), (3, "/horovod/x")):
        reason = f"{place} belongs to the system or to the chart"
        assert result[f"volumeMounts[{index}].name"] == ("dropped", "", reason)
    assert "volume a is defined twice: here it is the first definition" in migration.checks


def test_check_for_names_that_kubernetes_replaced() -> None:
    text = "Kubernetes replaced $(NAME) in the old arguments by the variable's value; this chart"
    replaced = migrate_old(master={"args": ["mpirun python '$(A)'"]})
    assert any(check.startswith(text) for check in replaced.checks)
    assert not any(check.startswith(text) for check in migrate_old().checks)


def test_elastic_limits_and_mode_are_carried_over() -> None:
    line = "horovodrun -np 2 --min-np 1 --max-np 3 --gloo a"
    migration = migrate_old(master={"args": [line]})
    assert migration.values["launch"] == {
        "mode": "elastic", "elastic": {"minRanks": 1, "maxRanks": 3}, "options": ["--gloo"],
    }  # fmt: skip
    result = results(migration)
    assert result["master.args: --min-np 1"] == ("changed", "launch.elastic.minRanks", "")
    assert result["master.args: --max-np 3"] == ("changed", "launch.elastic.maxRanks", "")
    assert result["master.args: horovodrun"] == ("changed", "launch.mode", "elastic")
    assert result["master.args: --gloo"] == ("changed", "launch.options", "unchanged")


def test_mode_mpirun_is_the_default_and_not_written() -> None:
    assert "launch" not in migrate_old().values
