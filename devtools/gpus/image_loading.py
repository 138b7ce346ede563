"""ResNet-50 with Horovod: synthetic images against JPEGs that loader, GPU or both decode."""

from __future__ import annotations

import io
import multiprocessing
import os
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import numpy as np
import torch
from PIL import Image
from torchvision import transforms
from torchvision.io import ImageReadMode, decode_jpeg

from devtools.gpus.training import (
    make_resnet,
    print_result,
    random_batches,
    start_horovod,
    train_step,
)

BATCH_IMAGES = 256
MEASURED_STEPS = 50
JPEG_FILES = 768
LOADERS = len(os.sched_getaffinity(0))
# Loaders that only read files for the GPU.
READERS = 4
# Batches that loaders prepare before the first step begins, beside two of each process. They are
# not counted.
READY_BATCHES = 8
# The GPU decodes one of this many batches, and the loader decodes the others.
GPU_DECODES_EACH = 3
CROP_PIXELS = 224
# The range of a crop: its share of the area, and the logarithm of the ratio of width to height.
AREA = (0.08, 1.0)
LOG_RATIO = (-np.log(4 / 3), np.log(4 / 3))
MEAN = torch.tensor([0.485, 0.456, 0.406]).mul(255).view(1, 3, 1, 1)
DEVIATION = torch.tensor([0.229, 0.224, 0.225]).mul(255).view(1, 3, 1, 1)


def make_file(place: tuple[str, int]) -> None:
    """Write a JPEG of 500 by 375 pixels with edges, gradients and grain, about 100 kB."""
    folder, number = place
    random = np.random.default_rng(number)
    small = random.integers(0, 256, (12, 16, 3), dtype=np.uint8)
    picture = np.asarray(Image.fromarray(small).resize((500, 375), Image.BICUBIC), dtype=np.float32)
    picture = picture + random.normal(0, 14, (375, 500, 1))
    picture += 60 * (random.random((375, 500, 1)) < 0.02)
    raw = io.BytesIO()
    Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(raw, "JPEG", quality=87)
    Path(folder, f"{number:05}.jpg").write_bytes(raw.getvalue())


class Pictures(torch.utils.data.Dataset):  # type: ignore[misc]
    """Decoded and augmented pictures, or the bytes of their files."""

    def __init__(self, files: list[Path], length: int, *, decode: bool) -> None:
        self.files = files
        self.length = length
        self.decode = decode
        self.crop = transforms.RandomResizedCrop(224)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        file = self.files[number % len(self.files)]
        if not self.decode:
            return torch.from_numpy(np.fromfile(file, dtype=np.uint8)), number % 1000
        picture = self.crop(Image.open(file).convert("RGB"))
        if number % 2:
            picture = transforms.functional.hflip(picture)
        return torch.from_numpy(np.asarray(picture).copy()), number % 1000


def join(batch: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, list[int], torch.Tensor]:
    """Return a batch of files as one tensor, which costs the training less than many, and their
    sizes.
    """
    raw = torch.cat([file for file, _ in batch])
    return raw, [len(file) for file, _ in batch], torch.tensor([label for _, label in batch])


def load(files: list[Path], batches: int, *, decode: bool) -> Iterable[Any]:
    loader: Iterable[Any] = torch.utils.data.DataLoader(
        Pictures(files, batches * BATCH_IMAGES, decode=decode),
        BATCH_IMAGES,
        shuffle=True,
        num_workers=LOADERS if decode else READERS,
        pin_memory=decode,
        collate_fn=None if decode else join,
    )
    return loader


def choose_crops(number: int, width: int, height: int) -> torch.Tensor:
    """Return a random part of each picture for affine_grid, half of them mirrored."""
    random = np.random.default_rng()
    area = width * height * random.uniform(*AREA, number)
    ratio = np.exp(random.uniform(*LOG_RATIO, number))
    wide = np.minimum(np.sqrt(area * ratio) / width, 1)
    high = np.minimum(np.sqrt(area / ratio) / height, 1)
    crops = np.zeros((number, 2, 3), dtype=np.float32)
    crops[:, 0, 0] = wide * random.choice((-1, 1), number)
    crops[:, 1, 1] = high
    # The middle of each part; coordinates of the picture range from -1 to 1.
    crops[:, 0, 2] = random.uniform(-1, 1, number) * (1 - wide)
    crops[:, 1, 2] = random.uniform(-1, 1, number) * (1 - high)
    return torch.from_numpy(crops)


def augment(pictures: list[torch.Tensor]) -> torch.Tensor:
    """Crop, resize, mirror and normalise decoded pictures.

    All pictures must have one size, as those of make_file do. Call it once for each size otherwise.
    """
    device = pictures[0].device
    _, height, width = pictures[0].shape
    crops = choose_crops(len(pictures), width, height).to(device)
    grid = torch.nn.functional.affine_grid(
        crops, [len(pictures), 3, CROP_PIXELS, CROP_PIXELS], align_corners=False
    )
    whole = torch.stack(pictures).float()
    part = torch.nn.functional.grid_sample(whole, grid, padding_mode="border", align_corners=False)
    channels_last = part.contiguous(memory_format=torch.channels_last)
    return channels_last.sub_(MEAN.to(device)).div_(DEVIATION.to(device))


