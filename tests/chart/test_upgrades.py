"""Upgrades of a release, against a real API server and with both Helms."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devtools.toolchain.tools import tool
from hvdchart.chart_files import read_data
from hvdchart.values.merge import merge_values
from tests.chart.cases import STAGING, on_disk
from tests.chart.namespaces import empty_namespace
from tests.chart.render import CHART, Manifest, Values, of_kind, parse_manifests, pod_spec
from tests.support.namespace import HELMS, Namespace

# Suspended, so that neither pods nor images are needed.
RUN: Values = {"master": {"args": ["python", "train.py"], "suspend": True}, "cleanup": "Never"}
OTHER_COMMAND: Values = {"master": {"args": ["python", "other.py"]}}
KINDS = "jobs,statefulsets,configmaps"


def upgrade(place: Namespace, version: str, chart: Path, *values: Values) -> str:
    """Upgrade or install with merged values, which must succeed; return the notes."""
    merged: Values = {}
    for each in values:
        merged = merge_values(merged, each)
    done = place.helm("upgrade", "--install", "hvd", str(chart), values=merged, version=version)
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass(frozen=True)
class Seen:
    """What Helm said in an upgrade, and the objects of the run after it."""

    notes: str
    jobs: list[Manifest]
    stateful_sets: list[Manifest]
    config_maps: dict[str, Manifest]

    @property
    def job(self) -> Manifest:
        (job,) = self.jobs
        return job

    @property
    def job_name(self) -> str:
        name: str = self.job["metadata"]["name"]
        return name

    @property
    def stateful_set(self) -> Manifest:
        (stateful_set,) = self.stateful_sets
        return stateful_set

    @property
    def written(self) -> dict[str, int]:
        """The Job and the StatefulSet by uid, with how many times their spec was written."""
        items = (self.job, self.stateful_set)
        return {item["metadata"]["uid"]: item["metadata"]["generation"] for item in items}

    @property
    def programs(self) -> set[str]:
        """The ConfigMaps of programs that the Job's and the StatefulSet's pods mount."""
        return {
            volume["configMap"]["name"]
            for item in (self.job, self.stateful_set)
            for volume in pod_spec(item)["volumes"]
            if volume["name"] == "archive"
        }

    @property
    def affinity(self) -> Manifest:
        """The affinity of the workers."""
        affinity: Manifest = pod_spec(self.stateful_set)["affinity"]
        return affinity

    @property
    def revision(self) -> str:
        """The workers' revision: pods of another one are replaced."""
        labels = self.stateful_set["spec"]["template"]["metadata"]["labels"]
        return str(labels["horovod/revision"])


def see(place: Namespace, version: str, chart: Path, *values: Values) -> Seen:
    """Upgrade or install, and look at the objects."""
    notes = upgrade(place, version, chart, *values)
    items = place.get(KINDS)["items"]
    config_maps = of_kind(items, "ConfigMap")
    return Seen(
        notes,
        of_kind(items, "Job"),
        of_kind(items, "StatefulSet"),
        {item["metadata"]["name"]: item for item in config_maps},
    )


def end(place: Namespace, *conditions: str) -> None:
    """Let the run's Job have ended."""
    now = {"startTime": "2026-01-01T10:00:00Z"}
    if conditions[-1] == "Complete":
        now["completionTime"] = "2026-01-01T10:01:00Z"
    ended = [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T10:01:00Z"}
        for kind in conditions
    ]
    patch = json.dumps({"status": {**now, "conditions": ended}})
    place.kubectl("patch", "job", place.job("hvd"), "--subresource=status", "-p", patch)


def wait_for_default_account(place: Namespace) -> None:
    """Wait for the account that Helm takes as the sign that it can read the cluster."""
    place.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=180s")


