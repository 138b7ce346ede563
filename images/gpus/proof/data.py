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

from images.gpus.proof.helpers import images, resnet, start, step, tell

BATCH = 256
STEPS = 50
FILES = 768
LOADERS = len(os.sched_getaffinity(0))
# Those that only read files for the GPU.
READERS = 4
# Of so many batches, the GPU decodes one where the loader decodes the others.
GPU_DECODES_EACH = 3
SIZE = 224
# Of a crop: its share of the area, and the logarithm of its width by its height.
AREA = (0.08, 1.0)
LOG_RATIO = (-np.log(4 / 3), np.log(4 / 3))
MEAN = torch.tensor([0.485, 0.456, 0.406]).mul(255).view(1, 3, 1, 1)
DEVIATION = torch.tensor([0.229, 0.224, 0.225]).mul(255).view(1, 3, 1, 1)


def make_file(place: tuple[str, int]) -> None:
    """A picture of 500 by 375 pixels with edges, gradients and grain, about 100 kB as JPEG."""
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
    """A batch of files as one tensor, which costs the training less than many, and their sizes."""
    raw = torch.cat([one for one, _ in batch])
    return raw, [len(one) for one, _ in batch], torch.tensor([label for _, label in batch])


def load(files: list[Path], batches: int, *, decode: bool) -> Iterable[Any]:
    loader: Iterable[Any] = torch.utils.data.DataLoader(
        Pictures(files, batches * BATCH, decode=decode),
        BATCH,
        shuffle=True,
        num_workers=LOADERS if decode else READERS,
        pin_memory=decode,
        collate_fn=None if decode else join,
    )
    return loader


def ready(loaders: int) -> int:
    """Batches that loaders have ready when the first step begins: they are not counted."""
    return 2 * loaders + 8


def choose_crops(number: int, width: int, height: int) -> torch.Tensor:
    """For each picture a random part of it, half of them mirrored, as affine_grid takes them."""
    random = np.random.default_rng()
    area = width * height * random.uniform(*AREA, number)
    ratio = np.exp(random.uniform(*LOG_RATIO, number))
    wide = np.minimum(np.sqrt(area * ratio) / width, 1)
    high = np.minimum(np.sqrt(area / ratio) / height, 1)
    crops = np.zeros((number, 2, 3), dtype=np.float32)
    crops[:, 0, 0] = wide * random.choice((-1, 1), number)
    crops[:, 1, 1] = high
    # The middle of each part, where the picture reaches from -1 to 1.
    crops[:, 0, 2] = random.uniform(-1, 1, number) * (1 - wide)
    crops[:, 1, 2] = random.uniform(-1, 1, number) * (1 - high)
    return torch.from_numpy(crops)


def augment(pictures: list[torch.Tensor]) -> torch.Tensor:
    """Crop, resize, mirror and normalise decoded pictures, all of one size at once."""
    device = pictures[0].device
    shape = (len(pictures), 3, SIZE, SIZE)
    made = torch.empty(shape, device=device, memory_format=torch.channels_last)
    of_size: dict[torch.Size, list[int]] = {}
    for number, picture in enumerate(pictures):
        of_size.setdefault(picture.shape, []).append(number)
    for (_, height, width), numbers in of_size.items():
        crops = choose_crops(len(numbers), width, height).to(device)
        grid = torch.nn.functional.affine_grid(
            crops, [len(numbers), *shape[1:]], align_corners=False
        )
        whole = torch.stack([pictures[number] for number in numbers]).float()
        part = torch.nn.functional.grid_sample(
            whole, grid, padding_mode="border", align_corners=False
        )
        if len(of_size) == 1:
            made.copy_(part)
        else:
            made[torch.tensor(numbers, device=device)] = part
    return made.sub_(MEAN.to(device)).div_(DEVIATION.to(device))


