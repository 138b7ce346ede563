"""ResNet-50 with Horovod: synthetic images against JPEGs that processes of a loader decode."""

from __future__ import annotations

import io
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import numpy as np
import torch
from PIL import Image
from torchvision import transforms
from torchvision.io import ImageReadMode, decode_jpeg

from images.gpus.proof.helpers import images, resnet, start, step, tell

BATCH = 128
STEPS = 50
FILES = 768
LOADERS = len(os.sched_getaffinity(0))
# Batches that loaders have ready when the first step begins are not counted.
READY = 2 * LOADERS + 8
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


class Pictures(torch.utils.data.Dataset):
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


def load(files: list[Path], batches: int, *, decode: bool) -> Iterable[Any]:
    def collate(batch: list[tuple[torch.Tensor, int]]) -> tuple[list[torch.Tensor], torch.Tensor]:
        return [raw for raw, _ in batch], torch.tensor([label for _, label in batch])

    return torch.utils.data.DataLoader(
        Pictures(files, batches * BATCH, decode=decode),
        BATCH,
        shuffle=True,
        num_workers=LOADERS,
        pin_memory=decode,
        collate_fn=None if decode else collate,
    )


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

    def train_raw(batch: tuple[list[torch.Tensor], torch.Tensor]) -> None:
        crops = []
        for picture in decode_jpeg(batch[0], mode=ImageReadMode.RGB, device="cuda"):
            top, left, height, width = transforms.RandomResizedCrop.get_params(
                picture, (0.08, 1.0), (3 / 4, 4 / 3)
            )
            crop = picture[None, :, top : top + height, left : left + width].float()
            crops.append(torch.nn.functional.interpolate(crop, (224, 224), mode="bilinear"))
        x = torch.cat(crops).sub_(mean).div_(deviation)
        x = x.contiguous(memory_format=torch.channels_last)
        train((x, batch[1].cuda(non_blocking=True)))

    fixed = images(BATCH)

    def synthetic(number: int) -> Iterable[Any]:
        return (fixed[each % len(fixed)] for each in range(number))

    rates: dict[str, list[float]] = {"synthetic": [], "JPEGs": [], "JPEGs, GPU decodes": []}
    rate(synthetic(15), train, 5, 10)
    alone = rate(load(files, READY + STEPS, decode=True), lambda batch: None, READY, STEPS)
    for _ in range(2):
        stream = load(files, READY + STEPS, decode=True)
        rates["JPEGs"].append(rate(stream, train_decoded, READY, STEPS))
        rates["synthetic"].append(rate(synthetic(5 + STEPS), train, 5, STEPS))
        print(rates, flush=True)
    problem = ""
    try:
        stream = load(files, READY + STEPS // 2, decode=False)
        rates["JPEGs, GPU decodes"].append(rate(stream, train_raw, READY, STEPS // 2))
    except RuntimeError as error:
        # A torchvision may lack the decoder.
        problem = str(error)[:300]
    middle = {name: statistics.median(values) for name, values in rates.items() if values}
    tell(
        {
            "images per second": rates,
            "loader alone": alone,
            "processes of the loader": LOADERS,
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
