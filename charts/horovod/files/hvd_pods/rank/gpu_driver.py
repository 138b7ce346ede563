"""Whether NVIDIA's driver is too old for the CUDA of the image, which ranks would meet later.

A driver runs programs of its major version of CUDA, newer minor versions included, and of older
ones (NVIDIA, "CUDA Compatibility"). The library that the script will load tells which: it may be a
newer one of the image (forward compatibility).
"""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

from hvd_pods.common import files

# The CUDA runtime that PyTorch, TensorFlow and JAX bring. NVIDIA's own images have a variable.
PACKAGES = "lib/python3*/*-packages/nvidia_cuda_runtime*.dist-info"
VARIABLE = "CUDA_VERSION"
PREFIXES = (os.path.dirname(os.path.dirname(sys.executable)), "/usr/local")
VERSION = "/proc/driver/nvidia/version"


def read_cuda() -> int:
    """The newest CUDA that the driver takes, 12040 for 12.4; 0 where there is no driver."""
    try:
        import ctypes

        number = ctypes.c_int()
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number))
    except (ImportError, OSError, AttributeError):
        return 0
    return number.value


def find_problem(
    environment: Mapping[str, str],
    cuda: int,
    prefixes: Sequence[str] = PREFIXES,
    version: str = VERSION,
) -> str | None:
    """What is wrong with a driver that takes this CUDA (see `read_cuda`); None for nothing.

    `prefixes` are the folders above those of Python's packages, and `version` is the file in which
    the kernel tells the driver's own version.
    """
    paths = [path for prefix in prefixes for path in glob.glob(f"{prefix}/{PACKAGES}")]
    found = [path.rsplit("-", 2)[1][: -len(".dist")] for path in paths]
    image = min(found, default=environment.get(VARIABLE, ""))
    major = image.split(".")[0]
    if not cuda or not major.isdecimal() or int(major) <= cuda // 1000:
        return None
    driver = b""
    with suppress(OSError):
        driver = b"".join(re.findall(rb"NVRM.*? (\d+\.[\d.]+ )", files.read(version)))
    return (
        f"the node's driver {driver.decode()}takes CUDA {cuda // 1000}.{cuda % 1000 // 10} and "
        f"older, and the image has CUDA {image}: update the driver, select other nodes with "
        "`worker.nodeSelector`, or use an image with an older CUDA"
    )
