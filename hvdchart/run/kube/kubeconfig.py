"""Read the address and credentials of a cluster: from kubeconfigs like kubectl, or in a pod.

ADR 13 says why this uses no library.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import yaml

from hvdchart.errors import ClusterError
from hvdchart.run.kube.proxy import drop_password

# The files that Kubernetes mounts into the pods of a service account.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# Commands that reach a cluster start with this. PyYAML reads the kubeconfig of 20 clusters in 5 ms,
# and ruamel.yaml, which reads specs with their places and comments, in 110 ms. Both loaders load
# plain data only; the first is faster, but not always available.
YAML_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# An entry of clusters, contexts or users, and the folder that its file names are relative to.
_Entry: TypeAlias = tuple[Mapping[str, Any], Path]
# https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
_API_GROUP = "client.authentication.k8s.io/"
# The types of the keys that are read, and their names in messages.
_KINDS = {str: "text", bool: "boolean", list: "list", dict: "map"}
_CONTEXT = {"cluster": str, "user": str, "namespace": str}
_CLUSTER = {
    "server": str,
    "tls-server-name": str,
    "insecure-skip-tls-verify": bool,
    "certificate-authority": str,
    "certificate-authority-data": str,
    "proxy-url": str,
    "extensions": [{"name": str}],
}
_EXEC = {
    "apiVersion": str,
    "command": str,
    "args": [str],
    "env": [{"name": str, "value": str}],
    "installHint": str,
    "interactiveMode": str,
    "provideClusterInfo": bool,
}
_USER = {
    "client-certificate": str,
    "client-certificate-data": str,
    "client-key": str,
    "client-key-data": str,
    "token": str,
    "tokenFile": str,
    "username": str,
    "password": str,
    "as": str,
    "as-uid": str,
    "as-groups": [str],
    "as-user-extra": {str: [str]},
    "exec": _EXEC,
}
_SHAPE = {
    "current-context": str,
    "contexts": [{"name": str, "context": _CONTEXT}],
    "clusters": [{"name": str, "cluster": _CLUSTER}],
    "users": [{"name": str, "user": _USER}],
}


class UnusableError(Exception):
    """A part of a kubeconfig, or a file that it names, cannot be used."""


@dataclass(frozen=True)
class Credentials:
    """The credentials of a user or a program: headers of requests, and a certificate (PEM)."""

    headers: tuple[tuple[str, str], ...]
    certificate: bytes = b""
    key: bytes = b""


@dataclass(frozen=True)
class ApiConnection:
    """The API server of a context, its namespace, and a function that gets its credentials.

    Call `log_in` again when the API server no longer accepts them; it raises ClusterError.
    """

    server: str
    log_in: Callable[[], Credentials]
    namespace: str
    # Certificates in PEM; empty: the authorities that the system trusts.
    authorities: str
    is_verified: bool = True
    # The name in the server's certificate, if it differs from that of `server`.
    server_name: str = ""
    proxy: str = ""


def find_connection(context: str | None = None) -> ApiConnection:
    """Return the connection of a context (default: the current one); in a pod, its own cluster's.

    Reads the files in KUBECONFIG, or else ~/.kube/config, as kubectl does. If none of them exists
    and no context is given, uses the pod's own cluster. Raises ClusterError.
    """
    setting = os.environ.get("KUBECONFIG") or "~/.kube/config"
    paths = [Path(path).expanduser() for path in setting.split(os.pathsep) if path]
    files = [path for path in paths if path.exists()]
    if context is None and not files:
        return _find_pod_connection(setting)
    with _explain_problems(setting):
        if not files:
            raise UnusableError("there is no such file")
        return _Kubeconfig(setting, files).connection(context)


@contextmanager
def _explain_problems(setting: str) -> Iterator[None]:
    """Raise ClusterError for a problem in a kubeconfig, or in a file that it names."""
    try:
        yield
    # ValueError: a certificate that is no text.
    except (UnusableError, OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        # The complete text of a YAML error quotes the line, which may have a password.
        text = f"line {mark.line + 1}: {getattr(error, 'problem', '')}" if mark else str(error)
        reason = " ".join(text.split())
        raise ClusterError(
            f"the kubeconfig {setting} cannot be used: {reason}; correct it, or set KUBECONFIG to "
            "another file"
        ) from error


def _find_pod_connection(setting: str) -> ApiConnection:
    """Return the connection of the pod that this runs in; raise ClusterError outside of a pod."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "")
    if not (host and port):
        raise ClusterError(
            f"no cluster: there is no kubeconfig {setting}; set KUBECONFIG to a kubeconfig file"
        )

    def read(name: str) -> str:
        try:
            return (SERVICE_ACCOUNT / name).read_text().strip()
        except OSError as error:
            raise ClusterError(f"the pod's service account cannot be used: {error}") from error

    def log_in() -> Credentials:
        # The kubelet replaces the token from time to time.
        return Credentials((_bearer(read("token")),))

    # An IPv6 address contains colons itself.
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return ApiConnection(server, log_in, namespace=read("namespace"), authorities=read("ca.crt"))


class _Kubeconfig:
    """The content of several files; the first with an entry, or a current context, decides."""

    def __init__(self, setting: str, files: list[Path]) -> None:
        self._setting = setting
        self._current = ""
        self._entries: dict[str, dict[str, _Entry]] = {"context": {}, "cluster": {}, "user": {}}
        for file in files:
            document = yaml.load(file.read_bytes(), YAML_LOADER) or {}  # noqa: S506
            _check(document, _SHAPE, file)
            self._current = self._current or _text(document, "current-context")
            for kind, entries in self._entries.items():
                for name, content in _list_entries(document, kind):
                    entries.setdefault(name, (content, file.parent))

    def connection(self, context: str | None) -> ApiConnection:
        """Return the connection of a context.

        Raises UnusableError, OSError and ClusterError.
        """
        name = context or self._current
        if not name:
            raise UnusableError("it has no current-context")
        if name not in self._entries["context"]:
            names = ", ".join(self._entries["context"]) or "none"
            raise ClusterError(f"the kubeconfig has no context {name!r}; its contexts: {names}")
        chosen, _ = self._entries["context"][name]
        cluster, folder = self._entry("cluster", _text(chosen, "cluster"))
        user = _text(chosen, "user")
        server = _text(cluster, "server").rstrip("/")
        if not server.startswith(("http://", "https://")):
            shown = drop_password(server)
            raise UnusableError(f"the cluster's server is {shown!r}, which is not a URL")
        authorities = _content(cluster, "certificate-authority", folder)

        def log_in() -> Credentials:
            with _explain_problems(self._setting):
                return self._log_in(self._entry("user", user), cluster, authorities)

        return ApiConnection(
            server=server,
            log_in=log_in,
            namespace=_text(chosen, "namespace") or "default",
            authorities=authorities.decode(),
            is_verified=cluster.get("insecure-skip-tls-verify") is not True,
            server_name=_text(cluster, "tls-server-name"),
            proxy=_text(cluster, "proxy-url"),
        )

    def _entry(self, kind: str, name: str) -> _Entry:
        """Return the entry of a name; empty for a context without a user. Raises UnusableError."""
        if kind == "user" and not name:
            return {}, Path()
        if name not in self._entries[kind]:
            raise UnusableError(
                f"the context names the {kind} {name!r}, which is not in the list {kind}s"
            )
        return self._entries[kind][name]

    def _log_in(self, entry: _Entry, cluster: Mapping[str, Any], authorities: bytes) -> Credentials:
        """Return the credentials of a user; may run a program. Raises UnusableError, OSError.

        A token takes precedence over a program, as in kubectl, and a program's certificate over the
        user's.
        """
        user, folder = entry
        certificate = _content(user, "client-certificate", folder)
        key = _content(user, "client-key", folder)
        token = _text(user, "token")
        if "tokenFile" in user:
            token = (folder / _text(user, "tokenFile")).read_text().strip()
        elif "exec" in user and not token:
            status = _run_program(user["exec"], folder, _shown_to_program(cluster, authorities))
            token = status.get("token", "")
            certificate = status.get("clientCertificateData", "").encode() or certificate
            key = status.get("clientKeyData", "").encode() or key
        headers = [("Impersonate-Group", group) for group in user.get("as-groups") or ()]
        for field, values in (user.get("as-user-extra") or {}).items():
            name = f"Impersonate-Extra-{quote(str(field), safe='')}"
            headers += [(name, value) for value in values or ()]
        for field, name in (("as", "Impersonate-User"), ("as-uid", "Impersonate-Uid")):
            if field in user:
                headers.append((name, _text(user, field)))
        if "auth-provider" in user:
            raise UnusableError(
                "the user has an auth-provider, which hvdchart does not read; name a program that "
                "gets the credentials under exec, such as `kubectl oidc-login`"
            )
        if token:
            headers.append(_bearer(token))
        elif "username" in user:
            pair = f"{_text(user, 'username')}:{_text(user, 'password')}".encode()
            headers.append(("Authorization", f"Basic {base64.b64encode(pair).decode()}"))
        return Credentials(tuple(headers), certificate, key)


def _check(value: Any, shape: Any, file: Path, key: str = "") -> None:
    """Raise UnusableError for a part of a kubeconfig that has not this shape.

    A shape is a type, a list with the shape of each item, or a map with the shapes of its keys,
    whose values may also be null. The shape of the key `str` is that of all other keys.
    """
    kind = shape if isinstance(shape, type) else type(shape)
    if not issubclass(type(value), kind):
        place = f"{key} in {file}" if key else str(file)
        hint = ": quote it" if kind is str else ""
        # Leave out the value, which may be a password.
        kind_name = type(value).__name__
        raise UnusableError(f"{place} is no {_KINDS[kind]}, but of type {kind_name}{hint}")
    if isinstance(shape, list):
        for index, item in enumerate(value):
            _check(item, shape[0], file, f"{key}[{index}]")
    elif isinstance(shape, dict):
        for name, item in value.items():
            inner = shape.get(name, shape.get(str))
            if inner is not None and item is not None:
                _check(item, inner, file, f"{key}.{name}" if key else str(name))


def _list_entries(document: Mapping[str, Any], kind: str) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a kind in a file, by name, without keys that are null."""
    for entry in document.get(f"{kind}s") or ():
        content = entry.get(kind) or {}
        yield (
            _text(entry, "name"),
            {key: value for key, value in content.items() if value is not None},
        )


def _text(entry: Mapping[str, Any], key: str) -> str:
    """Return the text of a key; empty without one."""
    return entry.get(key) or ""


def _content(entry: Mapping[str, Any], key: str, folder: Path) -> bytes:
    """Return the decoded `key`-data, or the content of the file in `key`; empty without both."""
    data = _text(entry, f"{key}-data")
    file = _text(entry, key)
    if data:
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except ValueError as error:
            raise UnusableError(f"{key}-data is not base64: {error}") from error
    return (folder / file).read_bytes() if file else b""


def _bearer(token: str) -> tuple[str, str]:
    """Return the request header with a token."""
    return "Authorization", f"Bearer {token}"


def _shown_to_program(cluster: Mapping[str, Any], authorities: bytes) -> dict[str, Any]:
    """Return the cluster for a credential program: `spec.cluster` of ExecCredential."""
    keys = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")
    shown = {key: cluster[key] for key in keys if key in cluster}
    shown["certificate-authority-data"] = base64.b64encode(authorities).decode()
    for extension in cluster.get("extensions") or ():
        if extension.get("name") == "client.authentication.k8s.io/exec":
            shown["config"] = extension.get("extension")
    return shown


def _run_program(
    entry: Mapping[str, Any], folder: Path, cluster: Mapping[str, Any]
) -> dict[str, str]:
    """Return the status from a credential program: a `token`, or a certificate's data.

    `folder` is that of the kubeconfig. `cluster` is passed to a program that requests it. Raises
    UnusableError and OSError.
    """
    command = _text(entry, "command")
    if not command:
        raise UnusableError("the user's exec has no command")
    version = _text(entry, "apiVersion")
    if not version.startswith(_API_GROUP):
        raise UnusableError(f"the user's exec has the apiVersion {version!r}, not {_API_GROUP}v1")
    # The program can prompt for a password only at a terminal.
    is_interactive = sys.stdin.isatty() and entry.get("interactiveMode") != "Never"
    spec: dict[str, Any] = {"interactive": is_interactive}
    if entry.get("provideClusterInfo"):
        spec["cluster"] = dict(cluster)
    information = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    settings = {
        _text(variable, "name"): _text(variable, "value") for variable in entry.get("env") or ()
    }
    if os.sep in command:
        command = str(folder / command)
    try:
        done = subprocess.run(
            [command, *(entry.get("args") or ())],
            env={**os.environ, **settings, "KUBERNETES_EXEC_INFO": json.dumps(information)},
            stdin=None if is_interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if is_interactive else subprocess.PIPE,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        hint = entry.get("installHint") or "install it"
        raise UnusableError(f"there is no program {command!r} for credentials: {hint}") from error
    if done.returncode:
        raise UnusableError(
            f"{command} ended with exit code {done.returncode}: {done.stderr or ''}"
        )
    return _read_status(command, version, done.stdout)


def _read_status(command: str, version: str, output: str) -> dict[str, str]:
    """Return the status in a credential program's output. Raises UnusableError without one."""
    try:
        answer = json.loads(output)
        status = answer["status"]
        answered = answer["apiVersion"]
        has_one = bool(status.get("token") or status.get("clientCertificateData"))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnusableError(f"{command} printed no ExecCredential with a status") from error
    if answered != version:
        raise UnusableError(f"{command} answered with {answered}, and the kubeconfig has {version}")
    if not has_one:
        raise UnusableError(f"{command} printed neither a token nor a certificate")
    return {key: value for key, value in status.items() if isinstance(value, str)}
