"""The spec's dataclasses: each key's limits, default and description are decided here.

Fields hold plain values: CPUs in thousandths, memory in bytes, times in seconds unless their name
or description has another unit. None: the spec leaves the key out.
"""

# ruff: noqa: RUF009 - `key` returns a dataclass field, as dataclasses.field does
from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from hvdchart.chart_files import launch_modes, max_workers
from hvdchart.spec.fields import (
    ABSOLUTE,
    API_VERSION,
    BOOLEAN,
    DIGEST,
    ENV,
    GROUP_NAME,
    HOST,
    IMAGE,
    IMAGE_TAG,
    INTERFACE,
    LABEL_KEY,
    LABEL_VALUE,
    NODE_SELECTOR,
    OBJECT,
    OBJECT_NAME,
    RELATIVE,
    RELEASE_NAME,
    RESOURCE,
    Cpus,
    Integer,
    ListOf,
    MapOf,
    Memory,
    Number,
    ObjectOf,
    OneOf,
    String,
    key,
    optional,
    to_camel_case,
)
from hvdchart.spec.yaml_tree import Plain

DEFAULT_MOUNTS = {"data": "/data", "output": "/output"}
VOLUME_SOURCES = {
    to_camel_case(name): name
    for name in ["host_path", "pvc", "nfs", "empty_dir", "config_map", "secret"]
}
# The frameworks that ranks may reduce with. The last three need no Horovod; torch and jax need no
# MPI, either.
FRAMEWORKS = ("horovod", "torch", "jax", "mpi")


@dataclass(frozen=True)
class Toleration:
    """A taint that pods tolerate, with the keys of a toleration in Kubernetes."""

    taint: str | None = optional(LABEL_KEY, "key of the taint", name="key")
    operator: str | None = optional(
        OneOf(("Equal", "Exists")), "how the taint's value is compared (default: Equal)"
    )
    value: str | None = optional(LABEL_VALUE, "value of the taint")
    effect: str | None = optional(
        OneOf(("NoSchedule", "PreferNoSchedule", "NoExecute")),
        "effect of the taint (default: all effects)",
    )
    toleration_seconds: int | None = optional(
        Integer(0, 2**31), "how long a NoExecute taint is tolerated, in seconds (default: forever)"
    )


@dataclass(frozen=True)
class Reserved:
    """CPU (thousandths) and memory (bytes) that a node reserves for its daemons; None: planned."""

    cpu: int | None = optional(
        Cpus(0),
        "CPUs, counting hyperthreads, that workers do not request; with cpuManager static the "
        "number of CPUs in the kubelet's reservedSystemCPUs",
    )
    memory: int | None = optional(Memory("0"), "memory that workers do not request")


@dataclass(frozen=True)
class HorovodSettings:
    """Horovod's settings, the same for all ranks."""

    timeline: bool = key(BOOLEAN, "record a timeline of rank 0 in OUTPUT_PATH", False)
    autotune: bool = key(BOOLEAN, "let Horovod tune the fusion threshold and the cycle time", False)
    fusion_threshold_mib: int | None = optional(
        Integer(0, 65536),
        "size of the Tensor Fusion buffer in MiB; 0 turns fusion off (default: over MPI on CPUs "
        "0.5 for each rank, at most 128, else 128)",
        name="fusionThresholdMiB",
    )
    cycle_time_ms: float | None = optional(
        Number(0.1, 10_000),
        "milliseconds between two reductions (default: 1; over Gloo on CPUs 5 for a rank of one "
        "core, less for more cores)",
    )


@dataclass(frozen=True)
class Rdma:
    """RDMA devices of a node, as its device plugin names them."""

    resource: str = key(RESOURCE, "extended resource of the RDMA devices")
    count: int = key(Integer(1, 64), "RDMA devices of each worker", 1)


@dataclass(frozen=True)
class Tuning:
    """Overrides of planned numbers; None: planned. CPU in thousandths, memory in bytes."""

    slots: int | None = optional(Integer(1, 1024), "ranks per worker")
    omp_threads: int | None = optional(Integer(1, 4096), "OMP_NUM_THREADS of a rank")
    intra_op_threads: int | None = optional(Integer(1, 4096), "TF_NUM_INTRAOP_THREADS of a rank")
    inter_op_threads: int | None = optional(Integer(1, 4096), "TF_NUM_INTEROP_THREADS of a rank")
    kmp_blocktime: int | None = optional(
        Integer(0, 86_400_000), "KMP_BLOCKTIME in milliseconds, for images with Intel's OpenMP"
    )
    kmp_affinity: str | None = optional(
        String("a KMP_AFFINITY setting", r"[-a-z0-9,=]+", 200),
        "KMP_AFFINITY, for images with Intel's OpenMP (mpirun binds ranks without it)",
    )
    one_dnn: bool | None = optional(
        BOOLEAN, "TF_ENABLE_ONEDNN_OPTS: use oneDNN, also on CPUs where it is off by default"
    )
    bfloat16: bool | None = optional(
        BOOLEAN, "let oneDNN compute float32 operations in bfloat16 on CPUs that support it"
    )
    binding: str | None = optional(
        OneOf(("socket", "core", "none")), "what a rank is bound to, with any launcher"
    )
    cpu: int | None = optional(Cpus(), "CPU request of a worker, counting hyperthreads")
    memory: int | None = optional(Memory(), "memory request and limit of a worker")
    shm: int | None = optional(Memory("1Mi"), "size of /dev/shm of a worker")