@pytest.fixture(scope="module", params=HELMS)
def going_on(kubeconfig: Path, newer: Path, request: pytest.FixtureRequest) -> dict[str, Seen]:
    """A run that goes on, after each of these upgrades in turn."""
    longer: Values = {"master": {"backoffLimit": 9, "activeDeadlineSeconds": 99}}
    with empty_namespace(kubeconfig) as place:
        return {
            "installed": see(place, request.param, CHART, RUN),
            "newer": see(place, request.param, newer, RUN, {"metrics": {"enabled": True}}),
            "longer": see(place, request.param, newer, RUN, longer),
            "other command": see(place, request.param, newer, RUN, OTHER_COMMAND),
        }


def test_newer_chart_leaves_a_run_that_goes_on_as_it_is(going_on: dict[str, Seen]) -> None:
    assert going_on["newer"].written == going_on["installed"].written


def test_newer_chart_says_that_the_next_run_uses_it(going_on: dict[str, Seen]) -> None:
    assert "The next run uses this version of the chart." in going_on["newer"].notes


def test_run_that_goes_on_keeps_the_programs_of_its_own_chart(going_on: dict[str, Seen]) -> None:
    after = going_on["newer"]
    assert after.programs == going_on["installed"].programs
    (name,) = after.programs
    before = going_on["installed"].config_maps[name]["binaryData"]
    assert after.config_maps[name]["binaryData"] == before


def test_job_of_a_run_that_goes_on_has_the_label_of_the_newer_chart(
    going_on: dict[str, Seen],
) -> None:
    labels = going_on["newer"].job["metadata"]["labels"]
    assert labels["helm.sh/chart"].startswith("horovod-1")


def test_number_of_retries_applies_to_a_run_that_goes_on(going_on: dict[str, Seen]) -> None:
    """So do the deadline and the time to live."""
    assert going_on["longer"].job["spec"]["backoffLimit"] == 9
    assert going_on["longer"].written.keys() == going_on["installed"].written.keys()


def test_other_command_is_another_job_with_the_same_stateful_set(
    going_on: dict[str, Seen],
) -> None:
    after = going_on["other command"]
    assert len(going_on["installed"].written.keys() & after.written.keys()) == 1
    uid = going_on["installed"].stateful_set["metadata"]["uid"]
    assert after.stateful_set["metadata"]["uid"] == uid


def test_next_run_uses_the_programs_of_the_newer_chart(going_on: dict[str, Seen]) -> None:
    before = going_on["installed"].programs
    after = going_on["other command"]
    assert not before & after.programs
    assert not before & after.config_maps.keys()


@pytest.mark.parametrize("version", HELMS)
def test_code_that_does_not_fit_beside_kept_programs_is_refused(
    place: Namespace, newer: Path, version: str
) -> None:
    """The message comes in place of that of Helm, whose Secret would be too large."""
    most = int(read_data("resources.json")["codeCharacters"])
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


def test_upgrade_of_a_finished_run_says_that_nothing_was_started(
    finished: dict[str, Seen],
) -> None:
    notes = finished["newer"].notes
    job = finished["installed"].job_name
    assert f"This run finished under the Job {job}: nothing was started." in notes
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


@pytest.fixture(scope="module", params=HELMS)
def failed(kubeconfig: Path, newer: Path, request: pytest.FixtureRequest) -> dict[str, Seen]:
    """A run that has failed, whose workers are scaled to zero, after each of these upgrades."""
    version = request.param
    going: Values = {**RUN, "master": {"args": ["python", "train.py"]}}
    with empty_namespace(kubeconfig) as place:
        labels = see(place, version, CHART, RUN).job["metadata"]["labels"]
        end(place, "FailureTarget", "Failed")
        record = {key: labels[f"horovod/{key}"] for key in ("run", "settings")}
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
        ended = {key: labels[f"horovod/{key}"] for key in ("run", "settings")}
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
    assert "This run finished at 2026-01-01T10:01:00Z" in replaced.same.notes
    assert replaced.same.jobs == []


def test_replaced_secrets_have_the_same_keys(replaced: Replaced) -> None:
    before, after = replaced.keys
    assert None not in before
    assert after == before


