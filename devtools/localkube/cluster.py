"""Start, stop and check a cluster: up, down, status. Add and remove nodes."""

from __future__ import annotations

import contextlib
import json
import shutil
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from devtools.common.cache import content_key
from devtools.common.errors import DevtoolsError
from devtools.common.locks import exclusive_lock
from devtools.common.ui import note, step
from devtools.localkube import config, pki, preflight
from devtools.localkube.boot import Boot, clear_leftovers
from devtools.localkube.health import Health, read_health, run_kubectl
from devtools.localkube.instance import LAST_NODE, Instance, current_instance
from devtools.localkube.node_processes import NodeProcesses, boot_id
from devtools.localkube.node_setup import CNI_RESULTS
from devtools.localkube.oci import pack_program
from devtools.toolchain.tools import (
    KUBERNETES,
    RELEASE_VARIABLE,
    kubernetes_releases,
    module_version,
    tool,
)
from hvdchart.files import write_atomically

# Seconds that a running node has to become healthy before it counts as broken, and seconds between
# two checks. A busy machine responds late, and restarting its cluster would interrupt its users.
HEALTH_TIMEOUT_SECONDS = 60.0
HEALTH_POLL_INTERVAL_SECONDS = 0.5


def up(instance: Instance | None = None, *, nodes: int = 1) -> Path:
    """Start the cluster from any state, with at least this number of nodes, and return the path of
    its kubeconfig.

    Build and install missing programs. A healthy cluster is not changed. A cluster that crashed
    starts again with all its objects. It starts empty if the machine was rebooted or localkube was
    changed since. Raises DevtoolsError before anything is started when the machine cannot run it, a
    program cannot be built, or the cluster is of another Kubernetes than is asked for.
    """
    instance = instance or current_instance()
    preflight.check_machine()
    with _lock(instance):
        _start_first(instance)
    for node in instance.others[: nodes - 1]:
        add_node(instance, node.node)
    return instance.kubeconfig


def _start_first(instance: Instance) -> None:
    _check_release(instance)
    if _is_healthy(instance):
        outdated = (
            ""
            if _state_is_current(instance)
            else " (started by another version of localkube; run `down` first to replace it)"
        )
        note(f"cluster {instance.name!r} is running{outdated}: {instance.kubeconfig}")
        return
    for program in ("kube", "coredns", "pause"):
        tool(program)
    preflight.install_missing()
    # The other nodes have no network without the first node.
    for node in (*instance.others, instance):
        clear_leftovers(node)
    preflight.check_network(instance)
    preflight.check_space(instance)
    preflight.check_file_system(instance)
    if not _state_is_current(instance):
        _make_state(instance)
        pki.write_all(instance)
    _boot(instance)


def down(instance: Instance | None = None, *, images: bool = False) -> bool:
    """Stop the cluster and remove its state, and with `images` also its image store.

    Return False when there was nothing to stop or remove. Stop only processes that `up` started.
    """
    instance = instance or current_instance()
    preflight.check_machine()
    with _lock(instance):
        existed = instance.state.exists() or NodeProcesses.is_running(instance)
        for node in (*instance.others, instance):
            _remove_node(node)
            if images and node.store.parent.exists():
                shutil.rmtree(node.store.parent)
    _remove_shared_directories(instance)
    return existed


def status(instance: Instance | None = None) -> Health:
    """Return the health that the components report, including those of other running nodes."""
    instance = instance or current_instance()
    whole = read_health(instance)
    more = [
        replace(part, name=f"node {node.node}: {part.name}")
        for node in instance.others
        for part in read_health(node).parts
        if part.name not in ("API server", "cluster DNS")
    ]
    return replace(whole, parts=[*whole.parts, *more])


def add_node(instance: Instance | None = None, number: int | None = None) -> Instance:
    """Start a node of a running cluster, and return it when it is Ready. number: from 2 to
    LAST_NODE; None for the lowest number without a healthy node.

    The node has its own processes, network and images. A healthy node is not changed. A node that
    crashed starts empty. Raises DevtoolsError when the cluster does not run or has all its nodes.
    """
    first = instance or current_instance()
    preflight.check_machine()
    with _lock(first):
        if not _is_healthy(first) or not _state_is_current(first):
            raise DevtoolsError(
                f"cluster {first.name!r} does not run, or another version of localkube started it",
                "start it: python -m devtools.localkube up (before that, down)",
            )
        wanted = [Instance(first.name, number)] if number else first.others
        node = next((node for node in wanted if not _is_healthy(node)), None)
        if node is None:
            if number:
                return wanted[0]
            raise DevtoolsError(
                f"cluster {first.name!r} has {LAST_NODE} nodes, which is the most",
                "remove one first: python -m devtools.localkube remove-node",
            )
        _remove_node(node)
        _forget_node(node)
        preflight.check_space(node)
        _make_state(node)
        _boot(node)
    return node


