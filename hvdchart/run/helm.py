"""Call Helm through pyhelm3 and the program `helm`; no other module does."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import pyhelm3

from hvdchart.chart_files import chart_dir
from hvdchart.errors import ClusterError, HelmError, NoRunError
from hvdchart.plan.model import Plan
from hvdchart.run.helm_errors import UNREACHABLE, remedy_for
from hvdchart.run.helm_process import run_to_end
from hvdchart.run.state.release import Object
from hvdchart.values.check_values import checked_values

T = TypeVar("T")
# Older versions cannot ask the API server what an upgrade would change.
_OLDEST = (3, 13)
_VERSION = re.compile(r"v?((\d+)\.(\d+)\.\S+)")
_SECRET = re.compile(r"(?m)^kind: Secret$")
# A template of the name of a release's chart, and of what Chart.yaml of this chart alone says.
_CHART = (
    '{"name": {{printf "%q" .Release.Chart.Metadata.Name}}, '
    '"own": {{printf "%q" (index .Release.Chart.Metadata.Annotations "hvdchart/chart")}}}'
)
# A value of a ConfigMap's binaryData.
_ARCHIVE_VALUE = re.compile(r"(?m)^( +[-._\w]+: )([A-Za-z0-9+/]{100,}={0,2})$")


class _Command(pyhelm3.Command):  # type: ignore[misc] # pyhelm3 has no types
    """pyhelm3's commands of Helm, started from a list of arguments: pyhelm3 uses a shell."""

    def __init__(self, helm: Helm, *options: str) -> None:
        super().__init__(history_max_revisions=helm.revisions)
        self._helm = helm
        self._options = options

    async def run(self, command: list[Any], input: bytes | None = None) -> bytes:
        """Run Helm with these arguments and this input; return its standard output.

        pyhelm3's own commands call it. It never waits for an event loop, which `_result` requires.
        Raises CalledProcessError, whose `stderr` is text, when Helm fails, and HelmError without
        the program.
        """
        arguments = [self._helm.program, *map(str, command), *self._options]
        if self._helm.context:
            arguments += ["--kube-context", self._helm.context]
        # Helm refuses surrogate pairs, which json.dumps writes for emoji and similar characters.
        text = json.dumps(json.loads(input), ensure_ascii=False) if input else ""
        self._helm.check_found()
        ended = run_to_end(arguments, text.encode())
        if ended.code:
            raise subprocess.CalledProcessError(ended.code, command, ended.output, ended.message)
        return ended.output.encode()

    async def apply(self, name: str, namespace: str, values: Object, create: bool = False) -> Any:
        """Install or upgrade a release with these values; `create` its namespace, too.

        Returns the release as Helm prints it in JSON.
        """
        # Without --reset-values, Helm merges values into those of the last revision.
        return await self.install_or_upgrade(
            name,
            chart_dir(),
            values,
            namespace=namespace,
            create_namespace=create,
            reset_values=True,
        )

    async def get_metadata(self, name: str, namespace: str) -> Any:
        """Return the revision and the status of a release, as Helm prints them in JSON."""
        command = ["get", "metadata", name, "--namespace", namespace, "--output", "json"]
        return json.loads(await self.run(command))

    async def get_chart(self, name: str, namespace: str) -> Any:
        """Return the `name` of a release's chart, and `own`, which is empty for another chart."""
        command = ["get", "all", name, "--namespace", namespace, "--template", _CHART]
        return json.loads(await self.run(command))


@dataclass(frozen=True)
class Helm:
    """Helm's program, a name on PATH or a path, and the kubeconfig context that it uses."""

    program: str = "helm"
    context: str | None = None
    # The number of revisions of a release to keep: Helm reads all of them at each upgrade.
    revisions: int = 10
    # Rewords messages that name options, for a user without a command line.
    rephrase: Callable[[str], str] = str

    def call(self, name: str, namespace: str, command: Coroutine[Any, Any, T]) -> T:
        """Return the result of a `_Command` about a release.

        Raises NoRunError when Helm knows no such release. Raises HelmError, with the remedy for a
        known message, when Helm fails, is too old, or does not print JSON.
        """
        try:
            return _result(command)
        except subprocess.CalledProcessError as error:
            program = error.cmd[0]
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
        raise kind(f"helm {program}: {message}{ending}")

    def check_found(self) -> None:
        """Raise HelmError if there is no such program."""
        if shutil.which(self.program) is None:
            other = self.rephrase("install Helm 4 or 3, or name it with `--helm PATH`")
            raise HelmError(f"no program {self.program!r} is on PATH", other)

    def version(self) -> str:
        """Return the program's version. Raises HelmError if it is too old, or is not Helm."""
        try:
            output = str(_result(_Command(self).version())).strip()
        except subprocess.CalledProcessError as error:
            output = error.stderr
        match = _VERSION.fullmatch(output)
        if not match:
            problem = f"`{self.program} version` does not print a version, so it is not Helm"
            other = self.rephrase("name Helm with `--helm PATH`")
            raise HelmError(f"{problem}, but {output!r}", other)
        if (int(match[2]), int(match[3])) < _OLDEST:
            oldest = ".".join(map(str, _OLDEST))
            other = self.rephrase(
                f"install Helm 4, or Helm {oldest} or newer, or name one with `--helm PATH`"
            )
            raise HelmError(f"{self.program} is Helm {match[1]}", other)
        return match[1]


