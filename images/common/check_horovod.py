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


def strays(unwanted: list[str]) -> list[str]:
    """Frameworks that are installed, or that Horovod has a compiled library for, and should not
    be.
    """
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
    return importlib.metadata.version(name)


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


def words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", required=True)
    parser.add_argument("--with", dest="wanted", type=words, default=[])
    parser.add_argument("--without", dest="unwanted", type=words, default=[])
    parser.add_argument(
        "--version", dest="versions", action="append", default=[], metavar="NAME=VERSION"
    )
    options = parser.parse_args()
    found = missing_features(options.framework, options.wanted)
    found += strays(options.unwanted)
    found += wrong_versions(options.versions)
    if found:
        raise SystemExit(
            "This image is not what it should be:\n" + "\n".join(f"- {line}" for line in found)
        )
    print(
        f"Horovod on {options.framework} has {options.wanted}, not {options.unwanted};",
        *options.versions,
    )


if __name__ == "__main__":
    main()