def test_other_command_after_a_replaced_record_is_a_new_run(replaced: Replaced) -> None:
    assert len(replaced.other.jobs) == 1
    record = replaced.other.config_maps["hvd-run"]
    assert "horovod/ended" not in record["metadata"]["annotations"]


def test_manifests_of_a_newer_chart_make_another_job_of_the_same_run(
    place: Namespace, newer: Path
) -> None:
    """A GitOps tool renders without the cluster: the record then says that the run has ended."""
    for chart in (CHART, newer):
        command = [str(tool("helm4")), "template", "hvd", str(chart), "--no-hooks", "--values", "-"]
        done = place.call(*command, input=json.dumps({**RUN, "image": {"repository": "app"}}))
        assert done.returncode == 0, done.stderr
        place.kubectl("apply", "--server-side", "--filename", "-", input=done.stdout)
    jobs = [place.get("job", name) for name in place.jobs("hvd")]
    assert len(jobs) == 2
    assert len({job["metadata"]["labels"]["horovod/run"] for job in jobs}) == 1


# The content of the Secret of the master and of that of the workers.
Keys = tuple[dict[str, str] | None, dict[str, str] | None]
SECRETS = ("hvd-agent-master", "hvd-agent-worker")
OF_THE_MASTER = {
    name: base64.b64encode(name.encode()).decode() for name in ("tls.crt", "tls.key", "ca.crt")
}


def read_keys(place: Namespace, suffix: str = "") -> Keys:
    """The content of both Secrets; None where one is empty."""
    master, worker = (place.get("secret", f"{name}{suffix}").get("data") for name in SECRETS)
    return master, worker


def patch_secret(place: Namespace, name: str, kind: str, body: Any) -> None:
    place.kubectl("patch", "secret", name, f"--type={kind}", f"--patch={json.dumps(body)}")


@pytest.fixture(scope="module", params=HELMS)
def keys(kubeconfig: Path, request: pytest.FixtureRequest) -> dict[str, Keys]:
    """The keys after each of these upgrades."""
    found: dict[str, Keys] = {}

    def upgrade_and_look(name: str, suffix: str = "", **values: Any) -> None:
        upgrade(place, request.param, CHART, RUN, values)
        found[name] = read_keys(place, suffix)

    with empty_namespace(kubeconfig) as place:
        wait_for_default_account(place)
        upgrade_and_look("installed")
        upgrade_and_look("again")
        place.kubectl("delete", "secret", SECRETS[0])
        upgrade_and_look("one was deleted")
        # As a renderer without access to the cluster leaves it: the master may make them just now.
        for name in SECRETS:
            patch_secret(place, name, "json", [{"op": "remove", "path": "/data"}])
        upgrade_and_look("empty")
        patch_secret(place, SECRETS[1], "merge", {"data": OF_THE_MASTER})
        upgrade_and_look("the master makes the second")
        patch_secret(place, SECRETS[0], "merge", {"data": OF_THE_MASTER})
        upgrade_and_look("made by the master")
        upgrade_and_look("next generation", "-2", agent={"generation": 2})
    return found


def test_helm_makes_the_keys(keys: dict[str, Keys]) -> None:
    for made in keys["installed"]:
        assert made is not None
        assert made.keys() == {"tls.crt", "tls.key", "ca.crt"}


def test_helm_makes_the_keys_once(keys: dict[str, Keys]) -> None:
    assert keys["again"] == keys["installed"]


def test_helm_makes_both_secrets_again_when_one_was_deleted(keys: dict[str, Keys]) -> None:
    before = keys["installed"]
    for made, old in zip(keys["one was deleted"], before, strict=True):
        assert made is not None
        assert old is not None
        assert not set(made.values()) & set(old.values())


def test_helm_leaves_empty_secrets_to_the_master(keys: dict[str, Keys]) -> None:
    assert keys["empty"] == (None, None)


