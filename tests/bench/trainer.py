"""One of several trainings that take turns: run by an image's own Python, as text.

It makes a network and random images, says `ready`, and then, for each line it reads, takes one step
to warm up and `--steps` on the clock; its answer is the images/s of these.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from typing import Any


def main() -> None:
    """Train when told to."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="a name in tf.keras.applications")
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--policy", default="float32", help="Keras' policy of data types")
    options = parser.parse_args()
    # Of the image, not of this project.
    tf: Any = importlib.import_module("tensorflow")
    tf.keras.mixed_precision.set_global_policy(options.policy)
    tf.random.set_seed(1)
    model = getattr(tf.keras.applications, options.model)(weights=None)
    optimizer = tf.keras.optimizers.SGD(0.01)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy()
    images = tf.random.uniform([options.batch_size, 224, 224, 3])
    labels = tf.random.uniform([options.batch_size], maxval=999, dtype=tf.int64)

    @tf.function  # type: ignore[untyped-decorator]
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, tf.cast(model(images, training=True), tf.float32))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905
        return loss

    step().numpy()
    print("ready", flush=True)
    for _ in sys.stdin:
        step().numpy()
        began = time.monotonic()
        for _ in range(options.steps):
            loss = step()
        # The last step's result must be there before the clock is read.
        loss.numpy()
        print(options.batch_size * options.steps / (time.monotonic() - began), flush=True)


if __name__ == "__main__":
    main()
