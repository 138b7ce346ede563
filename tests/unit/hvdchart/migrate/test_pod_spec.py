"""Scheduling, identity, security and volumes of the migrated pods."""

from __future__ import annotations

from tests.unit.hvdchart.migrate.old_files import (
    LAUNCHER_POD,
    WORKER,
    WORKER_POD,
    migrate_job,
    migrate_old,
    migrate_tree,
    mpijob,
    results,
)

FIELD = "not carried over: see podSpec and container of worker and master"


def test_pod_settings_of_workers_and_launcher() -> None:
    migration = migrate_job(
        worker_pod__tolerations=[{"key": "gpu"}], launcher_pod__nodeSelector={"pool": "cpu"},
        worker_pod__runtimeClassName="nvidia", launcher_pod__runtimeClassName="runc",
        worker_pod__schedulerName="a", launcher_pod__schedulerName="b",
        launcher_pod__priorityClassName="low",
        worker_pod__hostNetwork=True, launcher_pod__hostNetwork=False,
        worker_pod__hostPID=False, worker_pod__restartPolicy="Never",
        worker_pod__serviceAccountName="w", launcher_pod__serviceAccountName="l",
        worker_pod__serviceAccount="w", worker_pod__dnsPolicy="Default",
    )  # fmt: skip
    values = migration.values
    assert values["worker"]["tolerations"] == [{"key": "gpu"}]
    assert values["worker"]["runtimeClassName"] == "nvidia"
    assert values["master"]["nodeSelector"] == {"pool": "cpu"}
    assert (values["schedulerName"], values["priorityClassName"]) == ("a", "low")
    assert values["hostNetwork"] is True
    assert "hostPID" not in values
    assert values["worker"]["serviceAccount"] == {"name": "w"}
    assert not any("account l" in check for check in migration.checks)
    result = results(migration)
    already = "the chart has one value for all pods, which is already set"
    all_pods = "for master and workers"
    for old, entry in {
        f"{WORKER_POD}.schedulerName": ("renamed", "schedulerName", all_pods),
        f"{LAUNCHER_POD}.schedulerName": ("dropped", "", already),
        f"{LAUNCHER_POD}.hostNetwork": ("dropped", "", already),
        f"{WORKER_POD}.hostPID": ("dropped", "", "false is the default"),
        f"{LAUNCHER_POD}.runtimeClassName":
            ("renamed", "master.runtimeClassName", ""),
        f"{WORKER_POD}.serviceAccountName":
            ("renamed", "worker.serviceAccount.name", "it has to exist"),
        f"{LAUNCHER_POD}.serviceAccountName":
            ("dropped", "", "the chart makes the master's; for another one set serviceAccount"),
        f"{WORKER_POD}.serviceAccount": ("dropped", "", "an old name of serviceAccountName"),
        f"{WORKER_POD}.restartPolicy":
            ("dropped", "", "the chart's StatefulSet and Job set it"),
        f"{WORKER_POD}.dnsPolicy":
            ("dropped", "", FIELD),
    }.items():  # fmt: skip
        assert result[old] == entry


def test_labels_and_annotations_of_the_pods() -> None:
    tree = mpijob()
    replicas = tree["spec"]["mpiReplicaSpecs"]
    replicas["Worker"]["template"]["metadata"] = {"labels": {"a": "1"}}
    replicas["Launcher"]["template"]["metadata"] = {"annotations": {"b": "2"}}
    values = migrate_tree(tree).values
    assert values["worker"]["podLabels"] == {"a": "1"}
    assert values["master"]["podAnnotations"] == {"b": "2"}


def test_security_context_of_the_workers_is_for_all_pods() -> None:
    migration = migrate_job(
        worker_container__securityContext={
            "runAsUser": 0, "privileged": True, "allowPrivilegeEscalation": True,
            "capabilities": {"add": ["IPC_LOCK"]},
        },
        launcher_pod__securityContext={"fsGroup": 1},
    )  # fmt: skip
    values = migration.values
    assert values["podSecurityContext"] == {
        "runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False,
    }  # fmt: skip
    assert values["securityContext"] == {"allowPrivilegeEscalation": True}
    assert values["worker"]["capabilities"] == ["IPC_LOCK"]
    result = results(migration)
    assert result[f"{WORKER}.securityContext.privileged"][0] == "dropped"
    reason = "the workers' security context is for all pods"
    assert result[f"{LAUNCHER_POD}.securityContext.fsGroup"] == ("dropped", "", reason)


def test_unprivileged_container_is_carried_over() -> None:
    migration = migrate_job(worker_container__securityContext={"privileged": False})
    assert migration.values["securityContext"] == {"privileged": False}


def test_root_without_capabilities_does_not_have_to_be_another_user() -> None:
    migration = migrate_job(worker_container__securityContext={"runAsUser": 0})
    assert migration.values["podSecurityContext"] == {"runAsUser": 0, "runAsNonRoot": False}
    assert migration.checks == ()


def test_capabilities_of_a_user_other_than_root_are_dropped() -> None:
    context = {"runAsUser": 1000, "capabilities": {"add": ["IPC_LOCK"]}}
    migration = migrate_job(worker_container__securityContext=context)
    assert "capabilities" not in migration.values["worker"]
    assert migration.values["podSecurityContext"] == {"runAsUser": 1000}
    reason = "Linux gives added capabilities to root only, and the pods run as another user"
    old = f"{WORKER}.securityContext.capabilities.add[0]"
    assert results(migration)[old] == ("dropped", "", reason)


def test_volumes_of_launcher_and_workers_are_merged() -> None:
    migration = migrate_job(
        worker_pod__volumes=[{"name": "shm", "emptyDir": {"medium": "Memory"}},
                             {"name": "tmp", "emptyDir": {}}],
        worker_container__volumeMounts=[{"name": "shm", "mountPath": "/dev/shm/"},
                                        {"name": "tmp", "mountPath": "/t"}],
        launcher_pod__volumes=[{"name": "out", "emptyDir": {}}],
        launcher_container__volumeMounts=[{"name": "out", "mountPath": "/t"},
                                          {"name": "out", "mountPath": "/out"}],
    )  # fmt: skip
    assert "shm" not in migration.values
    assert migration.values["volumes"] == [
        {"name": "user-tmp", "emptyDir": {}}, {"name": "out", "emptyDir": {}},
    ]  # fmt: skip
    assert migration.values["volumeMounts"] == [
        {"name": "user-tmp", "mountPath": "/t"}, {"name": "out", "mountPath": "/out"},
    ]  # fmt: skip
    reason = "the chart mounts /dev/shm itself; its size is shm.sizeLimit"
    assert results(migration)[f"{WORKER_POD}.volumes[0].name"] == ("dropped", "", reason)


def test_capabilities_make_the_pods_run_as_root() -> None:
    migration = migrate_old(capabilities={"add": ["CAP_SYS_PTRACE", "IPC_LOCK"], "drop": ["X"]})
    assert migration.values["worker"]["capabilities"] == ["SYS_PTRACE", "IPC_LOCK"]
    context = {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False}
    assert migration.values["podSecurityContext"] == context
    result = results(migration)
    assert result["capabilities.add[0]"] == ("changed", "worker.capabilities", "for the workers")
    reason = "the chart drops all capabilities that it does not add"
    assert result["capabilities.drop[0]"] == ("dropped", "", reason)


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
