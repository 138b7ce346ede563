"""Runs in the examples' image, on each rank: trains MobileNetV2 on images from one source.

    mpirun -np 2 python3 image_ranks.py SOURCE FOLDER

Each rank has a core of its own. The images are written into FOLDER if it does not exist. Like
examples/benchmark.py, rank 0 prints `RESULT` and the samples per second of all ranks together.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from benchmark import make_image_model, make_step
from pipeline import Shards, read_images

SHARDS = 8
IMAGES = 512
SIDE = 384
SIZE = 96
BATCH = 8
STEPS = 96
KEYS = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}


def write_shards(folder: Path) -> None:
    """Write JPEG images that are as hard to decode as photographs: smooth, with some noise."""
    random = np.random.default_rng(0)
    folder.mkdir()
    for number in range(SHARDS):
        name = folder / f"images-{number:03}.tfrecord"
        with tf.io.TFRecordWriter(str(name)) as writer:
            for label in range(number, IMAGES, SHARDS):
                rough = tf.image.resize(random.uniform(0, 255, (8, 8, 3)), (SIDE, SIDE), "bicubic")
                noisy = rough + random.normal(0, 8, (SIDE, SIDE, 3))
                pixels = tf.cast(tf.clip_by_value(noisy, 0, 255), tf.uint8)
                values = {
                    "image/encoded": tf.train.Feature(
                        bytes_list=tf.train.BytesList(value=[tf.io.encode_jpeg(pixels).numpy()])
                    ),
                    "image/class/label": tf.train.Feature(
                        int64_list=tf.train.Int64List(value=[label])
                    ),
                }
                features = tf.train.Features(feature=values)
                writer.write(tf.train.Example(features=features).SerializeToString())


def naive(folder: Path) -> Any:
    """As a first script has it: each rank reads all records, keeps each n-th, and waits for it."""

    def decode(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        entry = tf.io.parse_single_example(record, KEYS)
        image = tf.io.decode_jpeg(entry["image/encoded"], channels=3)
        return tf.image.resize(image, (SIZE, SIZE)) / 255.0, entry["image/class/label"]

    records = tf.data.TFRecordDataset(sorted(map(str, folder.glob("*.tfrecord"))))
    own_records = records.shard(hvd.size(), hvd.rank()).shuffle(IMAGES).repeat()
    return own_records.map(decode).batch(BATCH, drop_remainder=True)


def batches_of(source: str, folder: Path) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    """The batches of a source, without an end."""
    if source == "synthetic":
        batch = (tf.random.uniform((BATCH, SIZE, SIZE, 3)), tf.zeros(BATCH, tf.int64))
        return iter(lambda: batch, None)
    if source == "naive":
        return iter(naive(folder))
    shards = Shards.of_rank(folder, hvd.rank(), hvd.size())
    return iter(read_images(shards, SIZE, BATCH, cache="" if source == "pipeline.py" else None))


def main() -> None:
    source, place = sys.argv[1:]
    folder = Path(place)
    local = int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"])
    # Before Horovod and the first operation of TensorFlow start threads.
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[local]})
    hvd.init()
    if hvd.rank() == 0 and not folder.exists():
        write_shards(folder)
    hvd.allreduce(tf.zeros(1), name="written")
    step = make_step(make_image_model("mobilenet2", SIZE))
    batches = batches_of(source, folder)
    # One epoch, which fills the cache, and a batch more.
    for _ in range(IMAGES // hvd.size() // BATCH + 1):
        loss = step(*next(batches))
    float(loss)
    # No rank begins while another one is still at what was before.
    hvd.allreduce(tf.zeros(1), name="begun")
    began = time.perf_counter()
    for _ in range(STEPS):
        loss = step(*next(batches))
    float(loss)
    hvd.allreduce(tf.zeros(1), name="ended")
    speed = STEPS * BATCH * hvd.size() / (time.perf_counter() - began)
    if hvd.rank() == 0:
        print("RESULT", json.dumps({"samplesPerSecond": speed}), flush=True)


if __name__ == "__main__":
    main()
