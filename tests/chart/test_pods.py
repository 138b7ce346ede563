"""Pods: images, volumes, environment, and what the values add to them."""

from __future__ import annotations

import posixpath

import pytest

from tests.chart.cases import ADDITIONS, CASES, CONTAINER, EVERY_POD, NATIVE, OWN_TMP
from tests.chart.render import (
    Manifest,
    Values,
    containers_of,
    main_container,
    of_kind,
    one,
    pod_spec,
    refusal,
    render,
    variables,
)

BOTH = ("StatefulSet", "Job")
DIGEST = "sha256:" + "0123456789abcdef" * 4
OTHER = "sha256:" + "f" * 64


@pytest.mark.parametrize(
    ("image", "own", "reference"),
    [
        ({"repository": "a"}, {}, "a:0.28.1-tf2.21.0"),
        ({"repository": "a", "digest": DIGEST}, {}, f"a@{DIGEST}"),
        ({"repository": "a", "tag": "1", "digest": DIGEST}, {}, f"a:1@{DIGEST}"),
        # A digest belongs to its repository and tag.
        ({"repository": "a", "digest": DIGEST}, {"tag": "2"}, "a:2"),
        ({"repository": "a", "tag": "1", "digest": DIGEST}, {"repository": "b"}, "b:1"),
        ({"repository": "a", "tag": "1"}, {"digest": DIGEST}, f"a@{DIGEST}"),
        ({"repository": "a", "tag": "1"}, {"tag": "2", "digest": DIGEST}, f"a:2@{DIGEST}"),
        ({"repository": "a", "digest": DIGEST}, {"digest": OTHER}, f"a@{OTHER}"),
        ({"repository": "a", "digest": DIGEST}, {"pullPolicy": "Always"}, f"a@{DIGEST}"),
        ({"repository": ""}, {"repository": "c", "tag": "1"}, "c:1"),
    ],
)
def test_reference_of_an_image(image: Values, own: Values, reference: str) -> None:
    manifests = render({"image": image, "worker": {"image": own}, "master": {"image": own}})
    assert [main_container(manifests, kind)["image"] for kind in BOTH] == [reference] * 2


# Two groups with images of their own, whose staging has another one.
OWN_IMAGES: Values = {
    **EVERY_POD,
    "podSecurityContext": {},
    "image": {"repository": "x"},
    "worker": {"image": {"tag": "1", "digest": DIGEST}},
    "workerGroups": [{"name": "a"}, {"name": "b", "image": {"tag": "2"}}],
    "staging": {**EVERY_POD["staging"], "image": {"repository": "rclone"}},
}


def test_images_of_a_group_and_of_staging_override_that_of_the_workers() -> None:
    """No digest is inherited together with another tag or repository."""
    specs = [pod_spec(workload) for workload in of_kind(render(OWN_IMAGES), "StatefulSet")]
    assert [spec["containers"][0]["image"] for spec in specs] == [f"x:1@{DIGEST}", "x:2"]
    assert [spec["initContainers"][0]["image"] for spec in specs] == ["rclone:1", "rclone:2"]


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("context", "uid"),
    [
        ({}, 1000),
        ({"runAsUser": 4321}, 4321),
        ({"runAsUser": 0, "runAsNonRoot": False}, 0),
        # This leaves it to the platform.
        ({"runAsUser": None}, None),
    ],
)
def test_pods_run_as_the_user_of_the_values(context: Values, uid: int | None, kind: str) -> None:
    spec = pod_spec(one(render({"podSecurityContext": context}), kind))
    assert spec["securityContext"].get("runAsUser") == uid


@pytest.fixture(scope="module")
def root_workers() -> list[Manifest]:
    """The containers of two groups of workers that run as root; the second has a capability."""
    values: Values = {
        "podSecurityContext": {"runAsUser": 0, "runAsNonRoot": False},
        "workerGroups": [{"name": "plain"}, {"name": "rdma", "capabilities": ["IPC_LOCK"]}],
    }
    workloads = of_kind(render(values), "StatefulSet")
    return [pod_spec(workload)["containers"][0] for workload in workloads]


@pytest.mark.promise("root workers get the capabilities of their group only")
def test_root_workers_get_the_capabilities_of_their_group_only(
    root_workers: list[Manifest],
) -> None:
    capabilities = [container["securityContext"]["capabilities"] for container in root_workers]
    assert capabilities == [{"drop": ["ALL"]}, {"drop": ["ALL"], "add": ["IPC_LOCK"]}]


