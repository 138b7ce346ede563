"""Trains with arrays of JAX on several processes, which begin anew; each has its own worker.

    python3 keep_jax.py /output/FOLDER

Prints for each attempt where it went on, and a digest of the whole state then and at its end.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import keep
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

FOLDER = Path(sys.argv[1])
# How many processes make how many steps, and the workers that are new then.
PHASES: list[tuple[int, int, set[int]]] = [
    (3, 5, set()),
    (3, 0, {1}),
    (2, 3, {2}),
    (2, 2, {0}),
    (3, 1, {0, 1, 2}),
]
SAVED_AT = 10


class Momentum(NamedTuple):
    """As Optax keeps it: what is no dict or list comes back as what it was."""

    count: Any
    moments: Any


def start(launch: int, size: int, steps: int) -> list[Any]:
    """Start processes; where they went on, and their digests."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    variables = {"SIZE": size, "STEPS": steps, "PORT": port, "HVD_FENCE": launch, "LOCAL_RANK": 0}
    variables |= {"HVD_RUN_ID": "one", "HVD_ATTEMPT": 1}
    # Of what a process has of an array, each of its devices has a part.
    variables |= {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    processes = []
    for number in range(size):
        place = {"RANK": number, "HVD_KEEP": FOLDER / f"worker-{number}"}
        env = os.environ | {name: str(value) for name, value in (variables | place).items()}
        processes.append(
            subprocess.Popen(
                [sys.executable, *sys.argv], env=env, stdout=subprocess.PIPE, text=True
            )
        )
    printed = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit(f"attempt {launch} has failed")
    results: list[Any] = json.loads(printed[0].rpartition("FOUND ")[2])
    return [size, *results]


if "RANK" not in os.environ:
    attempts = []
    for number, (size, steps, lost) in enumerate(PHASES, 1):
        for worker in lost:
            shutil.rmtree(FOLDER / f"worker-{worker}", ignore_errors=True)
        attempts.append(start(number, size, steps))
    print(f"RESULT {json.dumps({'attempts': attempts})}", flush=True)
    sys.exit()

rank = int(os.environ["RANK"])
launch = int(os.environ["HVD_FENCE"])
jax.distributed.initialize(f"127.0.0.1:{os.environ['PORT']}", int(os.environ["SIZE"]), rank)
mesh = Mesh(np.array(jax.devices()), ("devices",))
WHOLE = NamedSharding(mesh, PartitionSpec())
BY_ROWS = NamedSharding(mesh, PartitionSpec("devices"))
BY_COLUMNS = NamedSharding(mesh, PartitionSpec(None, "devices"))


def place(array: Any, sharding: Any) -> Any:
    return jax.make_array_from_callback(array.shape, sharding, lambda part: array[part])


def make() -> tuple[Any, Any]:
    random = np.random.default_rng(launch)
    weights = {
        "rows": place(random.normal(size=(12, 5)).astype("float32"), BY_ROWS),
        "columns": place(random.normal(size=(3, 24)).astype(jnp.bfloat16), BY_COLUMNS),
        "whole": place(random.normal(size=7).astype("float32"), WHOLE),
    }
    return weights, Momentum(jnp.zeros([], "int32"), jax.tree.map(jnp.zeros_like, weights))


@jax.jit  # type: ignore[untyped-decorator]
def train(weights: Any, known: Momentum) -> tuple[Any, Momentum]:
    moments = jax.tree.map(lambda old, x: (0.9 * old + x).astype(x.dtype), known.moments, weights)
    new = jax.tree.map(lambda x, moment: (x - 0.1 * moment).astype(x.dtype), weights, moments)
    return new, Momentum(known.count + 1, moments)


def digest(state: Any) -> str:
    """Of the whole state, and of how it is placed here."""
    assert isinstance(state.known, Momentum)
    checksum = hashlib.sha256(str(int(state.known.count)).encode())
    for tree in (state.weights, state.known.moments):
        assert {name: array.sharding for name, array in tree.items()} == PLACED
        for array in tree.values():
            checksum.update(multihost_utils.process_allgather(array, tiled=True).tobytes())
    return checksum.hexdigest()


PLACED = {"rows": BY_ROWS, "columns": BY_COLUMNS, "whole": WHOLE}
weights, known = make()
random = np.random.default_rng(rank)
state: Any = keep.State(weights=weights, known=known, own=random, made=[], output=FOLDER)
began = state.restore()
begin = digest(state)
for _ in range(int(os.environ["STEPS"])):
    state.weights, state.known = train(state.weights, state.known)
    state.made = [*state.made, launch]
    state.commit()
    if state.step == SAVED_AT:
        state.save()
assert len(state.made) == state.step
print(f"FOUND {json.dumps([began, begin, digest(state)])}", flush=True)
