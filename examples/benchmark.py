"""Measures how many samples per second the ranks of a run train on, with well-known networks.

    mpirun -np 2 python benchmark.py --model resnet50 --batch-size 32

The data are random and stay in memory, so that only computation and communication are measured.
After some steps that are not measured, each of --rounds rounds of --steps steps gives one figure.
The result is their mean with a 95 % confidence interval.

The last line that rank 0 prints is `RESULT` and a JSON object. Exit status: 0 if the benchmark
succeeded; 1 if the loss is not a number; 2 if an argument is invalid.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf
from tensorflow import keras

try:
    from hvd_progress import report
except ImportError:

    def report(step: int, steps: int, loss: float, samples_per_second: float) -> None:
        """Do nothing, so that this script also runs without the library of the pods."""


# Of ImageNet.
CLASSES = 1000
# Length of a sequence and number of different tokens, for the networks of text. BERT's vocabulary
# has as many.
LENGTH = 128
TOKENS = 30522


def make_image_model(name: str, size: int | None) -> keras.Model:
    """Make a network of Keras: (batch, size, size, 3) -> logits of shape (batch, CLASSES).

    Without a size, it is the one that the network was made for.
    """
    application = getattr(keras.applications, IMAGE_MODELS[name])
    return application(
        weights=None,
        classes=CLASSES,
        input_shape=(size, size, 3) if size else None,
        classifier_activation=None,
    )


def make_bert(width: int = 768, layers: int = 12, heads: int = 12) -> keras.Model:
    """Make an encoder of the size of BERT-base.

    Tokens of shape (batch, LENGTH) -> logits of shape (batch, CLASSES). `width` is that of the
    state of each token, which the `heads` of a layer share.
    """
    tokens = keras.Input((LENGTH,), dtype="int32")
    positions = keras.layers.Embedding(LENGTH, width)(tf.range(LENGTH))
    state = keras.layers.Embedding(TOKENS, width)(tokens) + positions
    for _ in range(layers):
        attended = keras.layers.MultiHeadAttention(heads, width // heads)(state, state)
        state = keras.layers.LayerNormalization()(state + attended)
        hidden = keras.layers.Dense(4 * width, activation="gelu")(state)
        hidden = keras.layers.Dense(width)(hidden)
        state = keras.layers.LayerNormalization()(state + hidden)
    # The state of the first token stands for the sequence.
    logits = keras.layers.Dense(CLASSES)(state[:, 0])
    return keras.Model(tokens, logits)


def make_lstm(width: int = 1024) -> keras.Model:
    """Make two LSTM layers: tokens (batch, LENGTH) -> logits of shape (batch, CLASSES)."""
    tokens = keras.Input((LENGTH,), dtype="int32")
    state = keras.layers.Embedding(TOKENS, width)(tokens)
    state = keras.layers.LSTM(width, return_sequences=True)(state)
    state = keras.layers.LSTM(width)(state)
    logits = keras.layers.Dense(CLASSES)(state)
    return keras.Model(tokens, logits)


# The networks of images, with their names in Keras.
IMAGE_MODELS = {
    "resnet50": "ResNet50",
    "inception3": "InceptionV3",
    "vgg16": "VGG16",
    "mobilenet2": "MobileNetV2",
}
TEXT_MODELS: dict[str, Callable[[], keras.Model]] = {"bert": make_bert, "lstm": make_lstm}


def make_batch(model: keras.Model, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Make a batch of `count` random inputs and labels, which differ between the ranks.

    Inputs have the shape that the model takes: float32 from 0 to 1 for images, int32 for tokens.
    Labels are int64 of shape (count,).
    """
    generator = tf.random.Generator.from_seed(hvd.rank())
    labels = generator.uniform((count,), maxval=CLASSES, dtype=tf.int64)
    shape = (count, *model.input_shape[1:])
    is_text = len(shape) == 2
    if is_text:
        inputs = generator.uniform(shape, maxval=TOKENS, dtype=tf.int32)
    else:
        inputs = generator.uniform(shape)
    return inputs, labels


