"""Trains on two ranks, which end and begin anew in the same processes; each has its own worker.

    mpirun -np 2 python3 keep_ranks.py tensorflow /output/FOLDER

Prints for each attempt where it went on, and a digest of what each rank has at its end.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

import keep
import numpy as np

FRAMEWORK = sys.argv[1]
FOLDER = Path(sys.argv[2])
if FRAMEWORK == "tensorflow":
    import horovod.tensorflow as hvd
    import tensorflow as tf
    from ml_dtypes import float8_e5m2
else:
    import horovod.torch as hvd
    import torch
STEPS = 12
ENDS_AT = 7

hvd.init()
rank = hvd.rank()
worker = FOLDER / f"worker-{rank}"
os.environ.update(HVD_RUN_ID="one", HVD_KEEP=str(worker), OUTPUT_PATH=str(FOLDER))
# Each rank is alone on its host.
hvd.local_rank = lambda: 0


class TensorFlowTraining:
    """A network with dropout, whose random numbers are the rank's own."""

    def __init__(self, seed: int) -> None:
        tf.keras.utils.set_random_seed(seed)
        layers = [tf.keras.layers.Dense(8), tf.keras.layers.Dropout(0.3), tf.keras.layers.Dense(1)]
        self.model = tf.keras.Sequential([tf.keras.Input((4,)), *layers])
        self.optimizer = tf.keras.optimizers.Adam(0.01)
        self.eight = np.full(3, seed, float8_e5m2)

    def step(self, rows: np.ndarray) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.model(rows, training=True) ** 2)
        weights = self.model.trainable_variables
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, weights)
        self.optimizer.apply_gradients(zip(gradients, weights, strict=True))

    def arrays(self) -> list[np.ndarray]:
        return [variable.numpy() for variable in self.model.trainable_variables]


class TorchTraining:
    """The same, with numbers of 16 bits."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        nn = torch.nn
        self.model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
        self.model.register_buffer("sixteen", torch.rand(3, dtype=torch.bfloat16))
        self.eight = torch.full([3], float(seed)).to(torch.float8_e5m2)
        adam = torch.optim.Adam(self.model.parameters(), 0.01)
        self.optimizer = hvd.DistributedOptimizer(adam, self.model.named_parameters())

    def step(self, rows: np.ndarray) -> None:
        self.optimizer.zero_grad()
        (self.model(torch.from_numpy(rows)) ** 2).mean().backward()
        self.optimizer.step()

    def arrays(self) -> list[np.ndarray]:
        return [tensor.detach().float().numpy() for tensor in self.model.state_dict().values()]


def attempt(steps: int, seed: int, save_at: int = 0) -> tuple[int, str]:
    """A new process that trains up to a step: where it went on, and what it has then."""
    gc.collect()
    training = TensorFlowTraining(seed) if FRAMEWORK == "tensorflow" else TorchTraining(seed)
    generator = np.random.default_rng([seed, rank])
    state = keep.State(
        model=training.model, optimizer=training.optimizer, eight=training.eight, own=generator
    )
    began = state.restore()
    for step in range(began + 1, steps + 1):
        training.step(generator.random((16, 4), "float32"))
        state.commit()
        if step == save_at:
            state.save()
    eight = state.eight.float().numpy() if FRAMEWORK == "torch" else state.eight.astype("float32")
    digest = hashlib.sha256(b"".join(array.tobytes() for array in [*training.arrays(), eight]))
    return began, digest.hexdigest()


def forget(*lost: int) -> None:
    """Replace the workers of these ranks."""
    if rank in lost and worker.exists():
        shutil.rmtree(worker)
    hvd.allgather_object(rank, name="forgotten")


def interrupt() -> None:
    """Make the newest commit incomplete on both workers."""
    files = [*worker.glob("one/*-shared.*")]
    newest = max(files, key=lambda file: keep.read_file(file).key)
    with newest.open("r+b") as file:
        file.write(bytes(8))


# Both ranks of each attempt are new processes, with other first weights and random numbers.
seeds = iter(range(1, 100))
results = {"undisturbed": attempt(STEPS, next(seeds))}
for name, lose in {
    "all are there": (),
    "rank 1 is new": (1,),
    "rank 0 is new": (0,),
    "all are new": (0, 1),
    "interrupted": None,
}.items():
    forget(0, 1)
    (FOLDER / "keep-main.state").unlink(missing_ok=True)
    attempt(ENDS_AT, 1, save_at=5)
    if lose is None:
        interrupt()
    forget(*(lose or ()))
    results[name] = attempt(STEPS, 10 + next(seeds))

# A state that is sent in several pieces.
shutil.rmtree(worker)
state = keep.State(name="large", weights=np.ones(25_000_000, "float32"))
state.commit()
del state
forget(1)
state = keep.State(name="large", weights=np.zeros(25_000_000, "float32"))
assert state.restore() == 1
assert float(state.weights.min()) == 1.0
every = hvd.allgather_object(results, name="found")
if rank == 0:
    print(f"RESULT {json.dumps({'ranks': every})}", flush=True)
