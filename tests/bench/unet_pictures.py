"""Makes the picture and figures of docs/unet.md: python -m tests.bench.unet_pictures [OPTIONS]

Trains the U-Net of examples/ on two ranks in the examples' image, a core each. The command line and
the figures are written to the page, and the predictions on the held-out slices to docs/plots.
OPTIONS are added to those of unet.py.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from devtools.images.build import build
from devtools.trials.sandbox import TWO_RANKS, Sandbox, sandbox
from tests.bench.report import ROOT, machine, write_part

PICTURE = ROOT / "docs" / "plots" / "unet-predictions.png"
TRAINING = (
    *("--filters", "8", "--batch-size", "8", "--learning-rate", "0.0005"),
    *("--steps", "380", "--check-every", "25", "--target-dice", "0"),
)
# With a smaller Dice coefficient, the command fails after it has written the page.
LEAST_DICE = 0.85
ONE_THREAD = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}


def run(inside: Sandbox, *options: str) -> str:
    """Train on two ranks, show the log, and return its last line. Exits if the training fails."""
    command = (*TWO_RANKS, "python", "unet.py", *options)
    process = inside.start(*command, OUTPUT_PATH="/output/run", **ONE_THREAD)
    assert process.stdout is not None
    line = ""
    for line in process.stdout:
        print(line, end="", flush=True)
    if process.wait():
        raise SystemExit(f"the training ended with {process.returncode}")
    return line


def main() -> None:
    """Train, and write the picture and the page."""
    options = (*TRAINING, *sys.argv[1:])
    with (
        tempfile.TemporaryDirectory(prefix="hvd-unet-") as folder,
        sandbox(build("examples"), Path(folder) / "output") as inside,
    ):
        began = time.monotonic()
        result = json.loads(run(inside, *options).removeprefix("RESULT "))
        minutes = (time.monotonic() - began) / 60
        shutil.copyfile(inside.folder / "run" / PICTURE.name.removeprefix("unet-"), PICTURE)
    figures = ", ".join(f"{name} {result[name]:.3f}" for name in ("dice", "sensitivity"))
    text = (
        f"    mpirun -np 2 python unet.py {' '.join(options)}\n\n"
        f"reached on the held-out slices: {figures}, specificity {result['specificity']:.3f}, "
        f"after {result['steps']} steps in {minutes:.1f} minutes. Both ranks together trained "
        f"{result['images_per_second']:.1f} slices/s, with one thread each ({machine()}, "
        f"{time.strftime('%Y-%m-%d')}).\n\n"
        f"![Held-out slices, below each the truth and the prediction](plots/{PICTURE.name})"
    )
    write_part("unet.md", "unet-pictures", text)
    if result["dice"] < LEAST_DICE:
        raise SystemExit(f"the Dice coefficient is {result['dice']:.3f}, below {LEAST_DICE}")


if __name__ == "__main__":
    main()
