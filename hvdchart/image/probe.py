"""Inspect the image that it runs in, and print a report as one line: IMAGE_PROBE_MARK and JSON.

Standard library only, for Python 3.7 and newer: `image check` sends this file's text to the image's
own interpreter. hvdchart.image.check_image compares the report with the requirements.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys

IMAGE_PROBE_MARK = "HVD-IMAGE-PROBE "
PROBED_PROGRAMS = ("python3", "mpirun")
HOROVOD_FRAMEWORKS = ("tensorflow", "torch")
# The modules that programs without Horovod import.
DIRECT_FRAMEWORKS = ("torch", "jax")
FEATURES = ("mpi", "gloo", "nccl")
INSPECT_FRAMEWORK = """
import importlib, json, sys
name, features = sys.argv[1], sys.argv[2:]
module = importlib.import_module("horovod." + name)
built = [feature for feature in features if getattr(module, feature + "_built", bool)()]
version = getattr(importlib.import_module(name), "__version__", "unknown")
print("\\n" + json.dumps({"version": version, "built": built}))
"""


def run(*command: str) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end; return its output as text."""
    return subprocess.run(command, capture_output=True, text=True, check=False)


def inspect_framework(name: str) -> "dict[str, object]":
    """Return a framework's version and its Horovod module's transports, or the import error.

    The import runs in a separate process, because an incompatible binary may crash the interpreter.
    """
    done = run(sys.executable, "-c", INSPECT_FRAMEWORK, name, *FEATURES)
    if done.returncode == 0:
        report: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
        return report
    lines = done.stderr.strip().splitlines()
    return {"error": lines[-1] if lines else f"exit code {done.returncode}"}


def inspect_ssl() -> "dict[str, str]":
    """Return what the module ssl was compiled with, and why the chart's agent cannot use it."""
    try:
        import ssl
    except ImportError as error:
        return {"version": "", "error": str(error)}
    lacks = "" if ssl.HAS_TLSv1_3 else ssl.OPENSSL_VERSION + " has no TLS 1.3"
    return {"version": ssl.OPENSSL_VERSION, "error": lacks}


def mpi_version() -> str:
    """Return the first line of `mpirun --version`, or its exit code if it prints nothing."""
    done = run("mpirun", "--version")
    lines: list[str] = (done.stdout + done.stderr).strip().splitlines()
    return lines[0] if lines else f"exit code {done.returncode}"


def main() -> None:
    """Print the report."""
    report = {
        "python": "{}.{}.{}".format(*sys.version_info),
        "user": os.getuid(),
        "ssl": inspect_ssl(),
        "programs": {name: shutil.which(name) for name in PROBED_PROGRAMS},
        "mpi": mpi_version() if shutil.which("mpirun") else None,
        "modules": [
            name for name in DIRECT_FRAMEWORKS if importlib.util.find_spec(name) is not None
        ],
        "horovod": importlib.util.find_spec("horovod") is not None,
        "frameworks": {
            name: inspect_framework(name)
            for name in HOROVOD_FRAMEWORKS
            if importlib.util.find_spec(name) is not None
            and importlib.util.find_spec("horovod") is not None
        },
    }
    print(IMAGE_PROBE_MARK + json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
