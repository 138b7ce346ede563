"""Runs Horovod's own tests, from a checkout of its repository, in an image.

    git clone --branch v0.28.1 https://github.com/horovod/horovod
    python -m devtools.trials.horovod_tests horovod cpu test_tensorflow2_keras.py --ranks 2 \
        --gloo --tf-keras

The tests are not part of this project. Exit status: 0 when all pass, 1 when one fails or a file
does not end.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated
from xml.etree import ElementTree

import typer

from devtools.common.errors import ImageError
from devtools.images.build import build
from devtools.images.catalogue import Image, find, load_catalogue
from devtools.trials.checks import STALLS, TF_KERAS, WITH_TF_KERAS, install_tf_keras
from devtools.trials.sandbox import TWO_RANKS, TWO_RANKS_OVER_GLOO, Sandbox, sandbox

LAUNCHERS = {
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
    'exec python3 -m pytest -q -p no:cacheprovider --continue-on-collection-errors "$@"'
    " --junit-xml=/output/report.${OMPI_COMM_WORLD_RANK:-${HOROVOD_RANK:-0}}.xml"
)
app = typer.Typer(add_completion=False)
# By test: "passed", "failed" or "skipped", and the error.
Outcomes = dict[str, tuple[str, str]]


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


def refuse_tf_keras(image: Image) -> None:
    """Raises ImageError when the image's TensorFlow is not the one that tf_keras is for."""
    wanted = TF_KERAS.read_text().split()[0].removeprefix("tf-keras==")
    installed = image.versions.get("tensorflow", "none")
    if installed.rpartition(".")[0] != wanted.rpartition(".")[0]:
        raise ImageError(
            f"--tf-keras: the TensorFlow of {image.name} is {installed}, "
            f"tf_keras here is for {wanted}",
            "use an image with that TensorFlow",
        )


def run_file(
    inside: Sandbox,
    launcher: tuple[str, ...],
    file: str,
    minutes: float,
    environment: Mapping[str, str],
) -> None:
    """Runs a file of tests. The sandbox's folder then has the log and a report of each rank."""
    script = f"cd /output/test/parallel && exec >/output/log 2>&1; exec {' '.join(launcher)} "
    process = inside.start(
        *("sh", "-c", script + 'sh -c "$0" "$@"', PYTEST, "pytest", file),
        **environment,
    )
    try:
        process.wait(minutes * 60)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()


def read_outcomes(report: Path) -> Outcomes:
    """The outcomes in a rank's report.

    A test that runs both as a graph and eagerly is there twice: it fails when either one fails.
    """
    results: Outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - pytest's, of just now
        name = f"{(case.get('classname') or '').rpartition('.')[2]}.{case.get('name')}"
        bad = next((child for child in case if child.tag in ("failure", "error")), None)
        outcome = "passed" if case.find("skipped") is None else "skipped"
        if bad is not None:
            outcome = "failed"
        why = "" if bad is None else (bad.get("message") or "").strip().partition("\n")[0]
        results[name] = worse_outcome(results.get(name, (outcome, why)), (outcome, why))
    return results


def worse_outcome(one: tuple[str, str], other: tuple[str, str]) -> tuple[str, str]:
    """The worse one of two outcomes of a test."""
    order = ("skipped", "passed", "failed")
    return max(one, other, key=lambda outcome: order.index(outcome[0]))


def merge_ranks(reports: list[Outcomes]) -> Outcomes:
    """Merges the ranks' outcomes: a test fails when it fails on any rank."""
    merged = dict(reports[0])
    for report in reports[1:]:
        merged |= {name: out for name, out in report.items() if out[0] == "failed"}
    return merged


def report_file(title: str, inside: Sandbox, ranks: int) -> bool:
    """Prints the results of a file and removes its reports. Returns whether all tests passed."""
    reports = sorted(inside.folder.glob("report.*.xml"))
    if len(reports) < ranks:
        print(f"{title}: did not end\n{(inside.folder / 'log').read_text()[-4000:]}", flush=True)
        results = None
    else:
        results = merge_ranks([read_outcomes(report) for report in reports])
        count = Counter(outcome for outcome, _ in results.values())
        print(f"{title}: {', '.join(f'{n} {word}' for word, n in sorted(count.items()))}")
        failed = [
            f"  {name}: {why[:200]}" for name, (out, why) in results.items() if out == "failed"
        ]
        print(*failed, sep="\n", end="\n" if failed else "", flush=True)
    for report in reports:
        report.unlink()
    return results is not None and all(outcome != "failed" for outcome, _ in results.values())


@app.command()
def main(
    checkout: Annotated[Path, typer.Argument(exists=True, file_okay=False)],
    image: str,
    files: Annotated[list[str], typer.Argument()],
    ranks: Annotated[int, typer.Option(min=1, max=2)] = 1,
    gloo: Annotated[bool, typer.Option("--gloo", help="Over Gloo, not over MPI.")] = False,
    tf_keras: Annotated[bool, typer.Option("--tf-keras", help="With Keras 2 as tf_keras.")] = False,
    minutes: Annotated[float, typer.Option(help="The longest that a file may take.")] = 30,
) -> None:
    """Run files of test/parallel in IMAGE and print the results."""
    for file in files:
        if not (checkout / "test" / "parallel" / file).is_file():
            sys.exit(f"{checkout}: no test/parallel/{file}; expected Horovod's repository")
    try:
        if tf_keras:
            refuse_tf_keras(find(load_catalogue(), image))
        built = build(image)
    except ImageError as error:
        sys.exit(str(error))
    clean = True
    with (
        tempfile.TemporaryDirectory(prefix="hvd-upstream-") as folder,
        sandbox(built, Path(folder) / "output") as inside,
    ):
        environment = install_tests(inside, checkout, tf_keras)
        how = f"{ranks} rank(s), {'Gloo' if gloo else 'MPI'}{', tf_keras' if tf_keras else ''}"
        for file in files:
            run_file(inside, LAUNCHERS[ranks, gloo], file, minutes, environment)
            clean &= report_file(f"{built.reference} {file}, {how}", inside, ranks)
    raise typer.Exit(0 if clean else 1)


if __name__ == "__main__":
    app()
