"""Gets credentials from the program that a kubeconfig names under `exec`, as kubectl does.

https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_API_GROUP = "client.authentication.k8s.io/"


class UnusableError(Exception):
    """Something in a kubeconfig, or what it names, cannot be used."""


def run_program(entry: Any, folder: Path, cluster: Mapping[str, Any]) -> dict[str, str]:
    """The status of the program's answer: a `token`, or `clientCertificateData` and its key.

    `folder` is that of the kubeconfig, and `cluster` is what a program is told that asks for it.
    Raises UnusableError and OSError.
    """
    if not isinstance(entry, dict) or not isinstance(entry.get("command"), str):
        raise UnusableError("the user's exec has no command")
    version = entry.get("apiVersion")
    if not isinstance(version, str) or not version.startswith(_API_GROUP):
        raise UnusableError(f"the user's exec has the apiVersion {version!r}, not {_API_GROUP}v1")
    # A person can only be asked for a password at a terminal.
    is_interactive = sys.stdin.isatty() and entry.get("interactiveMode") != "Never"
    spec: dict[str, Any] = {"interactive": is_interactive}
    if entry.get("provideClusterInfo"):
        spec["cluster"] = dict(cluster)
    information = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    settings = {each["name"]: each["value"] for each in entry.get("env") or ()}
    command = entry["command"]
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
    try:
        answer = json.loads(done.stdout)
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
