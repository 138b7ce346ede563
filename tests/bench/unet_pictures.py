"""Makes the pictures of docs/unet.md and docs/timeline.md: python -m tests.bench.unet_pictures

Trains the U-Net of examples/ on two ranks in the examples' image, a core each, and writes to
docs/plots the curves, the predictions on the slices that are held out, and what TensorBoard shows
in a browser; then trains a few steps with Horovod's timeline, and draws one of them. What was run
is written to the pages. `timeline` as an argument makes the pictures of the timeline only; other
arguments are added to those of unet.py.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from devtools.images.build import build
from devtools.trials.sandbox import TWO_RANKS, Sandbox, sandbox
from hvdchart.run.timeline import read_events, read_waits, waits_report
from tests.bench.browser import take_picture
from tests.bench.drawing import Curve, Span, curves, kind_of, spans, steps_of, timeline
from tests.bench.report import ROOT, machine, write_part

PLOTS = ROOT / "docs" / "plots"
TRAINING = (
    *("--filters", "8", "--batch-size", "8", "--learning-rate", "0.0005"),
    *("--steps", "380", "--check-every", "25", "--target-dice", "0"),
)
# Below it, the pictures are made, and the command fails.
LEAST_DICE = 0.85
TRACED = ("--filters", "8", "--batch-size", "4", "--steps", "12", "--target-dice", "0")
ONE_THREAD = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
# What TensorBoard must show.
TAGS = ("loss", "dice", "sensitivity", "learning rate", "slice, truth, prediction")
CHECK = re.compile(r"^step (\d+) of \d+: (.*)$")


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


def read_checks(lines: Sequence[str]) -> dict[str, Curve]:
    """The curve of each figure in the lines that rank 0 prints at each check."""
    checks: dict[str, list[tuple[float, float]]] = {}
    for match in filter(None, map(CHECK.match, lines)):
        for pair in match[2].split(", "):
            name, _, figure = pair.rpartition(" ")
            checks.setdefault(name, []).append((float(match[1]), float(figure)))
    return dict(checks)


def about() -> str:
    """The machine and the day."""
    return f"{machine()}, {time.strftime('%Y-%m-%d')}"


def train(inside: Sandbox, more: Sequence[str]) -> None:
    """Train until the target, and draw what came of it."""
    options = (*TRAINING, *more)
    began = time.monotonic()
    lines = run(inside, options)
    minutes = (time.monotonic() - began) / 60
    result = json.loads(lines[-1].removeprefix("RESULT "))
    picture = curves("U-Net, white matter, two ranks", "steps", read_checks(lines))
    (PLOTS / "unet-curves.svg").write_text(picture)
    shutil.copyfile(inside.folder / "run" / "predictions.png", PLOTS / "unet-predictions.png")
    take_picture(inside, "/output/run/logs", TAGS, PLOTS / "unet-tensorboard.png")
    figures = ", ".join(f"{name} {result[name]:.3f}" for name in ("dice", "sensitivity"))
    text = (
        f"    mpirun -np 2 python unet.py {' '.join(options)}\n\n"
        f"reached on the held-out slices: {figures}, specificity {result['specificity']:.3f}, "
        f"after {result['steps']} steps in {minutes:.1f} minutes. Both ranks together trained "
        f"{result['images_per_second']:.1f} slices/s, with one thread each ({about()}).\n\n"
        "![Loss and measures of the held-out slices](plots/unet-curves.svg)\n\n"
        "![Held-out slices, below each the truth and the prediction](plots/unet-predictions.png)"
        "\n\nTensorBoard on the logs of this run, as Chromium shows it:\n\n"
        "![TensorBoard: curves of the measures, and the pictures](plots/unet-tensorboard.png)"
    )
    write_part("unet.md", "unet-pictures", text)
    if result["dice"] < LEAST_DICE:
        raise SystemExit(f"the Dice coefficient is {result['dice']:.3f}, below {LEAST_DICE}")


def typical(steps: Sequence[list[Span]]) -> list[Span]:
    """The step of median length, without the first ones, in which TensorFlow still compiles."""
    later = steps[3:-1]
    return sorted(later, key=lambda step: max(s.end for s in step) - step[0].begin)[len(later) // 2]


def count_transfers(step: Sequence[Span]) -> int:
    """The allreduces of a step: tensors that were fused are in the same one at the same time."""
    count, end = 0, 0.0
    for span in step:
        if kind_of(span.activity) == "ALLREDUCE":
            count, end = count + (span.begin >= end), max(end, span.end)
    return count


def trace(inside: Sandbox) -> None:
    """Record a timeline with tensor fusion and one without, and draw a step of each."""
    parts = []
    for name, title, more in (
        ("fused", "with tensor fusion", {}),
        ("single", "without (HOROVOD_FUSION_THRESHOLD=0)", {"HOROVOD_FUSION_THRESHOLD": "0"}),
    ):
        shutil.rmtree(inside.folder / "run", ignore_errors=True)
        run(inside, TRACED, HOROVOD_TIMELINE=f"/output/{name}.json", **more)
        text = (inside.folder / f"{name}.json").read_text()
        step = typical(steps_of(spans(read_events(text)), "HorovodAllreduce"))
        picture = PLOTS / f"unet-timeline-{name}.svg"
        picture.write_text(timeline(f"One step of the U-Net on two ranks, {title}", step))
        transfers = count_transfers(step)
        tensors = len({span.tensor for span in step})
        parts.append(
            f"![One step, {title}](plots/{picture.name})\n\n"
            f"{title[0].upper()}{title[1:]}: {tensors} gradients in {transfers} allreduces. "
            "What `hvdchart timeline` prints of the whole training:\n\n"
            f"```text\n{waits_report(read_waits(text))}```"
        )
    write_part("timeline.md", "unet-timeline", "\n\n".join([f"{about()}.", *parts]))


def main() -> None:
    """Train and draw."""
    arguments = sys.argv[1:]
    with (
        tempfile.TemporaryDirectory(prefix="hvd-unet-") as folder,
        sandbox(build("examples"), Path(folder) / "output") as inside,
    ):
        if arguments[:1] != ["timeline"]:
            train(inside, arguments)
        trace(inside)


if __name__ == "__main__":
    main()
