"""Two ranks of one host that reduce tensors: `shared_memory_ranks.py [lost]`.

Each prints RESULT and whether it has memory of Horovod's, with a digest of its results; with
`lost`, rank 1 then dies, and rank 0 prints that it knows.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from pathlib import Path

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

TYPES = (tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64, tf.uint8)
# One number; blocks that are full, too full by one, and many.
SIZES = (1, 131_072, 131_073, 400_000)
OPERATIONS = (hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product)


def reduce_all() -> str:
    """The digest of the results of all types, sizes and operations, single and fused."""
    random = np.random.default_rng(hvd.rank())
    digest = hashlib.sha256()

    def reduce_together(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        return [hvd.allreduce(tensor, op=hvd.Sum) for tensor in tensors]

    together = tf.function(reduce_together)
    for kind in TYPES:
        tensors = [tf.cast(random.uniform(1, 9, size), kind) for size in SIZES]
        # An average of whole numbers is not one.
        operations = [
            operation for operation in OPERATIONS if kind.is_floating or operation != hvd.Average
        ]
        results = [hvd.allreduce(tensor, op=op) for tensor in tensors for op in operations]
        for result in (*results, *together(tensors)):
            digest.update(result.numpy().tobytes())
    return digest.hexdigest()


def main() -> None:
    """Reduce, say what came out, and die if asked to."""
    hvd.init()
    digest = reduce_all()
    shared = "/dev/shm/horovod." in Path("/proc/self/maps").read_text()
    if sys.argv[1:] == ["lost"]:
        # The launcher ends all ranks when it sees that one is gone.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # When one rank ends, Horovod ends on the others, and their memory goes.
    hvd.allreduce(tf.ones(1), name="read")
    sys.stdout.write(f"RESULT {shared} {digest}\n")
    sys.stdout.flush()
    if sys.argv[1:] == ["lost"]:
        if hvd.rank():
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            hvd.allreduce(tf.ones(1), name="after")
        except tf.errors.OpError:
            sys.stdout.write("RESULT lost\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
