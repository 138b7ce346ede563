"""Converts brain scans (NIfTI) to the shards that unet.py trains on, and reads them.

    python unet_data.py BraTS2021_Training_Data /data/brats
    python unet_data.py mni152 /data/white --image t1 --mask white --threshold 127

The first folder is searched for masks, NAME_seg.nii.gz, and for the scan that belongs to each:
NAME_flair.nii.gz, or -t2f as BraTS calls it since 2023. Both must be volumes of the same grid. Each
slice along the third axis is cropped to its centre of 128 x 128 voxels; the voxels of a volume are
scaled to mean 0 and deviation 1; the mask is where the label is above --threshold.

15 % are held out: whole volumes, so that no patient is on both sides. Of a single volume it is one
block of slices in the middle: the neighbour of a slice looks like the slice, and would be no test.

Exit status: 0 if the data set is complete; 1 if a file cannot be used; 2 if an argument is invalid.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# Voxels of a slice in each direction, after cropping.
SIDE = 128
# The share of the data that measures the model.
HELD_OUT = 0.15
# The split is the same in every conversion: results stay comparable.
SPLIT_SEED = 0
# Written last: a folder without it is not complete.
MANIFEST = "dataset.json"
ENDINGS = (".nii.gz", ".nii")


class Pair(NamedTuple):
    """A scan and its mask; `shape` is that of both."""

    image: Path
    mask: Path
    shape: tuple[int, ...]


def find(folder: Path, kinds: Sequence[str]) -> dict[Path, Path]:
    """Return the NIfTI files below a folder whose names end in _KIND or -KIND.

    They are keyed by what is before that: /scans/a/x_seg.nii.gz is found as /scans/a/x.
    """
    files = {}
    for ending in ENDINGS:
        for kind in kinds:
            for separator in "_-":
                tail = f"{separator}{kind}{ending}"
                for file in sorted(folder.rglob(f"*{tail}")):
                    files[Path(str(file).removesuffix(tail))] = file
    return files


def find_pairs(folder: Path, image: Sequence[str], mask: Sequence[str]) -> list[Pair]:
    """Return all masks of a folder with their scans, after a look at each file's header.

    Raises SystemExit if there is no mask, a mask has no scan, or the two do not belong together.
    """
    if not folder.is_dir():
        raise SystemExit(f"{folder}: no such folder")
    masks = find(folder, mask)
    images = find(folder, image)
    if not masks:
        wanted = " or ".join(f"*_{kind}.nii.gz" for kind in mask)
        raise SystemExit(f"{folder}: no file is named {wanted}: name the mask's kind with --mask")
    for name, file in masks.items():
        if name not in images:
            wanted = " or ".join(f"{name.name}_{kind}.nii.gz" for kind in image)
            raise SystemExit(
                f"{file}: its scan, {wanted}, is missing: add it, remove the mask, or name another "
                "kind with --image"
            )
    return [check_pair(images[name], masks[name]) for name in sorted(masks)]


def load(file: Path) -> Any:
    """Open a NIfTI file; its voxels are read later."""
    # Only conversion needs it, and not every image that trains has it.
    import nibabel

    return nibabel.load(file)


def check_pair(image: Path, mask: Path) -> Pair:
    """Return the pair. Raises SystemExit if the two files are not volumes of the same grid."""
    scan = load(image)
    labels = load(mask)
    if min(scan.shape[:2]) < SIDE:
        raise SystemExit(
            f"{image}: slices of {scan.shape[0]} x {scan.shape[1]} voxels, expected at least "
            f"{SIDE} x {SIDE}: resample it"
        )
    if scan.shape != labels.shape:
        raise SystemExit(
            f"{mask}: shape {labels.shape}, but {image} has {scan.shape}: resample the mask to the "
            "scan's grid"
        )
    if not np.allclose(scan.affine, labels.affine, atol=1e-2):
        raise SystemExit(
            f"{mask}: its voxels are elsewhere than those of {image} (another affine): resample "
            "the mask to the scan's grid"
        )
    return Pair(image, mask, scan.shape)


def read_voxels(file: Path) -> np.ndarray:
    """Return all slices of a volume: float32 of shape (slices, height, width).

    Raises SystemExit if the file is not complete, or has voxels that are not a number.
    """
    volume = load(file)
    try:
        voxels = np.asarray(volume.dataobj, np.float32)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise SystemExit(f"{file}: not complete, copy it again: {error}") from None
    if not np.isfinite(voxels).all():
        raise SystemExit(f"{file}: has voxels that are not a number: repair or remove it")
    # The slices are along the third axis of a volume.
    return np.moveaxis(voxels, 2, 0)


def crop(voxels: np.ndarray) -> np.ndarray:
    """Return the centre of each slice, shape (slices, SIDE, SIDE)."""
    _, height, width = voxels.shape
    top = (height - SIDE) // 2
    left = (width - SIDE) // 2
    return voxels[:, top : top + SIDE, left : left + SIDE]


def read_pair(pair: Pair, threshold: float) -> np.ndarray:
    """Return the slices of a volume: float16 of shape (slices, SIDE, SIDE, 2), scan and mask.

    The scan has the mean 0 and the deviation 1 over the whole volume; the mask is 0 or 1. Raises
    SystemExit for a scan without contrast, and for a mask that is empty.
    """
    scan = read_voxels(pair.image)
    labels = read_voxels(pair.mask)
    deviation = scan.std()
    if deviation == 0:
        raise SystemExit(f"{pair.image}: all voxels are equal: repair or remove it")
    labels = crop(labels)
    if labels.max() <= threshold:
        raise SystemExit(
            f"{pair.mask}: no voxel is above --threshold {threshold:g}, the highest is "
            f"{labels.max():g}: set another threshold, or remove the scan"
        )
    scaled = crop(scan - scan.mean()) / deviation
    return np.stack([scaled, labels > threshold], axis=-1).astype(np.float16)


def held_out(counts: Sequence[int]) -> list[range]:
    """Return which slices of each volume are held out: all, none, or a block of a single volume.

    `counts` are the numbers of slices of the volumes.
    """
    if len(counts) == 1:
        (count,) = counts
        length = max(1, round(count * HELD_OUT))
        start = (count - length) // 2
        return [range(start, start + length)]
    shuffled = np.random.default_rng(SPLIT_SEED).permutation(len(counts))
    chosen = shuffled[: max(1, round(len(counts) * HELD_OUT))]
    return [range(count) if index in chosen else range(0) for index, count in enumerate(counts)]


def convert(pairs: Sequence[Pair], folder: Path, shards: int, threshold: float) -> dict[str, Any]:
    """Write the shards, and last the manifest, which is returned.

    Raises SystemExit if there are fewer slices to train on than shards, or a file cannot be used.
    """
    counts = [pair.shape[2] for pair in pairs]
    tests = held_out(counts)
    testing = sum(map(len, tests))
    training = sum(counts) - testing
    if training < shards:
        raise SystemExit(f"{training} training slices for {shards} shards: set fewer --shards")
    folder.mkdir(parents=True, exist_ok=True)
    # The slices are dealt to the shards in turn, so that each shard has some of every volume.
    lengths = {
        f"train-{number:03}.npy": len(range(number, training, shards)) for number in range(shards)
    }
    lengths["test.npy"] = testing
    arrays = [
        np.lib.format.open_memmap(folder / name, "w+", np.float16, (length, SIDE, SIDE, 2))
        for name, length in lengths.items()
    ]
    *train_arrays, test_array = arrays
    dealt = 0
    tested = 0
    for pair, test in zip(pairs, tests, strict=True):
        slices = read_pair(pair, threshold)
        test_array[tested : tested + len(test)] = slices[test.start : test.stop]
        tested += len(test)
        for index, both in enumerate(slices):
            if index not in test:
                train_arrays[dealt % shards][dealt // shards] = both
                dealt += 1
        print(f"{pair.image.name}: {len(slices)} slices, {len(test)} held out", flush=True)
    for array in arrays:
        array.flush()

    files = {}
    for name, length in lengths.items():
        files[name] = {"slices": length, "crc32": zlib.crc32((folder / name).read_bytes())}
    manifest = {"volumes": len(pairs), "files": files}
    # A reader sees no manifest, or all of it.
    partial = folder / f"{MANIFEST}.partial"
    partial.write_text(json.dumps(manifest, indent=1) + "\n")
    partial.replace(folder / MANIFEST)
    return manifest


def read_shards(folder: Path, rank: int, size: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Return a rank's own training shards and the slices that are held out, memory-mapped.

    Each is float16 of shape (slices, SIDE, SIDE, 2): scan and mask. `size` is the number of ranks.
    Raises SystemExit if the data set is missing, incomplete, damaged, or in too few shards.
    """
    if not (folder / MANIFEST).is_file():
        if next(folder.glob("train-*.npy"), None):
            raise SystemExit(
                f"{folder}: {MANIFEST} is missing, so it is half written: convert it again: python "
                "unet_data.py SOURCE FOLDER (see --help)"
            )
        raise SystemExit(f"{folder}: no data set: convert one: python unet_data.py SOURCE {folder}")
    files = json.loads((folder / MANIFEST).read_text())["files"]
    names = sorted(set(files) - {"test.npy"})
    if len(names) < size:
        raise SystemExit(
            f"{folder}: {len(names)} shards for {size} ranks, each of which needs one: convert the "
            f"data with --shards {size} or more, or train with fewer ranks"
        )
    own_cases = [read(folder / name, files[name]) for name in names[rank::size]]
    return own_cases, read(folder / "test.npy", files["test.npy"])


