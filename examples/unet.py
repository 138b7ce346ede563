"""Trains a 2D U-Net that finds a tissue or a tumour in slices of brain scans, on all ranks.

    mpirun -np 2 python unet.py --filters 16 --steps 300

unet_data.py makes the data set, with a shard for each rank. Comments that start with "Horovod:"
mark what makes this a distributed training.

Each step is kept in memory, and now and then in a checkpoint. Every --check-every steps, all ranks
measure the held-out slices together, and rank 0 logs for TensorBoard. The order of the slices and
the dropout follow from --seed, the rank and the step, so that a run that was interrupted comes to
the same model.

The last line that rank 0 prints is `RESULT` and a JSON object. Exit status: 0 if training
succeeded; 1 if the Dice coefficient is below --target-dice, the loss is not a number, or the data
cannot be used; 2 if an argument is invalid.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import keep
import numpy as np
import tensorflow as tf
from hvd_progress import report
from tensorflow import keras
from unet_data import SIDE, read_shards

# How often the network halves the side of a slice, and doubles it again.
LEVELS = 4
# Other first weights of a layer with ReLU, and a network of this depth hardly learns.
RELU = {"activation": "relu", "kernel_initializer": "he_normal"}
# Added to both parts of the Dice coefficient, which has a value for empty masks then.
SMOOTH = 1.0
# How many held-out slices are shown.
PICTURES = 6


def make_model(filters: int) -> keras.Model:
    """Make a U-Net: slices (batch, SIDE, SIDE, 1) -> probabilities of the same shape.

    `filters` are those of the first level; each further level has twice as many.
    """

    def convolve(state: Any, level: int) -> Any:
        return keras.layers.Conv2D(filters * 2**level, 3, padding="same", **RELU)(state)

    slices = keras.Input((SIDE, SIDE, 1))
    state = slices
    skipped = []
    for level in range(LEVELS):
        state = convolve(state, level)
        if level >= LEVELS - 2:
            state = keras.layers.Dropout(0.2)(state)
        state = convolve(state, level)
        skipped.append(state)
        state = keras.layers.MaxPooling2D()(state)
    state = convolve(state, LEVELS)
    state = convolve(state, LEVELS)
    for level in reversed(range(LEVELS)):
        state = keras.layers.Conv2DTranspose(filters * 2**level, 2, strides=2)(state)
        state = keras.layers.concatenate([state, skipped[level]])
        state = convolve(state, level)
        state = convolve(state, level)
    probabilities = keras.layers.Conv2D(1, 1, activation="sigmoid")(state)
    return keras.Model(slices, probabilities)


def dice_loss(masks: tf.Tensor, predicted: tf.Tensor) -> tf.Tensor:
    """Return the soft Dice loss of a batch: -log of the Dice coefficient of probabilities.

    Both arguments have the shape (batch, SIDE, SIDE, 1); the sums are over the whole batch.
    """
    shared = tf.reduce_sum(masks * predicted)
    total = tf.reduce_sum(masks) + tf.reduce_sum(predicted)
    return tf.math.log(total + SMOOTH) - tf.math.log(2 * shared + SMOOTH)


class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that grows from 0 in the first steps, in which a large one would diverge."""

    def __init__(self, rate: float, steps: int) -> None:
        self.rate = rate
        self.steps = steps

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        share = (tf.cast(step, tf.float32) + 1) / self.steps
        return self.rate * tf.minimum(1.0, share)


