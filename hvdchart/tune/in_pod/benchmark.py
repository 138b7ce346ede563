"""Synthetic training to measure its speed; its text is sent to images and run by their own Python.

Needs TensorFlow 2 and Horovod in the image. Rank 0 prints a last line with RESULT and a JSON
object.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from typing import Any


def find_model(applications: Any, name: str) -> Any:
    """The function of Keras that makes a network. Raises SystemExit with the names there are."""
    # Modules have names in lower case.
    names = [each for each in dir(applications) if each[0].isupper()]
    if name not in names:
        raise SystemExit(f"--model {name}: no such model of Keras: use {', '.join(names)}")
    return getattr(applications, name)


def main() -> None:
    """Train a network of Keras' applications on random images and print the images/s."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="ResNet50", help="a name in tf.keras.applications")
    parser.add_argument("--batch-size", type=int, default=16, help="images per rank and step")
    parser.add_argument("--warm-up", type=int, default=3, help="steps before the measured ones")
    parser.add_argument("--steps", type=int, default=10, help="measured steps")
    options = parser.parse_args()
    # By name, since they are installed in the image and not beside this project.
    tf: Any = importlib.import_module("tensorflow")
    hvd: Any = importlib.import_module("horovod.tensorflow")
    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    tf.random.set_seed(1)
    model = find_model(tf.keras.applications, options.model)(weights=None)
    optimizer = tf.keras.optimizers.SGD(0.01)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy()
    # Each network has a usual size of images, such as 299 pixels for InceptionV3.
    # MobileNetV3 is made for any size.
    shape = (length or 224 for length in model.input_shape[1:])
    images = tf.random.uniform([options.batch_size, *shape])
    labels = tf.random.uniform([options.batch_size], maxval=999, dtype=tf.int64)

    def train() -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        pairs = zip(gradients, model.trainable_variables)  # noqa: B905 - Python 3.10 has strict
        optimizer.apply_gradients(pairs)

    step = tf.function(train)

    def run(steps: int) -> float:
        """Train some steps; the images/s of this rank."""
        began = time.monotonic()
        for _ in range(steps):
            step()
        # Steps may be asynchronous: wait for the last one before the clock is read.
        model.trainable_variables[0].numpy()
        return float(options.batch_size * steps) / (time.monotonic() - began)

    run(options.warm_up)
    speed = run(options.steps) * hvd.size()
    if hvd.rank() == 0:
        print("RESULT " + json.dumps({"imagesPerSecond": round(speed, 3)}), flush=True)


if __name__ == "__main__":
    main()