def read(file: Path, expected: dict[str, int]) -> np.ndarray:
    """Open a shard after a comparison of its bytes with the manifest.

    `expected` is its entry there. Raises SystemExit if the file is missing or has other bytes.
    """
    again = "copy the data set again, or convert it again"
    if not file.is_file():
        raise SystemExit(f"{file}: is missing, but {MANIFEST} has it: {again}")
    if zlib.crc32(file.read_bytes()) != expected["crc32"]:
        raise SystemExit(f"{file}: {file.stat().st_size} bytes, not those in {MANIFEST}: {again}")
    return np.load(file, mmap_mode="r")


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source", type=Path, help="folder with NIfTI files, at any depth")
    parser.add_argument("folder", type=Path, help="where the data set is written")
    parser.add_argument("--image", nargs="+", default=["flair", "t2f"], help="kind of scan")
    parser.add_argument("--mask", nargs="+", default=["seg"], help="kind of mask")
    parser.add_argument(
        "--threshold", type=float, default=0, help="a mask is where the label is above (default: 0)"
    )
    parser.add_argument(
        "--shards", type=int, default=16, help="files of training slices; at least one for a rank"
    )
    return parser.parse_args()


def main() -> int:
    """Convert a folder and print how much it gave. Returns the exit status."""
    options = parse_arguments()
    if (options.folder / MANIFEST).exists():
        raise SystemExit(f"{options.folder}: has a data set: delete it, or name another folder")
    pairs = find_pairs(options.source, options.image, options.mask)
    manifest = convert(pairs, options.folder, options.shards, options.threshold)
    slices = sum(file["slices"] for file in manifest["files"].values())
    tested = manifest["files"]["test.npy"]["slices"]
    print(
        f"{options.folder}: {slices - tested} slices to train on in {options.shards} shards, "
        f"{tested} held out"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
