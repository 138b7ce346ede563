"""`make try-tensorflow VERSION=2.22.0 [KERAS=3.16.0] [PYTHON=3.13]`: does Horovod work on a
TensorFlow that nobody has tried?

Locks, compiles and builds the image cpu with it, runs the checks of tests/images/ranks on two ranks
over MPI and those that most scripts need over Gloo, and says what came out. What is among the
combinations of images/versions.yaml already is checked as it is. Exit status: 0 all of them pass;
1 some do not, or it does not build.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from devtools.common.errors import ImageError
from devtools.images.build import BuiltImage, build
from devtools.images.catalogue import load_catalogue
from devtools.trials.checks import COMMON, install, results, run
from devtools.trials.sandbox import TWO_RANKS, TWO_RANKS_OVER_GLOO, sandbox

IMAGE = "cpu"
# What comes with a Python: the release that has it, and that release's Open MPI.
_OF_A_RELEASE = ("suite", "openmpi")
Found = dict[str, dict[str, str]]


def parameters(version: str, keras: str, python: str) -> tuple[dict[str, str], bool]:
    """What to set of the image, and whether it is in no row of what is known to work.

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


def report(found: Found) -> str:
    """A line for each check, with the last line of what was wrong."""
    lines = []
    for check, by_rank in found.items():
        lines.append(f"{'fails ' if by_rank else 'passes'}  {check}")
        lines += [f"        {text.strip().splitlines()[-1]}" for text in list(by_rank.values())[:1]]
    return "\n".join(lines)


def checked(built: BuiltImage) -> bool:
    """Prints what came out of the checks; whether all of it is well."""
    well = True
    with (
        tempfile.TemporaryDirectory(prefix="hvd-try-") as folder,
        sandbox(built, Path(folder) / "output") as inside,
    ):
        install(inside)
        for over, launcher, checks in (
            ("MPI", TWO_RANKS, ()),
            ("Gloo", TWO_RANKS_OVER_GLOO, COMMON),
        ):
            try:
                found = results(run(inside, launcher, *checks))
            except (AssertionError, subprocess.TimeoutExpired) as error:
                print(
                    f"{built.reference}: the checks did not run to their end over {over}: {error}"
                )
                return False
            failed = sum(bool(by_rank) for by_rank in found.values())
            well &= not failed
            count = f"{len(found) - failed} of {len(found)} checks pass"
            print(report(found), f"{built.reference}: {count} on two ranks over {over}", sep="\n")
    return well


def main(version: str, keras: str = "", python: str = "") -> int:
    try:
        overrides, untested = parameters(version, keras, python)
        built = build(IMAGE, overrides=overrides, untested=untested)
    except ImageError as error:
        print(f"TensorFlow {version}: {error}", file=sys.stderr)
        return 1
    if not checked(built):
        return 1
    if untested:
        print(
            f"add it to `combinations` of {IMAGE} in images/versions.yaml to have it built by --set"
        )
    return 0


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 4 or not sys.argv[1]:
        sys.exit("make try-tensorflow VERSION=2.22.0 [KERAS=3.16.0] [PYTHON=3.13]")
    sys.exit(main(*sys.argv[1:]))
