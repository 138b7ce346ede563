"""What hvdchart asks of Helm: install, upgrade and remove a release, and read what it is."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Coroutine
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from hvdchart.errors import ClusterError, HelmError, NoRunError
from hvdchart.plan.model import Plan
from hvdchart.run.helm_command import NO_VALIDATION, HelmCommand, complete_command
from hvdchart.run.helm_errors import UNREACHABLE, remedy_for
from hvdchart.run.helm_process import DRY_RUN
from hvdchart.run.manifests import drop_secrets
from hvdchart.run.state.release import Object
from hvdchart.values.check_values import checked_values

_Result = TypeVar("_Result")
# Older versions cannot ask the API server what an upgrade would change.
_OLDEST_HELM = (3, 13)
_VERSION = re.compile(r"v?((\d+)\.(\d+)\.\S+)")


@dataclass(frozen=True)
class Helm:
    """Helm's program, a name on PATH or a path, and the kubeconfig context that it uses."""

    program: str = "helm"
    context: str | None = None
    # The number of revisions of a release to keep: Helm reads all of them at each upgrade.
    revisions: int = 10
    # Rewords messages that name options, for a user without a command line.
    rephrase: Callable[[str], str] = str

    def command(self, *options: str) -> HelmCommand:
        """Return a command with further options; `call` runs one of its methods."""
        return HelmCommand(self.program, self.context, self.revisions, options)

    def call(self, name: str, namespace: str, command: Coroutine[Any, Any, _Result]) -> _Result:
        """Return the result of a command about a release.

        Raises NoRunError when Helm knows no such release. Raises HelmError, with the remedy for a
        known message, when Helm fails, is missing or too old, or does not print JSON.
        """
        try:
            return self._complete(command)
        except subprocess.CalledProcessError as error:
            subcommand = error.cmd[0]
            message = error.stderr
        except (ValueError, RecursionError) as error:
            self.version()
            output = getattr(error, "doc", error)
            raise HelmError(f"{self.program} does not print JSON: {output!s:.200}") from error
        if "release: not found" in message:
            raise NoRunError(name, namespace)
        # Check the version only after a failure: it takes up to a tenth of a second.
        self.version()
        remedy = self.rephrase(remedy_for(message, name, namespace))
        ending = f"; {remedy}" if remedy else ""
        # Raise the same error as other commands that cannot reach the cluster.
        kind = ClusterError if UNREACHABLE in message.lower() else HelmError
        raise kind(f"helm {subcommand}: {message}{ending}")

    def _complete(self, command: Coroutine[Any, Any, _Result]) -> _Result:
        with closing(command):
            self.check_found()
            return complete_command(command)

    def check_found(self) -> None:
        """Raise HelmError if there is no such program."""
        if shutil.which(self.program) is None:
            remedy = self.rephrase("install Helm 4 or 3, or name it with `--helm PATH`")
            raise HelmError(f"no program {self.program!r} is on PATH", remedy)

    def version(self) -> str:
        """Return the program's version. Raises HelmError if it is too old, or is not Helm."""
        try:
            output = str(self._complete(self.command().version())).strip()
        except subprocess.CalledProcessError as error:
            output = error.stderr
        match = _VERSION.fullmatch(output)
        if not match:
            problem = f"`{self.program} version` does not print a version, so it is not Helm"
            remedy = self.rephrase("name Helm with `--helm PATH`")
            raise HelmError(f"{problem}, but {output!r}", remedy)
        if (int(match[2]), int(match[3])) < _OLDEST_HELM:
            oldest = ".".join(map(str, _OLDEST_HELM))
            remedy = self.rephrase(
                f"install Helm 4, or Helm {oldest} or newer, or name one with `--helm PATH`"
            )
            raise HelmError(f"{self.program} is Helm {match[1]}", remedy)
        return match[1]