@dataclass(frozen=True)
class NodeGroup:
    """Identical nodes; each runs one worker pod."""

    name: str = key(GROUP_NAME, "name of the group")
    count: int = key(Integer(1, max_workers()), "number of nodes; each runs one worker pod")
    spares: int = key(
        Integer(0, max_workers()),
        "additional nodes, whose worker pods wait without ranks and replace lost workers",
        0,
    )
    minimum: int | None = optional(
        Integer(1, max_workers()),
        "number of nodes with which the run continues when others are missing, with fewer ranks "
        "(default: count)",
    )
    sockets: int | None = optional(Integer(1, 64), "CPU sockets of a node (default: 1)")
    cores_per_socket: int | None = optional(
        Integer(1, 1024), "physical cores of a socket; needed unless the nodes have GPUs"
    )
    threads_per_core: int | None = optional(
        Integer(1, 8), "hardware threads of a core (default: 1)"
    )
    numa_per_socket: int | None = optional(
        Integer(1, 16),
        "NUMA nodes of a socket: NPS of AMD EPYC, sub-NUMA clusters of Intel Xeon (default: 1)",
    )
    memory: int | None = optional(
        Memory(),
        "memory of a node: size of its modules, or with reserved.memory the capacity of its Node",
    )
    gpus: int = key(
        Integer(0, 64),
        "GPUs of a node, one rank each; 0 is a CPU node, with one rank per NUMA node",
        0,
    )
    gpu_resource: str = key(RESOURCE, "extended resource of the GPUs", "nvidia.com/gpu")
    node_selector: Mapping[str, str] = key(NODE_SELECTOR, "labels that select these nodes", {})
    tolerations: tuple[Toleration, ...] = key(
        ListOf(ObjectOf(Toleration), longest=50),
        "taints of these nodes, which workers tolerate",
        (),
    )
    reserved: Reserved = key(
        ObjectOf(Reserved),
        "CPU and memory that a node reserves for its daemons (default: planned from its size)",
        Reserved(),
    )
    affinity: Mapping[str, Plain] = key(
        OBJECT, "affinity of the workers, as in a Kubernetes pod spec", {}
    )
    interface: str | None = optional(INTERFACE, "network interface for the traffic between ranks")
    rdma: Rdma | None = optional(ObjectOf(Rdma), "RDMA devices of the workers")
    cpu_manager: str = key(
        OneOf(("none", "static")),
        "CPU manager policy of the kubelet; static gives workers exclusive cores",
        "none",
    )
    shared: bool = key(
        BOOLEAN, "workers share machines: ranks are not bound, and CPU requests are halved", False
    )
    tuning: Tuning = key(ObjectOf(Tuning), "overrides of this group's planned numbers", Tuning())


@dataclass(frozen=True)
class Nfs:
    """A directory exported by an NFS server."""

    server: str = key(HOST, "name or address of the NFS server")
    path: str = key(ABSOLUTE, "exported directory")


@dataclass(frozen=True)
class Volume:
    """A volume of the master and the workers: exactly one source, and where it is mounted."""

    host_path: str | None = optional(ABSOLUTE, "directory on the node")
    pvc: str | None = optional(OBJECT_NAME, "name of a PersistentVolumeClaim")
    nfs: Nfs | None = optional(ObjectOf(Nfs), "directory on an NFS server")
    empty_dir: Mapping[str, Plain] | None = optional(
        OBJECT,
        "empty directory that is deleted with its pod; {}, or the keys of a Kubernetes emptyDir",
    )
    config_map: str | None = optional(OBJECT_NAME, "name of a ConfigMap")
    secret: str | None = optional(OBJECT_NAME, "name of a Secret, whose keys become files")
    mount_path: str | None = optional(
        ABSOLUTE, "mount path (default for data and output: /data and /output)"
    )
    sub_path: str | None = optional(
        RELATIVE, "directory within the volume that is mounted (default: its root)"
    )
    read_only: bool = key(BOOLEAN, "mount the volume read-only", False)
    groups: tuple[str, ...] = key(
        ListOf(GROUP_NAME, longest=100),
        "node groups that mount it (default: all groups, and the master)",
        (),
    )

    @property
    def sources(self) -> list[str]:
        """The keys of the sources that are given; a valid volume has one."""
        return [key for key, field in VOLUME_SOURCES.items() if getattr(self, field) is not None]


