"""Pods, Services and images on a cluster of the tests' own."""

from __future__ import annotations

import subprocess
import tarfile
import urllib.request
from pathlib import Path

from devtools.localkube.images import find, layer_sizes, pack_missing, read_manifests, untagged_ids
from tests.localkube.conftest import Cluster, wait_until

LAYERS_IMAGE = "docker.io/localkube/three-layers:1"


def test_logs_exec_dns_services_and_port_forward_work(probe: Cluster) -> None:
    assert probe.kubectl("logs", "server") == "serving on server\n"
    # kube-proxy adds the Service's rules some time after its pod is ready.
    wait_until(
        "the pod reaches its Service",
        lambda: "this is server" in probe.get("server", "http://web.default"),
    )
    within = ["exec", "server", "--", "/probe"]
    assert "198.1" in probe.kubectl(*within, "lookup", "kubernetes.default.svc.cluster.local")
    # An outside name is denied at once, not after a timeout.
    assert "no such host" in probe.kubectl(*within, "lookup", "example.com", check=False)
    # The machine reaches Services, and pods through the API server.
    address = probe.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
    command = probe.kubectl_command("port-forward", "pod/server", ":8080")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forward:
        assert forward.stdout is not None
        port = forward.stdout.readline().split(":")[1].split()[0]
        for place in (address, f"127.0.0.1:{port}"):
            with urllib.request.urlopen(f"http://{place}") as answer:
                assert answer.read() == b"this is server\n"
        forward.terminate()


def test_pod_security_is_enforced(probe: Cluster) -> None:
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": "strict", "labels": label}
    probe.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    refused = probe.kubectl("run", "x", "--namespace=strict", "--image=x", check=False)
    assert 'violates PodSecurity "restricted:latest"' in refused


def test_layers_that_the_cluster_has_are_not_sent_again(probe: Cluster, tmp_path: Path) -> None:
    """An image of three layers is built anew with another program in the last one."""
    folder = tmp_path / "layers"
    folder.mkdir()
    for name in ("first", "second"):
        (folder / name).write_text(f"{name} of {tmp_path}")
    lines = ["FROM scratch", *(f"COPY {name} /" for name in ("first", "second", "probe"))]
    (folder / "Containerfile").write_text("\n".join([*lines, 'ENTRYPOINT ["/probe"]', ""]))
    blobs = []
    try:
        for tail in (b"", b"x"):
            content = (tmp_path / "probe").read_bytes() + tail
            (folder / "probe").write_bytes(content)
            (folder / "probe").chmod(0o755)
            build = ["buildah", "build", "--quiet", "--layers", "--tag", LAYERS_IMAGE, str(folder)]
            subprocess.run(build, check=True, capture_output=True)
            known_layers = layer_sizes(probe.instance, read_manifests(probe.instance))
            packed = tmp_path / f"packed{tail.decode()}"
            packed.mkdir()
            with tarfile.open(pack_missing(find(LAYERS_IMAGE), known_layers, packed)) as archive:
                blobs.append(sum(name.startswith("blobs/") for name in archive.getnames()))
            probe.run("load", LAYERS_IMAGE)
            once = ("--restart=Never", "--image-pull-policy=Never", "--", "size")
            probe.kubectl("run", "once", f"--image={LAYERS_IMAGE}", *once)
            done = "--for=jsonpath={.status.phase}=Succeeded"
            probe.kubectl("wait", done, "pod/once", "--timeout=180s")
            assert probe.kubectl("logs", "once") == f"{len(content)}\n"
            probe.kubectl("delete", "pod", "once", "--now")
    finally:
        subprocess.run(["buildah", "rmi", "--force", LAYERS_IMAGE], check=False)
    # The manifest, the config, and three layers or one.
    assert blobs == [5, 3]
    assert not untagged_ids(read_manifests(probe.instance)), "the old image is still there"