def remove_node(instance: Instance | None = None, number: int | None = None) -> Instance | None:
    """Stop a node at once, as a power cut does, remove its state and its object, and return it.
    number: from 2 to LAST_NODE; None for the last existing node.

    The node's images stay. Return None when there was no such node.
    """
    first = instance or current_instance()
    preflight.check_machine()
    with _lock(first):
        instances = [
            instance
            for instance in first.others
            if instance.state.exists() and number in (None, instance.node)
        ]
        if not instances:
            return None
        _remove_node(instances[-1])
        if NodeProcesses.is_running(first):
            _forget_node(instances[-1])
    return instances[-1]


def _check_release(instance: Instance) -> None:
    """Raise DevtoolsError when the cluster runs the other supported release.

    A crashed cluster would otherwise start empty.
    """
    wanted = module_version("kube", KUBERNETES)
    release = _read_recorded(instance).get("kubernetes", "")
    if release != wanted and release in kubernetes_releases().values():
        release = release.removeprefix("v").rpartition(".")[0]
        raise DevtoolsError(
            f"cluster {instance.name!r} has Kubernetes {release}, and this would start {wanted}",
            f"set {RELEASE_VARIABLE}={release} to use it, or another LOCALKUBE_NAME, or remove it: "
            "python -m devtools.localkube down",
        )


def _is_healthy(node: Instance) -> bool:
    """Return whether a node is healthy, or becomes so in time. A stopped node never does."""
    attempts = Retrying(
        retry=retry_if_result(lambda status: status.is_running and not status.is_healthy),
        stop=stop_after_delay(HEALTH_TIMEOUT_SECONDS),
        wait=wait_fixed(HEALTH_POLL_INTERVAL_SECONDS),
        retry_error_callback=lambda state: state.outcome and state.outcome.result(),
    )
    return attempts(read_health, node).is_healthy


def _remove_node(node: Instance) -> None:
    clear_leftovers(node)
    for directory in (node.state, node.run):
        if directory.exists():
            shutil.rmtree(directory)


def _forget_node(node: Instance) -> None:
    """Delete the node's object; Kubernetes then deletes the pods of the node."""
    run_kubectl(node.first, "delete", "node", node.node_name, "--ignore-not-found")


def _lock(instance: Instance) -> AbstractContextManager[None]:
    """Keep two commands from starting or stopping one cluster at once; the second waits."""
    task = f"starting or stopping cluster {instance.name!r}"
    return exclusive_lock(instance.run.parent / f"{instance.name}.lock", task)


def _list_inputs() -> dict[str, str]:
    """Return the inputs of the state: it is not used after a reboot or a change of localkube."""
    programs = str(tool("kube")), str(tool("coredns"))
    return {
        "boot": boot_id(),
        "key": content_key([Path(__file__).parent], *programs),
        "kubernetes": module_version("kube", KUBERNETES),
    }


def _read_recorded(instance: Instance) -> dict[str, str]:
    """Return the value of _list_inputs() when the state was made; empty without a state."""
    path = instance.state / "made-by.json"
    recorded: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    return recorded


def _state_is_current(instance: Instance) -> bool:
    return _read_recorded(instance) == _list_inputs()


def _make_state(instance: Instance) -> None:
    if instance.state.exists():
        shutil.rmtree(instance.state)
    instance.state.mkdir(mode=0o700, parents=True)


def _boot(instance: Instance) -> None:
    """Write the files of a node whose state directory exists, and start the node."""
    for directory in (instance.logs, instance.run, instance.store):
        directory.mkdir(parents=True, exist_ok=True)
    pack_program(config.PAUSE_IMAGE, tool("pause"), instance.state / config.PAUSE_ARCHIVE)
    for path, text in config.files(instance).items():
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, text)
    write_atomically(instance.state / "made-by.json", json.dumps(_list_inputs()))
    with step(f"start node {instance.node} of cluster {instance.name!r}"):
        Boot(instance, tool("kube"), tool("coredns")).run()


def _remove_shared_directories(instance: Instance) -> None:
    """Remove the directories that all clusters share, unless another cluster exists.

    Removing a directory would also remove the mounts of another cluster below it. Another cluster
    may start or stop meanwhile, so the attempt to remove the parent directory is the check.
    """
    # A directory may be missing or not empty.
    with contextlib.suppress(OSError):
        instance.state.parent.rmdir()
        Path(CNI_RESULTS).rmdir()
