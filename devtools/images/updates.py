"""System packages of an image that have an update, asked of the image's own package sources.

Debian and Ubuntu mend a release's vulnerabilities by updates of its packages, in its security suite
first; an image has those of the day it was made. What has no update yet, these sources do not know.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from devtools.images.catalogue import ROOT
from devtools.images.engine import Build, Engine
from devtools.images.machine import write_secrets

_DOCKERFILE = ROOT / "images" / "updates" / "Dockerfile"
# A line of apt's plan: Inst NAME [INSTALLED] (CANDIDATE SUITE, SUITE [ARCHITECTURE]) ...
_PLANNED = re.compile(r"\bInst (\S+) \[(\S+)\] \((\S+) ([^\[)]*)")


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
    """The updates there are for an image that is here. Nothing is installed.

    Raises ImageError when the package sources cannot be asked.
    """
    name = "hvd-updates:asked"
    engine.log.write_text("")
    with tempfile.TemporaryDirectory(prefix="hvd-updates-") as folder:
        context, hidden = Path(folder) / "context", Path(folder) / "secrets"
        context.mkdir()
        hidden.mkdir(mode=0o700)
        arguments = {"BASE_IMAGE": reference}
        # Anew: the layer of an earlier answer would be taken for today's.
        engine.build(
            Build(context, _DOCKERFILE, [name], arguments, write_secrets(hidden), "", anew=True)
        )
    engine.remove(name)
    return planned(engine.log.read_text())


def planned(log: str) -> list[Update]:
    """The updates in the output of `apt-get --simulate dist-upgrade`."""
    return [Update(*found) for found in _PLANNED.findall(log)]
