"""Makes the pictures of docs/unet.md: python -m tests.bench.unet_pictures [OPTIONS of unet.py]

Trains the U-Net of examples/ on two ranks in the examples' image, a core each, and writes to
docs/plots the predictions on the slices that are held out, and what TensorBoard shows in a browser.
The command line and the figures are written to the page.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from devtools.images.build import build
from devtools.trials.sandbox import TWO_RANKS, Sandbox, sandbox
from tests.bench.browser import take_picture
from tests.bench.report import ROOT, machine, write_part

PLOTS = ROOT / "docs" / "plots"
TRAINING = (
    *("--filters", "8", "--batch-size", "8", "--learning-rate", "0.0005"),
    *("--steps", "380", "--check-every", "25", "--target-dice", "0"),
)
# Below it, the pictures are made, and the command fails.
LEAST_DICE = 0.85
ONE_THREAD = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
# What TensorBoard must show.
TAGS = ("loss", "dice", "sensitivity", "learning rate", "slice, truth, prediction")


def run(inside: Sandbox, options: Sequence[str], **environment: str) -> list[str]:
    """Train on two ranks, show the log, and return its lines. Exits if the training fails."""
    command = (*TWO_RANKS, "python", "unet.py", *options)
    process = inside.start(*command, OUTPUT_PATH="/output/run", **ONE_THREAD, **environment)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line.rstrip("\n"))
    if process.wait():
        raise SystemExit(f"the training ended with {process.returncode}")
    return lines


def about() -> str:
    """The machine and the day."""
    return f"{machine()}, {time.strftime('%Y-%m-%d')}"


def train(inside: Sandbox, more: Sequence[str]) -> None:
    """Train, and write the pictures and figures to the page."""
    options = (*TRAINING, *more)
    began = time.monotonic()
    lines = run(inside, options)
    minutes = (time.monotonic() - began) / 60
    result = json.loads(lines[-1].removeprefix("RESULT "))
    shutil.copyfile(inside.folder / "run" / "predictions.png", PLOTS / "unet-predictions.png")
    take_picture(inside, "/output/run/logs", TAGS, PLOTS / "unet-tensorboard.png")
    figures = ", ".join(f"{name} {result[name]:.3f}" for name in ("dice", "sensitivity"))
    text = (
        f"    mpirun -np 2 python unet.py {' '.join(options)}\n\n"
        f"reached on the held-out slices: {figures}, specificity {result['specificity']:.3f}, "
        f"after {result['steps']} steps in {minutes:.1f} minutes. Both ranks together trained "
        f"{result['images_per_second']:.1f} slices/s, with one thread each ({about()}).\n\n"
        "![Held-out slices, below each the truth and the prediction](plots/unet-predictions.png)"
        "\n\nTensorBoard on the logs of this run, as Chromium shows it:\n\n"
        "![TensorBoard: curves of the measures, and the pictures](plots/unet-tensorboard.png)"
    )
    write_part("unet.md", "unet-pictures", text)
    if result["dice"] < LEAST_DICE:
        raise SystemExit(f"the Dice coefficient is {result['dice']:.3f}, below {LEAST_DICE}")


def main() -> None:
    """Train and write."""
    with (
        tempfile.TemporaryDirectory(prefix="hvd-unet-") as folder,
        sandbox(build("examples"), Path(folder) / "output") as inside,
    ):
        train(inside, sys.argv[1:])


if __name__ == "__main__":
    main()