def test_helm_leaves_the_rest_to_a_master_that_makes_the_keys(keys: dict[str, Keys]) -> None:
    assert keys["the master makes the second"] == (None, OF_THE_MASTER)


def test_helm_leaves_the_keys_of_the_master(keys: dict[str, Keys]) -> None:
    assert keys["made by the master"] == (OF_THE_MASTER, OF_THE_MASTER)


def test_next_generation_has_other_keys(keys: dict[str, Keys]) -> None:
    for first, other in zip(keys["installed"], keys["next generation"], strict=True):
        assert first is not None
        assert other is not None
        assert not set(other.values()) & {*OF_THE_MASTER.values(), *first.values()}


def refuse(place: Namespace, values: Values) -> str:
    """Upgrade or install, which must fail; return the message."""
    command = ("upgrade", "--install", "hvd", str(CHART))
    done = place.helm(*command, values=merge_values(RUN, values))
    assert done.returncode != 0
    return done.stderr


@pytest.mark.parametrize("missing", ["tls.crt", "tls.key", "ca.crt"])
def test_secret_of_the_user_without_a_key_is_refused(place: Namespace, missing: str) -> None:
    """As cert-manager writes it with an issuer that names no authority, for instance."""
    wait_for_default_account(place)
    for name, left_out in (("mine", ""), ("theirs", missing)):
        literals = [f"--from-literal={key}=x" for key in OF_THE_MASTER if key != left_out]
        place.kubectl("create", "secret", "generic", name, *literals)
    message = refuse(place, {"agent": {"masterSecret": "mine", "workerSecret": "theirs"}})
    assert 'agent.workerSecret is "theirs"' in message
    assert f'no such Secret with the key "{missing}"' in message


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
    "worker": {"serviceAccount": {"name": "workers"}},
}


def test_objects_that_the_release_creates_itself_may_be_named(place: Namespace) -> None:
    upgrade(place, "helm4", CHART, RUN, NAMES_OBJECTS, {"extraObjects": [CLAIM, *ACCOUNTS]})


@pytest.mark.parametrize("missing", ["scans", "masters", "workers"])
def test_objects_that_nobody_creates_are_refused(place: Namespace, missing: str) -> None:
    created = [item for item in (CLAIM, *ACCOUNTS) if item["metadata"]["name"] != missing]
    message = refuse(place, {**NAMES_OBJECTS, "extraObjects": created})
    assert f'"{missing}"' in message


@pytest.mark.parametrize(("rbac", "answer"), [(True, "yes"), (False, "no")])
def test_named_account_has_the_rights_of_the_master_from_the_chart_if_that_grants_them(
    place: Namespace, *, rbac: bool, answer: str
) -> None:
    named = {"serviceAccount": {"create": False, "name": "masters"}, "extraObjects": ACCOUNTS[:1]}
    upgrade(place, "helm4", CHART, RUN, named, {"rbac": {"create": rbac}})
    right = ("patch", "statefulsets/hvd-worker", "--subresource=scale")
    account = f"--as=system:serviceaccount:{place.name}:masters"
    asked = place.client.command("auth", "can-i", *right, account)
    assert place.call(*asked).stdout.strip() == answer


