"""Calls Helm, through pyhelm3 and the `helm` program; no other module does."""

from __future__ import annotations

import asyncio
import json
import shutil
from asyncio.subprocess import PIPE
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import pyhelm3
import pyhelm3.errors
import semver

from hvdchart.chart_files import chart_dir
from hvdchart.errors import ClusterError, HelmError
from hvdchart.plan.model import Plan
from hvdchart.run.helm_errors import remedy_for
from hvdchart.run.release import Object
from hvdchart.values.check import checked_values

T = TypeVar("T")
# Older ones cannot ask the API server what an upgrade would change.
_OLDEST = semver.VersionInfo(3, 13, 0)


class _Command(pyhelm3.Command):  # type: ignore[misc] # pyhelm3 has no types
    """pyhelm3's Helm commands, started from a list of arguments where pyhelm3 uses a shell."""

    async def run(self, command: list[Any], input: bytes | None = None) -> bytes:
        arguments = list(map(str, command))
        if self._kubecontext:
            arguments += ["--kube-context", self._kubecontext]
        if input:
            # Helm refuses the surrogate pairs with which json.dumps escapes emoji and the like.
            input = json.dumps(json.loads(input), ensure_ascii=False).encode()
        process = await asyncio.create_subprocess_exec(
            self._executable, *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE
        )
        output, errors = await process.communicate(input or b"")
        if process.returncode != 0:
            # pyhelm3 maps Helm's messages to classes of its own; only the message is needed here.
            raise pyhelm3.errors.Error(process.returncode, output, errors)
        return output

    def client_version(self) -> semver.VersionInfo:
        version = asyncio.run(self.run(["version", "--template", "{{ .Version }}"])).decode()
        return semver.VersionInfo.parse(version.removeprefix("v"))


@dataclass(frozen=True)
class Installed:
    """A release that Helm has just installed or upgraded."""

    name: str
    namespace: str
    revision: int


def manifests(plan: Plan, namespace: str, helm: str = "helm") -> str:
    """The manifests that `helm install` would send to the cluster, as Helm writes them.

    `helm` is the program: a name on PATH or a path. The cluster is not contacted, so the chart
    cannot look up existing SSH keys and generates new ones each time. Raises HelmError, and
    SpecError when the chart refuses the values of the spec's own `values` key.
    """
    arguments = ["template", plan.spec.name, str(chart_dir()), "--namespace", namespace]
    # `helm install` sends no pods of `helm test` either.
    arguments += ["--skip-crds", "--skip-tests", "--values", "-"]
    values = json.dumps(checked_values(plan)).encode()
    # Not pyhelm3's own `template`: it returns parsed objects, and people read Helm's text.
    command = _Command(executable=_check_program(helm))
    output: bytes = _call("helm template", command.run(arguments, values))
    return output.decode()


def deploy(
    plan: Plan,
    namespace: str,
    *,
    context: str | None = None,
    helm: str = "helm",
    create_namespace: bool = False,
) -> Installed:
    """Run `helm upgrade --install` with the plan's values only; raises HelmError, SpecError.

    Without --wait and --atomic: Helm would wait for the training to end, time out after 5 minutes
    and roll back a run that is training. `hvdchart.run.logs.follow` waits for the run instead.
    """
    values = checked_values(plan)
    client = _client(helm, context)

    async def install() -> Any:
        chart = await client.get_chart(chart_dir())
        return await client.install_or_upgrade_release(
            plan.spec.name, chart, values, namespace=namespace, create_namespace=create_namespace,
            # Helm merges values into those of the last revision unless --reset-values is given.
            reset_values=True,
        )  # fmt: skip

    revision = _call("helm upgrade --install", install(), plan.spec.name, namespace)
    return Installed(revision.release.name, revision.release.namespace, revision.revision)


def release_values(
    name: str, namespace: str, *, context: str | None = None, helm: str = "helm"
) -> Object:
    """The values that a release was installed with; raises ClusterError without a release."""
    arguments = ["get", "values", name, "--namespace", namespace, "--output", "json"]
    answer = _call(
        "helm get values", _client(helm, context)._command.run(arguments), name, namespace
    )
    values: Object = json.loads(answer) or {}
    return values


def upgrade(
    name: str,
    namespace: str,
    values: Object,
    *,
    context: str | None = None,
    helm: str = "helm",
    install: bool = False,
) -> Installed:
    """Run `helm upgrade` with these values only, of a release that is there unless `install`."""
    arguments = ["upgrade", name, str(chart_dir()), "--namespace", namespace, "--reset-values"]
    arguments += ["--values", "-", "--output", "json", *(["--install"] if install else [])]
    command = _client(helm, context)._command
    answer = _call(
        "helm upgrade", command.run(arguments, json.dumps(values).encode()), name, namespace
    )
    return Installed(name, namespace, int(json.loads(answer)["version"]))


def undeploy(name: str, namespace: str, *, context: str | None = None, helm: str = "helm") -> None:
    """Run `helm uninstall` and wait until the release's objects are deleted.

    Raises ClusterError when there is no release of that name, and HelmError.
    """
    uninstall = _client(helm, context).uninstall_release(name, namespace=namespace, wait=True)
    _call(f"helm uninstall {name} in namespace {namespace}", uninstall, name, namespace)


def program_version(helm: str = "helm") -> str:
    """The version of a Helm that can be used; raises HelmError for any other."""
    return str(_client(helm, None).version)


def _client(helm: str, context: str | None) -> Any:
    command = _Command(executable=_check_program(helm), kubecontext=context)
    try:
        client = pyhelm3.Client(command, executable=helm)
    except (pyhelm3.errors.Error, ValueError) as error:
        raise HelmError(
            f"`{helm} version` does not print a version, so it is not Helm: {error}"
        ) from error
    if client.version < _OLDEST:
        raise HelmError(
            f"{helm} is Helm {client.version}: install Helm {_OLDEST} or newer, or Helm 4, or name "
            "one with --helm PATH"
        )
    return client


def _check_program(helm: str) -> str:
    if shutil.which(helm) is None:
        raise HelmError(
            f"no program {helm!r} is on PATH: install Helm 3 or 4, or name it with --helm PATH"
        )
    return helm


def _call(what: str, call: Coroutine[Any, Any, T], name: str = "", namespace: str = "") -> T:
    """Await a call of Helm; raise what it says, with the way out where that is known."""
    try:
        return asyncio.run(call)
    except pyhelm3.errors.Error as error:
        message = str(error).strip()
        if "release: not found" in message:
            raise ClusterError(
                f"no run {name} in namespace {namespace}; list all runs: hvdchart list "
                "--all-namespaces"
            ) from error
        remedy = remedy_for(message, name, namespace)
        raise HelmError(f"{what}: {message}{f'; {remedy}' if remedy else ''}") from error
