"""Node and pod objects as real clusters have them, cut down to what is read."""

from __future__ import annotations

from typing import Any

from hvdchart.discover.nodes import read_nodes
from hvdchart.discover.spec_text import spec_text
from hvdchart.spec.load import parse_spec
from hvdchart.spec.model import Spec

NFD = "feature.node.kubernetes.io/"


def node(
    name: str, cpu: str, memory: str, labels: dict[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    """A ready node; `allocatable` is (cpu, memory), `devices` its resources."""
    devices = more.get("devices", {})
    kept_cpu, allocatable = more.get("allocatable", (cpu, memory))
    return {
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/arch": "amd64",
                **(labels or {}),
            },
        },
        "spec": {"taints": more.get("taints", []), "unschedulable": more.get("cordoned", False)},
        "status": {
            "capacity": {"cpu": cpu, "memory": memory, "pods": "110", **devices},
            "allocatable": {"cpu": kept_cpu, "memory": allocatable, "pods": "110", **devices},
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {
                    "type": "Ready",
                    "status": more.get("ready", "True"),
                    "message": "runtime is down",
                },
            ],
        },
    }


def pod(where: str, requests: dict[str, str], owner: str = "", **more: Any) -> dict[str, Any]:
    """A running pod of one container."""
    owners = [{"kind": owner, "name": "x"}] if owner else []
    return {
        "metadata": {"name": f"p-{where}", "ownerReferences": owners},
        "spec": {
            "nodeName": where,
            "containers": [{"resources": {"requests": requests}}],
        },
        "status": {"phase": more.get("phase", "Running")},
    }


def dgx(name: str, **more: Any) -> dict[str, Any]:
    """A DGX A100 under NVIDIA's GPU operator: 2 x 64 cores, 8 GPUs, RDMA."""
    labels = {
        f"{NFD}cpu-hardware_multithreading": "true",
        f"{NFD}memory-numa": "true",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
        "nvidia.com/gpu.memory": "81920",
        "nvidia.com/gpu.machine": "DGXA100-920-23687-2530-000",
        "nvidia.com/mig.strategy": "single",
        "nvidia.com/gfd.timestamp": "1691444179",
        "nvidia.com/gpu.replicas": "1",
    }
    devices = {"nvidia.com/gpu": "8", "rdma/hca_shared_devices_a": "63"}
    taint = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
    return node(
        name,
        "256",
        "2113513212Ki",
        labels,
        devices=devices,
        taints=[taint],
        allocatable=("255500m", "2110367484Ki"),
        **more,
    )


def xeon(name: str, memory: str = "394836Mi", **more: Any) -> dict[str, Any]:
    """Two Xeon 8180 under node-feature-discovery, with a NodeFeatureRule for the sockets."""
    labels = {
        f"{NFD}cpu-hardware_multithreading": "true",
        f"{NFD}cpu-topology.socket_count": "2",
        f"{NFD}cpu-cpuid.AVX512F": "true",
        "node-type": "highmem",
    }
    return node(name, "112", memory, labels, **more)


def mig(name: str) -> dict[str, Any]:
    """A GPU cut into slices of two sizes (MIG strategy mixed)."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-PCIE-40GB", "nvidia.com/mig.strategy": "mixed"}
    devices = {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.5gb": "5", "nvidia.com/mig-2g.10gb": "1"}
    return node(name, "32", "256Gi", labels, devices=devices)


def amd(name: str) -> dict[str, Any]:
    """MI300X on one socket of 96 cores, under AMD's GPU operator."""
    labels = {
        "amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM",
        f"{NFD}cpu-topology.socket_count": "1",
        f"{NFD}cpu-hardware_multithreading": "false",
    }
    return node(name, "96", "1Ti", labels, devices={"amd.com/gpu": "8"})


def discovered(
    nodes: list[dict[str, Any]], pods: list[dict[str, Any]] | None = None, **more: Any
) -> tuple[str, Spec]:
    """The text that discover writes, and its spec."""
    text = spec_text(read_nodes(nodes, pods or []), "run", **more)
    return text, parse_spec(text.encode())
