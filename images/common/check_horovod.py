"""Fails an image's build when its Horovod lacks something it should have, or has something it
should not.

It asks Horovod's own modules, since `horovodrun --check-build` claims PyTorch where there is none,
and compares the versions that came with those that images/versions.yaml says.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import platform
import re
import subprocess
from pathlib import Path

FRAMEWORKS = ("tensorflow", "torch", "mxnet")


def missing_features(framework: str, wanted: list[str]) -> list[str]:
    try:
        module = importlib.import_module(f"horovod.{framework}")
    except ImportError as error:
        return [f"horovod.{framework} cannot be imported: {error}"]
    # Without its framework, a module of Horovod may load and have nothing in it.
    return [
        f"horovod.{framework} was built without {feature}: {feature}_built() is not there, or false"
        for feature in wanted
        if not getattr(module, f"{feature}_built", bool)()
    ]


def strays(framework: str) -> list[str]:
    """Other frameworks that are installed, or that Horovod has a compiled library for."""
    unwanted = [name for name in FRAMEWORKS if name != framework]
    found = [
        f"{name} is installed" for name in unwanted if importlib.util.find_spec(name) is not None
    ]
    horovod = Path(str(importlib.import_module("horovod").__file__)).parent
    for name in unwanted:
        found += [
            f"Horovod has a library for {name}: {path}" for path in (horovod / name).glob("*.so")
        ]
    return found


def installed_version(name: str) -> str:
    if name == "python":
        return platform.python_version()
    if name == "openmpi":
        said = subprocess.run(
            ["mpirun", "--version"], check=True, capture_output=True, text=True
        ).stdout
        match = re.search(r"\(Open MPI\) (\S+)", said)
        return match[1] if match else said
    # A package's name may be another than its module's: tensorflow-cpu, intel-tensorflow.
    (distribution, *_) = importlib.metadata.packages_distributions().get(name, [name])
    # What follows a plus is whose build it is: 2.6.0+cpu.
    return importlib.metadata.version(distribution).partition("+")[0]


def wrong_versions(expected: list[str]) -> list[str]:
    """`expected` holds NAME=VERSION; a version stands for all that begin with it, as 3.11 for
    3.11.2.
    """
    found = []
    for item in expected:
        name, _, version = item.partition("=")
        actual = installed_version(name)
        if not version or f"{actual}.".find(f"{version}.") != 0:
            found.append(
                f"{name} is {actual}, and images/versions.yaml says {version or 'nothing'}"
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework")
    parser.add_argument(
        "--with", dest="wanted", default="", metavar="FEATURES", help="with commas between"
    )
    parser.add_argument("--versions", default="", help="NAME=VERSION, with spaces between")
    options = parser.parse_args()
    wanted = [word for word in options.wanted.split(",") if word]
    versions = options.versions.split()
    found = missing_features(options.framework, wanted)
    found += strays(options.framework)
    found += wrong_versions(versions)
    if found:
        raise SystemExit(
            "This image is not what it should be:\n" + "\n".join(f"- {line}" for line in found)
        )
    print(f"Horovod on {options.framework} has {options.wanted} and nothing else;", *versions)


if __name__ == "__main__":
    main()
