"""Set up the node's own namespaces before other processes start in them. The machine itself is not
changed.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from devtools.localkube.instance import Instance

# The kubelet sets these sysctls for the whole machine and exits where it cannot. In the node's
# mount namespace, a copy is mounted over each of them. The kubelet reads and writes the copies, and
# the machine keeps its values.
SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
# The CNI library writes its results here; the path cannot be configured.
CNI_RESULTS = "/var/lib/cni"
# The kubelet creates its socket for device plugins here, whatever its --root-dir, and removes other
# files in this folder. The machine's own kubelet and other nodes do the same.
DEVICE_PLUGINS = "/var/lib/kubelet/device-plugins"
# Mounted as tmpfs in the node; the kubelet puts links to container logs in /var/log.
TMPFS_DIRECTORIES = ("/var/log", CNI_RESULTS, DEVICE_PLUGINS)
# The node's end of the veth pair, in its network namespace.
NODE_INTERFACE = "eth0"


def set_up_namespaces(instance: Instance) -> None:
    """Set mounts, sysctls and the node's address.

    Raises CalledProcessError or OSError when the kernel refuses one.
    """
    # Mounts of the machine propagate into the node, but not out of it (unshare
    # --propagation=slave). Inside the node, mounts propagate to containers.
    _run("mount", "--make-rshared", "/")
    for directory in TMPFS_DIRECTORIES:
        _run("mount", "-t", "tmpfs", "-o", "mode=755", "localkube", directory)
    for name in SYSCTLS:
        _mount_copy(Path("/proc/sys") / name, instance.run / "sysctls")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    _run("ip", "link", "set", "lo", "up")
    address = f"{instance.node_ip}/{instance.link_prefix}"
    _run("ip", "address", "add", address, "dev", NODE_INTERFACE)
    _run("ip", "link", "set", NODE_INTERFACE, "up")
    # The first node reaches only the machine.
    if instance.node != 1:
        _run("ip", "route", "add", "default", "via", str(instance.gateway_ip))


def _mount_copy(sysctl: Path, directory: Path) -> None:
    if not sysctl.exists():
        return
    directory.mkdir(parents=True, exist_ok=True)
    copy = directory / sysctl.name
    copy.write_text(sysctl.read_text())
    _run("mount", "--bind", str(copy), str(sysctl))


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True)