def decode_raw(
    batch: tuple[torch.Tensor, list[int], torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a batch of files as images and labels on the GPU, which decodes all at once."""
    raw, sizes, labels = batch
    pictures = decode_jpeg(list(raw.split(sizes)), mode=ImageReadMode.RGB, device="cuda")
    return augment(pictures), labels.cuda()


def ahead(
    batches: Iterable[Any], prepare: Callable[[Any], tuple[torch.Tensor, ...]]
) -> Iterator[tuple[torch.Tensor, ...]]:
    """Prepare batches in a separate thread and CUDA stream, up to two before they are used."""
    source = iter(batches)
    stream = torch.cuda.Stream()

    def prepare_next() -> tuple[torch.Tensor, ...] | None:
        batch = next(source, None)
        if batch is None:
            return None
        with torch.cuda.stream(stream):
            tensors = prepare(batch)
        # The decoder has its own stream, and would write to memory that is still read.
        stream.synchronize()
        return tensors

    with ThreadPoolExecutor(1) as pool:
        waiting = deque(pool.submit(prepare_next) for _ in range(2))
        while (tensors := waiting.popleft().result()) is not None:
            waiting.append(pool.submit(prepare_next))
            for tensor in tensors:
                # Keep the tensor's memory from being reused before the step is over.
                tensor.record_stream(torch.cuda.current_stream())
            yield tensors


def rate(
    stream: Iterable[Any], use: Callable[[Any], object], skipped: int, steps: int = MEASURED_STEPS
) -> float:
    """Return images a second of `steps` batches, after `skipped` batches that are not counted."""
    for number, batch in enumerate(stream):
        if number == skipped:
            torch.cuda.synchronize()
            began = time.perf_counter()
        use(batch)
        if number == skipped + steps - 1:
            torch.cuda.synchronize()
            return round(steps * BATCH_IMAGES / (time.perf_counter() - began), 1)
    raise SystemExit("the loader has too few batches")


class Training:
    """A model that is trained with each kind of batch; `rate` of each gives images a second."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files
        self.model = make_resnet()
        self.optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.9),
            self.model.named_parameters(),
        )
        self.mean = MEAN.cuda()
        self.deviation = DEVIATION.cuda()
        self.fixed = random_batches(BATCH_IMAGES)

    def train(self, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        train_step(self.model, self.optimizer, batch)

    def train_decoded(self, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        # The pictures arrive in the layout channels_last.
        x = batch[0].cuda(non_blocking=True).permute(0, 3, 1, 2).float()
        x = x.sub_(self.mean).div_(self.deviation)
        self.train((x, batch[1].cuda(non_blocking=True)))

    def synthetic(self, steps: int = MEASURED_STEPS) -> float:
        batches = (self.fixed[number % len(self.fixed)] for number in range(5 + steps))
        return rate(batches, self.train, 5, steps)

    def by_loader(self, use: Callable[[Any], object]) -> float:
        skipped = READY_BATCHES + 2 * LOADERS
        return rate(load(self.files, skipped + MEASURED_STEPS, decode=True), use, skipped)

    def by_gpu(self, use: Callable[[Any], object]) -> float:
        skipped = READY_BATCHES + 2 * READERS
        stream = load(self.files, skipped + MEASURED_STEPS, decode=False)
        return rate(ahead(stream, decode_raw), use, skipped)

    def by_both(self) -> float:
        skipped = READY_BATCHES + 2 * LOADERS
        total = skipped + MEASURED_STEPS
        decoded = iter(load(self.files, total, decode=True))
        raw = ahead(load(self.files, total, decode=False), decode_raw)
        turns = (number % GPU_DECODES_EACH == 0 for number in range(total))
        stream = (
            (self.train, next(raw)) if gpu else (self.train_decoded, next(decoded)) for gpu in turns
        )
        return rate(stream, lambda turn: turn[0](turn[1]), skipped)


def use_nothing(_batch: object) -> None:
    """Skip the batch, to measure the loader alone."""


def main() -> None:
    start_horovod()
    torch.backends.cudnn.benchmark = True
    folder = tempfile.mkdtemp(prefix="hvd-jpegs-")
    with multiprocessing.get_context("fork").Pool(LOADERS) as pool:
        pool.map(make_file, [(folder, number) for number in range(JPEG_FILES)], chunksize=8)
    training = Training(sorted(Path(folder).glob("*.jpg")))
    training.synthetic(10)
    alone = {"JPEGs": training.by_loader(use_nothing)}
    problem = ""
    try:
        alone["JPEGs, GPU decodes"] = training.by_gpu(use_nothing)
    except RuntimeError as error:
        # A torchvision may lack the decoder.
        problem = str(error)[:300]
    ways: dict[str, Callable[[], float]] = {
        "synthetic": training.synthetic,
        "JPEGs": lambda: training.by_loader(training.train_decoded),
    }
    if not problem:
        ways["JPEGs, GPU decodes"] = lambda: training.by_gpu(training.train)
        ways["JPEGs, both decode"] = training.by_both
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(2):
        for way, measure in ways.items():
            rates[way].append(measure())
        print(rates, flush=True)
    middle = {way: statistics.median(measured) for way, measured in rates.items()}
    print_result(
        {
            "images per second": rates,
            "alone": alone,
            "processes of the loader": LOADERS,
            "processes that read for the GPU": READERS,
            "the GPU decodes": problem or "yes",
            "gap in percent": {
                way: round(100 * (1 - middle[way] / middle["synthetic"]), 1) for way in ways
            },
        }
    )
    os._exit(0)


if __name__ == "__main__":
    main()
