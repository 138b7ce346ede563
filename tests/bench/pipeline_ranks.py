"""Runs in the examples' image, on each rank: trains on the same images from different sources.

    mpirun -np 2 python pipeline_ranks.py FOLDER TURNS STEPS

The sources take turns of STEPS steps. Each rank has a core of its own. The last line that rank 0
prints is `RESULT` and images/s, of all ranks together, by source and turn.
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
AHEAD = 3
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
    own = records.shard(hvd.size(), hvd.rank()).shuffle(IMAGES).repeat()
    return own.map(decode).batch(BATCH, drop_remainder=True)


def sources(folder: Path) -> dict[str, Iterator[tuple[tf.Tensor, tf.Tensor]]]:
    """The batches of each source by its name; caches are full already."""
    shards = Shards.of_rank(folder, hvd.rank(), hvd.size())
    batch = (tf.random.uniform((BATCH, SIZE, SIZE, 3)), tf.zeros(BATCH, tf.int64))
    epoch = max(hvd.allgather_object(shards.steps(BATCH)))
    found = {
        "synthetic": iter(lambda: batch, None),
        "naive": iter(naive(folder)),
        "pipeline.py, no cache": iter(read_images(shards, SIZE, BATCH, cache=None)),
        "pipeline.py": iter(read_images(shards, SIZE, BATCH)),
    }
    for source in found.values():
        # One epoch and a batch more.
        for _ in range(epoch + 1):
            next(source)
    return found


def main() -> None:
    folder = Path(sys.argv[1])
    turns = int(sys.argv[2])
    steps = int(sys.argv[3])
    local = int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"])
    # Before Horovod and the first operation of TensorFlow start threads.
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[local]})
    hvd.init()
    if hvd.rank() == 0 and not folder.exists():
        write_shards(folder)
    hvd.allreduce(tf.zeros(1), name="written")
    step = make_step(make_image_model("MobileNetV2", SIZE))
    batches = sources(folder)
    speeds: dict[str, list[float]] = {name: [] for name in batches}
    names = list(batches)
    for turn in range(turns):
        first = turn % len(names)
        for name in (*names[first:], *names[:first]):
            # What was read ahead while others had their turn is not part of the figure.
            for _ in range(AHEAD):
                step(*next(batches[name]))
            # No rank begins while another one is still at what was before.
            hvd.allreduce(tf.zeros(1), name="turn")
            began = time.perf_counter()
            for _ in range(steps):
                loss = step(*next(batches[name]))
            float(loss)
            hvd.allreduce(tf.zeros(1), name="turned")
            seconds = time.perf_counter() - began
            speeds[name].append(steps * BATCH * hvd.size() / seconds)
        if hvd.rank() == 0:
            shown = ", ".join(f"{name} {each[-1]:.1f}" for name, each in speeds.items())
            print(f"{hvd.size()} ranks, turn {turn + 1} of {turns}: {shown}", flush=True)
    if hvd.rank() == 0:
        print("RESULT", json.dumps(speeds), flush=True)


if __name__ == "__main__":
    main()