def test_root_workers_gain_no_privilege(root_workers: list[Manifest]) -> None:
    contexts = [container["securityContext"] for container in root_workers]
    assert [context["readOnlyRootFilesystem"] for context in contexts] == [True, True]
    assert [context["allowPrivilegeEscalation"] for context in contexts] == [False, False]


VOLUMES: Values = {
    "volumes": [{"name": "data", "hostPath": {"path": "/mnt/data"}}],
    "volumeMounts": [
        {"name": "data", "mountPath": "/data", "readOnly": True},
        {"name": "data", "mountPath": "/tmp", "subPath": "tmp"},
    ],
}


@pytest.mark.parametrize("kind", BOTH)
def test_volumes_are_mounted_in_master_and_workers(kind: str) -> None:
    """One at a path of the chart's replaces it, such as a /tmp on a disk of the node."""
    manifests = render(VOLUMES)
    assert VOLUMES["volumes"][0] in pod_spec(one(manifests, kind))["volumes"]
    mounts = main_container(manifests, kind)["volumeMounts"]
    assert [mount for mount in mounts if mount["mountPath"] in ("/tmp", "/data")][::-1] == (
        VOLUMES["volumeMounts"]
    )


def test_additions_reach_their_pods() -> None:
    """Labels of one kind of pod override those of all, also with an empty one."""
    manifests = render({**EVERY_POD, **ADDITIONS, "master": {"podLabels": {"team": ""}}})
    assert ADDITIONS["extraObjects"][0] in manifests
    kinds = (*BOTH, "Deployment")
    pods = [one(manifests, kind)["spec"]["template"]["metadata"] for kind in kinds]
    assert [pod["labels"]["team"] for pod in pods] == ["vision", "", "vision"]
    tester = one(manifests, "Pod")["metadata"]
    assert [pod["annotations"]["cost"] for pod in (*pods, tester)] == ["42"] * 4


def with_containers(**of_init_container: object) -> Manifest:
    """Return the pod spec of workers with containers of the user."""
    worker = {
        "initContainers": [{**NATIVE, **of_init_container}],
        "extraContainers": [CONTAINER],
    }
    return pod_spec(one(render({**EVERY_POD, "worker": worker}), "StatefulSet"))


def test_containers_of_the_user_run_before_staging_and_pass_pod_security() -> None:
    """They get the chart's security context."""
    spec = with_containers()
    assert [item["name"] for item in spec["initContainers"]] == ["proxy", "staging"]
    main, shipper = spec["containers"]
    assert shipper["securityContext"] == main["securityContext"]
    assert shipper["securityContext"]["allowPrivilegeEscalation"] is False


def test_containers_of_the_user_keep_a_security_context_of_their_own() -> None:
    context = {"runAsUser": 5}
    added = with_containers(securityContext=context)["initContainers"][0]
    assert added["securityContext"] == context


@pytest.fixture(scope="module")
def with_identities() -> list[Manifest]:
    """The manifests of three groups: as usual, with an account of the user's, with a token."""
    groups = [
        {"name": "a"},
        {"name": "b", "podSpec": {"serviceAccountName": "other"}},
        {"name": "c", "podSpec": {"automountServiceAccountToken": True}},
    ]
    return render({**ADDITIONS, "workerGroups": groups})


@pytest.mark.promise("workers and groups have an identity and no token")
def test_workers_and_groups_have_an_identity_and_no_token(with_identities: list[Manifest]) -> None:
    specs = [pod_spec(item) for item in of_kind(with_identities, "StatefulSet")]
    assert [spec.get("serviceAccountName") for spec in specs] == [None, "other", None]
    assert [spec["automountServiceAccountToken"] for spec in specs] == [False, False, True]


