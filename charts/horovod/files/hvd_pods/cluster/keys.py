"""Makes the SSH keys of a release whose chart was rendered without access to the cluster.

Helm makes the keys where it can read the cluster and keeps them on upgrade. A tool that renders
without the cluster (Argo CD, `helm template`) would make other keys each time, so that the chart
leaves the Secret empty there. The first master fills it. The workers' pods wait for its keys.
"""

from __future__ import annotations

import base64
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Mapping

from hvd_pods.cluster.kube import Api, ApiError
from hvd_pods.common import ssh
from hvd_pods.common.errors import ConfigurationError, RunError
from hvd_pods.common.passwd import require_user_name
from hvd_pods.common.paths import GENERATED, SECRETS
from hvd_pods.common.reporting import log

NAMES = ("user-key", "host-key")
CONFLICT = 409
FORBIDDEN = 403
NOT_FOUND = 404


def find_keys(api: Api | None, environment: Mapping[str, str] = os.environ) -> Path:
    """The folder with the release's private keys, made if there are none. Raises RunError."""
    secret = environment.get("HVD_SSH_SECRET")
    mounted = [(SECRETS / name).exists() for name in NAMES]
    if api is None or not secret or all(mounted):
        return SECRETS
    require_user_name()
    try:
        keys = _fill(api, secret)
    except ApiError as problem:
        remedy = (
            f"the master needs the rights get and patch on Secret {secret}, or "
            "set ssh.existingSecret"
        )
        kind = ConfigurationError if problem.status in (FORBIDDEN, NOT_FOUND) else RunError
        raise kind(
            f"cannot create the SSH keys in Secret {secret}: {problem}; {remedy}"
        ) from problem
    folder = GENERATED / "keys"
    folder.mkdir(exist_ok=True)
    for name in NAMES:
        try:
            key = base64.b64decode(keys[name])
        except ValueError as problem:
            raise ConfigurationError(f"Secret {secret} has no key {name}: {problem}") from problem
        ssh.write_private_file(folder / name, key)
    return folder


def _fill(api: Api, secret: str) -> dict[str, str]:
    """Return the Secret's keys, adding new ones unless it has them. Raises ApiError."""
    present = api.get(f"core/secrets/{secret}")
    while not all(present.get("data", {}).get(name) for name in NAMES):
        # The version makes the API server refuse this if another master has filled the Secret, or
        # if the answer to the same call was lost before.
        version = present["metadata"].get("resourceVersion")
        made = {name: base64.b64encode(make_key()).decode() for name in NAMES}
        body = {"metadata": {"resourceVersion": version}, "data": made}
        try:
            present = api.merge_patch(f"core/secrets/{secret}", body)
            log(f"created the SSH keys of the release in Secret {secret}")
        except ApiError as problem:
            if problem.status != CONFLICT:
                raise
            present = api.get(f"core/secrets/{secret}")
    keys: dict[str, str] = present["data"]
    return keys


def make_key() -> bytes:
    """Make a private key like Helm's: ECDSA in PEM format, without a passphrase."""
    with tempfile.TemporaryDirectory(dir=GENERATED) as folder:
        file = Path(folder) / "key"
        command = [ssh.find_program("ssh-keygen"), "-q", "-t", "ecdsa"]
        options = ["-m", "PEM", "-N", "", "-C", "", "-f", str(file)]
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        if done.returncode:
            raise ConfigurationError(f"ssh-keygen cannot make a key: {done.stderr.strip()}")
        return file.read_bytes()
