"""Calls the program `helm`; no other module does."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hvdchart.chart_files import chart_dir
from hvdchart.errors import ClusterError, HelmError, NoRunError
from hvdchart.plan.model import Plan
from hvdchart.run.helm_errors import remedy_for
from hvdchart.run.release import Object
from hvdchart.values.check import checked_values

# Older ones cannot ask the API server what an upgrade would change.
_OLDEST = (3, 13)
_VERSION = re.compile(r"v?((\d+)\.(\d+)\.\S+)")
_SECRET = re.compile(r"(?m)^kind: Secret$")
# A value of a ConfigMap's binaryData.
_ARCHIVE = re.compile(r"(?m)^( +[-._\w]+: )([A-Za-z0-9+/]{100,}={0,2})$")
# Seconds that Helm has to end after an interrupt; then it is asked to, and has them again.
_GRACE = 10


@dataclass(frozen=True)
class Helm:
    """The program, a name on PATH or a path, and the kubeconfig's context that it uses."""

    program: str = "helm"
    context: str | None = None
    # How many revisions of a release it keeps: it reads all of them at each upgrade.
    revisions: int = 10

    def call(self, name: str, namespace: str, *arguments: str, values: Object | None = None) -> str:
        """What a command of Helm about a release prints; `values` are its standard input.

        Raises HelmError with Helm's message, and ClusterError where there is no such release.
        """
        context = ["--kube-context", self.context] if self.context else []
        # Helm refuses the surrogate pairs with which json.dumps escapes emoji and the like.
        text = "" if values is None else json.dumps(values, ensure_ascii=False)
        line = [self.program, *arguments, "--namespace", namespace, *context]
        code, output, message = _run(line, text.encode())
        if not code:
            return output.decode()
        if "release: not found" in message:
            raise NoRunError(name, namespace)
        # Not before: it takes as long as a tenth of a second.
        self.version()
        remedy = remedy_for(message, name, namespace)
        what = f"helm {arguments[0]}: {message or f'exit code {code}'}"
        raise HelmError(f"{what}{f'; {remedy}' if remedy else ''}")

    def read(self, name: str, namespace: str, *arguments: str, values: Object | None = None) -> Any:
        """As `call`, for a command that prints JSON."""
        output = self.call(name, namespace, *arguments, "--output", "json", values=values)
        try:
            return json.loads(output)
        except (ValueError, RecursionError) as error:
            self.version()
            raise HelmError(f"{self.program} does not print JSON: {output[:200]}") from error

    def version(self) -> str:
        """The program's version. Raises HelmError if it is too old, or the program is not Helm."""
        _, answer, errors = _run([self.program, "version", "--template", "{{ .Version }}"], b"")
        output = answer.decode(errors="replace").strip() or errors
        match = _VERSION.fullmatch(output)
        if not match:
            raise HelmError(
                f"`{self.program} version` does not print a version, so it is not Helm: {output}"
            )
        if (int(match[2]), int(match[3])) < _OLDEST:
            oldest = ".".join(map(str, _OLDEST))
            raise HelmError(
                f"{self.program} is Helm {match[1]}: install Helm {oldest} or newer, or Helm 4, or "
                "name one with --helm PATH"
            )
        return match[1]


@dataclass(frozen=True)
class Preview:
    """The manifests of a release as they are, empty without one, and as Helm would apply them."""

    before: str
    after: str


def manifests(plan: Plan, namespace: str, program: str = "helm") -> str:
    """The manifests that `helm install` would send to the cluster, as Helm writes them.

    `program` is Helm's: a name on PATH or a path. The cluster is not contacted, so the chart cannot
    look up existing SSH keys and generates new ones each time. Raises HelmError, and SpecError when
    the chart refuses the spec's own `values`.
    """
    name = plan.spec.name
    # `helm install` sends no pods of `helm test` either.
    options = ("--skip-crds", "--skip-tests", "--values", "-")
    line = ("template", name, str(chart_dir()), *options)
    return Helm(program).call(name, namespace, *line, values=checked_values(plan))


def upgrade(
    name: str,
    namespace: str,
    values: Object,
    helm: Helm,
    *,
    create_namespace: bool = False,
    is_validated: bool = True,
) -> int:
    """Run `helm upgrade --install` with these values only; returns the release's revision.

    Without --wait and --atomic: Helm would wait for the training to end, time out after 5 minutes
    and roll back a run that is training. `hvdchart.run.logs.follow` waits for the run instead.
    Without `is_validated`, fields that Kubernetes does not know are dropped in silence.
    """
    # Helm merges values into those of the last revision unless --reset-values is given.
    options = ["--install", "--reset-values", "--history-max", str(helm.revisions), "--values", "-"]
    options += ["--create-namespace"] if create_namespace else []
    options += [] if is_validated else ["--disable-openapi-validation"]
    line = ("upgrade", name, str(chart_dir()), *options)
    return int(helm.read(name, namespace, *line, values=values)["version"])


def preview(plan: Plan, namespace: str, helm: Helm) -> Preview:
    """What `deploy` would change. The API server checks it, and nothing is changed.

    Secrets are left out. Raises HelmError, and SpecError when the chart refuses the values.
    """
    name = plan.spec.name
    options = ("--reset-values", "--install", "--dry-run=server", "--values", "-")
    line = ("upgrade", name, str(chart_dir()), *options)
    after = helm.read(name, namespace, *line, values=checked_values(plan))["manifest"]
    try:
        before = helm.call(name, namespace, "get", "manifest", name)
    except ClusterError:
        before = ""
    return Preview(_public(before), _public(str(after)))


def release_chart(name: str, namespace: str, helm: Helm) -> str | None:
    """The name of a release's chart; None when there is no release of that name."""
    try:
        return str(helm.read(name, namespace, "get", "metadata", name)["chart"])
    except ClusterError:
        return None


def release_values(name: str, namespace: str, helm: Helm) -> Object:
    """The values that a release was installed with; raises ClusterError without a release."""
    # Helm prints null for a release without values.
    return helm.read(name, namespace, "get", "values", name) or {}


def without_archives(manifest: str) -> str:
    """Manifests with the size and a digest in the place of each long text in base64."""

    def describe(match: re.Match[str]) -> str:
        digest = hashlib.sha256(match[2].encode()).hexdigest()[:12]
        return f"{match[1]}({len(match[2])} characters of base64, sha256 {digest})"

    return _ARCHIVE.sub(describe, manifest)


def _public(manifest: str) -> str:
    """Manifests without Secrets, each after its mark."""
    documents = [part.strip() for part in re.split(r"(?m)^---\s*$", manifest)]
    kept = [each for each in documents if each and not _SECRET.search(each)]
    return "".join(f"---\n{each}\n" for each in kept)


def _run(command: list[str], values: bytes) -> tuple[int, bytes, str]:
    """Run a program to its end; its exit code, output and errors.

    Ctrl-C does not reach it: a Helm that is interrupted leaves objects of both revisions, and no
    revision that has all of them. It has time to end; the next Ctrl-C asks it to end at once.
    """
    if shutil.which(command[0]) is None:
        raise HelmError(
            f"no program {command[0]!r} is on PATH: install Helm 3 or 4, or name it with --helm "
            "PATH"
        )
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            output, errors = process.communicate(values)
        except KeyboardInterrupt:
            for sent in (0, signal.SIGTERM, signal.SIGKILL):
                process.send_signal(sent)
                with suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
                    process.communicate(timeout=_GRACE)
                    break
            raise
    return process.returncode, output, errors.decode(errors="replace").strip()