def render_manifests(plan: Plan, namespace: str, program: str = "helm") -> str:
    """Return the manifests that `helm install` would send to the cluster, as Helm writes them.

    `program` is Helm's: a name on PATH or a path. The cluster is not contacted, so the chart cannot
    look up existing keys and generates new ones each time. Raises HelmError, and SpecError when the
    chart refuses the spec's own `values`.
    """
    name = plan.spec.name
    # Not pyhelm3's own `template`: it returns parsed objects, and people read Helm's text.
    arguments = ["template", name, str(chart_dir()), "--namespace", namespace]
    # `helm install` does not send the pods of `helm test`, either.
    arguments += ["--skip-crds", "--skip-tests", "--values", "-"]
    helm = Helm(program)
    run = _Command(helm).run(arguments, json.dumps(checked_values(plan)).encode())
    return helm.call(name, namespace, run).decode()


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
    # pyhelm3's own disable_validation adds each character of it as a separate argument.
    options = () if is_validated else ("--disable-openapi-validation",)
    command = _Command(helm, *options).apply(name, namespace, values, create_namespace)
    return int(helm.call(name, namespace, command)["version"])


def preview_upgrade(plan: Plan, namespace: str, helm: Helm) -> tuple[str, str]:
    """Return the current manifests of a release, empty without one, and those of `deploy`.

    The API server checks the latter, and nothing is changed. Secrets are left out. Raises
    HelmError, and SpecError when the chart refuses the values.
    """
    name = plan.spec.name
    # pyhelm3's own dry_run does not ask the API server, and its get_resources parses the text.
    command = _Command(helm, "--dry-run=server").apply(name, namespace, checked_values(plan))
    after = helm.call(name, namespace, command)["manifest"]
    try:
        before = _manifest(name, namespace, helm)
    except NoRunError:
        before = ""
    return _drop_secrets(before), _drop_secrets(str(after))


def _manifest(name: str, namespace: str, helm: Helm) -> str:
    """Return the objects of a release as Helm sent them. Raises NoRunError and HelmError."""
    command = ["get", "manifest", name, "--namespace", namespace]
    return helm.call(name, namespace, _Command(helm).run(command)).decode()


def foreign_chart(name: str, namespace: str, helm: Helm) -> str | None:
    """Return the name of a release's chart if it is another chart; None also without a release.

    Others may have the same name: Horovod's own chart, that of the old stable repository, and a
    parent chart that has this one as a dependency. Raises HelmError.
    """
    try:
        chart = helm.call(name, namespace, _Command(helm).get_chart(name, namespace))
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
        metadata = helm.call(name, namespace, _Command(helm).get_metadata(name, namespace))
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
    command = _Command(helm).get_values(name, namespace=namespace)
    values: Object = helm.call(name, namespace, command)
    return values


def uninstall_release(name: str, namespace: str, helm: Helm) -> None:
    """Run `helm uninstall`, and wait until it is done. Raises NoRunError and HelmError."""
    command = _Command(helm).uninstall(name, namespace=namespace, wait=True)
    helm.call(name, namespace, command)


def _result(command: Coroutine[Any, Any, T]) -> T:
    """Return the result of a pyhelm3 command without an event loop: asyncio's delays Ctrl-C.

    Raises the exceptions of the command, and RuntimeError for a command that waits for an event
    loop.
    """
    try:
        command.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("pyhelm3 waits for something other than Helm")


def shorten_archives(manifest: str) -> str:
    """Replace each long base64 text in manifests by its size and a digest."""

    def describe(match: re.Match[str]) -> str:
        digest = hashlib.sha256(match[2].encode()).hexdigest()[:12]
        return f"{match[1]}({len(match[2])} characters of base64, sha256 {digest})"

    return _ARCHIVE_VALUE.sub(describe, manifest)


def _drop_secrets(manifest: str) -> str:
    """Return manifests without Secrets, each after its mark."""
    documents = [part.strip() for part in re.split(r"(?m)^---\s*$", manifest)]
    public_documents = [
        document for document in documents if document and not _SECRET.search(document)
    ]
    return "".join(f"---\n{document}\n" for document in public_documents)
