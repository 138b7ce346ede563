"""Trains a small JAX network on scikit-learn's handwritten digits, data parallel.

    hvdchart run digits_jax.py --image IMAGE-WITH-JAX-AND-SCIKIT-LEARN

The script has nothing of this project: `jax.distributed.initialize()` finds the other processes.
The arrays of a step are sharded over the devices of all processes, so that XLA itself averages the
gradients. Process 0's last line is `RESULT` and a JSON object. Exit status: 0 if training
succeeded; 1 if the accuracy is below --target-accuracy, or processes have different weights.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from sklearn.datasets import load_digits

HELD_OUT = 360  # of 1797 images
SIZES = (64, 128, 64, 10)


def make_weights(seed: int) -> list[tuple[jax.Array, jax.Array]]:
    """Make the same weights in each process."""
    keys = jax.random.split(jax.random.key(seed), len(SIZES) - 1)
    return [
        (jax.random.normal(key, (inputs, outputs)) * (2 / inputs) ** 0.5, jnp.zeros(outputs))
        for key, inputs, outputs in zip(keys, SIZES[:-1], SIZES[1:], strict=True)
    ]


def predict(weights: Any, images: jax.Array) -> jax.Array:
    for factors, offsets in weights[:-1]:
        images = jax.nn.relu(images @ factors + offsets)
    factors, offsets = weights[-1]
    return images @ factors + offsets


def loss_of(weights: Any, images: jax.Array, labels: jax.Array) -> jax.Array:
    likelihoods = jax.nn.log_softmax(predict(weights, images))
    return -jnp.take_along_axis(likelihoods, labels[:, None], axis=1).mean()


@partial(jax.jit, static_argnames="rate")
def take_step(weights: Any, images: jax.Array, labels: jax.Array, rate: float) -> tuple[Any, Any]:
    loss, gradients = jax.value_and_grad(loss_of)(weights, images, labels)
    return jax.tree.map(lambda old, change: old - rate * change, weights, gradients), loss


def say(text: str) -> None:
    """Print in process 0 only, and flush, so that a reader who follows the log sees it at once."""
    if jax.process_index() == 0:
        print(text, flush=True)


def train(options: argparse.Namespace) -> dict[str, Any]:
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = (digits.data[order] / 16.0).astype(np.float32)
    labels = digits.target[order].astype(np.int32)
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    split = NamedSharding(mesh, PartitionSpec("batch"))
    weights = jax.device_put(make_weights(options.seed), NamedSharding(mesh, PartitionSpec()))
    # Each process passes its own share of a step.
    step = options.batch_size * jax.process_count()
    for epoch in range(options.epochs):
        shuffled = np.random.default_rng(epoch).permutation(len(labels) - HELD_OUT) + HELD_OUT
        for batch in shuffled[: len(shuffled) // step * step].reshape(-1, step):
            mine = batch[jax.process_index() :: jax.process_count()]
            shares = [
                jax.make_array_from_process_local_data(split, part[mine])
                for part in (images, labels)
            ]
            weights, loss = take_step(weights, *shares, rate=options.learning_rate)
        say(f"epoch {epoch + 1}/{options.epochs}: loss {float(loss):.4f}")
    # Replicated arrays: each process has a whole copy.
    own = jax.tree.map(lambda array: np.asarray(array.addressable_data(0)), weights)
    right = np.asarray(predict(own, images[:HELD_OUT])).argmax(1) == labels[:HELD_OUT]
    digest = hashlib.sha256(b"".join(part.tobytes() for part in jax.tree.leaves(own))).digest()
    digests = multihost_utils.process_allgather(np.frombuffer(digest, np.uint8))
    return {
        "accuracy": round(float(right.mean()), 4),
        "ranks": jax.process_count(),
        "devices": jax.device_count(),
        "ranks_agree": bool((digests == digests[0]).all()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=32, help="samples per process and step")
    parser.add_argument("--learning-rate", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target-accuracy", type=float, default=0.93)
    options = parser.parse_args()
    jax.distributed.initialize()
    result = train(options)
    ok = result["ranks_agree"] and result["accuracy"] >= options.target_accuracy
    say(f"RESULT {json.dumps({**result, 'ok': ok})}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
