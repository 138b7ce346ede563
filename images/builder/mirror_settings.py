"""This machine's settings for reaching its mirrors, which a build gets as secrets: they are present
while a step runs, and in no layer.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

# Where a build step finds secrets: the default of all engines.
_IN_BUILD = Path("/run/secrets")
_CA = "ca.crt"
_SYSTEM_CA = Path("/etc/ssl/certs/ca-certificates.crt")
# Settings that a build may use: proxies, retries, checks of dates. Paths of the host are left out.
_APT = re.compile(r"Acquire::(http|https|ftp|Retries|Check-Date|Check-Valid-Until)\b")
_PIP = (
    "index-url",
    "extra-index-url",
    "trusted-host",
    "proxy",
    "timeout",
    "default-timeout",
    "retries",
)


def write_secrets(folder: Path) -> dict[str, Path]:
    """Write this machine's apt.conf, pip.conf and ca.crt into `folder`; return them by ID."""
    pip_settings = _command(sys.executable, "-m", "pip", "config", "list")
    apt_settings = _command("apt-config", "dump") if shutil.which("apt-config") else ""
    bundle = ca_bundle(pip_settings)
    has_ca = bundle is not None
    texts = {
        "apt.conf": apt_conf(apt_settings, has_ca),
        "pip.conf": pip_conf(pip_settings, has_ca),
        _CA: bundle.read_text() if bundle is not None else "",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
        # An index URL or a proxy may carry a password.
        (folder / name).chmod(0o600)
    return {name: folder / name for name in texts}


def index_options() -> list[str]:
    """Return options that make uv, which ignores pip's settings, use the same package indexes."""
    settings = _command(sys.executable, "-m", "pip", "config", "list")
    bundle = ca_bundle(settings)
    return [
        *(
            f"--{name}={url}"
            for name in ("index-url", "extra-index-url")
            for url in (_pip_value(settings, name) or "").split()
        ),
        *([] if bundle is None else ["--native-tls"]),
    ]


def ca_bundle(pip_settings: str) -> Path | None:
    """Return the certificates that pip trusts, by default the system's; None without any."""
    chosen = _pip_value(pip_settings, "cert") or os.environ.get("SSL_CERT_FILE")
    bundle = Path(chosen) if chosen else _SYSTEM_CA
    return bundle if bundle.is_file() else None


def pip_conf(settings: str, has_ca: bool) -> str:
    """Return a pip.conf from the output of `pip config list`, without paths of this machine."""
    lines = ["[global]"]
    for key in _PIP:
        value = _pip_value(settings, key)
        if value is not None:
            # Further lines of a value are indented.
            lines.append(f"{key} = " + "\n    ".join(value.split("\n")))
    if has_ca:
        lines.append(f"cert = {_IN_BUILD / _CA}")
    return "\n".join(lines) + "\n"


def apt_conf(dump: str, has_ca: bool) -> str:
    """Return an apt.conf from the output of `apt-config dump`, without paths of this machine."""
    lines = [
        line
        for line in dump.splitlines()
        if _APT.match(line) and '""' not in line and '"/' not in line
    ]
    if has_ca:
        lines.append(f'Acquire::https::CAInfo "{_IN_BUILD / _CA}";')
    return "\n".join(lines) + "\n"


def _pip_value(settings: str, key: str) -> str | None:
    # Lines such as global.timeout='60': a section, a key, a Python literal. They are sorted: those
    # of the environment (:env:), which override files, come first.
    for line in settings.splitlines():
        name, equals, literal = line.partition("=")
        if equals and name.rpartition(".")[2] == key:
            return str(ast.literal_eval(literal))
    return None


def _command(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
