"""The overrides of planned numbers, for a group of nodes or for all."""

from __future__ import annotations

from dataclasses import dataclass

from hvdchart.spec.fields import Boolean, Cpus, Integer, Memory, OneOf, String
from hvdchart.spec.objects import key


@dataclass(frozen=True)
class Tuning:
    """Overrides of planned numbers; None: planned. CPU in thousandths, memory in bytes."""

    slots: int | None = key(Integer(1, 1024), "ranks per worker", None)
    omp_threads: int | None = key(Integer(1, 4096), "OMP_NUM_THREADS of a rank", None)
    intra_op_threads: int | None = key(Integer(1, 4096), "TF_NUM_INTRAOP_THREADS of a rank", None)
    inter_op_threads: int | None = key(Integer(1, 4096), "TF_NUM_INTEROP_THREADS of a rank", None)
    kmp_blocktime: int | None = key(
        Integer(0, 86_400_000),
        "KMP_BLOCKTIME in milliseconds, for images with Intel's OpenMP",
        None,
    )
    kmp_affinity: str | None = key(
        String("a KMP_AFFINITY setting", r"[-a-z0-9,=]+", 200),
        "KMP_AFFINITY, for images with Intel's OpenMP (mpirun binds ranks without it)", None,
    )  # fmt: skip
    one_dnn: bool | None = key(
        Boolean(),
        "TF_ENABLE_ONEDNN_OPTS: use oneDNN on CPUs where TensorFlow's default is off, too",
        None,
    )
    bfloat16: bool | None = key(
        Boolean(), "let oneDNN compute float32 operations in bfloat16 on CPUs that support it", None
    )
    binding: str | None = key(
        OneOf(("socket", "core", "none")), "what mpirun binds a rank to", None
    )
    cpu: int | None = key(Cpus(), "CPU request of a worker, counting hyperthreads", None)
    memory: int | None = key(Memory(), "memory request and limit of a worker", None)
    shm: int | None = key(Memory("1Mi"), "size of /dev/shm of a worker", None)