def make_step(model: keras.Model) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Return a function that makes one training step and returns the loss."""
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)
    # Horovod: all ranks start with the weights of rank 0.
    hvd.broadcast_variables(model.variables, root_rank=0)

    @tf.function
    def step(inputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(inputs, training=True))
        # Horovod: the tape averages the gradients of all ranks.
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return step


def confidence(figures: list[float]) -> float:
    """Return half the width of the 95 % confidence interval of the mean; nan for one figure.

    Student's t quantile by its expansion (Abramowitz and Stegun, 26.7.5).
    """
    if len(figures) < 2:
        return math.nan
    z = statistics.NormalDist().inv_cdf(0.975)
    free = len(figures) - 1
    quantile = z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
    return quantile * statistics.stdev(figures) / math.sqrt(len(figures))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Train, and return the result. Raises SystemExit if the loss is not a number."""
    keras.utils.set_random_seed(hvd.rank())
    if options.dtype == "bfloat16":
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
    if options.model in TEXT_MODELS:
        model = TEXT_MODELS[options.model]()
    else:
        model = make_image_model(options.model, options.image_size)
    step = make_step(model)
    inputs, labels = make_batch(model, options.batch_size)

    for _ in range(options.warmup):
        loss = step(inputs, labels)

    samples = options.batch_size * options.steps
    all_steps = options.warmup + options.rounds * options.steps
    figures = []
    for number in range(1, options.rounds + 1):
        # Horovod: no rank begins a round while another one is still in the one before.
        hvd.allreduce(tf.zeros(1), name="round")
        began = time.perf_counter()
        for _ in range(options.steps):
            loss = step(inputs, labels)
        # On a GPU, this waits until all steps are made.
        value = float(loss)
        speed = samples / (time.perf_counter() - began)
        figures.append(speed)
        report(options.warmup + number * options.steps, all_steps, value, speed)
        if not math.isfinite(value):
            raise SystemExit(f"the loss is {value} after round {number}")
        if hvd.rank() == 0:
            print(f"round {number} of {options.rounds}: {speed:.1f} samples/s a rank")
    return summarize(options, figures)


def summarize(options: argparse.Namespace, figures: list[float]) -> dict[str, Any]:
    """Put the figures of all ranks together, and return the result to print.

    `figures` are this rank's samples per second, one for each round.
    """
    # Horovod: gather a row from each rank, so that the shape is (ranks, rounds).
    of_ranks = hvd.allgather(tf.constant([figures], tf.float64)).numpy()
    # Samples per second of all ranks together, of each round.
    totals = of_ranks.sum(axis=0).tolist()
    return {
        "model": options.model,
        "dtype": options.dtype,
        "batchSize": options.batch_size,
        "ranks": hvd.size(),
        "perRank": [round(float(rank.mean()), 3) for rank in of_ranks],
        # What `hvdchart bench` reads.
        "samplesPerSecond": round(statistics.fmean(totals), 3),
        "interval": round(confidence(totals), 3),
        "rounds": [round(total, 3) for total in totals],
    }


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    models = [*IMAGE_MODELS, *TEXT_MODELS]
    parser.add_argument("--model", choices=models, default="resnet50")
    parser.add_argument("--batch-size", type=int, default=32, help="samples of a rank and step")
    parser.add_argument("--image-size", type=int, help="default: the network's usual size")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--warmup", type=int, default=10, help="steps before the first round")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=10, help="steps of a round")
    return parser.parse_args()


def main() -> int:
    """Run the benchmark and print the result. Returns the exit status."""
    options = parse_arguments()
    # Horovod: connect to the other ranks.
    hvd.init()
    # Horovod: each rank uses a GPU of its own, if there are GPUs.
    gpus = tf.config.list_physical_devices("GPU")
    if hvd.local_rank() < len(gpus):
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    result = measure(options)
    if hvd.rank() == 0:
        total = result["samplesPerSecond"]
        interval = result["interval"]
        print(f"{total:.1f} +- {interval:.1f} samples/s on {result['ranks']} ranks")
        print("RESULT", json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