def render_manifests(plan: Plan, namespace: str, program: str = "helm") -> str:
    """Return the manifests that `helm install` would send to the cluster, as Helm writes them.

    `program` is Helm's: a name on PATH or a path. The cluster is not contacted, so the chart cannot
    look up existing keys and generates new ones each time. Raises HelmError, and SpecError when the
    chart refuses the spec's own `values`.
    """
    name = plan.spec.name
    helm = Helm(program)
    command = helm.command().render(name, namespace, checked_values(plan))
    return helm.call(name, namespace, command)


def upgrade_release(
    name: str,
    namespace: str,
    values: Object,
    helm: Helm,
    *,
    create_namespace: bool = False,
    is_validated: bool = True,
) -> int:
    """Run `helm upgrade --install` with these values only; return the release's revision.

    Does not use --wait and --atomic: Helm would wait for the training to end, time out after 5
    minutes and roll back a run that is training. `follow_logs` waits for the run instead. Without
    `is_validated`, fields that Kubernetes does not know are dropped silently. Raises HelmError.
    """
    options = () if is_validated else (NO_VALIDATION,)
    command = helm.command(*options).upgrade(
        name, namespace, values, create_namespace=create_namespace
    )
    return int(helm.call(name, namespace, command)["version"])


def preview_upgrade(plan: Plan, namespace: str, helm: Helm) -> tuple[str, str]:
    """Return the current manifests of a release, empty without one, and those of `deploy`.

    The API server checks the latter, and nothing is changed. Secrets are left out. Raises
    HelmError, and SpecError when the chart refuses the values.
    """
    name = plan.spec.name
    command = helm.command(DRY_RUN).upgrade(name, namespace, checked_values(plan))
    after = helm.call(name, namespace, command)["manifest"]
    try:
        before = helm.call(name, namespace, helm.command().get_manifest(name, namespace))
    except NoRunError:
        before = ""
    return drop_secrets(before), drop_secrets(str(after))


def foreign_chart(name: str, namespace: str, helm: Helm) -> str | None:
    """Return the name of a release's chart if it is another chart; None also without a release.

    Others may have the same name: Horovod's own chart, that of the old stable repository, and a
    parent chart that has this one as a dependency. Raises HelmError.
    """
    try:
        chart = helm.call(name, namespace, helm.command().get_chart(name, namespace))
    except NoRunError:
        return None
    return None if chart["own"] else str(chart["name"])


class Revision(NamedTuple):
    """The last revision of a release: its number, and its status in Helm, such as `deployed`."""

    number: int
    status: str

    @property
    def is_failed_install(self) -> bool:
        """Whether it is an installation that Helm gave up, for example because it was refused."""
        return (self.number, self.status) == (1, "failed")

    @property
    def was_never_installed(self) -> bool:
        """Whether it is an installation that was refused, or that Helm did not finish."""
        is_unfinished = self.number == 1 and self.status in ("pending-install", "")
        return self.is_failed_install or is_unfinished


def last_revision(name: str, namespace: str, helm: Helm) -> Revision | None:
    """Return the last revision of a release; None if there is no such release. Raises HelmError."""
    try:
        metadata = helm.call(name, namespace, helm.command().get_metadata(name, namespace))
    except NoRunError:
        return None
    return Revision(int(metadata.get("revision", 1)), str(metadata.get("status", "")))


def release_session(name: str, namespace: str, helm: Helm) -> str | None:
    """Return the id of the session that a release belongs to, empty for none; None if no release.

    Raises HelmError.
    """
    try:
        values = release_values(name, namespace, helm)
    except NoRunError:
        return None
    return str((values.get("session") or {}).get("id", ""))


def release_values(name: str, namespace: str, helm: Helm) -> Object:
    """Return the values that a release was installed with, without the chart's defaults.

    Raises NoRunError without a release, and HelmError.
    """
    command = helm.command().get_values(name, namespace=namespace)
    values: Object = helm.call(name, namespace, command)
    return values


def uninstall_release(name: str, namespace: str, helm: Helm) -> None:
    """Run `helm uninstall`, and wait until it is done. Raises NoRunError and HelmError."""
    command = helm.command().uninstall(name, namespace=namespace, wait=True)
    helm.call(name, namespace, command)
