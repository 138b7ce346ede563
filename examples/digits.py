"""Trains a small Keras network on scikit-learn's handwritten digits, over all ranks that Horovod
was started with.

    mpirun -np 2 python digits.py --epochs 10

The operations that make a Keras script a Horovod script are marked "Horovod:". The rest is what any
training on many ranks wants: each rank its own share of the data, checkpoints written by rank 0
alone that a later run resumes from, and a check at the end that all ranks hold the same weights,
bit for bit.

Rank 0's last line is `RESULT {...}` in JSON. Exit status: 0 trained; 1 below --target-accuracy, or
ranks that disagree; 2 bad arguments.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

CLASSES = 10
HELD_OUT = 0.2
# The same split on every rank and in every run: a resumed run must not train on what it is judged
# by.
SPLIT_SEED = 0


class Digits(NamedTuple):
    """`images` is float32 of shape (n, 8, 8, 1) in 0..1, `labels` int64 of shape (n,)."""

    images: np.ndarray
    labels: np.ndarray


def load_digits(file: Path) -> tuple[Digits, Digits]:
    """(training, held out) from scikit-learn's file: a row an image, 64 pixels in 0..16 and a
    label.
    """
    if not file.exists():
        raise SystemExit(
            f"{file}: no such file. scikit-learn's package has it as "
            "sklearn/datasets/data/digits.csv.gz; give its path with --data"
        )
    rows = np.loadtxt(file, delimiter=",", dtype=np.float32)
    rows = np.random.default_rng(SPLIT_SEED).permutation(rows)
    digits = Digits(rows[:, :-1].reshape(-1, 8, 8, 1) / 16.0, rows[:, -1].astype(np.int64))
    held_out = int(len(rows) * HELD_OUT)
    return (
        Digits(digits.images[held_out:], digits.labels[held_out:]),
        Digits(digits.images[:held_out], digits.labels[:held_out]),
    )


def shard(data: Digits, rank: int, size: int) -> Digits:
    """Every size-th example from `rank` on. All shards are equally long, so that the ranks step
    together.
    """
    even = len(data.labels) // size * size
    if even == 0:
        raise SystemExit(f"{size} ranks and {len(data.labels)} training images: use fewer ranks")
    return Digits(data.images[rank:even:size], data.labels[rank:even:size])


def make_model(learning_rate: float) -> tf.keras.Model:
    """A small convolutional network: (batch, 8, 8, 1) -> logits of shape (batch, 10)."""
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


class Checkpoints(tf.keras.callbacks.Callback):
    """After each epoch rank 0 saves weights, optimizer state and the number of epochs done.

    TensorFlow names a checkpoint as the latest only once all of it is written, so a rank that dies
    while it saves leaves the one before.
    """

    def __init__(self, model: tf.keras.Model, folder: Path) -> None:
        super().__init__()
        self.epochs_done = tf.Variable(0, dtype=tf.int64, trainable=False)
        state = tf.train.Checkpoint(
            model=model, optimizer=model.optimizer, epochs_done=self.epochs_done
        )
        self.manager = tf.train.CheckpointManager(state, str(folder), max_to_keep=2)

    def restore(self) -> int:
        """The number of epochs done in the newest checkpoint, whose state is taken over; 0 when
        there is none.
        """
        self.manager.restore_or_initialize()
        return int(self.epochs_done.numpy())

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self.epochs_done.assign(epoch + 1)
        self.manager.save(checkpoint_number=epoch + 1)


class Throughput(tf.keras.callbacks.Callback):
    """Times the epochs but the first of this process, in which TensorFlow also traces and
    compiles.
    """

    def __init__(self, images_an_epoch: int) -> None:
        super().__init__()
        self.images_an_epoch = images_an_epoch
        self.ends: list[float] = []

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self.ends.append(time.monotonic())

    def images_per_second(self) -> float | None:
        """Over all ranks; None when fewer than two epochs were trained."""
        if len(self.ends) < 2:
            return None
        return self.images_an_epoch * (len(self.ends) - 1) / (self.ends[-1] - self.ends[0])


def weights_digest(model: tf.keras.Model) -> bytes:
    """SHA-256 over the bytes of all weights, in the model's order."""
    digest = hashlib.sha256()
    for weight in model.get_weights():
        digest.update(np.ascontiguousarray(weight).tobytes())
    return digest.digest()


def disagreeing_ranks(digests: np.ndarray) -> list[int]:
    """Ranks whose row differs from that of rank 0; `digests` is uint8 of shape (ranks, 32)."""
    return [rank for rank, row in enumerate(digests) if not np.array_equal(row, digests[0])]


def say(text: str) -> None:
    """Printed once, by rank 0; flushed, since a log is followed while it grows."""
    if hvd.rank() == 0:
        print(text, flush=True)


