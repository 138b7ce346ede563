"""What Helm makes of a plan, here or in a cluster; the only module that reaches Helm, through
pyhelm3 and a binary.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import pyhelm3
import pyhelm3.errors
import semver

from hvdchart.errors import HelmError
from hvdchart.plan.model import Plan
from hvdchart.values.chart import chart_dir
from hvdchart.values.check import checked_values

T = TypeVar("T")


class _Command(pyhelm3.Command):  # type: ignore[misc] # pyhelm3 has no types
    """pyhelm3's command line of Helm, given to the system as a list of arguments: no shell."""

    def __init__(self, executable: str, context: str | None = None) -> None:
        super().__init__(executable=executable, kubecontext=context)
        self._start = [executable, *(("--kube-context", context) if context else ())]

    async def run(self, command: list[Any], input: bytes | None = None) -> bytes:
        words = [part if isinstance(part, os.PathLike) else str(part) for part in command]
        process = await asyncio.create_subprocess_exec(
            *self._start, *words,
            stdin=asyncio.subprocess.DEVNULL if input is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        stdout, stderr = await process.communicate(input)
        if process.returncode == 0:
            return stdout
        missing = b"release: not found" in stderr
        kind = pyhelm3.errors.ReleaseNotFoundError if missing else pyhelm3.errors.Error
        raise kind(process.returncode, stdout, stderr)

    def client_version(self) -> semver.VersionInfo:
        words = [self._executable, "version", "--template", "{{ .Version }}"]
        done = subprocess.run(words, capture_output=True, check=True, text=True)
        return semver.VersionInfo.parse(done.stdout.removeprefix("v"))


@dataclass(frozen=True)
class Installed:
    """What Helm says of a release that it just installed or upgraded."""

    name: str
    namespace: str
    revision: int


def manifests(plan: Plan, namespace: str, helm: str = "helm") -> str:
    """The manifests that `helm install` would send to the cluster, as Helm writes them.

    `helm` is the binary to use, a name on PATH or a path. No cluster is asked, so what the chart
    looks up in one is not found: the SSH keys are new each time. Raises HelmError, and SpecError
    when the chart refuses what the spec's own `values` make of it.
    """
    # The values go in as one file: pyhelm3's own merging joins lists, which Helm's does not.
    values = json.dumps(checked_values(plan)).encode()
    arguments = ["template", plan.spec.name, str(chart_dir()), "--namespace", namespace]
    command = _Command(_found(helm))
    # An install sends no test: those pods come with `helm test`.
    arguments += ["--skip-crds", "--skip-tests", "--values", "-"]
    output: bytes = _done("helm template", command.run(arguments, values))
    return output.decode()


def deploy(
    plan: Plan,
    namespace: str,
    *,
    context: str | None = None,
    helm: str = "helm",
    create_namespace: bool = False,
) -> Installed:
    """`helm upgrade --install` with the plan's values and no other; raises HelmError, SpecError.

    Helm's own waiting and roll-back stay off: it would wait for the training, 5 minutes long, and
    roll a live one back. The run is followed through the cluster.
    """
    return deploy_values(
        plan.spec.name, checked_values(plan), namespace,
        context=context, helm=helm, create_namespace=create_namespace,
    )  # fmt: skip


def deploy_values(
    name: str,
    values: dict[str, Any],
    namespace: str,
    *,
    context: str | None = None,
    helm: str = "helm",
    create_namespace: bool = False,
) -> Installed:
    """As `deploy`, with values that are there already."""
    helm_client = _client(helm, context)

    async def install() -> Any:
        chart = await helm_client.get_chart(chart_dir())
        return await helm_client.install_or_upgrade_release(
            name, chart, values, namespace=namespace,
            # Without it Helm takes an empty map for "what it was before".
            reset_values=True, create_namespace=create_namespace,
        )  # fmt: skip

    revision = _done("helm upgrade --install", install())
    return Installed(revision.release.name, revision.release.namespace, revision.revision)


def undeploy(name: str, namespace: str, *, context: str | None = None, helm: str = "helm") -> None:
    """`helm uninstall`, until all is gone but the volumes' contents; raises HelmError, also when
    there is no such release.
    """
    helm_client = _client(helm, context)

    async def uninstall() -> None:
        # Asked first: pyhelm3 takes an unknown name for a release that is gone already.
        await helm_client.get_current_revision(name, namespace=namespace)
        await helm_client.uninstall_release(name, namespace=namespace, wait=True)

    _done(f"helm uninstall {name} in namespace {namespace}", uninstall())


def _client(helm: str, context: str | None) -> Any:
    try:
        return pyhelm3.Client(_Command(_found(helm), context), executable=helm)
    except (subprocess.CalledProcessError, ValueError) as error:
        raise HelmError(f"{helm} does not tell its version, so it is no Helm: {error}") from error


def _found(helm: str) -> str:
    if shutil.which(helm) is None:
        raise HelmError(
            f"no program {helm!r} is on PATH: install Helm 3 or 4, or name it with --helm PATH"
        )
    return helm


def _done(what: str, call: Coroutine[Any, Any, T]) -> T:
    try:
        return asyncio.run(call)
    except pyhelm3.errors.Error as error:
        raise HelmError(f"{what}: {str(error).strip()}") from error
