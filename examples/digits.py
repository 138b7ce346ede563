"""Trains a small Keras network on scikit-learn's handwritten digits, on all ranks of a run.

    mpirun -np 2 python digits.py --epochs 10

Comments that start with "Horovod:" mark the operations that turn a Keras script into a Horovod
script. The rest is useful in any distributed training: each rank trains on its own share of the
data, each step is kept in memory and now and then in a checkpoint, and a check at the end compares
the weights of all ranks bit for bit.

The last line that rank 0 prints is `RESULT` and a JSON object. Exit status: 0 if training
succeeded; 1 if the accuracy is below --target-accuracy, the weights of ranks differ, or the data
cannot be used; 2 if an argument is invalid.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import horovod.tensorflow.keras as hvd
import keep
import numpy as np
import tensorflow as tf
from hvd_progress import keras_callback

CLASSES = 10
# The share of the images that no rank trains on: they measure the accuracy.
HELD_OUT = 0.2
# The split is the same on every rank and in every run: a resumed run must not train on the images
# that measure its accuracy.
SPLIT_SEED = 0


class Digits(NamedTuple):
    """`images`: float32 of shape (n, 8, 8, 1), from 0 to 1. `labels`: int64 of shape (n,)."""

    images: np.ndarray
    labels: np.ndarray


def load_digits(file: Path) -> tuple[Digits, Digits]:
    """Read scikit-learn's file and return (training, held out).

    Each row of the file is an image: 64 pixels from 0 to 16, and the label.
    """
    rows = np.loadtxt(file, delimiter=",", dtype=np.float32)
    rows = np.random.default_rng(SPLIT_SEED).permutation(rows)
    images = rows[:, :-1].reshape(-1, 8, 8, 1) / 16.0
    labels = rows[:, -1].astype(np.int64)
    count = int(len(rows) * HELD_OUT)
    training = Digits(images[count:], labels[count:])
    held_out = Digits(images[:count], labels[:count])
    return training, held_out


def shard(data: Digits, rank: int, size: int) -> Digits:
    """Return every size-th example, starting with example `rank`.

    All shards have the same length, so that all ranks run the same number of steps.
    """
    even = len(data.labels) // size * size
    return Digits(data.images[rank:even:size], data.labels[rank:even:size])


def make_model(learning_rate: float) -> tf.keras.Model:
    """Make a small convolutional network: (batch, 8, 8, 1) -> logits of shape (batch, 10)."""
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((8, 8, 1)),
            tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(CLASSES),
        ]
    )
    model.compile(
        # Horovod: the optimizer averages the gradients of all ranks before it applies them.
        optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.Adam(learning_rate)),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def in_epochs(data: Digits, options: argparse.Namespace, first: int) -> tf.data.Dataset:
    """Return this rank's batches of images and labels from epoch `first` on.

    Their order follows from the seed, the rank and the epoch, so that a training that was
    interrupted comes to the same weights.
    """
    images = tf.constant(data.images)
    labels = tf.constant(data.labels)

    def batches(epoch: tf.Tensor) -> tf.data.Dataset:
        order = tf.range(len(data.labels), dtype=tf.int64)
        if options.shuffle:
            seed = [options.seed + hvd.rank(), epoch]
            order = tf.random.experimental.stateless_shuffle(order, seed)
        places = tf.data.Dataset.from_tensor_slices(order).batch(options.batch_size)
        return places.map(lambda chosen: (tf.gather(images, chosen), tf.gather(labels, chosen)))

    return tf.data.Dataset.range(first, options.epochs).flat_map(batches)


def say(text: str) -> None:
    """Print on rank 0 only, and flush, so that a reader who follows the log sees it at once."""
    if hvd.rank() == 0:
        print(text, flush=True)


def meet() -> None:
    """Run a first allreduce, which fails before any work if the ranks cannot communicate."""
    ranks = int(hvd.allreduce(tf.ones(()), op=hvd.Sum))
    say(f"first allreduce: {ranks} ranks at {datetime.datetime.now(datetime.UTC).isoformat()}")


def throughput(epoch_ends: list[float], images: int) -> float | None:
    """Return images/s from the times at which epochs of `images` images ended.

    The first epoch of this process does not count, because TensorFlow also traces and compiles the
    model in it. None if fewer than two epochs were trained.
    """
    if len(epoch_ends) < 2:
        return None
    return images * (len(epoch_ends) - 1) / (epoch_ends[-1] - epoch_ends[0])


def weights_digest(model: tf.keras.Model) -> bytes:
    """Return the SHA-256 of all weights, in the model's order."""
    digest = hashlib.sha256()
    for weight in model.get_weights():
        digest.update(weight.tobytes())
    return digest.digest()


