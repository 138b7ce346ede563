"""Runs with a minimum: they go on with fewer workers, and take those that come."""

from __future__ import annotations

import re
from itertools import pairwise
from textwrap import dedent, indent

import pytest

from tests.support.namespace import Namespace, Values

SIZES = [3, 2, 3]
# Each step adds 1 to the weights on all ranks. Ends when it has made twenty steps on as many ranks
# as each of SIZES in this order. What a framework has of its own stands for PREPARE (which names
# size, rank and state), TRAIN and WEIGHTS.
LOOP = """
import time
import keep
PREPARE
state.restore()
if state.sizes[-1:] != [size]:
    state.sizes = [*state.sizes, size]
begun = state.step
while state.sizes != SIZES or state.step < begun + 20:
TRAIN
    state.commit()
    if rank == 0:
        print(f"STEP {state.step} OF {state.sizes} AT {time.time():.3f}", flush=True)
    time.sleep(0.05)
assert (WEIGHTS == state.step).all(), "a step was lost or made twice"
if rank == 0:
    print(f"DONE {state.sizes}", flush=True)
"""


def write_script(prepare: str, train: str, weights: str) -> str:
    script = LOOP.replace("PREPARE", dedent(prepare).strip()).replace("WEIGHTS", weights)
    script = script.replace("SIZES", str(SIZES))
    return script.replace("TRAIN", indent(dedent(train).strip(), "    "))


ON_TENSORFLOW = write_script(
    """
    import numpy as np
    import tensorflow as tf
    import horovod.tensorflow as hvd
    hvd.init()
    size, rank = hvd.size(), hvd.rank()
    weights = tf.Variable(np.zeros(1000, "float32"))
    state = keep.State(weights=weights, sizes=[])
    """,
    'weights.assign_add(hvd.allreduce(tf.ones_like(weights), name="ones"))',
    "weights.numpy()",
)
HOROVOD_ON_TORCH = write_script(
    """
    import torch
    import horovod.torch as hvd
    hvd.init()
    size, rank = hvd.size(), hvd.rank()
    model = torch.nn.Linear(1000, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    state = keep.State(model=model, optimizer=optimizer, sizes=[])
    """,
    """
    optimizer.zero_grad()
    (-model(torch.ones(1, 1000)).sum()).backward()
    optimizer.step()
    """,
    "model.weight",
)
# The weights are on each rank, or a part of them, as PLACED says.
ON_JAX = write_script(
    """
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    jax.distributed.initialize()
    size, rank = jax.process_count(), jax.process_index()
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    placed = NamedSharding(mesh, PLACED)
    split = NamedSharding(mesh, PartitionSpec("batch"))
    zeros = np.zeros(1200, "float32")
    weights = jax.make_array_from_callback(zeros.shape, placed, lambda part: zeros[part])
    add = jax.jit(lambda old, ones: old + ones.mean(0), out_shardings=placed)
    state = keep.State(weights=weights, sizes=[])
    """,
    """
    ones = jax.make_array_from_process_local_data(split, np.ones((1, 1200), "float32"))
    state.weights = add(state.weights, ones)
    """,
    "np.asarray(state.weights.addressable_data(0))",
)
STEP = re.compile(r"STEP (\d+) OF \[(.*)\] AT ([\d.]+)$", re.M)


def values_of(script: str, mode: str = "direct") -> Values:
    return {
        "worker": {"number": 3, "minimum": 1},
        "master": {"args": ["python", "-c", script], "backoffLimit": 0},
        "launch": {"mode": mode, "preload": None, "lostAfterSeconds": 3},
    }


def scale_down_and_up(namespace: Namespace, values: Values, again: int = 0) -> None:
    """The run finishes with SIZES as its numbers of ranks, and makes no committed step twice.

    again: how many steps may be made again after a change: a step whose shards are not all
    committed when a rank is ended is none, although rank 0 has printed it.
    """
    namespace.install("hvd", values)
    namespace.wait_for_line("STEP 20 ", seconds=240)
    namespace.kubectl("scale", "statefulset", "hvd-worker", "--replicas=2")
    namespace.wait_for_line("OF [3, 2]", seconds=240)
    namespace.kubectl("scale", "statefulset", "hvd-worker", "--replicas=3")
    namespace.assert_completes("hvd")
    log = namespace.log("hvd")
    assert f"DONE {SIZES}" in log
    steps = [(int(step), of, float(at)) for step, of, at in STEP.findall(log)]
    assert all(before[0] < after[0] + again for before, after in pairwise(steps))
    assert len(namespace.master_pods("hvd")) == 1, "a change of size cost the master"
    namespace.wait_for_event("Shrunk", 5)
    namespace.wait_for_event("Grown", 5)
    changes = [pair for pair in pairwise(steps) if pair[0][1] != pair[1][1]]
    print("Seconds without a step:", [round(after[2] - before[2], 2) for before, after in changes])


@pytest.mark.parametrize("mode", ["direct", "mpirun"])
def test_training_continues_with_fewer_workers_and_takes_them_again(
    namespace: Namespace, mode: str
) -> None:
    scale_down_and_up(namespace, values_of(ON_TENSORFLOW, mode))


def test_horovod_on_pytorch_continues_with_fewer_workers_and_takes_them_again(
    namespace: Namespace, pytorch_image: dict[str, str]
) -> None:
    scale_down_and_up(namespace, {**values_of(HOROVOD_ON_TORCH), "image": pytorch_image})


@pytest.mark.parametrize(
    ("placed", "again"),
    [("PartitionSpec()", 0), ('PartitionSpec("batch")', 1)],
    ids=["whole", "sharded"],
)
def test_jax_continues_with_fewer_workers_and_takes_them_again(
    namespace: Namespace, wheels_image: dict[str, str], placed: str, again: int
) -> None:
    """What is sharded is divided among the ranks that there are."""
    values = values_of(ON_JAX.replace("PLACED", placed))
    launch = {**values["launch"], "framework": "jax"}
    scale_down_and_up(namespace, {**values, "launch": launch, "image": wheels_image}, again)
