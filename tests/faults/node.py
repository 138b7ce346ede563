"""What tests do to the local node from outside the pods: processes, networks, the control plane."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from devtools.localkube.instance import Instance, current_instance
from devtools.localkube.link import network_prefix
from devtools.localkube.node_processes import NodeProcesses
from tests.support.localkube import Cluster, number_inside

Pod = dict[str, Any]


def pod_processes(pod: Pod) -> Iterator[psutil.Process]:
    """The processes of a pod's containers, as this machine sees them."""
    mark = f"pod{pod['metadata']['uid']}"
    for process in psutil.process_iter():
        try:
            if mark in Path(f"/proc/{process.pid}/cgroup").read_text():
                yield process
        except (FileNotFoundError, ProcessLookupError):
            continue


def find_process(pod: Pod, number: int = 0, command: str = "") -> psutil.Process:
    """The pod's process of this number in its container, or with this in its command line.

    Raises AssertionError when the pod has none.
    """
    for process in pod_processes(pod):
        try:
            if number_inside(process) == number or (
                command and command in " ".join(process.cmdline())
            ):
                return process
        except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            continue
    raise AssertionError(f"{pod['metadata']['name']} has no process {number or command}")


@contextmanager
def paused(component: str) -> Iterator[None]:
    """While inside, a component of the control plane is there and does not answer."""
    process = Cluster(current_instance()).host_process(component)
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


@contextmanager
def cut_off(pod: Pod, instance: Instance | None = None) -> Iterator[None]:
    """While inside, packets between a pod and all others vanish. The kubelet still reaches it."""
    instance = instance or current_instance()
    address = pod["status"]["podIP"]
    table = f"fault-{pod['metadata']['uid'][:8]}"
    rules = f"""
        table ip {table} {{
            chain forward {{
                type filter hook forward priority -10;
                ip saddr {address} drop
                ip daddr {address} drop
            }}
        }}
    """
    run_inside(instance, "nft", "-f", "-", input=rules)
    try:
        yield
    finally:
        run_inside(instance, "nft", "delete", "table", "ip", table)


def run_inside(instance: Instance, *command: str, input: str | None = None) -> None:
    """Run a program in the node's network. Raises CalledProcessError when it fails."""
    subprocess.run([*network_prefix(instance), *command], check=True, input=input, text=True)


def cut_power(node: Instance) -> None:
    """End all processes of a node at once; its object stays in the cluster until it is removed."""
    processes = NodeProcesses.read(node)
    assert processes is not None
    processes.init.kill_and_wait()


def restart_runtime() -> None:
    """Kill containerd, which the node starts again."""
    Cluster(current_instance()).host_process("containerd").kill()


def call_after(seconds: float, action: Any) -> threading.Timer:
    """Call `action` after so many seconds, in a thread; the timer can be cancelled until then."""
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer
