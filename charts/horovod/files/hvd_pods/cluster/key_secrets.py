"""Finds the master's keys, and makes the keys of a release that was rendered without the cluster.

Helm makes the keys where it can read the cluster and keeps them on upgrade. A tool that renders
without the cluster (Argo CD, `helm template`) would make other keys each time, so the chart leaves
both Secrets empty there. The first master fills them. The workers' pods wait for the keys.

Two Secrets cannot be changed in one step, and need not be. Each holds a certificate and the
certificate of the authority that signed it, and does not depend on the other Secret: the owner of
one Secret takes the authority from the other. Each Secret is filled separately, by the first master
that finds it empty. A master that ends between the two leaves the second one to the next master.
"""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from http import HTTPStatus
from pathlib import Path
from typing import Mapping, NamedTuple

from hvd_pods.cluster.certificates import MASTER, WORKER, Files, make_files
from hvd_pods.cluster.kube import Api, ApiError
from hvd_pods.pod.private_files import write_private_file
from hvd_pods.pod.reporting import log
from hvd_pods.protocol.keys import AUTHORITY, CERTIFICATE, KEY, PEER_AUTHORITY, Keys
from hvd_pods.shared import contract
from hvd_pods.shared.errors import ConfigurationError, RunError
from hvd_pods.shared.objects import Object
from hvd_pods.shared.run import Run

# The files of a Secret, and of the master's folder: the last one is the workers' ca.crt.
IN_SECRET = (CERTIFICATE, KEY, AUTHORITY)
IN_FOLDER = (CERTIFICATE, KEY, PEER_AUTHORITY)
# The maximum number of tries to read and fill the Secrets: another program may change them.
MAX_CHANGE_TRIES = 5


class Folders(NamedTuple):
    """Where the master's Secret is mounted, and where the master itself writes."""

    mounted: Path
    generated: Path


def find_keys(
    api: Api | None, run: Run, folders: Folders, environment: Mapping[str, str] = os.environ
) -> Path:
    """Return the folder with tls.crt, tls.key and peer-ca.crt of the master.

    It is the mounted folder, unless its files are missing and this master may fill the Secrets.
    Raises ConfigurationError when it may not, or where another attempt would find the same, and
    RunError for other problems with the API server.
    """
    missing = [name for name in IN_FOLDER if not _has_content(folders.mounted / name)]
    if not missing:
        return folders.mounted
    secrets = environment.get(contract.KEYS_SECRETS)
    if api is None or not secrets:
        raise ConfigurationError(
            f"{folders.mounted} does not have {', '.join(missing)}: the Secrets of "
            f"`agent.masterSecret` and `agent.workerSecret` must each have {', '.join(IN_SECRET)}"
        )
    master_secret, worker_secret = secrets.split()
    try:
        master, worker = _fill(api, master_secret, worker_secret, run, folders.generated)
    except ApiError as problem:
        kind = (
            ConfigurationError
            if problem.status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)
            else RunError
        )
        raise kind(
            f"cannot create the keys in Secrets {master_secret} and {worker_secret}: {problem}; "
            "the master needs the rights get and patch on both, or set `agent.masterSecret` and "
            "`agent.workerSecret`"
        ) from problem
    return _write_folder(folders.generated / "keys", master, worker)


def _write_folder(folder: Path, files: Files, peer: Files) -> Path:
    """Write the keys of one end and the authority of the other, like the mounted folder."""
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, content in zip(IN_FOLDER, (files[CERTIFICATE], files[KEY], peer[AUTHORITY])):
        write_private_file(folder / name, content)
    return folder


def _has_content(path: Path) -> bool:
    # An empty entry of a Secret is mounted as an empty file.
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def _fill(
    api: Api, master_secret: str, worker_secret: str, run: Run, generated: Path
) -> tuple[Files, Files]:
    """Return the content of both Secrets, after giving keys to those that have none.

    Raises ApiError, ConfigurationError for a Secret that has some of its keys, and RunError when
    the Secrets are changed all the time.
    """
    for _ in range(MAX_CHANGE_TRIES):
        secrets = {name: api.get(f"core/secrets/{name}") for name in (master_secret, worker_secret)}
        stored = {name: _read(name, secret) for name, secret in secrets.items()}
        if all(stored.values()):
            return stored[master_secret], stored[worker_secret]
        files = {
            master_secret: make_files(MASTER, run.master_name),
            worker_secret: make_files(WORKER, run.worker_name),
        }
        _require_handshake(files[master_secret], files[worker_secret], run, generated)
        for name, secret in secrets.items():
            if not stored[name]:
                _add(api, name, secret, files[name])
    raise RunError(
        f"cannot create the keys in Secrets {master_secret} and {worker_secret}: another program "
        f"has changed them {MAX_CHANGE_TRIES} times in the meantime"
    )


def _read(name: str, secret: Object) -> Files:
    """Return the keys of a Secret; empty when it has none. Raises ConfigurationError."""
    data = secret.get("data", {})
    keys = [key for key in IN_SECRET if data.get(key)]
    missing = [key for key in IN_SECRET if key not in keys]
    if keys and missing:
        # Workers may use the present keys: a replacement would lock them out.
        raise ConfigurationError(
            f"Secret {name} has {', '.join(keys)} but not {', '.join(missing)}: set "
            "`agent.generation` to a number that the release has not had yet, for new keys"
        )
    try:
        return {key: base64.b64decode(data[key], validate=True) for key in keys}
    except ValueError as problem:
        raise ConfigurationError(f"Secret {name} is not in base64: {problem}") from problem


def _add(api: Api, name: str, secret: Object, files: Files) -> None:
    """Add keys to a Secret that had none when it was read, unless it was changed since."""
    # With the version, the API server refuses this if another master has filled the Secret, or if
    # the response to an earlier try was lost.
    version = secret["metadata"].get("resourceVersion")
    data = {key: base64.b64encode(content).decode() for key, content in files.items()}
    body = {"metadata": {"resourceVersion": version}, "data": data}
    try:
        api.merge_patch(f"core/secrets/{name}", body)
    except ApiError as problem:
        if problem.status != HTTPStatus.CONFLICT:
            raise
    else:
        log(f"created keys of the release in Secret {name}")


def _require_handshake(master: Files, worker: Files, run: Run, generated: Path) -> None:
    """Raise ConfigurationError unless this Python accepts the keys that were made."""
    try:
        check_handshake(master, worker, run.master_name, run.worker_name, generated)
    except ssl.SSLError as problem:
        raise ConfigurationError(
            f"{ssl.OPENSSL_VERSION} of this image does not accept the keys that the master made: "
            f"{problem}; set `agent.masterSecret` and `agent.workerSecret`"
        ) from problem


def check_handshake(
    master: Files, worker: Files, master_name: str, worker_name: str, generated: Path
) -> None:
    """Connect a master and a worker with these keys, in memory.

    The keys are in the folder `generated` for the moment at which they are read.
    Each verifies the other as in a run, and as strictly as `ssl` can. Raises ssl.SSLError when one
    of them refuses the other.
    """
    # `ssl` reads keys only from files.
    with tempfile.TemporaryDirectory(dir=generated) as folder:
        of_master = _write_folder(Path(folder, "master"), master, worker)
        of_worker = _write_folder(Path(folder, "worker"), worker, master)
        client_side = Keys(str(of_master), worker_name).client()
        server_side = Keys(str(of_worker), master_name).server()
    for context in (client_side, server_side):
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    to_client = ssl.MemoryBIO()
    to_server = ssl.MemoryBIO()
    client = client_side.wrap_bio(to_client, to_server, server_hostname=worker_name)
    server = server_side.wrap_bio(to_server, to_client, server_side=True)
    # A hello, the server's certificate, the client's certificate, and its verification.
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    # Python verifies only the name of a server.
    certificate = server.getpeercert() or {}
    names = certificate.get("subjectAltName")
    if names != (("DNS", master_name),):
        raise ssl.SSLCertVerificationError(f"the master has the names {names}, not {master_name}")
