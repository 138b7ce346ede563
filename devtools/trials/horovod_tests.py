"""Runs Horovod's own tests, from a checkout of its repository, in an image.

    git clone --branch v0.28.1 https://github.com/horovod/horovod
    python -m devtools.trials.horovod_tests horovod cpu test_tensorflow2_keras.py --ranks 2 \
        --gloo --tf-keras

The tests are not part of this project. Prints pytest's report of each rank. Exit status: 0 when all
tests pass on all ranks, 1 otherwise.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from devtools.common.errors import ImageError
from devtools.images.build import build
from devtools.trials.checks import STALLS, WITH_TF_KERAS, install_tf_keras
from devtools.trials.sandbox import TWO_RANKS, TWO_RANKS_OVER_GLOO, Sandbox, sandbox

LAUNCHERS: dict[tuple[int, bool], tuple[str, ...]] = {
    (1, False): (),
    # The sandbox has no other network.
    (1, True): (
        *("horovodrun", "--gloo", "-np", "1", "-H", "localhost:1"),
        *("--network-interface", "lo"),
    ),
    (2, False): TWO_RANKS,
    (2, True): TWO_RANKS_OVER_GLOO,
}
# What the tests import besides Horovod, in the versions of the time of its release.
REQUIREMENTS = (f"pytest=={version('pytest')}", "mock==5.0.2", "parameterized==0.9.0")
# One report for each rank; each launcher has its own variable for the rank.
PYTEST = (
    'cd /output/test/parallel && exec python3 -m pytest -q -rf --tb=line -p no:cacheprovider "$@"'
    " >/output/report.${OMPI_COMM_WORLD_RANK:-${HOROVOD_RANK:-0}} 2>&1"
)


def install_tests(inside: Sandbox, checkout: Path, tf_keras: bool) -> dict[str, str]:
    """Copies the tests and installs their requirements into the folder that the image mounts.
    Returns their environment variables.
    """
    shutil.copytree(checkout / "test", inside.folder / "test")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "--target", inside.folder / "packages", *REQUIREMENTS], check=True)
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": "/output/packages", **STALLS}
    if not tf_keras:
        return environment
    install_tf_keras(inside)
    return {**environment, "PYTHONPATH": "/output/packages:/output", **WITH_TF_KERAS}


def main(
    checkout: Annotated[Path, typer.Argument(exists=True, file_okay=False)],
    image: str,
    files: Annotated[list[str], typer.Argument()],
    ranks: Annotated[int, typer.Option(min=1, max=2)] = 1,
    gloo: Annotated[bool, typer.Option("--gloo", help="Over Gloo, not over MPI.")] = False,
    tf_keras: Annotated[bool, typer.Option("--tf-keras", help="With Keras 2 as tf_keras.")] = False,
    minutes: Annotated[float, typer.Option(help="The longest that a file may take.")] = 30,
) -> None:
    """Run files of test/parallel in IMAGE and print the reports."""
    for file in files:
        if not (checkout / "test" / "parallel" / file).is_file():
            sys.exit(f"{checkout}: no test/parallel/{file}; expected Horovod's repository")
    try:
        built = build(image)
    except ImageError as error:
        sys.exit(str(error))
    failed = False
    with (
        tempfile.TemporaryDirectory(prefix="hvd-upstream-") as folder,
        sandbox(built, Path(folder) / "output") as inside,
    ):
        environment = install_tests(inside, checkout, tf_keras)
        for file in files:
            words = (*LAUNCHERS[ranks, gloo], "sh", "-c", PYTEST, "pytest", file)
            process = inside.start(*words, **environment)
            try:
                failed |= process.wait(minutes * 60) != 0
            except subprocess.TimeoutExpired:
                process.terminate()
                process.wait()
                print(f"{file} did not end within {minutes:.0f} minutes")
                failed = True
            for report in sorted(inside.folder.glob("report.*")):
                print(f"{built.reference}, {file}, rank {report.suffix[1:]}:")
                print(report.read_text(errors="replace"), flush=True)
                report.unlink()
    raise typer.Exit(int(failed))


if __name__ == "__main__":
    typer.run(main)
