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

from devtools.common.errors import DevtoolsError
from devtools.images.engines import Build, Engine
from devtools.images.machine import write_secrets

_DOCKERFILE = Path(__file__).with_name("updates.Dockerfile")
# A line of the output: Inst NAME [INSTALLED] (CANDIDATE SUITE, SUITE [ARCHITECTURE]) ...
_INSTALL = re.compile(r"\bInst (\S+) \[(\S+)\] \((\S+) ([^\[)]*)")


def ask_pypi(packages: Mapping[str, str]) -> tuple[int, str]:
    """pip-audit's exit status (1 when it found some) and table, from PyPI's own advisories.

    Raises DevtoolsError when it could not ask.
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
        raise DevtoolsError(
            f"PyPI's advisories cannot be reached: {''.join(last)}",
            "use a machine that reaches pypi.org",
        )
    return done.returncode, done.stdout


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

    Raises DevtoolsError when the package sources cannot be reached.
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
