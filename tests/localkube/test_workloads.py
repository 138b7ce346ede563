"""What a pod may expect of the cluster, and how images come in, on the tests' own cluster."""

from __future__ import annotations

import platform
import subprocess
import tarfile
import urllib.request
from pathlib import Path

import pytest

from devtools.localkube.archives import Image, read_archive
from devtools.localkube.images import load_pushed
from devtools.localkube.oci import ARCHITECTURES, CONFIG, descriptor, pack_program
from devtools.localkube.store import Store, layers, settle
from tests.localkube.conftest import PROBE_IMAGE, Cluster, await_true
from tests.localkube.pusher import Pusher

pytestmark = pytest.mark.cluster_lifecycle

AGAIN_IMAGE = "docker.io/localkube/again:1"
UPON_IMAGE = "docker.io/localkube/upon:1"


def test_logs_exec_names_and_services(probe: Cluster) -> None:
    assert probe.kubectl("logs", "server") == "serving on server\n"
    within = ["exec", "server", "--", "/probe"]
    # The Service's rules follow its pod's readiness, in their own time.
    await_true(
        "the pod reaches its Service",
        lambda: (
            "this is server" in probe.kubectl(*within, "get", "http://web.default", check=False)
        ),
    )
    assert "198.1" in probe.kubectl(*within, "lookup", "kubernetes.default.svc.cluster.local")
    # There is no way out: another name is unknown at once, not after a time-out.
    assert "no such host" in probe.kubectl(*within, "lookup", "example.com", check=False)


def test_port_forward(probe: Cluster) -> None:
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
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "strict", "labels": label},
    }
    probe.kubectl("apply", "--filename=-", given=namespace)
    refused = probe.kubectl("run", "x", "--namespace=strict", "--image=x", check=False)
    assert 'violates PodSecurity "restricted:latest"' in refused
    asked = ["auth", "can-i", "list", "secrets", "--as=system:serviceaccount:default:default"]
    assert probe.kubectl(*asked, check=False).startswith("no")


def test_an_image_that_does_not_exist_is_told_at_once(cluster: Cluster) -> None:
    cluster.kubectl("run", "absent", "--image=registry.invalid/none:1")
    reason = "jsonpath={.status.containerStatuses[0].state.waiting.reason}"
    await_true(
        "the pod says that its image cannot be pulled",
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
        "name": "writer",
        "image": PROBE_IMAGE,
        "args": ["write", "/out/result", "kept"],
        "volumeMounts": [{"name": "out", "mountPath": "/out"}],
        "securityContext": {"runAsUser": 0},
    }
    spec = {"containers": [container], "volumes": [volume], "restartPolicy": "Never"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "writer"}, "spec": spec}
    probe.kubectl("apply", "--filename=-", given=pod)
    probe.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/writer", "--timeout=60s")
    assert (tmp_path / "out" / "result").read_text() == "kept"
    probe.kubectl("delete", "pod", "writer", "--now")


def test_loading_an_image_twice_reads_it_once(probe: Cluster, tmp_path: Path) -> None:
    archive = next(tmp_path.glob("*.tar"))
    assert "is there already" in probe.run("load", str(archive)).stdout


def test_an_image_built_again_takes_the_place_of_the_old(probe: Cluster, tmp_path: Path) -> None:
    program = tmp_path / "probe"
    for tail in (b"x", b"xx"):
        with program.open("ab") as file:
            file.write(tail)
        pack_program(AGAIN_IMAGE, program, tmp_path / "again.tar")
        probe.run("load", str(tmp_path / "again.tar"))
        assert run_pod(probe, AGAIN_IMAGE, "size") == f"{program.stat().st_size}\n"
    left = Store.read(probe.instance)
    (image,) = read_archive(tmp_path / "again.tar")
    assert left.has(image)
    assert not left.unnamed()


def test_only_missing_layers_are_pushed(probe: Cluster, tmp_path: Path) -> None:
    """Upon the probe's one layer goes a second: only that comes, and the image has both."""
    instance = probe.instance
    with tarfile.open(tmp_path / "second.tar", "w") as tar:
        tar.add(tmp_path / "probe", "second")
    config = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Entrypoint": ["/second"]},
    }
    pusher = Pusher(
        [only_layer(tmp_path / "probe.tar"), (tmp_path / "second.tar").read_bytes()], config
    )
    imported = load_pushed(instance, UPON_IMAGE, layers(instance, Store.read(instance)), pusher)
    identity = descriptor(CONFIG, pusher.config_blob())["digest"]
    settle(instance, Image(identity, (UPON_IMAGE,)), imported)
    assert len(pusher.sent) == 2  # the second layer, and the config
    assert run_pod(probe, UPON_IMAGE, "size") == f"{(tmp_path / 'probe').stat().st_size}\n"


def only_layer(archive: Path) -> bytes:
    """The largest file of an image of one layer is that layer."""
    with tarfile.open(archive) as tar:
        file = tar.extractfile(max(tar, key=lambda member: member.size))
        assert file is not None
        return file.read()


def run_pod(cluster: Cluster, image: str, *arguments: str) -> str:
    """What a pod of the image prints until its end."""
    command = ["run", "once", f"--image={image}", "--restart=Never", "--image-pull-policy=Never"]
    cluster.kubectl(*command, "--", *arguments)
    done = "--for=jsonpath={.status.phase}=Succeeded"
    cluster.kubectl("wait", done, "pod/once", "--timeout=60s")
    printed = cluster.kubectl("logs", "once")
    cluster.kubectl("delete", "pod", "once", "--now")
    return printed
