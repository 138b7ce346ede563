"""Fails an image's build unless Horovod has the expected features, no other framework is there, and
the installed versions are those of images/versions.yaml.

It asks Horovod's modules, because `horovodrun --check-build` reports PyTorch where there is none.
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
    # Without its framework, a module of Horovod may load and be empty.
    return [
        f"horovod.{framework} was built without {feature}: {feature}_built() is missing or false"
        for feature in wanted
        if not getattr(module, f"{feature}_built", bool)()
    ]


def unexpected_frameworks(framework: str) -> list[str]:
    """Other frameworks that are installed, or that Horovod has a compiled library for."""
    unwanted = [name for name in FRAMEWORKS if name != framework]
    problems = [
        f"{name} is installed" for name in unwanted if importlib.util.find_spec(name) is not None
    ]
    horovod = Path(str(importlib.import_module("horovod").__file__)).parent
    for name in unwanted:
        problems += [
            f"Horovod has a library for {name}: {path}" for path in (horovod / name).glob("*.so")
        ]
    return problems


def installed_version(name: str) -> str:
    if name == "python":
        return platform.python_version()
    if name == "openmpi":
        output = subprocess.run(
            ["mpirun", "--version"], check=True, capture_output=True, text=True
        ).stdout
        match = re.search(r"\(Open MPI\) (\S+)", output)
        return match[1] if match else output
    # A package may have another name than its module: tensorflow-cpu.
    (distribution, *_) = importlib.metadata.packages_distributions().get(name, [name])
    # A local version label follows the plus sign: 2.6.0+cpu.
    return importlib.metadata.version(distribution).partition("+")[0]


def wrong_versions(expected: list[str]) -> list[str]:
    """`expected` has the form NAME=VERSION, and 3.11 matches 3.11.2."""
    problems = []
    for item in expected:
        name, _, version = item.partition("=")
        actual = installed_version(name)
        if not version or f"{actual}.".find(f"{version}.") != 0:
            problems.append(
                f"{name} is {actual}, images/versions.yaml has {version or 'no version'}"
            )
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework")
    parser.add_argument(
        "--with", dest="wanted", default="", metavar="FEATURES", help="separated by commas"
    )
    parser.add_argument("--versions", default="", help="NAME=VERSION, separated by spaces")
    options = parser.parse_args()
    wanted = [word for word in options.wanted.split(",") if word]
    versions = options.versions.split()
    problems = missing_features(options.framework, wanted)
    problems += unexpected_frameworks(options.framework)
    problems += wrong_versions(versions)
    if problems:
        raise SystemExit(
            "The image does not have what images/versions.yaml says:\n"
            + "\n".join(f"- {line}" for line in problems)
        )
    print(f"Horovod on {options.framework} has {options.wanted};", *versions)


if __name__ == "__main__":
    main()
