"""The spec's dataclasses: every key with its limits, default and meaning, said once.

Fields hold plain values: CPUs in thousandths, memory in bytes, times in seconds or as named.
"""

# ruff: noqa: RUF009 - `key` returns a dataclass field, as dataclasses.field does
from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from hvdchart.spec.fields import Cpus, Flag, Free, ListOf, MapOf, Memory, OneOf, Real, Text, Whole
from hvdchart.spec.objects import Table, key
from hvdchart.spec.patterns import (
    ABSOLUTE,
    API_VERSION,
    ENV,
    GROUP_NAME,
    HOST,
    IMAGE,
    INTERFACE,
    LABEL_KEY,
    LABEL_VALUE,
    NODE_SELECTOR,
    OBJECT_NAME,
    RELATIVE,
    RELEASE_NAME,
    RESOURCE,
    TAG,
)  # fmt: skip
from hvdchart.spec.yaml_tree import Node, Plain


@dataclass(frozen=True)
class Toleration:
    """A taint that pods tolerate, in Kubernetes' own words; None: not said."""

    taint: str | None = key(LABEL_KEY, "the taint's key", None, name="key")
    operator: str | None = key(OneOf(("Equal", "Exists")), "Equal or Exists", None)
    value: str | None = key(LABEL_VALUE, "the taint's value", None)
    effect: str | None = key(
        OneOf(("NoSchedule", "PreferNoSchedule", "NoExecute")), "the taint's effect", None
    )
    toleration_seconds: int | None = key(
        Whole(0, 2**31), "how long a NoExecute taint is tolerated", None
    )


@dataclass(frozen=True)
class Reserved:
    """What a node keeps for its daemons; None: by rule. CPU thousandths, bytes."""

    cpu: int | None = key(Cpus(0), "CPUs, hyperthreads counted, that workers leave alone", None)
    memory: int | None = key(Memory("0"), "memory that workers leave alone", None)


@dataclass(frozen=True)
class Tuning:
    """Planned numbers, said by hand instead; None: planned. Units: CPU thousandths, bytes, ms."""

    slots: int | None = key(Whole(1, 1024), "ranks per worker", None)
    omp_threads: int | None = key(Whole(1, 4096), "OMP_NUM_THREADS of a rank", None)
    intra_op_threads: int | None = key(Whole(1, 4096), "TF_NUM_INTRAOP_THREADS of a rank", None)
    inter_op_threads: int | None = key(Whole(1, 4096), "TF_NUM_INTEROP_THREADS of a rank", None)
    kmp_blocktime: int | None = key(
        Whole(0, 86_400_000), "KMP_BLOCKTIME in ms, for images with Intel's OpenMP", None
    )
    kmp_affinity: str | None = key(
        Text("a KMP_AFFINITY setting", r"[-a-z0-9,=]+", 200),
        "KMP_AFFINITY, for images with Intel's OpenMP; bindings come from mpirun", None,
    )  # fmt: skip
    one_dnn: bool | None = key(
        Flag(), "TF_ENABLE_ONEDNN_OPTS: oneDNN on CPUs where TensorFlow leaves it off", None
    )
    bfloat16: bool | None = key(
        Flag(), "let oneDNN compute in bfloat16 what is float32, on CPUs that can", None
    )
    binding: str | None = key(
        OneOf(("socket", "core", "none")), "what mpirun binds a rank to", None
    )
    cpu: int | None = key(Cpus(), "CPU request of a worker, hyperthreads counted", None)
    memory: int | None = key(Memory(), "memory request and limit of a worker", None)
    shm: int | None = key(Memory("1Mi"), "size of /dev/shm of a worker", None)


@dataclass(frozen=True)
class Switches:
    """Horovod's own switches, which are one for all ranks. Bytes and ms."""

    timeline: bool = key(Flag(), "record a timeline of rank 0 below OUTPUT_PATH", False)
    autotune: bool = key(Flag(), "let Horovod try thresholds and cycles", False)
    fusion_threshold: int | None = key(
        Memory("0", "64Gi"), "Tensor Fusion's buffer, in whole Mi (128Mi; 0: no fusion)", None
    )
    cycle_time: float | None = key(Real(0.1, 10_000), "ms between two reductions (1)", None)


@dataclass(frozen=True)
class Rdma:
    """RDMA devices of a node, as its device plugin offers them."""

    resource: str = key(RESOURCE, "the resource that RDMA devices are asked for by")
    count: int = key(Whole(1, 64), "devices that each worker gets", 1)


@dataclass(frozen=True)
class NodeGroup:
    """Like nodes; each runs one worker pod."""

    name: str = key(GROUP_NAME, "the group's name")
    count: int = key(Whole(1, 10_000), "how many nodes: one worker pod each")
    sockets: int | None = key(Whole(1, 64), "CPU sockets of a node (1 when left out)", None)
    cores_per_socket: int | None = key(Whole(1, 1024), "physical cores of a socket", None)
    threads_per_core: int | None = key(
        Whole(1, 8), "hardware threads of a core (1 when left out)", None
    )
    memory: int | None = key(Memory(), "memory of a node", None)
    gpus: int = key(
        Whole(0, 64), "GPUs of a node: one rank each; 0: a CPU node, one rank a socket", 0
    )
    gpu_resource: str = key(RESOURCE, "the resource that GPUs are asked for by", "nvidia.com/gpu")
    node_selector: Mapping[str, str] = key(NODE_SELECTOR, "labels of these nodes", {})
    tolerations: tuple[Toleration, ...] = key(
        ListOf(Table(Toleration), longest=50), "taints of these nodes that workers tolerate", ()
    )
    reserved: Reserved = key(Table(Reserved), "what a node keeps for itself", Reserved())
    affinity: Mapping[str, Plain] = key(Free(), "pod affinity, in Kubernetes' own form", {})
    interface: str | None = key(INTERFACE, "the network interface that ranks talk over", None)
    rdma: Rdma | None = key(Table(Rdma), "RDMA devices that workers get", None)
    cpu_manager: str = key(
        OneOf(("none", "static")), "the kubelet's CPU manager policy; static: cores of its own",
        "none",
    )  # fmt: skip
    shared: bool = key(
        Flag(), "workers share machines: no binding, small requests",
        False,
    )  # fmt: skip
    tuning: Tuning = key(Table(Tuning), "planned numbers of this group said by hand", Tuning())


