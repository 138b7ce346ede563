"""Pods, Services and images on a cluster of the tests' own."""

from __future__ import annotations

import subprocess
import tarfile
import urllib.request
from pathlib import Path

from devtools.localkube.builders import find, pack_missing
from devtools.localkube.oci import pack_program
from devtools.localkube.store import ImageStore, layer_sizes
from tests.localkube.conftest import Cluster, probe_pod, wait_until

REBUILT_IMAGE = "docker.io/localkube/rebuilt:1"
LAYERS_IMAGE = "docker.io/localkube/three-layers:1"


def test_logs_exec_dns_and_services_work(probe: Cluster) -> None:
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


def test_port_forward_reaches_a_pod(probe: Cluster) -> None:
    command = probe.kubectl_command("port-forward", "pod/server", ":8080")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forward:
        assert forward.stdout is not None
        port = forward.stdout.readline().split(":")[1].split()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}") as answer:
            assert answer.read() == b"this is server\n"
        forward.terminate()


def test_the_machine_reaches_services(probe: Cluster) -> None:
    address = probe.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
    with urllib.request.urlopen(f"http://{address}") as answer:
        assert answer.read() == b"this is server\n"


def test_pod_security_and_rbac_are_enforced(probe: Cluster) -> None:
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": "strict", "labels": label}
    probe.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    refused = probe.kubectl("run", "x", "--namespace=strict", "--image=x", check=False)
    assert 'violates PodSecurity "restricted:latest"' in refused
    asked = ["auth", "can-i", "list", "secrets", "--as=system:serviceaccount:default:default"]
    assert probe.kubectl(*asked, check=False).startswith("no")


def test_pull_of_a_missing_image_fails_at_once(cluster: Cluster) -> None:
    cluster.kubectl("run", "absent", "--image=registry.invalid/none:1")
    reason = "jsonpath={.status.containerStatuses[0].state.waiting.reason}"
    wait_until(
        "the pod reports that its image cannot be pulled",
        lambda: (
            cluster.kubectl("get", "pod", "absent", "-o", reason)
            in ("ErrImagePull", "ImagePullBackOff")
        ),
    )
    cluster.kubectl("delete", "pod", "absent", "--now")


def test_host_path_writes_reach_the_machine(probe: Cluster, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    (tmp_path / "out").mkdir(mode=0o777)
    (tmp_path / "out").chmod(0o777)
    volume = {"name": "out", "hostPath": {"path": str(tmp_path / "out")}}
    container = {
        "args": ["write", "/out/result", "kept"],
        "volumeMounts": [{"name": "out", "mountPath": "/out"}],
        "securityContext": {"runAsUser": 0},
    }
    probe.apply(probe_pod("writer", container, volumes=[volume], restartPolicy="Never"))
    probe.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/writer", "--timeout=60s")
    assert (tmp_path / "out" / "result").read_text() == "kept"
    probe.kubectl("delete", "pod", "writer", "--now")


def test_second_load_of_an_image_is_skipped(probe: Cluster, tmp_path: Path) -> None:
    archive = next(tmp_path.glob("*.tar"))
    assert "was already loaded" in probe.run("load", str(archive)).stdout


def test_rebuilt_image_replaces_the_old_one(probe: Cluster, tmp_path: Path) -> None:
    program = tmp_path / "probe"
    for tail in (b"x", b"xx"):
        with program.open("ab") as file:
            file.write(tail)
        pack_program(REBUILT_IMAGE, program, tmp_path / "rebuilt.tar")
        probe.run("load", str(tmp_path / "rebuilt.tar"))
        assert run_pod(probe, REBUILT_IMAGE, "size") == f"{program.stat().st_size}\n"
    assert not ImageStore.read(probe.instance).untagged_ids()


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
            known_layers = layer_sizes(probe.instance, ImageStore.read(probe.instance))
            packed = tmp_path / f"packed{tail.decode()}"
            packed.mkdir()
            with tarfile.open(pack_missing(find(LAYERS_IMAGE), known_layers, packed)) as archive:
                blobs.append(sum(name.startswith("blobs/") for name in archive.getnames()))
            probe.run("load", LAYERS_IMAGE)
            assert run_pod(probe, LAYERS_IMAGE, "size") == f"{len(content)}\n"
    finally:
        subprocess.run(["buildah", "rmi", "--force", LAYERS_IMAGE], check=False)
    # The manifest, the config, and three layers or one.
    assert blobs == [5, 3]


def run_pod(cluster: Cluster, image: str, *arguments: str) -> str:
    """Runs a pod of the image and returns what it prints."""
    command = ["run", "once", f"--image={image}", "--restart=Never", "--image-pull-policy=Never"]
    cluster.kubectl(*command, "--", *arguments)
    done = "--for=jsonpath={.status.phase}=Succeeded"
    cluster.kubectl("wait", done, "pod/once", "--timeout=60s")
    printed = cluster.kubectl("logs", "once")
    cluster.kubectl("delete", "pod", "once", "--now")
    return printed
