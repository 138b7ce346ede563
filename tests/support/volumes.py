"""Directories of this machine, the cluster's node, as volumes of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.namespace import Namespace, Values


def on_node(folder: Path, name: str) -> Values:
    """Return the values that mount a directory of the node in every pod, as /NAME.

    The namespace has to admit hostPath, which Pod Security `restricted` does not.
    """
    return {
        "volumes": [{"name": name, "hostPath": {"path": str(folder)}}],
        "volumeMounts": [{"name": name, "mountPath": f"/{name}"}],
    }


@contextmanager
def claimed_folder(namespace: Namespace, name: str, folder: Path) -> Iterator[None]:
    """Create a PersistentVolumeClaim for a directory, which Pod Security `restricted` admits."""
    size = {"storage": "1Gi"}
    volume = f"{namespace.name}-{name}"
    manifests = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {
                "capacity": size,
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "hostPath": {"path": str(folder)},
                "claimRef": {"namespace": namespace.name, "name": name},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "resources": {"requests": size},
                "volumeName": volume,
            },
        },
    ]
    listed = {"apiVersion": "v1", "kind": "List", "items": manifests}
    namespace.apply(listed)
    try:
        yield
    finally:
        namespace.kubectl("delete", "pv", volume, "--wait=false")