@dataclass(frozen=True)
class Image:
    """The container image of all pods."""

    repository: str = key(IMAGE, "image name without the tag")
    tag: str | None = optional(
        IMAGE_TAG, "image tag (default: the chart's appVersion, or none with a digest)"
    )
    digest: str | None = optional(
        DIGEST,
        "digest of the image, sha256:...; pods then run exactly that image, whatever the tag is",
    )
    pull_policy: str | None = optional(
        OneOf(("Always", "IfNotPresent", "Never")),
        "when the kubelet pulls the image (default: the chart's)",
    )
    pull_secrets: tuple[str, ...] = key(
        ListOf(OBJECT_NAME, longest=20), "names of Secrets for the image registry", ()
    )


@dataclass(frozen=True)
class Train:
    """The training program."""

    command: tuple[str, ...] = key(
        ListOf(String("an argument", longest=32768, shortest=0), shortest=1),
        "training command, one list item per argument",
    )
    env: Mapping[str, str | Mapping[str, Plain]] = key(
        ENV, "environment variables of every rank", {}
    )
    framework: str | None = optional(
        OneOf(FRAMEWORKS),
        "the library with which the ranks exchange data: horovod, torch (DDP, FSDP, and libraries "
        "that use them), jax or mpi (default: found in the imports of the script, if it is known)",
    )
    checkpoints: str | None = optional(
        RELATIVE, "directory in the output volume; becomes CHECKPOINT_PATH of every rank"
    )
    state: int | None = optional(
        Memory("1Ki"),
        "size of the state that `keep` keeps; the planned /dev/shm grows by twice as much",
    )
    sharded: bool = key(
        BOOLEAN,
        "the ranks have shards of that state (FSDP, DTensors, ZeroRedundancyOptimizer, sharded "
        "arrays of JAX): each worker keeps the shards of its ranks, and copies of as many others",
        False,
    )
    batch_size: int | None = optional(
        Integer(1, 10**9),
        "samples per rank and step, from which the plan reports the global batch size",
    )
    backoff_limit: int | None = optional(
        Integer(0, 1000), "how often a failed run is retried (default: the chart's)"
    )
    active_deadline_seconds: int | None = optional(
        Integer(1, 2**31), "time limit of the run in seconds, including retries (default: none)"
    )


@dataclass(frozen=True)
class Launch:
    """How the ranks are started."""

    mode: str | None = optional(
        OneOf(launch_modes()),
        "what starts the ranks: mpirun, direct (the master itself, without MPI), or custom "
        "(train.command is the complete command line); default: direct for train.framework torch "
        "and jax, and for a line of horovodrun in train.command, else mpirun",
    )
    options: tuple[str, ...] = key(
        ListOf(String("an argument"), longest=200), "arguments appended to the planned ones", ()
    )
    workers_timeout_seconds: int | None = optional(
        Integer(1, 86400),
        "seconds to wait for the next worker before the run fails (default: the chart's)",
    )
    allow_idle_workers: bool = key(
        BOOLEAN,
        "accept a command of mode custom that starts nothing in a worker",
        False,
    )


@dataclass(frozen=True)
class Spec:
    """A spec."""

    api_version: str = key(OneOf((API_VERSION,)), f"version of the spec's format: {API_VERSION}")
    name: str = key(RELEASE_NAME, "name of the run and of its Helm release")
    nodes: tuple[NodeGroup, ...] = key(
        ListOf(ObjectOf(NodeGroup), shortest=1, longest=100), "groups of identical nodes"
    )
    train: Train = key(ObjectOf(Train), "training program")
    launch: Launch = key(ObjectOf(Launch), "how ranks are started", Launch())
    horovod: HorovodSettings = key(
        ObjectOf(HorovodSettings), "Horovod's settings", HorovodSettings()
    )
    image: Image | None = optional(
        ObjectOf(Image),
        "container image of all pods; required unless `values` has one",
    )
    volumes: Mapping[str, Volume] = key(
        MapOf(GROUP_NAME, ObjectOf(Volume), longest=50),
        "volumes by name; those named data and output become DATA_PATH and OUTPUT_PATH",
        {},
    )
    tuning: Tuning = key(ObjectOf(Tuning), "overrides of planned numbers, for all groups", Tuning())
    values: Mapping[str, Plain] = key(
        OBJECT,
        "values of the chart, merged last as Helm merges: maps merge, lists replace, null deletes",
        {},
    )

    def worker_value(self, name: str) -> Plain:
        """Return the value of a key in `values.worker`; None without one."""
        worker = self.values.get("worker")
        return worker.get(name) if isinstance(worker, Mapping) else None


def mount_path(name: str, volume: Volume) -> str:
    """Return the mount path of a volume in the pods, without a slash at its end."""
    chosen = volume.mount_path or DEFAULT_MOUNTS.get(name, f"/{name}")
    return chosen.rstrip("/") or "/"


def json_schema() -> str:
    """Return the JSON schema of a spec, as text."""
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "hvdchart spec"}
    return json.dumps({**head, **ObjectOf(Spec).schema()}, indent=1) + "\n"
