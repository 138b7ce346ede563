"""Pods, Services and images on a cluster of the tests' own."""

from __future__ import annotations

import subprocess
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.common.waiting import wait_until
from devtools.localkube.images import (
    find_builder_image,
    layer_sizes,
    pack_missing,
    read_manifests,
    untagged_ids,
)
from tests.localkube.machine import TIMEOUT_SECONDS
from tests.support.localkube import Cluster

LAYERS_IMAGE = "docker.io/localkube/three-layers:1"


def fetch(place: str) -> bytes:
    """What this machine gets from a server of the cluster."""
    with urllib.request.urlopen(f"http://{place}") as answer:
        content: bytes = answer.read()
        return content


def look_up(probe: Cluster, name: str) -> str:
    """What a pod's resolver says of a name."""
    return probe.kubectl("exec", "server", "--", "/probe", "lookup", name, check=False)


@pytest.fixture(scope="class")
def service(probe: Cluster) -> str:
    """The address of the Service `web`, which a pod reaches."""
    # kube-proxy adds the Service's rules some time after its pod is ready.
    wait_until(
        lambda: "this is server" in probe.get("server", "http://web.default"),
        TIMEOUT_SECONDS,
        "the pod reaches its Service",
    )
    return probe.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")


class TestPodsAndServices:
    def test_logs_are_those_of_the_container(self, probe: Cluster) -> None:
        assert probe.kubectl("logs", "server") == "serving on server\n"

    @pytest.mark.usefixtures("service")
    def test_pod_reaches_a_service_by_its_name(self, probe: Cluster) -> None:
        assert "this is server" in probe.get("server", "http://web.default")

    def test_cluster_dns_knows_the_services(self, probe: Cluster) -> None:
        assert "198.1" in look_up(probe, "kubernetes.default.svc.cluster.local")

    def test_name_outside_of_the_cluster_is_denied_at_once(self, probe: Cluster) -> None:
        """Not after a timeout."""
        assert "no such host" in look_up(probe, "example.com")

    def test_machine_reaches_a_service(self, service: str) -> None:
        assert fetch(service) == b"this is server\n"

    def test_port_of_a_pod_is_forwarded_through_the_api_server(self, probe: Cluster) -> None:
        command = probe.kubectl_command("port-forward", "pod/server", ":8080")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forward:
            assert forward.stdout is not None
            port = forward.stdout.readline().split(":")[1].split()[0]
            answer = fetch(f"127.0.0.1:{port}")
            forward.terminate()
        assert answer == b"this is server\n"

    def test_pod_security_is_enforced(self, probe: Cluster) -> None:
        label = {"pod-security.kubernetes.io/enforce": "restricted"}
        metadata = {"name": "strict", "labels": label}
        probe.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        refused = probe.kubectl("run", "x", "--namespace=strict", "--image=x", check=False)
        assert 'violates PodSecurity "restricted:latest"' in refused


@pytest.fixture
def layers_folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of an image of three layers, of which the last one has the file `probe`."""
    folder = tmp_path / "layers"
    folder.mkdir()
    (folder / "first").write_text(f"first of {tmp_path}")
    (folder / "second").write_text(f"second of {tmp_path}")
    lines = ["FROM scratch", *(f"COPY {name} /" for name in ("first", "second", "probe"))]
    (folder / "Containerfile").write_text("\n".join([*lines, 'ENTRYPOINT ["/probe"]', ""]))
    yield folder
    subprocess.run(["buildah", "rmi", "--force", LAYERS_IMAGE], check=False)


def send(probe: Cluster, folder: Path, program: bytes) -> int:
    """Build the image with a program, load and run it; how many blobs were sent."""
    (folder / "probe").write_bytes(program)
    (folder / "probe").chmod(0o755)
    build = ["buildah", "build", "--quiet", "--layers", "--tag", LAYERS_IMAGE, str(folder)]
    subprocess.run(build, check=True, capture_output=True)
    known_layers = layer_sizes(probe.instance, read_manifests(probe.instance))
    packed = folder.with_name(f"packed-{len(program)}")
    packed.mkdir()
    with tarfile.open(
        pack_missing(find_builder_image(LAYERS_IMAGE), known_layers, packed)
    ) as archive:
        sent = sum(name.startswith("blobs/") for name in archive.getnames())
    probe.run("load", LAYERS_IMAGE)
    once = ("--restart=Never", "--image-pull-policy=Never", "--", "size")
    probe.kubectl("run", "once", f"--image={LAYERS_IMAGE}", *once)
    probe.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/once", "--timeout=180s")
    assert probe.kubectl("logs", "once") == f"{len(program)}\n"
    probe.kubectl("delete", "pod", "once", "--now")
    return sent


def test_layers_that_the_cluster_has_are_not_sent_again(
    probe: Cluster, probe_folder: Path, layers_folder: Path
) -> None:
    program = (probe_folder / "probe").read_bytes()
    # The manifest, the config, and three layers or one.
    assert send(probe, layers_folder, program) == 5
    assert send(probe, layers_folder, program + b"x") == 3
    assert not untagged_ids(read_manifests(probe.instance)), "the old image is still there"
