"""Takes the user's code from the master, which runs this over SSH before it starts the ranks."""

from __future__ import annotations

import shutil
import sys
import tarfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.common import packages
from hvd_pods.common.code_archive import unpack
from hvd_pods.common.paths import CODE

# An argument of this program: the packages of an earlier run may be those of this one.
KEEP_PACKAGES = "keep-packages"


def main() -> int:
    """On a worker: unpack the code from standard input, and remove that of earlier runs."""
    directory = CODE / sys.argv[1]
    try:
        unpack(sys.stdin.buffer.read(), directory)
    except (OSError, tarfile.TarError, EOFError) as problem:
        print(f"cannot unpack the code in {directory}: {problem}", file=sys.stderr)
        return 1
    kept = {directory, *([packages.FOLDER] if KEEP_PACKAGES in sys.argv[2:] else [])}
    for other in CODE.iterdir():
        if other not in kept:
            shutil.rmtree(other, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
