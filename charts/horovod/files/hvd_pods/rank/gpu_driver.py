"""Checks whether NVIDIA's driver is too old for the CUDA of the image, before ranks fail.

A driver runs programs of its major version of CUDA, including newer minor versions, and of older
major versions (NVIDIA, "CUDA Compatibility"). The library that the script will load reports the
driver's version: the image may have a newer library (forward compatibility).
"""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

from hvd_pods.shared import files

# The CUDA runtime that PyTorch, TensorFlow and JAX bring. NVIDIA's own images set a variable.
CUDA_PACKAGES = "lib/python3*/*-packages/nvidia_cuda_runtime*.dist-info"
CUDA_VERSION_VARIABLE = "CUDA_VERSION"
PREFIXES = (os.path.dirname(os.path.dirname(sys.executable)), "/usr/local")
DRIVER_VERSION_FILE = "/proc/driver/nvidia/version"


def read_cuda() -> int:
    """Return the newest CUDA that the driver supports, 12040 for 12.4; 0 without a driver."""
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
    version: str = DRIVER_VERSION_FILE,
) -> str | None:
    """Return the problem of a driver that supports this CUDA (see `read_cuda`), or None.

    `prefixes` are the folders above those of Python's packages. `version` is the file in which the
    kernel reports the driver's own version.
    """
    paths = [path for prefix in prefixes for path in glob.glob(f"{prefix}/{CUDA_PACKAGES}")]
    versions = [path.rsplit("-", 2)[1][: -len(".dist")] for path in paths]
    image = min(versions, default=environment.get(CUDA_VERSION_VARIABLE, ""))
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
