"""`make try-tensorflow VERSION=2.22.0 [KERAS=3.16.0] [PYTHON=3.13]`: does Horovod work with a new
TensorFlow?

Builds the image cpu with it, runs all checks of devtools/trials/ranks on two ranks over MPI and the
common ones over Gloo, and prints the results. Versions in a row of images/versions.yaml are
accepted, too. Exit status: 0 when all checks pass, 1 when one fails or the build fails.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from devtools.common.errors import ImageError
from devtools.images.build import BuiltImage, build
from devtools.images.catalogue import load_catalogue
from devtools.trials.checks import (
    COMMON,
    describe_failures,
    parse_results,
    run_checks,
)
from devtools.trials.sandbox import TWO_RANKS, TWO_RANKS_OVER_GLOO, sandbox

IMAGE = "cpu"
# A Python version implies a release and its Open MPI.
_OF_A_RELEASE = ("suite", "openmpi")


def parameters(version: str, keras: str, python: str) -> tuple[dict[str, str], bool]:
    """The overrides for the image, and whether no row of versions.yaml has them.

    Raises ImageError when no row has that Python.
    """
    asked = {"tensorflow": version, "keras": keras, "python": python}
    wanted = {key: value for key, value in asked.items() if value}
    try:
        load_catalogue(wanted, target=IMAGE)
    except ImageError:
        of_python = {"python": python} if python else {}
        release = load_catalogue(of_python, target=IMAGE)[IMAGE].parameters
        return {**wanted, **{key: release[key] for key in _OF_A_RELEASE}}, True
    return wanted, False


def check(built: BuiltImage) -> bool:
    """Runs the checks and prints their results. Returns whether all passed."""
    passed = True
    with (
        tempfile.TemporaryDirectory(prefix="hvd-try-") as folder,
        sandbox(built, Path(folder) / "output") as inside,
    ):
        for over, launcher, checks in (
            ("MPI", TWO_RANKS, ()),
            ("Gloo", TWO_RANKS_OVER_GLOO, COMMON),
        ):
            try:
                results = parse_results(run_checks(inside, launcher, *checks))
            except (AssertionError, subprocess.TimeoutExpired) as error:
                print(f"{built.reference}: the checks did not finish over {over}: {error}")
                return False
            for name, by_rank in results.items():
                print(f"{'fails ' if by_rank else 'passes'}  {name} on two ranks over {over}")
            print(describe_failures(results))
            passed &= not any(results.values())
    return passed


def main(version: str, keras: str = "", python: str = "") -> int:
    try:
        overrides, untested = parameters(version, keras, python)
        built = build(IMAGE, overrides=overrides, untested=untested)
    except ImageError as error:
        print(f"TensorFlow {version}: {error}", file=sys.stderr)
        return 1
    if not check(built):
        return 1
    if untested:
        print(f"to build it with --set, add it to `versions` of {IMAGE} in images/versions.yaml")
    return 0


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 4 or not sys.argv[1]:
        sys.exit("make try-tensorflow VERSION=2.22.0 [KERAS=3.16.0] [PYTHON=3.13]")
    sys.exit(main(*sys.argv[1:]))
