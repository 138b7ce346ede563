"""Upgrades of a release, against a real API server and with both Helms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from devtools.common.repository import CHART
from devtools.toolchain.tools import tool
from hvdchart.chart_files import read_data
from tests.chart.namespaces import empty_namespace
from tests.chart.releases import (
    OTHER_COMMAND,
    RUN,
    Keys,
    Seen,
    end,
    on_nodes,
    read_keys,
    refuse,
    roll_back,
    see,
    upgrade,
    wait_for_default_account,
)
from tests.chart.render import Manifest, Values, parse_manifests
from tests.support.namespace import HELMS, Namespace


@pytest.fixture(scope="module", params=HELMS)
def active_run(kubeconfig: Path, newer: Path, request: pytest.FixtureRequest) -> dict[str, Seen]:
    """A run that continues, after each of these upgrades in turn."""
    longer: Values = {"master": {"backoffLimit": 9, "activeDeadlineSeconds": 99}}
    with empty_namespace(kubeconfig) as place:
        return {
            "installed": see(place, request.param, CHART, RUN),
            "newer": see(place, request.param, newer, RUN, {"metrics": {"enabled": True}}),
            "longer": see(place, request.param, newer, RUN, longer),
            "other command": see(place, request.param, newer, RUN, OTHER_COMMAND),
            "rolled back": roll_back(place, request.param),
        }


def test_newer_chart_does_not_change_an_active_run(active_run: dict[str, Seen]) -> None:
    assert active_run["newer"].written == active_run["installed"].written


def test_newer_chart_notes_that_the_next_run_uses_it(active_run: dict[str, Seen]) -> None:
    assert "The next run uses this version of the chart." in active_run["newer"].notes


def test_active_run_has_the_programs_of_its_own_chart(active_run: dict[str, Seen]) -> None:
    after = active_run["newer"]
    assert after.programs == active_run["installed"].programs
    (name,) = after.programs
    before = active_run["installed"].config_maps[name]["binaryData"]
    assert after.config_maps[name]["binaryData"] == before


def test_job_of_an_active_run_has_the_label_of_the_newer_chart(
    active_run: dict[str, Seen],
) -> None:
    labels = active_run["newer"].job["metadata"]["labels"]
    assert labels["helm.sh/chart"].startswith("horovod-1")


def test_number_of_retries_applies_to_an_active_run(active_run: dict[str, Seen]) -> None:
    """So do the deadline and the time to live."""
    assert active_run["longer"].job["spec"]["backoffLimit"] == 9
    assert active_run["longer"].written.keys() == active_run["installed"].written.keys()


def test_other_command_is_another_job_with_the_same_stateful_set(
    active_run: dict[str, Seen],
) -> None:
    after = active_run["other command"]
    assert len(active_run["installed"].written.keys() & after.written.keys()) == 1
    uid = active_run["installed"].stateful_set["metadata"]["uid"]
    assert after.stateful_set["metadata"]["uid"] == uid


def test_next_run_uses_the_programs_of_the_newer_chart(active_run: dict[str, Seen]) -> None:
    before = active_run["installed"].programs
    after = active_run["other command"]
    assert not before & after.programs
    assert not before & after.config_maps.keys()


def test_rollback_is_the_first_run_with_the_programs_of_its_own_chart(
    active_run: dict[str, Seen],
) -> None:
    after = active_run["rolled back"]
    assert after.job_name == active_run["installed"].job_name
    assert after.programs == active_run["installed"].programs


@pytest.mark.parametrize("version", HELMS)
def test_code_that_does_not_fit_beside_kept_programs_is_refused(
    place: Namespace, newer: Path, version: str
) -> None:
    """The message comes in place of that of Helm, whose Secret would be too large."""
    most = int(read_data("resources.json")["codeBytes"])
    values = {**RUN, "code": {"files": {"train.py": "#" * most}}}
    upgrade(place, version, CHART, values)
    done = place.helm("upgrade", "hvd", str(newer), values=values, version=version)
    assert done.returncode != 0
    assert "keeps the programs of another version of the chart" in done.stderr


@pytest.fixture(scope="module", params=HELMS)
def finished(kubeconfig: Path, newer: Path, request: pytest.FixtureRequest) -> dict[str, Seen]:
    """A run that has finished, after each of these upgrades in turn."""
    going: Values = {**RUN, "master": {"args": ["python", "train.py"]}, "cleanup": "OnSuccess"}
    settings: Values = {"master": {"resources": {"limits": {"cpu": 1}}}}
    with empty_namespace(kubeconfig) as place:
        installed = see(place, request.param, CHART, RUN)
        end(place, "SuccessCriteriaMet", "Complete")
        return {
            "installed": installed,
            "newer": see(place, request.param, newer, going),
            "settings": see(place, request.param, newer, going, {"cleanup": "Never"}, settings),
            "generation": see(place, request.param, newer, RUN, {"master": {"generation": 2}}),
        }


@pytest.mark.parametrize("change", ["newer", "settings"])
def test_newer_chart_or_other_settings_do_not_repeat_a_finished_run(
    finished: dict[str, Seen], change: str
) -> None:
    assert finished[change].job_name == finished["installed"].job_name


@pytest.mark.parametrize("change", ["newer", "settings"])
def test_workers_of_a_finished_run_that_were_scaled_down_stay_away(
    finished: dict[str, Seen], change: str
) -> None:
    assert finished[change].stateful_set["spec"]["replicas"] == 0


def test_upgrade_of_a_finished_run_notes_that_nothing_was_started(
    finished: dict[str, Seen],
) -> None:
    notes = finished["newer"].notes
    assert "Nothing was started" in notes
    assert "--set master.generation=2" in notes


def test_finished_run_is_repeated_when_its_generation_grows(finished: dict[str, Seen]) -> None:
    names = {job["metadata"]["name"] for job in finished["generation"].jobs}
    assert finished["installed"].job_name not in names


def test_helm_test_knows_the_workers_of_other_settings(place: Namespace) -> None:
    """The finished Job knows those of its own settings, which the upgrade has replaced."""
    upgrade(place, "helm4", CHART, RUN)
    end(place, "SuccessCriteriaMet", "Complete")
    after = see(place, "helm4", CHART, RUN, {"shm": {"sizeLimit": "8Gi"}})
    (pod,) = parse_manifests(place.helm("get", "hooks", "hvd").stdout)
    (tester,) = pod["spec"]["containers"]
    (run,) = [entry["value"] for entry in tester["env"] if entry["name"] == "HVD_RUN"]
    assert json.loads(run.replace("$$", "$"))["groups"][0]["revision"] == after.revision


def test_failed_run_is_tried_again_with_other_settings_only(place: Namespace, newer: Path) -> None:
    upgrade(place, "helm4", CHART, RUN)
    first = place.job("hvd")
    end(place, "FailureTarget", "Failed")
    upgrade(place, "helm4", newer, RUN)
    assert place.job("hvd") == first
    upgrade(place, "helm4", newer, RUN, {"shm": {"sizeLimit": "8Gi"}})
    assert first not in place.jobs("hvd")


def recorded_hashes(labels: Mapping[str, str]) -> dict[str, str]:
    """What a record has of the run with these labels of a Job."""
    return {"run": labels["hvdchart/run"], "settingsHash": labels["hvdchart/settings-hash"]}


@pytest.fixture(scope="module", params=HELMS)
def failed(kubeconfig: Path, newer: Path, request: pytest.FixtureRequest) -> dict[str, Seen]:
    """A run that has failed, whose workers are scaled to zero, after each of these upgrades."""
    version = request.param
    going: Values = {**RUN, "master": {"args": ["python", "train.py"]}}
    with empty_namespace(kubeconfig) as place:
        labels = see(place, version, CHART, RUN).job["metadata"]["labels"]
        end(place, "FailureTarget", "Failed")
        record = recorded_hashes(labels)
        patch = json.dumps({"data": {**record, "state": "Failed", "time": "2026-01-01T10:01:00Z"}})
        place.kubectl("patch", "configmap", "hvd-run", "--patch", patch)
        seen = {"same": see(place, version, newer, going)}
        place.kubectl("delete", "job", place.job("hvd"))
        seen["without its Job"] = see(place, version, newer, going)
        place.kubectl("delete", "statefulset", "--all")
        return {**seen, "without its workers": see(place, version, newer, going)}


@pytest.mark.parametrize("change", ["same", "without its Job", "without its workers"])
def test_workers_of_a_failed_run_that_were_scaled_down_stay_away(
    failed: dict[str, Seen], change: str
) -> None:
    """Nobody would end them again."""
    assert failed[change].stateful_set["spec"]["replicas"] == 0


@pytest.mark.parametrize("queue", ["", "team"])
def test_workers_of_a_failed_run_that_are_there_stay(place: Namespace, queue: str) -> None:
    """In a queue, the StatefulSet has a name of its own for each run."""
    going: Values = {
        "master": {"args": ["python", "train.py"]},
        "cleanup": "Never",
        "schedulerName": "none",
        "queueName": queue,
    }
    installed = see(place, "helm4", CHART, going, {"master": {"suspend": True}})
    end(place, "FailureTarget", "Failed")
    name = installed.stateful_set["metadata"]["name"]
    place.kubectl("scale", "statefulset", name, "--replicas=1")
    assert see(place, "helm4", CHART, going).stateful_set["spec"]["replicas"] == 1


@dataclass(frozen=True)
class Replaced:
    """What a finished run is like when Helm replaces its objects, the record among them."""

    refused: int
    record: Manifest
    accepted: int
    keys: tuple[Keys, Keys]
    same: Seen
    other: Seen


@pytest.fixture(scope="module", params=HELMS)
def replaced(kubeconfig: Path, request: pytest.FixtureRequest) -> Replaced:
    version = request.param
    force = ["--force"] if version == "helm3" else ["--force-replace", "--server-side=false"]

    def replace() -> int:
        options = ("hvd", str(CHART), *force)
        return place.helm("upgrade", *options, values=RUN, version=version).returncode

    with empty_namespace(kubeconfig) as place:
        wait_for_default_account(place)
        labels = see(place, version, CHART, RUN).job["metadata"]["labels"]
        ended = recorded_hashes(labels)
        patch = json.dumps({"data": {**ended, "state": "Finished", "time": "2026-01-01T10:01:00Z"}})
        place.kubectl("patch", "configmap", "hvd-run", "--patch", patch)
        end(place, "SuccessCriteriaMet", "Complete")
        before = read_keys(place)
        refused = replace()
        record = place.get("configmap", "hvd-run")
        place.kubectl("delete", "job", place.job("hvd"))
        accepted = replace()
        same = see(place, version, CHART, RUN)
        after = read_keys(place)
        other = see(place, version, CHART, RUN, OTHER_COMMAND)
        return Replaced(refused, record, accepted, (before, after), same, other)


def test_job_cannot_be_replaced_while_it_is_there(replaced: Replaced) -> None:
    """Kubernetes does not replace a Job. Helm has emptied the record by then."""
    assert replaced.refused == 1
    assert "data" not in replaced.record


def test_objects_are_replaced_when_the_job_has_been_deleted(replaced: Replaced) -> None:
    assert replaced.accepted == 0


def test_replaced_record_does_not_repeat_a_finished_run(replaced: Replaced) -> None:
    assert "2026-01-01T10:01:00Z" in replaced.same.notes
    assert replaced.same.jobs == []


def test_replaced_secrets_have_the_same_keys(replaced: Replaced) -> None:
    before, after = replaced.keys
    assert None not in before
    assert after == before


def test_other_command_after_a_replaced_record_is_a_new_run(replaced: Replaced) -> None:
    assert len(replaced.other.jobs) == 1
    record = replaced.other.config_maps["hvd-run"]
    assert "hvdchart/ended" not in record["metadata"]["annotations"]


def apply_rendered(place: Namespace, chart: Path) -> None:
    command = [str(tool("helm4")), "template", "hvd", str(chart), "--no-hooks", "--values", "-"]
    done = place.call(*command, input=json.dumps({**RUN, "image": {"repository": "app"}}))
    assert done.returncode == 0, done.stderr
    place.kubectl("apply", "--server-side", "--filename", "-", input=done.stdout)


def test_manifests_of_a_newer_chart_make_another_job_of_the_same_run(
    place: Namespace, newer: Path
) -> None:
    """A GitOps tool renders without the cluster: the record then says that the run has ended."""
    apply_rendered(place, CHART)
    apply_rendered(place, newer)
    jobs = [place.get("job", name) for name in place.jobs("hvd")]
    assert len(jobs) == 2
    assert len({job["metadata"]["labels"]["hvdchart/run"] for job in jobs}) == 1


CLAIM: Values = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "scans"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
ACCOUNTS: list[Values] = [
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    for name in ("masters", "workers")
]
NAMES_OBJECTS: Values = {
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "scans"}}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    "serviceAccount": {"create": False, "name": "masters"},
    "worker": {"podSpec": {"serviceAccountName": "workers"}},
}


def test_objects_that_the_release_creates_itself_may_be_named(place: Namespace) -> None:
    upgrade(place, "helm4", CHART, RUN, NAMES_OBJECTS, {"extraObjects": [CLAIM, *ACCOUNTS]})


@pytest.mark.parametrize("missing", ["scans", "masters", "workers"])
def test_objects_that_nobody_creates_are_refused(place: Namespace, missing: str) -> None:
    created = [item for item in (CLAIM, *ACCOUNTS) if item["metadata"]["name"] != missing]
    message = refuse(place, {**NAMES_OBJECTS, "extraObjects": created})
    assert f'"{missing}"' in message


@pytest.mark.parametrize(("rbac", "answer"), [(True, "yes"), (False, "no")])
def test_named_account_has_the_rights_that_the_chart_grants_the_master(
    place: Namespace, *, rbac: bool, answer: str
) -> None:
    named = {"serviceAccount": {"create": False, "name": "masters"}, "extraObjects": ACCOUNTS[:1]}
    upgrade(place, "helm4", CHART, RUN, named, {"rbac": {"create": rbac}})
    right = ("patch", "statefulsets/hvd-worker", "--subresource=scale")
    account = f"--as=system:serviceaccount:{place.name}:masters"
    asked = place.client.command("auth", "can-i", *right, account)
    assert place.call(*asked).stdout.strip() == answer


def test_port_that_another_release_has_of_the_nodes_is_refused(place: Namespace) -> None:
    place.kubectl("apply", "--filename", "-", input=json.dumps(on_nodes(2222, release="other")))
    message = refuse(place, {"hostNetwork": True})
    assert "agent.port is 2222" in message
    assert '"other-worker"' in message
    upgrade(place, "helm4", CHART, RUN, {"hostNetwork": True, "agent": {"port": 2223}})


def test_other_selector_is_refused_with_the_remedy(place: Namespace) -> None:
    """Another nameOverride made it. Kubernetes never changes a selector."""
    labels = {
        "app.kubernetes.io/name": "lab",
        "app.kubernetes.io/instance": "hvd",
        "app.kubernetes.io/component": "worker",
        "hvdchart/group": "worker",
    }
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    old = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "lab-worker"},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": pod},
    }
    place.kubectl("apply", "--filename", "-", input=json.dumps(old))
    wait_for_default_account(place)
    values = {**RUN, "fullnameOverride": "lab"}
    done = place.helm("upgrade", "--install", "hvd", str(CHART), values=values, version="helm4")
    assert done.returncode != 0
    assert '"app.kubernetes.io/name":"lab"' in done.stderr
    assert f"--namespace {place.name} delete statefulset lab-worker" in done.stderr
    place.kubectl("delete", "statefulset", "lab-worker")
    upgrade(place, "helm4", CHART, values)
