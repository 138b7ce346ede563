"""`make try-tensorflow VERSION=2.22.0 [KERAS=3.16.0]`: does Horovod work on a TensorFlow that
nobody has tried?

Locks, compiles and builds the image cpu with it, runs the checks of tests/images/ranks on two
ranks, and says what came out. Exit status: 0 all of them pass; 1 some do not, or it does not build.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from images.build import build
from images.errors import ImageError
from tests.images.checks import install, results, run
from tests.images.sandbox import TWO_RANKS, sandbox

IMAGE = "cpu"


def report(found: dict[str, dict[str, str]]) -> str:
    """A line for each check, with the last line of what was wrong."""
    lines = []
    for check, by_rank in found.items():
        lines.append(f"{'fails ' if by_rank else 'passes'}  {check}")
        lines += [f"        {text.strip().splitlines()[-1]}" for text in list(by_rank.values())[:1]]
    return "\n".join(lines)


def main(version: str, keras: str = "") -> int:
    overrides = {"tensorflow": version, **({"keras": keras} if keras else {})}
    try:
        built = build(IMAGE, overrides=overrides, untested=True)
    except ImageError as error:
        print(f"TensorFlow {version}: {error}", file=sys.stderr)
        return 1
    with (
        tempfile.TemporaryDirectory(prefix="hvd-try-") as folder,
        sandbox(built, Path(folder) / "output") as inside,
    ):
        install(inside)
        try:
            found = results(run(inside, TWO_RANKS))
        except (AssertionError, subprocess.TimeoutExpired) as error:
            print(f"{built.reference}: the checks did not run to their end: {error}")
            return 1
    print(report(found))
    failed = sum(bool(by_rank) for by_rank in found.values())
    print(f"{built.reference}: {len(found) - failed} of {len(found)} checks pass on two ranks")
    if not failed:
        print(
            f"add it to `combinations` of {IMAGE} in images/versions.yaml to have it built by --set"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3 or not sys.argv[1]:
        sys.exit("make try-tensorflow VERSION=2.22.0 [KERAS=3.16.0]")
    sys.exit(main(*sys.argv[1:]))