def decode_raw(
    batch: tuple[torch.Tensor, list[int], torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of files as images and labels on the GPU, which decodes all of them at once."""
    raw, sizes, labels = batch
    pictures = decode_jpeg(list(raw.split(sizes)), mode=ImageReadMode.RGB, device="cuda")
    return augment(pictures), labels.cuda()


def ahead(
    batches: Iterable[Any], prepare: Callable[[Any], tuple[torch.Tensor, ...]]
) -> Iterator[tuple[torch.Tensor, ...]]:
    """Prepare batches in a thread and a stream of its own, up to two before they are used."""
    source = iter(batches)
    stream = torch.cuda.Stream()

    def prepare_next() -> tuple[torch.Tensor, ...] | None:
        batch = next(source, None)
        if batch is None:
            return None
        with torch.cuda.stream(stream):
            made = prepare(batch)
        # The decoder has a stream of its own, and would write to memory that is still read.
        stream.synchronize()
        return made

    with ThreadPoolExecutor(1) as pool:
        waiting = deque(pool.submit(prepare_next) for _ in range(2))
        while (made := waiting.popleft().result()) is not None:
            waiting.append(pool.submit(prepare_next))
            for tensor in made:
                # Its memory is not used anew before the step is over.
                tensor.record_stream(torch.cuda.current_stream())
            yield made


def rate(stream: Iterable[Any], use: Callable[[Any], object], skipped: int, steps: int) -> float:
    """Images a second of `steps` batches, after so many that are not counted."""
    for number, batch in enumerate(stream):
        if number == skipped:
            torch.cuda.synchronize()
            began = time.perf_counter()
        use(batch)
        if number == skipped + steps - 1:
            torch.cuda.synchronize()
            return round(steps * BATCH / (time.perf_counter() - began), 1)
    raise SystemExit("the loader has too few batches")


def main() -> None:
    start()
    torch.backends.cudnn.benchmark = True
    folder = tempfile.mkdtemp(prefix="hvd-jpegs-")
    with multiprocessing.get_context("fork").Pool(LOADERS) as pool:
        pool.map(make_file, [(folder, number) for number in range(FILES)], chunksize=8)
    files = sorted(Path(folder).glob("*.jpg"))
    mean = MEAN.cuda()
    deviation = DEVIATION.cuda()
    model = resnet()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), model.named_parameters()
    )

    def train(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        step(model, optimizer, batch)

    def train_decoded(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        # The pictures are in channels_last as they come.
        x = batch[0].cuda(non_blocking=True).permute(0, 3, 1, 2).float()
        train((x.sub_(mean).div_(deviation), batch[1].cuda(non_blocking=True)))

    fixed = images(BATCH)

    def synthetic(number: int) -> Iterable[Any]:
        return (fixed[each % len(fixed)] for each in range(number))

    ways = ("synthetic", "JPEGs", "JPEGs, GPU decodes", "JPEGs, both decode")
    rates: dict[str, list[float]] = {way: [] for way in ways}
    alone: dict[str, float] = {}
    problem = ""

    def measure_loader(use: Callable[[Any], object]) -> float:
        skipped = ready(LOADERS)
        return rate(load(files, skipped + STEPS, decode=True), use, skipped, STEPS)

    def measure_gpu(use: Callable[[Any], object]) -> float:
        skipped = ready(READERS)
        stream = load(files, skipped + STEPS, decode=False)
        return rate(ahead(stream, decode_raw), use, skipped, STEPS)

    def measure_both() -> float:
        skipped = ready(LOADERS)
        total = skipped + STEPS
        decoded = iter(load(files, total, decode=True))
        by_gpu = ahead(load(files, total, decode=False), decode_raw)
        turns = (number % GPU_DECODES_EACH == 0 for number in range(total))
        stream = ((train, next(by_gpu)) if gpu else (train_decoded, next(decoded)) for gpu in turns)
        return rate(stream, lambda turn: turn[0](turn[1]), skipped, STEPS)

    rate(synthetic(15), train, 5, 10)
    alone["JPEGs"] = measure_loader(lambda batch: None)
    try:
        alone["JPEGs, GPU decodes"] = measure_gpu(lambda batch: None)
    except RuntimeError as error:
        # A torchvision may lack the decoder.
        problem = str(error)[:300]
    for _ in range(2):
        rates["JPEGs"].append(measure_loader(train_decoded))
        rates["synthetic"].append(rate(synthetic(5 + STEPS), train, 5, STEPS))
        if not problem:
            rates["JPEGs, GPU decodes"].append(measure_gpu(train))
            rates["JPEGs, both decode"].append(measure_both())
        print(rates, flush=True)
    middle = {name: statistics.median(values) for name, values in rates.items() if values}
    tell(
        {
            "images per second": rates,
            "alone": alone,
            "processes of the loader": LOADERS,
            "processes that read for the GPU": READERS,
            "the GPU decodes": problem or "yes",
            "gap in percent": {
                name: round(100 * (1 - value / middle["synthetic"]), 1)
                for name, value in middle.items()
            },
        }
    )
    os._exit(0)


if __name__ == "__main__":
    main()
