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

# Images that no process trains on, of scikit-learn's 1797: they measure the accuracy.
HELD_OUT = 360
# The split is the same in each process and each run.
SPLIT_SEED = 0
# Of the input, the two hidden layers and the output.
SIZES = (64, 128, 64, 10)


def make_weights(seed: int) -> list[tuple[jax.Array, jax.Array]]:
    """Make the weights of each layer: factors (inputs, outputs) and offsets (outputs,).

    They follow from the seed, so that each process makes the same.
    """
    keys = jax.random.split(jax.random.key(seed), len(SIZES) - 1)
    weights = []
    for key, inputs, outputs in zip(keys, SIZES[:-1], SIZES[1:], strict=True):
        # The deviation that He et al. (2015) derive for layers with ReLU.
        deviation = (2 / inputs) ** 0.5
        factors = jax.random.normal(key, (inputs, outputs)) * deviation
        weights.append((factors, jnp.zeros(outputs)))
    return weights


def predict(weights: Any, images: jax.Array) -> jax.Array:
    """Apply the network: images (batch, 64) -> logits of shape (batch, 10)."""
    for factors, offsets in weights[:-1]:
        images = jax.nn.relu(images @ factors + offsets)
    factors, offsets = weights[-1]
    return images @ factors + offsets


def loss_of(weights: Any, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the cross entropy, the mean over a batch; labels are of shape (batch,)."""
    likelihoods = jax.nn.log_softmax(predict(weights, images))
    of_labels = jnp.take_along_axis(likelihoods, labels[:, None], axis=1)
    return -of_labels.mean()


@partial(jax.jit, static_argnames="rate")
def take_step(weights: Any, images: jax.Array, labels: jax.Array, rate: float) -> tuple[Any, Any]:
    """Make a step of gradient descent. Returns the new weights and the loss before the step.

    The mean is over the batches of all processes, so that the gradients are averaged, too.
    """
    loss, gradients = jax.value_and_grad(loss_of)(weights, images, labels)
    weights = jax.tree.map(lambda old, gradient: old - rate * gradient, weights, gradients)
    return weights, loss


def say(text: str) -> None:
    """Print in process 0 only, and flush, so that a reader who follows the log sees it at once."""
    if jax.process_index() == 0:
        print(text, flush=True)


def processes_agree(weights: Any) -> bool:
    """Whether all processes have the same weights, bit for bit. All must call it together."""
    digest = hashlib.sha256()
    for part in jax.tree.leaves(weights):
        digest.update(part.tobytes())
    digests = multihost_utils.process_allgather(np.frombuffer(digest.digest(), np.uint8))
    return bool((digests == digests[0]).all())


def train(options: argparse.Namespace) -> dict[str, Any]:
    """Train, evaluate, and return the result to print."""
    digits = load_digits()
    order = np.random.default_rng(SPLIT_SEED).permutation(len(digits.target))
    # Pixels from 0 to 16 become numbers from 0 to 1.
    images = (digits.data[order] / 16.0).astype(np.float32)
    labels = digits.target[order].astype(np.int32)

    # The arrays of a step are split over the devices of all processes, the weights are on each.
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    split = NamedSharding(mesh, PartitionSpec("batch"))
    replicated = NamedSharding(mesh, PartitionSpec())
    weights = jax.device_put(make_weights(options.seed), replicated)

    step = options.batch_size * jax.process_count()
    steps = (len(labels) - HELD_OUT) // step
    for epoch in range(options.epochs):
        # The order differs between epochs but not between processes.
        shuffled = np.random.default_rng(epoch).permutation(len(labels) - HELD_OUT) + HELD_OUT
        for batch in shuffled[: steps * step].reshape(-1, step):
            # Each process passes its own share of a step.
            mine = batch[jax.process_index() :: jax.process_count()]
            my_images = jax.make_array_from_process_local_data(split, images[mine])
            my_labels = jax.make_array_from_process_local_data(split, labels[mine])
            weights, loss = take_step(weights, my_images, my_labels, rate=options.learning_rate)
        say(f"epoch {epoch + 1}/{options.epochs}: loss {float(loss):.4f}")

    # Replicated arrays: each process has a whole copy.
    local_weights = jax.tree.map(lambda array: np.asarray(array.addressable_data(0)), weights)
    predicted = np.asarray(predict(local_weights, images[:HELD_OUT])).argmax(1)
    right = predicted == labels[:HELD_OUT]
    return {
        "accuracy": round(float(right.mean()), 4),
        "ranks": jax.process_count(),
        "devices": jax.device_count(),
        "ranks_agree": processes_agree(local_weights),
    }


def main() -> int:
    """Train and print the result. Returns the exit status."""
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
