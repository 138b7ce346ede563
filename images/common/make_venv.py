"""Creates the image's virtual environment.

`make_venv.py FRAMEWORK PREFIX`, run by Debian's Python. The environment sees Debian's Python
packages only when the framework is one of them, as PyTorch for CPUs is.
"""

from __future__ import annotations

import importlib.util
import sys
import venv


def main(framework: str, prefix: str) -> None:
    from_debian = importlib.util.find_spec(framework) is not None
    builder = venv.EnvBuilder(system_site_packages=from_debian, with_pip=True, symlinks=True)
    builder.create(prefix)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