@dataclass(frozen=True)
class Nfs:
    """A directory that a server exports."""

    server: str = key(HOST, "the NFS server's name or address")
    path: str = key(ABSOLUTE, "the exported directory")


@dataclass(frozen=True)
class Volume:
    """A volume of master and workers: exactly one source, and where pods see it."""

    host_path: str | None = key(ABSOLUTE, "a directory of the node", None)
    pvc: str | None = key(OBJECT_NAME, "the name of a PersistentVolumeClaim", None)
    nfs: Nfs | None = key(Table(Nfs), "a directory of an NFS server", None)
    empty_dir: Mapping[str, Plain] | None = key(
        Free(), "a directory that dies with its pod; {} or Kubernetes' own keys", None
    )
    config_map: str | None = key(OBJECT_NAME, "the name of a ConfigMap", None)
    mount_path: str | None = key(
        ABSOLUTE, "where pods see it (/data and /output for data and output)", None
    )
    sub_path: str | None = key(RELATIVE, "the part of the volume that pods see", None)
    read_only: bool = key(Flag(), "pods cannot write", False)
    groups: tuple[str, ...] = key(
        ListOf(GROUP_NAME, longest=100),
        "the node groups that have it (all of them, and the master, when left out)", (),
    )  # fmt: skip


@dataclass(frozen=True)
class Image:
    """What the pods run."""

    repository: str = key(IMAGE, "image name without the tag")
    tag: str | None = key(TAG, "image tag (the chart's when left out)", None)
    pull_policy: str | None = key(
        OneOf(("Always", "IfNotPresent", "Never")), "when the kubelet pulls", None
    )
    pull_secrets: tuple[str, ...] = key(
        ListOf(OBJECT_NAME, longest=20), "Secrets for the image registry", ()
    )


@dataclass(frozen=True)
class Train:
    """What is trained."""

    command: tuple[str, ...] = key(
        ListOf(Text("an argument", longest=32768, shortest=0), shortest=1),
        "the training command, one argument an item",
    )
    env: Mapping[str, str | Mapping[str, Plain]] = key(ENV, "environment of every rank", {})
    checkpoints: str | None = key(
        RELATIVE, "a directory below the output volume: CHECKPOINT_PATH of every rank", None
    )
    batch_size: int | None = key(
        Whole(1, 10**9), "samples a rank takes a step; the plan reports the global batch", None
    )
    retries: int | None = key(
        Whole(0, 1000), "retries of a failed run (the chart's default when left out)", None
    )
    deadline_seconds: int | None = key(
        Whole(1, 2**31), "longest time for the whole run, retries included", None
    )


@dataclass(frozen=True)
class Elastic:
    """The limits of an elastic run."""

    min_ranks: int | None = key(Whole(1, 10_000_000), "fewest ranks to go on with (1)", None)
    max_ranks: int | None = key(
        Whole(1, 10_000_000), "most ranks to use (those of the nodes when left out)", None
    )


@dataclass(frozen=True)
class Launch:
    """How the ranks are started."""

    mode: str = key(
        OneOf(("mpirun", "horovodrun", "elastic", "custom")),
        "mpirun, horovodrun, elastic (workers may come and go), or custom: train.command is the "
        "whole command line",
        "mpirun",
    )
    elastic: Elastic = key(Table(Elastic), "limits of an elastic run", Elastic())
    options: tuple[str, ...] = key(
        ListOf(Text("an argument"), longest=200), "arguments added behind the planned ones", ()
    )
    hosts_timeout_seconds: int | None = key(
        Whole(1, 86400), "deadline for all workers to answer", None
    )


@dataclass(frozen=True)
class Spec:
    """A whole spec. `tree` is the YAML it was read from, for the places in messages."""

    api_version: str = key(OneOf((API_VERSION,)), f"the spec's version: {API_VERSION}")
    name: str = key(RELEASE_NAME, "the run's name, for `helm install NAME`")
    nodes: tuple[NodeGroup, ...] = key(
        ListOf(Table(NodeGroup), shortest=1, longest=100), "groups of like nodes"
    )
    train: Train = key(Table(Train), "what is trained")
    launch: Launch = key(Table(Launch), "how the ranks are started", Launch())
    horovod: Switches = key(Table(Switches), "Horovod's own switches", Switches())
    image: Image | None = key(Table(Image), "what the pods run (the chart's when left out)", None)
    volumes: Mapping[str, Volume] = key(
        MapOf(GROUP_NAME, Table(Volume), longest=50),
        "volumes of every pod; data and output become DATA_PATH and OUTPUT_PATH", {},
    )  # fmt: skip
    tuning: Tuning = key(Table(Tuning), "planned numbers said by hand, for every group", Tuning())
    values: Mapping[str, Plain] = key(
        Free(),
        "chart values merged last, as Helm merges: maps merge, lists replace, null deletes",
        {},
    )
    tree: Node | None = dataclasses.field(default=None, compare=False, repr=False)
