"""Lists the updates of an image's system packages, from the image's own package sources.

Debian and Ubuntu fix vulnerabilities of a release by updating its packages, first in its security
suite. An image has the packages of the day its base was made. Vulnerabilities without an update are
not in these sources.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from devtools.images.engine import Build, Engine
from devtools.images.machine import write_secrets

_DOCKERFILE = Path(__file__).with_name("updates.Dockerfile")
# A line of the output: Inst NAME [INSTALLED] (CANDIDATE SUITE, SUITE [ARCHITECTURE]) ...
_INSTALL = re.compile(r"\bInst (\S+) \[(\S+)\] \((\S+) ([^\[)]*)")


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