def on_nodes(name: str, port: int) -> Manifest:
    """A StatefulSet of another release, whose pods have a port of their nodes."""
    labels = {"app.kubernetes.io/name": "horovod", "app.kubernetes.io/instance": name}
    container = {"name": "worker", "image": "a", "ports": [{"containerPort": port}]}
    # No node has the label: the pod waits.
    pod = {"hostNetwork": True, "nodeSelector": {"not": "there"}, "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": f"{name}-worker", "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def test_port_that_another_release_has_of_the_nodes_is_refused(place: Namespace) -> None:
    wait_for_default_account(place)
    place.kubectl("apply", "--filename", "-", input=json.dumps(on_nodes("other", 2222)))
    message = refuse(place, {"hostNetwork": True})
    assert 'agent.port is 2222, but the pods of StatefulSet "other-worker"' in message
    upgrade(place, "helm4", CHART, RUN, {"hostNetwork": True, "agent": {"port": 2223}})


# The last version whose master reached the workers over SSH.
WITH_SSH = CHART.parents[1] / "tests" / "released" / "horovod-0.1.0.tgz"


@dataclass(frozen=True)
class FromSsh:
    """A suspended run of the chart with SSH, before and after an upgrade to this chart."""

    before: Manifest
    after: Manifest
    secrets: set[str]
    keys: Keys


@pytest.fixture(scope="module", params=HELMS)
def from_ssh(kubeconfig: Path, request: pytest.FixtureRequest) -> FromSsh:
    def helm(chart: Path) -> None:
        # The old chart has no launch.preload, which `upgrade` would set.
        command = ("upgrade", "--install", "hvd", str(chart))
        done = place.helm(*command, values=RUN, version=request.param, preload=True)
        assert done.returncode == 0, done.stderr

    with empty_namespace(kubeconfig) as place:
        wait_for_default_account(place)
        helm(WITH_SSH)
        before = place.get("job", place.job("hvd"))
        helm(CHART)
        after = place.get("job", place.job("hvd"))
        secrets = {item["metadata"]["name"] for item in place.get("secrets")["items"]}
        return FromSsh(before, after, secrets, read_keys(place))


def test_upgrade_from_a_chart_with_ssh_starts_the_run_again(from_ssh: FromSsh) -> None:
    assert from_ssh.after["metadata"]["uid"] != from_ssh.before["metadata"]["uid"]


def test_upgrade_from_a_chart_with_ssh_makes_the_keys(from_ssh: FromSsh) -> None:
    assert None not in from_ssh.keys


def test_upgrade_from_a_chart_with_ssh_removes_its_keys(from_ssh: FromSsh) -> None:
    assert "hvd-ssh" not in from_ssh.secrets
    volumes = [volume["name"] for volume in pod_spec(from_ssh.after)["volumes"]]
    assert "ssh" not in volumes


@pytest.mark.parametrize("label", ["app.kubernetes.io/instance", "app.kubernetes.io/name"])
def test_other_selector_is_refused_with_the_remedy(place: Namespace, label: str) -> None:
    """In 0.1.0 the instance was fullnameOverride; the name is nameOverride.

    Kubernetes never changes a selector.
    """
    labels = {
        "app.kubernetes.io/name": "horovod",
        "app.kubernetes.io/instance": "hvd",
        "app.kubernetes.io/component": "worker",
        "horovod/group": "worker",
        label: "lab",
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
    remedy = f"--namespace {place.name} delete statefulset lab-worker"
    for word in ('StatefulSet "lab-worker"', f'"{label}":"lab"', remedy):
        assert word in done.stderr
    place.kubectl("delete", "statefulset", "lab-worker")
    upgrade(place, "helm4", CHART, values)


STAGED: Values = {**on_disk("/mnt/data"), "staging": STAGING}


def named(node: str) -> dict[str, Any]:
    """The field selector of a node of the list: a label may differ from the node's name."""
    return {"key": "metadata.name", "operator": "In", "values": [node]}


def put_node_list(place: Namespace, *nodes: str) -> str:
    """Write the list of the nodes with the data as a master does, with its rights.

    Return what Kubernetes says when the master writes another ConfigMap.
    """
    rules = place.get("role", "hvd-master")["rules"]
    (name,) = (
        name
        for rule in rules
        for name in rule.get("resourceNames", [])
        if "create" in rule["verbs"] and name.startswith("horovod-staged")
    )
    metadata = {"name": name, "labels": {"horovod/record": "staged"}}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    account = f"--as=system:serviceaccount:{place.name}:hvd-master"
    apply = ("apply", "--server-side", "--filename", "-", account)
    place.kubectl(*apply, input=json.dumps(body))
    data = json.dumps({"data": dict.fromkeys(nodes, "2026-01-01T10:00:00Z")})
    place.kubectl("patch", "configmap", name, "--type=merge", "-p", data, account)
    body["metadata"] = {"name": "another"}
    return place.call(*place.client.command(*apply), input=json.dumps(body)).stderr


@dataclass(frozen=True)
class Staged:
    """A run that stages data, before and after its master has listed the nodes that have it."""

    installed: Seen
    refused: str
    same: Seen
    other: Seen


@pytest.fixture(scope="module", params=HELMS)
def staged(kubeconfig: Path, request: pytest.FixtureRequest) -> Staged:
    version = request.param
    with empty_namespace(kubeconfig) as place:
        return Staged(
            installed=see(place, version, CHART, RUN, STAGED),
            refused=put_node_list(place, "node-b", "node-a"),
            same=see(place, version, CHART, RUN, STAGED),
            other=see(place, version, CHART, RUN, STAGED, OTHER_COMMAND),
        )


def test_no_nodes_are_preferred_without_a_node_list(staged: Staged) -> None:
    assert "have the data" not in staged.installed.notes
    assert set(staged.installed.affinity) == {"podAntiAffinity"}


def test_master_may_write_no_config_map_but_the_node_list(staged: Staged) -> None:
    assert "cannot" in staged.refused


def test_run_that_is_there_stays_as_it_is_when_the_node_list_appears(staged: Staged) -> None:
    assert set(staged.same.affinity) == {"podAntiAffinity"}


@pytest.mark.promise("next run goes to the nodes that have the data")
def test_next_run_goes_to_the_nodes_that_have_the_data(staged: Staged) -> None:
    assert staged.other.affinity["nodeAffinity"] == {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": {"matchFields": [named(node)]}}
            for node in ("node-a", "node-b")
        ]
    }
    assert "podAntiAffinity" in staged.other.affinity


def test_next_run_says_which_nodes_have_the_data(staged: Staged) -> None:
    notes = staged.other.notes
    assert "Nodes that have the data of staging.path already: node-a, node-b." in notes
    assert "A worker on another node fetches the data" in notes


def test_next_run_keeps_the_workers_that_run(staged: Staged) -> None:
    """They have the data: none is replaced."""
    assert staged.other.revision == staged.installed.revision


POOLS = [
    {"matchExpressions": [{"key": "pool", "operator": "In", "values": [name]}]}
    for name in ("a", "b")
]


@pytest.fixture(scope="module")
def chosen(kubeconfig: Path) -> dict[str, Seen]:
    """The next run by what the values say of the nodes that have the data."""
    own = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": POOLS}}
    required = {"staging": {"nodes": "Required"}, "worker": {"affinity": {"nodeAffinity": own}}}
    ignored = {"staging": {"nodes": "Any"}}
    with empty_namespace(kubeconfig) as place:
        upgrade(place, "helm4", CHART, RUN, STAGED)
        put_node_list(place, "node-a", "node-b")
        return {
            "Any": see(place, "helm3", CHART, RUN, STAGED, OTHER_COMMAND, ignored),
            "Required": see(place, "helm4", CHART, RUN, STAGED, OTHER_COMMAND, required),
        }


def test_nodes_with_the_data_can_be_ignored(chosen: dict[str, Seen]) -> None:
    assert set(chosen["Any"].affinity) == {"podAntiAffinity"}


def test_nodes_with_the_data_can_be_required_beside_what_the_values_require(
    chosen: dict[str, Seen],
) -> None:
    """Of several terms one is enough for a node: each has one node and all of its conditions."""
    node_affinity = chosen["Required"].affinity["nodeAffinity"]
    terms = node_affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [
        {**pool, "matchFields": [named(node)]} for node in ("node-a", "node-b") for pool in POOLS
    ]


def test_notes_say_that_workers_run_on_the_required_nodes_only(chosen: dict[str, Seen]) -> None:
    assert "Workers run on these nodes only." in chosen["Required"].notes
