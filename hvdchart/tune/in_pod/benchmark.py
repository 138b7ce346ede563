"""Synthetic training, for its speed: sent to the pods as text and run by the image's own Python.

Needs TensorFlow 2 and Horovod in the image. Rank 0's last line is RESULT and a JSON object.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from typing import Any


def main() -> None:
    """Train a network of Keras' applications on random images and say how fast that was."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="ResNet50", help="a name in tf.keras.applications")
    parser.add_argument("--batch-size", type=int, default=16, help="images a rank takes a step")
    parser.add_argument("--warm-up", type=int, default=3, help="steps before the clock starts")
    parser.add_argument("--steps", type=int, default=10, help="steps on the clock")
    options = parser.parse_args()
    # Of the image, not of this project: imported by name, for where neither is installed.
    tf: Any = importlib.import_module("tensorflow")
    hvd: Any = importlib.import_module("horovod.tensorflow")
    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    model = getattr(tf.keras.applications, options.model)(weights=None)
    optimizer = tf.keras.optimizers.SGD(0.01)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy()
    images = tf.random.uniform([options.batch_size, 224, 224, 3])
    labels = tf.random.uniform([options.batch_size], maxval=999, dtype=tf.int64)

    def train() -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
        pairs = zip(gradients, model.trainable_variables)  # noqa: B905 - Python 3.10 has strict
        optimizer.apply_gradients(pairs)

    step = tf.function(train)

    for _ in range(options.warm_up):
        step()
    began = time.monotonic()
    for _ in range(options.steps):
        step()
    # The last step's result must be there before the clock is read.
    model.trainable_variables[0].numpy()
    seconds = time.monotonic() - began
    if hvd.rank() == 0:
        speed = options.batch_size * options.steps * hvd.size() / seconds
        print("RESULT " + json.dumps({"imagesPerSecond": round(speed, 3)}), flush=True)


if __name__ == "__main__":
    main()
