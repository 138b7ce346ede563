"""Runs inside the examples' image: gives unet_data.py good and bad files, and prints as JSON what
it says to each, or what is wrong with its result.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import unet_data

SLICES = 20
CASES: dict[str, Callable[[Path, Path], str]] = {}


def case(function: Callable[[Path, Path], str]) -> Callable[[Path, Path], str]:
    """Register a case: it gets a folder for scans and one for the data set, and returns a text."""
    CASES[function.__name__] = function
    return function


def save(file: Path, voxels: Any, affine: Any = None) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4) if affine is None else affine), file)


def scan(seed: int = 0, shape: tuple[int, ...] = (140, 130, SLICES)) -> Any:
    """Noise around 100; the first voxel of each slice's centre has the number of the slice."""
    voxels = np.random.default_rng(seed).normal(100, 20, shape).astype(np.float32)
    voxels[6, 1] = np.arange(shape[2])
    return voxels


def labels() -> Any:
    """Labels as in BraTS: a tumour of the classes 1, 2 and 4 in the centre of each slice."""
    voxels = np.zeros((140, 130, SLICES), np.uint8)
    voxels[60:70, 60:70] = 1
    voxels[70:80, 60:70] = 2
    voxels[60:64, 60:64] = 4
    return voxels


def patient(folder: Path, name: str, seed: int = 0, flair: str = "_flair.nii.gz") -> None:
    """Save a scan and its mask, named as in a BraTS folder."""
    save(folder / name / f"{name}{flair}", scan(seed))
    save(folder / name / f"{name}{flair[0]}seg{flair[flair.index('.') :]}", labels())


def run(*arguments: object) -> str:
    """Convert; return the message of the error, or nothing."""
    sys.argv = ["unet_data.py", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            unet_data.main()
    except SystemExit as error:
        return str(error)
    return ""


def read(folder: Path, rank: int = 0, size: int = 1) -> str:
    """Read a data set as a rank does; return the message of the error, or nothing."""
    try:
        unet_data.read_shards(folder, rank, size)
    except SystemExit as error:
        return str(error)
    return ""


def convert_two(source: Path, data: Path) -> None:
    """Make a data set of two patients in 4 shards."""
    for index in range(2):
        patient(source, f"BraTS2021_0000{index}", index)
    error = run(source, data, "--shards", 4)
    assert not error, error


@case
def folders_of_each_year_are_accepted(source: Path, data: Path) -> str:
    patient(source / "HGG", "Brats18_2013_2_1")
    patient(source, "BraTS20_Training_001", flair="_flair.nii")
    patient(source, "BraTS-GLI-00000-000", flair="-t2f.nii.gz")
    # As patient 355 of 2020: its mask has another name. It is left out.
    save(source / "BraTS20_Training_355" / "BraTS20_Training_355_flair.nii", scan())
    save(source / "BraTS20_Training_355" / "W39_1998.09.19_Segm.nii", labels())
    error = run(source, data)
    if error:
        return error
    return str(json.loads((data / "dataset.json").read_text())["volumes"])


@case
def patients_are_on_one_side_only(source: Path, data: Path) -> str:
    for index in range(10):
        patient(source, f"BraTS2021_0000{index}", index)
    error = run(source, data, "--shards", 3)
    assert not error, error
    sides: list[set[bytes]] = []
    ranks = [unet_data.read_shards(data, rank, 3) for rank in range(3)]
    shards = [shard for shards, _ in ranks for shard in shards]
    for arrays in (shards, [ranks[0][1]]):
        # What the noise is in one corner tells the patients apart, whatever the scale.
        sides.append(
            {plane[-9:, -9:, 0].astype(np.float32).tobytes() for array in arrays for plane in array}
        )
    assert [len(side) for side in sides] == [8 * SLICES, 2 * SLICES], [len(side) for side in sides]
    # Slices of 8 and of 2 patients, each once: a patient on both sides would give other numbers.
    assert not sides[0] & sides[1]
    assert max(map(len, shards)) - min(map(len, shards)) <= 1
    return "right"


@case
def slices_are_cropped_and_scaled(source: Path, data: Path) -> str:
    patient(source, "BraTS2021_00000")
    error = run(source, data, "--shards", 1)
    assert not error, error
    (shard,), test = unet_data.read_shards(data, 0, 1)
    whole = scan()
    truth = labels() > 0
    expected = (whole - whole.mean()) / whole.std()
    held = range(8, 11)
    for got, indices in ((test, held), (shard, [i for i in range(SLICES) if i not in held])):
        assert got.shape == (len(indices), 128, 128, 2), got.shape
        for ours, index in zip(got, indices, strict=True):
            assert np.allclose(ours[..., 0], expected[6:134, 1:129, index], atol=5e-3)
            assert (ours[..., 1] == truth[6:134, 1:129, index]).all()
    return "right"


def overwrite_a_shard(data: Path) -> None:
    shard = data / "train-001.npy"
    shard.write_bytes(shard.read_bytes()[:-4] + b"\1\2\3\4")


@case
def no_scan(source: Path, data: Path) -> str:
    save(source / "a_seg.nii.gz", labels())
    return run(source, data)


@case
def mask_elsewhere(source: Path, data: Path) -> str:
    save(source / "a_flair.nii.gz", scan())
    save(source / "a_seg.nii.gz", labels(), np.diag([2, 1, 1, 1]))
    return run(source, data)


@case
def half_written(source: Path, data: Path) -> str:
    convert_two(source, data)
    (data / "dataset.json").unlink()
    return read(data)


@case
def overwritten_shard(source: Path, data: Path) -> str:
    convert_two(source, data)
    overwrite_a_shard(data)
    return read(data, 1, 2)


@case
def ranks_read_their_own_shards_only(source: Path, data: Path) -> str:
    convert_two(source, data)
    overwrite_a_shard(data)
    return read(data, 0, 2) + read(data, 0, 4)


def main() -> None:
    said = {}
    for name, function in CASES.items():
        folder = Path(tempfile.mkdtemp())
        try:
            said[name] = function(folder / "scans", folder / "data").replace(str(folder), "")
        except AssertionError as error:
            said[name] = f"failed: {error!r}"
        shutil.rmtree(folder)
    sys.stdout.write(json.dumps(said))


main()