CHOSEN_NODES: Values = {"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}]}
# A default, which the podSpec of workers may replace.
REPLACEABLE = {"worker": {"automountServiceAccountToken"}, "master": set()}


@pytest.mark.parametrize(("kind", "of"), [("StatefulSet", "worker"), ("Job", "master")], ids=BOTH)
def test_every_field_that_the_chart_renders_is_refused(kind: str, of: str) -> None:
    """The list of refused fields must not miss one, which would then be there twice."""
    everything = {
        **EVERY_POD,
        **ADDITIONS,
        "hostNetwork": True,
        "priorityClassName": "x",
        "schedulerName": "x",
        "imagePullSecrets": [{"name": "x"}],
        "metrics": {"enabled": True},
        of: {**ADDITIONS[of], **CHOSEN_NODES, "podSpec": {}, "container": {}},
    }
    spec = pod_spec(one(render(everything), kind))
    missed = [
        f"{where}.{field}"
        for where, fields in (("podSpec", spec), ("container", spec["containers"][0]))
        for field in fields.keys() - {*ADDITIONS[of]["container"]} - REPLACEABLE[of]
        if f"{of}.{where} has {field}"
        not in refusal({"hostNetwork": True, of: {where: {field: "x"}}})
    ]
    assert missed == []


def variable(name: str, value: str) -> dict[str, str]:
    return {"name": name, "value": value}


def test_last_entry_of_a_name_wins_in_every_container() -> None:
    """The entries of a group come after those of all workers."""
    twice = [variable("TWICE", "1"), variable("TWICE", "2")]
    manifests = render(
        {
            **EVERY_POD,
            "worker": {"env": twice[:1]},
            "workerGroups": [{"name": "a", "env": twice[1:]}],
            "master": {"env": [*twice, variable("HOME", "/home/me")]},
            "staging": {**EVERY_POD["staging"], "env": twice},
        }
    )
    winners = [
        (container["name"], entry["value"])
        for container in containers_of(manifests)
        for entry in container.get("env", [])
        if entry["name"] == "TWICE"
    ]
    # The master is in the pod of `helm test` too.
    names = ["master", "master", "staging", "worker"]
    assert sorted(winners) == [(name, "2") for name in names]
    assert variables(manifests, "Job")["HOME"] == "/home/me"


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        # What refers to an overridden variable still comes after it.
        (["A=1", "B=$(A)", "A=2"], ["A=2", "B=$(A)"]),
        (["X=1", "P=$(X)", "Y=2", "P=$(X):$$(P)"], ["X=1", "P=$(X):$$(P)", "Y=2"]),
        # $$ is an escaped dollar sign, and a reference to what comes later stays as it is.
        (["A=$$(B)", "A=$(B)", "B=1"], ["A=$(B)", "B=1"]),
    ],
)
def test_last_entry_of_a_name_has_the_place_of_the_first(
    entries: list[str], expected: list[str]
) -> None:
    pairs = [entry.partition("=") for entry in entries]
    env = [variable(name, value) for name, _, value in pairs]
    environment = variables(render({"worker": {"env": env}}))
    assert [f"{name}={value}" for name, value in environment.items()][-len(expected) :] == expected


def mounts_of(container: Manifest) -> list[tuple[str, str]]:
    """The paths at which a container has volumes, as the kubelet reads them, and the volumes."""
    mounts = container.get("volumeMounts") or []
    return [
        (posixpath.normpath("/" + mount["mountPath"].lstrip("/")), mount["name"])
        for mount in mounts
    ]


def at_tmp(path: str) -> Values:
    """The user's volume at /tmp, by a path that means it."""
    (scratch, data) = OWN_TMP["volumeMounts"]
    return {**OWN_TMP, "volumeMounts": [{**scratch, "mountPath": path}, data]}


TMP_PATHS = ["/tmp/", "//tmp", "tmp", "/tmp/."]


@pytest.mark.parametrize(
    "values", [*CASES.values(), *map(at_tmp, TMP_PATHS)], ids=[*CASES, *TMP_PATHS]
)
def test_no_container_has_two_volumes_at_one_path(values: Values) -> None:
    for container in containers_of(render(values)):
        paths = [path for path, _ in mounts_of(container)]
        assert len(set(paths)) == len(paths), container["name"]


@pytest.mark.parametrize("path", ["/tmp", *TMP_PATHS])
def test_volume_at_tmp_is_that_of_the_ranks(path: str) -> None:
    """Staging has a /tmp of its own, and TensorBoard the volume in which its logs are."""
    volumes = {
        container["name"]: volume
        for container in containers_of(render(at_tmp(path)))
        for place, volume in mounts_of(container)
        if place == "/tmp"
    }
    assert volumes == {
        "master": "scratch",
        "worker": "scratch",
        "staging": "tmp",
        "tensorboard": "scratch",
    }


def test_group_replaces_a_volume_of_the_release_everywhere() -> None:
    spec = pod_spec(one(render(OWN_TMP), "StatefulSet"))
    for container in (*spec["initContainers"], *spec["containers"]):
        paths = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        assert paths["/data"] == {"name": "data", "mountPath": "/data", "subPath": "a"}