def meet() -> None:
    """The first allreduce: all ranks are there and can talk to each other, or it fails here,
    before any work.
    """
    ranks = int(hvd.allreduce(tf.ones(()), op=hvd.Sum))
    monotonic, now = time.monotonic(), datetime.datetime.now(datetime.UTC)
    say(f"first allreduce: {ranks} ranks at {now.isoformat()} (monotonic {monotonic:.6f} s)")


def train(options: argparse.Namespace) -> dict[str, Any]:
    """Trains and judges; the result for the last line. Each rank returns the same accuracy."""
    training, held_out = load_digits(options.data)
    mine = shard(training, hvd.rank(), hvd.size())
    tf.keras.utils.set_random_seed(options.seed + hvd.rank())

    # A step now sees the batches of all ranks, so the learning rate grows with their number.
    learning_rate = options.learning_rate * hvd.size()
    model = make_model(learning_rate)
    throughput = Throughput(len(mine.labels) * hvd.size())
    # Horovod: all ranks take over rank 0's optimizer state, a restored one included; and what is
    # reported of an epoch is the mean over all ranks.
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        throughput,
    ]
    losses: list[float] = []
    done = 0
    if options.output and hvd.rank() == 0:
        checkpoints = Checkpoints(model, options.output)
        done = checkpoints.restore()
        # The checkpoint may come from a run with another number of ranks.
        model.optimizer.learning_rate = learning_rate
        callbacks.append(checkpoints)
    done = int(hvd.broadcast(tf.constant(done), root_rank=0))
    say(f"resumed after epoch {done}" if done else "training from the start")

    # Horovod: all ranks start from rank 0's weights, restored ones included. The callback is
    # for the optimizer's state, which is there after the first step only: too late for the weights.
    model.set_weights([np.asarray(hvd.broadcast(w, root_rank=0)) for w in model.get_weights()])
    if done < options.epochs:
        history = model.fit(
            mine.images,
            mine.labels,
            batch_size=options.batch_size,
            shuffle=options.shuffle,
            initial_epoch=done,
            epochs=options.epochs,
            callbacks=callbacks,
            verbose=2 if hvd.rank() == 0 else 0,
        )
        losses = [float(loss) for loss in history.history["loss"]]
    accuracy = model.evaluate(held_out.images, held_out.labels, verbose=0, return_dict=True)[
        "accuracy"
    ]
    digest = np.frombuffer(weights_digest(model), dtype=np.uint8).reshape(1, -1)
    strays = disagreeing_ranks(np.asarray(hvd.allgather(tf.constant(digest))))
    return {
        "accuracy": round(float(accuracy), 4),
        "losses": losses,
        "images_per_second": throughput.images_per_second(),
        "ranks": hvd.size(),
        "epochs": options.epochs,
        "steps": int(model.optimizer.iterations),
        "learning_rate": round(float(model.optimizer.learning_rate), 6),
        "resumed_after_epoch": done,
        "weights": digest.tobytes().hex(),
        "disagreeing_ranks": strays,
    }


def failure(result: dict[str, Any], target_accuracy: float) -> str | None:
    """Why this run did not train what it should, or None."""
    strays = result["disagreeing_ranks"]
    if strays:
        return f"the weights of ranks {strays} differ from those of rank 0: do not use this model"
    if not result["accuracy"] >= target_accuracy:
        return f"held-out accuracy {result['accuracy']} is below the target of {target_accuracy}"
    return None


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--epochs", type=positive_int, default=15)
    parser.add_argument("--batch-size", type=positive_int, default=32, help="of one rank")
    parser.add_argument(
        "--learning-rate", type=float, default=0.001, help="of one rank; scaled by their number"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--no-shuffle",
        dest="shuffle",
        action="store_false",
        help="the same images in each step, however many ranks share them: to compare runs",
    )
    parser.add_argument(
        "--target-accuracy", type=float, default=0.95, help="on held-out digits; below it: status 1"
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(__file__).with_name("digits.csv.gz"),
        help="scikit-learn's digits",
    )
    output = os.environ.get("OUTPUT_PATH")
    parser.add_argument(
        "--output", type=Path, default=Path(output) if output else None,
        help="folder for checkpoints, resumed from when there is one (default: $OUTPUT_PATH)",
    )  # fmt: skip
    return parser.parse_args()


def positive_int(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def main() -> int:
    options = arguments()
    # Horovod: find the other ranks.
    hvd.init()
    # Horovod: one GPU a rank, where there are GPUs.
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    meet()

    result = train(options)
    speed = result["images_per_second"]
    measured = (
        f"{speed:.0f} images/s over {hvd.size()} ranks" if speed else "under 2 epochs trained"
    )
    say(f"throughput: {measured}")
    say(f"held-out accuracy: {result['accuracy']}")
    wrong = failure(result, options.target_accuracy)
    if wrong:
        say(f"FAILED: {wrong}")
    say(f"RESULT {json.dumps({**result, 'ok': wrong is None})}")
    return 0 if wrong is None else 1


if __name__ == "__main__":
    sys.exit(main())