def split(slices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return scans and masks as the model takes them: each float32 of shape (n, SIDE, SIDE, 1).

    `slices` have the shape (n, SIDE, SIDE, 2).
    """
    both = slices.astype(np.float32)
    return both[..., :1], both[..., 1:]


def batches(
    shards: list[np.ndarray], options: argparse.Namespace, first: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the batches of this rank from step `first` on, without an end.

    Each slice is used once in an epoch. A batch may have the last slices of an epoch and the first
    ones of the next.
    """
    places = [(shard, index) for shard in shards for index in range(len(shard))]

    @lru_cache(2)
    def order(epoch: int) -> np.ndarray:
        return np.random.default_rng([options.seed, hvd.rank(), epoch]).permutation(len(places))

    for start in range(first * options.batch_size, sys.maxsize, options.batch_size):
        slices = []
        for number in range(start, start + options.batch_size):
            epoch, place = divmod(number, len(places))
            shard, index = places[order(epoch)[place]]
            slices.append(shard[index])
        yield split(np.stack(slices))


def make_step(
    model: keras.Model, optimizer: keras.optimizers.Optimizer
) -> Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """Return a function that makes a step; it returns the loss and the norm of the gradient."""

    @tf.function
    def step(scans: tf.Tensor, masks: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = dice_loss(masks, model(scans, training=True))
        # Horovod: the tape averages the gradients of all ranks.
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss, tf.linalg.global_norm(gradients)

    return step


def measure(model: keras.Model, held_out: np.ndarray, batch_size: int) -> dict[str, float]:
    """Compare predictions with the truth, over the voxels of all held-out slices together.

    Returns the Dice coefficient, the sensitivity and the specificity, each from 0 to 1. All ranks
    must call it together, and get the same.
    """
    counts = np.zeros(4)
    # Horovod: each rank predicts its share, and the counts are summed.
    mine = held_out[hvd.rank() :: hvd.size()]
    for start in range(0, len(mine), batch_size):
        scans, masks = split(mine[start : start + batch_size])
        predicted = model.predict_on_batch(scans) > 0.5
        truth = masks > 0.5
        counts += [
            (predicted & truth).sum(),
            (predicted & ~truth).sum(),
            (~predicted & truth).sum(),
            (~predicted & ~truth).sum(),
        ]
    hit, false_alarm, missed, rest = map(float, hvd.allreduce(tf.constant(counts), op=hvd.Sum))
    return {
        "dice": 2 * hit / max(1, 2 * hit + false_alarm + missed),
        "sensitivity": hit / max(1, hit + missed),
        "specificity": rest / max(1, rest + false_alarm),
    }


def pictures(model: keras.Model, held_out: np.ndarray) -> np.ndarray:
    """Return some held-out slices, each above the truth and the prediction.

    The shape is (PICTURES, 3 * SIDE, SIDE, 1), and the values are from 0 to 1.
    """
    chosen = np.linspace(0, len(held_out) - 1, PICTURES).astype(int)
    scans, masks = split(held_out[chosen])
    low = scans.min()
    high = scans.max()
    parts = ((scans - low) / (high - low), masks, model.predict_on_batch(scans))
    # The second axis of a scan is from back to front.
    return np.concatenate([np.rot90(part, axes=(1, 2)) for part in parts], axis=1)


class Output:
    """What rank 0 shows in the folder: logs and a picture."""

    def __init__(self, folder: Path, model: keras.Model) -> None:
        self.folder = folder
        self.model = model
        self.logs = tf.summary.create_file_writer(str(folder / "logs"))

    def write(self, step: int, scalars: dict[str, float], held_out: np.ndarray) -> None:
        """Show the model after a step. `scalars` and the pictures are for TensorBoard."""
        images = pictures(self.model, held_out)
        with self.logs.as_default(step):
            for name, value in scalars.items():
                tf.summary.scalar(name, value)
            tf.summary.image("slice, truth, prediction", images, max_outputs=PICTURES)
        self.logs.flush()
        grey = tf.cast(255 * np.concatenate(list(images), axis=1), tf.uint8)
        tf.io.write_file(str(self.folder / "predictions.png"), tf.io.encode_png(grey))


def say(text: str) -> None:
    """Print on rank 0 only, and flush, so that a reader who follows the log sees it at once."""
    if hvd.rank() == 0:
        print(text, flush=True)


def set_dropout(model: keras.Model, seed: int, step: int) -> None:
    """Set what the dropout draws next.

    The ranks draw differently, and a resumed one draws as if it had not been interrupted.
    """
    # These are the only variables of this model that are not trained: a seed and a counter.
    for layer, state in enumerate(model.non_trainable_variables):
        state.assign([seed + LEVELS * hvd.rank() + layer, step])


def weights_digest(model: keras.Model) -> str:
    """Return the SHA-256 of all weights, in the model's order."""
    digest = hashlib.sha256()
    for weight in model.get_weights():
        digest.update(weight.tobytes())
    return digest.hexdigest()


def train(options: argparse.Namespace) -> dict[str, Any]:
    """Train, measure, and return the result to print.

    Raises FloatingPointError on all ranks if a gradient is not finite, and SystemExit if the data
    cannot be used.
    """
    shards, held_out = read_shards(options.data, hvd.rank(), hvd.size())
    keras.utils.set_random_seed(options.seed)
    model = make_model(options.filters)
    # A step processes the batches of all ranks, so the learning rate is scaled by their number.
    rate = WarmUp(options.learning_rate * hvd.size(), options.warmup_steps)
    optimizer = keras.optimizers.Adam(rate)
    output = None
    if options.output and hvd.rank() == 0:
        output = Output(options.output, model)

    # All ranks go on with the newest state, or start with that of rank 0.
    state = keep.State(model=model, optimizer=optimizer, output=options.output)
    done = state.restore()
    say(f"resumed after step {done}" if done else "training from the start")
    set_dropout(model, options.seed, done)

    step = make_step(model, optimizer)
    source = batches(shards, options, done)
    began = None
    speed = None
    metrics = {}
    for number in range(done + 1, options.steps + 1):
        scans, masks = next(source)
        loss, norm = step(scans, masks)
        if not math.isfinite(norm):
            # The averaged gradient is the same on all ranks: they end together, and none
            # keeps weights that are lost.
            raise FloatingPointError(
                f"the gradient of step {number} is not finite, and this rank's loss is "
                f"{float(loss):.4f}: lower --learning-rate, or look at the data of a rank with nan"
            )
        state.commit()

        # TensorFlow traces and compiles in the first step, which is not part of the throughput.
        if began is None:
            began = time.monotonic()
        else:
            images = (number - done - 1) * options.batch_size
            speed = images / (time.monotonic() - began)
        report(number, options.steps, float(loss), speed)

        if number % options.check_every == 0 or number == options.steps:
            # Horovod: average the loss over all ranks.
            metrics = {"loss": float(hvd.allreduce(loss))}
            metrics.update(measure(model, held_out, options.batch_size))
            shown = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
            say(f"step {number} of {options.steps}: {shown}")
            if output:
                scalars = {
                    **metrics,
                    "learning rate": float(rate(number)),
                    "norm of the gradient": float(norm),
                }
                output.write(number, scalars, held_out)
    state.save()

    if not metrics:
        # The run that this one resumes had made all steps.
        metrics = measure(model, held_out, options.batch_size)
    digest = weights_digest(model)
    return {
        **metrics,
        "steps": int(optimizer.iterations),
        "resumed_after_step": done,
        "ranks": hvd.size(),
        "samples_per_second": None if speed is None else speed * hvd.size(),
        "weights": digest,
        # If the gradients are averaged, the weights are equal bit for bit.
        "ranks_agree": len(set(hvd.allgather_object(digest))) == 1,
    }


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(__file__).with_name("mni152") / "white",
        help="data set that unet_data.py wrote (default: mni152/white next to this script)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=os.environ.get("OUTPUT_PATH") or None,
        help="folder for checkpoints and logs; a run resumes there (default: $OUTPUT_PATH)",
    )
    parser.add_argument("--steps", type=int, default=600, help="of the whole training")
    parser.add_argument("--batch-size", type=int, default=8, help="slices per rank and step")
    parser.add_argument(
        "--filters", type=int, default=32, help="of the first level; doubled at each other"
    )
    parser.add_argument(
        "--learning-rate", type=float, default=0.0005, help="multiplied by the number of ranks"
    )
    parser.add_argument("--warmup-steps", type=int, default=50)
    parser.add_argument("--check-every", type=int, default=50, metavar="STEPS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--target-dice", type=float, default=0.85, help="below it, the exit status is 1"
    )
    return parser.parse_args()


def main() -> int:
    """Train and print the result. Returns the exit status."""
    options = parse_arguments()
    # Horovod: connect to the other ranks.
    hvd.init()
    # Horovod: each rank uses a GPU of its own, if there are GPUs.
    gpus = tf.config.list_physical_devices("GPU")
    if hvd.local_rank() < len(gpus):
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

    result = train(options)
    ok = result["ranks_agree"] and result["dice"] >= options.target_dice
    if not ok:
        say(f"FAILED: ranks with different weights, or a Dice below {options.target_dice}")
    say(f"RESULT {json.dumps({**result, 'ok': ok})}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
