"""Feeds each rank images from TFRecord files of its own: copy this file beside your script.

    from pipeline import Shards, read_images

    shards = Shards.of_rank("/data", hvd.rank(), hvd.size())
    images = read_images(shards, size=224, batch_size=32)
    # Each step needs all ranks.
    steps = min(hvd.allgather_object(shards.steps(32)))
    model.fit(images, steps_per_epoch=steps, ...)

The records have the keys image/encoded (a JPEG) and image/class/label, as those of ImageNet do. The
folder is checked before training begins: Shards.of_rank raises SystemExit if it has no files, fewer
files than ranks, or a file that is half written.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# A record is its length, a checksum of that, the data, and a checksum of those:
# https://www.tensorflow.org/tutorials/load_data/tfrecord
LENGTH = struct.Struct("<Q")
# Bytes of a checksum.
CHECKSUM = 4
# How many decoded images are mixed.
MIXED = 1024
# How many files are read at once, at most.
TOGETHER = 16


@dataclass(frozen=True)
class Shards:
    """The files of one rank, and how many records they have."""

    files: tuple[str, ...]
    rank: int
    records: int

    @classmethod
    def of_rank(
        cls, folder: str | Path, rank: int, size: int, pattern: str = "*.tfrecord*"
    ) -> Shards:
        """Return what belongs to a rank: each file of the folder to one of `size` ranks.

        Of each record of its own files, only the length is read. Raises SystemExit if no file
        matches the pattern, if there are fewer files than ranks, or for a file that is half
        written.
        """
        files = sorted(path for path in Path(folder).glob(pattern) if path.is_file())
        if not files:
            raise SystemExit(f"{folder}: no files {pattern}: name the folder that has the shards")
        if len(files) < size:
            raise SystemExit(
                f"{folder}: {len(files)} shards for {size} ranks, each of which needs one: write "
                f"{size} or more, or train with fewer ranks"
            )
        own_files = files[rank::size]
        records = sum(count_records(file) for file in own_files)
        return cls(tuple(str(file) for file in own_files), rank, records)

    def steps(self, batch_size: int) -> int:
        """Return how many whole batches this rank has; other ranks may have more or fewer.

        Raises SystemExit if it has none.
        """
        steps = self.records // batch_size
        if not steps:
            raise SystemExit(
                f"{Path(self.files[0]).parent}: rank {self.rank} has {self.records} records, fewer "
                f"than a batch of {batch_size}: use a smaller batch, or fewer ranks"
            )
        return steps


def count_records(file: Path) -> int:
    """Return the number of records of a TFRecord file.

    Raises SystemExit for a file that ends in the middle of a record, that is another kind of file,
    or that has no record.
    """
    size = file.stat().st_size
    count = 0
    # Where the record that is being read ends.
    end = 0
    with file.open("rb") as records:
        while end < size:
            head = records.read(LENGTH.size)
            is_whole = len(head) == LENGTH.size
            if is_whole:
                (length,) = LENGTH.unpack(head)
                end += LENGTH.size + CHECKSUM + length + CHECKSUM
            if not is_whole or end > size:
                raise SystemExit(
                    f"{file}: {size} bytes end in record {count + 1}: it is half written, or not a "
                    "TFRecord file: copy or write it again"
                )
            count += 1
            records.seek(end)
    if not count:
        raise SystemExit(f"{file}: no records: remove it, or write it again")
    return count


def threads_of_rank() -> int:
    """Return how many cores this rank has for its operations, as the chart or the plan has set it.

    Outside of a run, these are all cores that the process may use.
    """
    planned = int(os.environ.get("TF_NUM_INTRAOP_THREADS", "0"))
    return planned or len(os.sched_getaffinity(0))


def read_images(
    shards: Shards,
    size: int,
    batch_size: int,
    *,
    augment: Any = None,
    cache: str | None = "",
    threads: int = 0,
    seed: int = 0,
) -> Any:
    """Return an endless tf.data.Dataset of batches: images (batch, size, size, 3), labels (batch,).

    Images are uint8 until they are in a batch, then float32 of 0 to 1. Labels are int64.

    `augment` gets an image and a label, returns both, and is called anew in each epoch.
    `cache` says where the decoded images are kept, of size * size * 3 bytes each:
        "": in memory;
        a path: in files with that beginning, on a fast disk of the node;
        None: nowhere, so that each epoch decodes them again.
    `threads` caps those that read and decode; 0 means the cores of this rank.
    `seed` decides the order in which the images are mixed.
    """
    # Here, so that the folder can be checked where TensorFlow is not installed.
    import tensorflow as tf

    threads = threads or threads_of_rank()
    keys = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }

    def decode(record: Any) -> tuple[Any, Any]:
        entry = tf.io.parse_single_example(record, keys)
        image = tf.io.decode_jpeg(entry["image/encoded"], channels=3)
        image = tf.image.resize(image, (size, size))
        return tf.cast(tf.round(image), tf.uint8), entry["image/class/label"]

    # Several files are read at once, because one reader seldom uses the whole disk or network.
    together = min(len(shards.files), TOGETHER)
    images = tf.data.Dataset.from_tensor_slices(list(shards.files)).interleave(
        tf.data.TFRecordDataset,
        cycle_length=together,
        num_parallel_calls=min(together, threads),
        deterministic=False,
    )
    images = images.map(decode, num_parallel_calls=threads, deterministic=False)
    if cache is not None:
        # Several ranks of a node must not write to the same file.
        images = images.cache(f"{cache}-{shards.rank}" if cache else "")
    images = images.shuffle(min(MIXED, shards.records), seed=seed).repeat()
    if augment is not None:
        images = images.map(augment, num_parallel_calls=threads)
    images = images.batch(batch_size, drop_remainder=True)
    images = images.map(lambda batch, labels: (tf.cast(batch, tf.float32) / 255.0, labels))
    options = tf.data.Options()
    # By itself, TensorFlow takes a thread for each core of the host, in each of its ranks.
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    return images.with_options(options).prefetch(2)