def disagreeing_ranks(digest: bytes) -> list[int]:
    """Return the ranks whose digest differs from rank 0's. All ranks must call it together."""
    # Horovod: gather a row of 32 bytes from each rank.
    digests = np.asarray(hvd.allgather(tf.constant([list(digest)], tf.uint8)))
    return [rank for rank, row in enumerate(digests) if (row != digests[0]).any()]


def train(options: argparse.Namespace) -> dict[str, Any]:
    """Train, evaluate, and return the result to print. The accuracy is the same on all ranks."""
    training, held_out = load_digits(options.data)
    mine = shard(training, hvd.rank(), hvd.size())
    tf.keras.utils.set_random_seed(options.seed + hvd.rank())

    # A step processes the batches of all ranks, so the learning rate is scaled by their number.
    learning_rate = options.learning_rate * hvd.size()
    model = make_model(learning_rate)
    # All ranks go on with the newest state, or start with that of rank 0.
    state = keep.State(model=model, optimizer=model.optimizer, output=options.output)
    state.restore()
    steps = math.ceil(len(mine.labels) / options.batch_size)
    done = state.epochs(steps)
    # A checkpoint may come from a run with another number of ranks.
    model.optimizer.learning_rate = learning_rate
    say(f"resumed after epoch {done}" if done else "training from the start")
    epoch_ends: list[float] = []
    callbacks = [
        # Horovod: average the metrics of each epoch over all ranks.
        hvd.callbacks.MetricAverageCallback(),
        tf.keras.callbacks.LambdaCallback(
            on_epoch_end=lambda *_: epoch_ends.append(time.monotonic())
        ),
        keras_callback(options.batch_size),
        keep.Callback(state),
    ]
    losses: list[float] = []
    if done < options.epochs:
        history = model.fit(
            in_epochs(mine, options, done),
            steps_per_epoch=steps,
            initial_epoch=done,
            epochs=options.epochs,
            callbacks=callbacks,
            verbose=2 if hvd.rank() == 0 else 0,
        )
        losses = [float(loss) for loss in history.history["loss"]]
    held = model.evaluate(held_out.images, held_out.labels, verbose=0, return_dict=True)
    digest = weights_digest(model)
    return {
        "accuracy": round(float(held["accuracy"]), 4),
        "losses": losses,
        "samples_per_second": throughput(epoch_ends, len(mine.labels) * hvd.size()),
        "ranks": hvd.size(),
        "epochs": options.epochs,
        "steps": int(model.optimizer.iterations),
        "learning_rate": round(float(model.optimizer.learning_rate), 6),
        "resumed_after_epoch": done,
        "weights": digest.hex(),
        # If the gradients are averaged, the weights are equal bit for bit.
        "disagreeing_ranks": disagreeing_ranks(digest),
    }


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=32, help="samples per rank and step")
    parser.add_argument(
        "--learning-rate", type=float, default=0.001, help="multiplied by the number of ranks"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--no-shuffle",
        dest="shuffle",
        action="store_false",
        help="keep the order of the images, to compare runs with different numbers of ranks",
    )
    parser.add_argument(
        "--target-accuracy", type=float, default=0.95, help="below it, the exit status is 1"
    )
    data = Path(__file__).with_name("digits.csv.gz")
    parser.add_argument("--data", type=Path, default=data, help="scikit-learn's digits.csv.gz")
    parser.add_argument(
        "--output",
        type=Path,
        default=os.environ.get("OUTPUT_PATH") or None,
        help="folder for checkpoints; a run resumes from the latest one (default: $OUTPUT_PATH)",
    )
    return parser.parse_args()


def main() -> int:
    """Train and print the result. Returns the exit status."""
    options = parse_arguments()
    # Horovod: connect to the other ranks.
    hvd.init()
    # Horovod: each rank uses one GPU, if there are GPUs.
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    meet()

    result = train(options)
    speed = result["samples_per_second"]
    if speed:
        say(f"throughput: {speed:.0f} images/s over {hvd.size()} ranks")
    else:
        say("throughput: needs 2 epochs")
    accuracy = result["accuracy"]
    say(f"held-out accuracy: {accuracy}")

    strays = result["disagreeing_ranks"]
    target = options.target_accuracy
    ok = not strays and accuracy >= target
    if not ok:
        say(
            f"FAILED: ranks with other weights ({strays}), or accuracy below the target of {target}"
        )
    say(f"RESULT {json.dumps({**result, 'ok': ok})}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
