"""The images of the pods: repository, tag and digest, and what overrides what."""

from __future__ import annotations

import pytest

from tests.chart.render import Values, of_kind, one, pod_spec, refusal, render

DIGEST = "sha256:" + "0123456789abcdef" * 4
OTHER = "sha256:" + "f" * 64


def images(values: Values) -> tuple[str, str]:
    """Return the images of the worker and of the master."""
    manifests = render(values)
    worker, master = (
        pod_spec(one(manifests, kind))["containers"][0]["image"] for kind in ("StatefulSet", "Job")
    )
    return str(worker), str(master)


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
    ],
)
def test_reference_of_an_image(image: Values, own: Values, reference: str) -> None:
    values = {"image": image, "worker": {"image": own}, "master": {"image": own}}
    assert images(values) == (reference, reference)


def test_group_overrides_the_image_of_the_workers() -> None:
    values: Values = {
        "worker": {"image": {"tag": "1", "digest": DIGEST}},
        "workerGroups": [{"name": "a"}, {"name": "b", "image": {"tag": "2"}}],
        "image": {"repository": "x"},
    }
    sets = of_kind(render(values), "StatefulSet")
    images = [pod_spec(workload)["containers"][0]["image"] for workload in sets]
    assert images == [f"x:1@{DIGEST}", "x:2"]


def test_staging_image_does_not_inherit_the_digest_of_another() -> None:
    values: Values = {
        "image": {"repository": "x", "digest": DIGEST},
        "staging": {"command": ["true"], "path": "/data/a", "image": {"repository": "rclone"}},
        "volumes": [{"name": "data", "emptyDir": {}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    (staging,) = pod_spec(one(render(values), "StatefulSet"))["initContainers"]
    assert staging["image"] == "rclone:0.28.1-tf2.21.0"


@pytest.mark.parametrize(
    ("values", "who"),
    [
        ({}, 'group "worker"'),
        ({"worker": {"image": {"repository": "a"}}}, "master"),
        ({"master": {"image": {"repository": "a"}}}, 'group "worker"'),
    ],
)
def test_image_must_be_given(values: Values, who: str) -> None:
    message = refusal({**values, "image": {"repository": ""}})
    words = ["image.repository is empty", who, "--set image.repository=", "docs/images.md"]
    for word in words:
        assert word in message


def test_pods_may_each_have_an_image_of_their_own() -> None:
    own = {"image": {"repository": "a", "tag": "1"}}
    assert images({"image": {"repository": ""}, "worker": own, "master": own}) == ("a:1", "a:1")
