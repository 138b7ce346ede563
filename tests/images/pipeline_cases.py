"""Runs in the examples' image: examples/pipeline.py on real TFRecord files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from pipeline import Shards, read_images

FOLDER = Path("/tmp/images")
SIZE = 16
BATCH = 4


def write(number: int, labels: Iterable[int]) -> None:
    with tf.io.TFRecordWriter(str(FOLDER / f"{number}.tfrecord")) as writer:
        for label in labels:
            # Its colour is its label.
            pixels = np.full((40, 24, 3), label, np.uint8)
            encoded = tf.io.encode_jpeg(pixels, quality=100).numpy()
            values = {
                "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded])),
                "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            features = tf.train.Features(feature=values)
            writer.write(tf.train.Example(features=features).SerializeToString())


def epoch(shards: Shards, **options: Any) -> tuple[list[int], bool]:
    batches = iter(read_images(shards, SIZE, BATCH, **options))
    seen: list[int] = []
    right = True
    for _ in range(shards.steps(BATCH)):
        images, labels = next(batches)
        colours = 255 * images.numpy().mean((1, 2, 3))
        right &= images.shape == (BATCH, SIZE, SIZE, 3)
        right &= bool(np.allclose(colours, labels, atol=2))
        seen += labels.numpy().tolist()
    # With the next epoch, the cache is complete.
    next(batches)
    return seen, right


FOLDER.mkdir()
for number in range(4):
    write(number, range(number * 40, number * 40 + 16))
result: dict[str, Any] = {}
for name, cache in (("memory", ""), ("disk", "/tmp/cache"), ("none", None)):
    pipelines = [epoch(Shards.of_rank(FOLDER, rank, 2), cache=cache) for rank in (0, 1)]
    result[name] = {
        "seen": [seen for seen, _ in pipelines],
        "right": all(ok for _, ok in pipelines),
    }
result["cache files"] = sorted(path.name for path in Path("/tmp").glob("cache*.index"))

shards = Shards.of_rank(FOLDER, 0, 4)
twice = read_images(shards, SIZE, 16, augment=lambda image, label: (image, label + 1000))
first, second = (labels.numpy().tolist() for _, labels in twice.take(2))
result["orders"] = [first, second]
json.dump(result, sys.stdout)
