"""Looks up the updates of an image's system packages and known vulnerabilities of its Python
packages.

Debian and Ubuntu fix vulnerabilities of a release by updating its packages, first in its security
suite. An image has the packages of the day its base was made. Vulnerabilities without an update are
not in its package sources.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from devtools.common.errors import ImageError
from devtools.images.engines import Build, Engine
from devtools.images.machine import write_secrets

_DOCKERFILE = Path(__file__).with_name("updates.Dockerfile")
# A line of the output: Inst NAME [INSTALLED] (CANDIDATE SUITE, SUITE [ARCHITECTURE]) ...
_INSTALL = re.compile(r"\bInst (\S+) \[(\S+)\] \((\S+) ([^\[)]*)")


@dataclass(frozen=True)
class Vulnerability:
    package: str
    version: str
    id: str
    summary: str
    fixed_in: tuple[str, ...]


def ask_pypi(packages: Mapping[str, str]) -> tuple[int, str]:
    """pip-audit's exit status (1 when it found some) and table, from PyPI's own advisories.

    Raises ImageError when it could not ask.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.writelines(f"{name}=={version}\n" for name, version in packages.items())
        file.flush()
        command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--no-deps"]
        # Without it, pip-audit reports no vulnerabilities when it cannot reach PyPI's advisories.
        command += ["--strict"]
        command += ["--progress-spinner=off", "--requirement", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    # It exits with 1 both for vulnerabilities and for errors.
    if done.returncode != 0 and "Found " not in done.stderr:
        last = done.stderr.strip().splitlines()[-1:]
        raise ImageError(
            f"PyPI's advisories cannot be reached: {''.join(last)}",
            "use a machine that reaches pypi.org, or --advisories with a checkout of "
            "https://github.com/pypa/advisory-database",
        )
    return done.returncode, done.stdout


def search_checkout(folder: Path, packages: Mapping[str, str]) -> list[Vulnerability]:
    """The vulnerabilities of these versions in a checkout of PyPA's advisory database.

    Raises ImageError for a folder that is not such a checkout.
    """
    advisories = folder / "vulns"
    if not advisories.is_dir():
        raise ImageError(
            f"{folder} has no folder vulns",
            "name a checkout of https://github.com/pypa/advisory-database",
        )
    known = []
    for listed, version in sorted(packages.items()):
        name = re.sub(r"[-_.]+", "-", listed).lower()  # PyPI's normalized name
        for file in sorted((advisories / name).glob("*.yaml")):
            advisory: dict[str, Any] = YAML(typ="safe").load(file)
            known += _matches(advisory, name, version)
    return known


def _matches(advisory: Mapping[str, Any], name: str, version: str) -> list[Vulnerability]:
    if "withdrawn" in advisory:
        return []
    for affected in advisory.get("affected", []):
        # The database lists every affected version, and also the ranges.
        if affected["package"]["name"] == name and version in affected.get("versions", []):
            fixed = tuple(
                event["fixed"]
                for spread in affected.get("ranges", [])
                if spread["type"] == "ECOSYSTEM"
                for event in spread["events"]
                if "fixed" in event
            )
            details = str(advisory.get("summary") or advisory.get("details", ""))
            return [Vulnerability(name, version, advisory["id"], details.partition("\n")[0], fixed)]
    return []


@dataclass(frozen=True)
class Update:
    package: str
    installed: str
    candidate: str
    suites: str

    @property
    def security(self) -> bool:
        return "security" in self.suites.lower()


def updates(reference: str, engine: Engine) -> list[Update]:
    """The available updates of a local image. Nothing is installed.

    Raises ImageError when the package sources cannot be reached.
    """
    name = "hvd-updates:latest"
    engine.log.write_text("")
    with tempfile.TemporaryDirectory(prefix="hvd-updates-") as folder:
        context, hidden = Path(folder) / "context", Path(folder) / "secrets"
        context.mkdir()
        hidden.mkdir(mode=0o700)
        arguments = {"BASE_IMAGE": reference}
        # A cached layer would be the answer of an earlier day.
        secrets = write_secrets(hidden)
        engine.build(Build(context, _DOCKERFILE, [name], arguments, secrets, "", use_cache=False))
    engine.remove(name)
    return parse_updates(engine.log.read_text())


def parse_updates(log: str) -> list[Update]:
    """The updates in the output of `apt-get --simulate dist-upgrade`."""
    return [Update(*fields) for fields in _INSTALL.findall(log)]
