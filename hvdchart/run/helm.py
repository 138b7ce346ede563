"""Calls the program `helm`; no other module does."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass

from hvdchart.chart_files import chart_dir
from hvdchart.errors import ClusterError, HelmError
from hvdchart.plan.model import Plan
from hvdchart.run.helm_errors import remedy_for
from hvdchart.run.release import Object
from hvdchart.values.check import checked_values

# Older ones cannot ask the API server what an upgrade would change.
_OLDEST = (3, 13)
_VERSION = re.compile(r"v?((\d+)\.(\d+)\.\S+)")
_SECRET = re.compile(r"(?m)^kind: Secret$")
# Revisions that Helm keeps of a release; each is a Secret.
_REVISIONS = 10
# Seconds that an interrupted Helm has to write that its release has failed.
_GRACE = 5


@dataclass(frozen=True)
class Helm:
    """The program, a name on PATH or a path, and the kubeconfig's context that it uses."""

    program: str = "helm"
    context: str | None = None

    def call(self, name: str, namespace: str, *arguments: str, values: Object | None = None) -> str:
        """What Helm prints about a release; `values` go to its standard input.

        Raises HelmError with Helm's message, and ClusterError where there is no such release.
        """
        command = [self.program, *arguments]
        command += ["--kube-context", self.context] if self.context else []
        # Helm refuses the surrogate pairs with which json.dumps escapes emoji and the like.
        text = None if values is None else json.dumps(values, ensure_ascii=False)
        code, output, errors = _run(command, text)
        if code == 0:
            return output
        message = errors.strip() or f"exit code {code}"
        if "release: not found" in message:
            raise ClusterError(
                f"no run {name} in namespace {namespace}; list all runs: hvdchart list "
                "--all-namespaces"
            )
        # Not before: it takes as long as a tenth of a second.
        self.version()
        remedy = remedy_for(message, name, namespace)
        raise HelmError(f"helm {arguments[0]}: {message}{f'; {remedy}' if remedy else ''}")

    def version(self) -> str:
        """The program's version; raises HelmError for one that is too old, and no Helm."""
        code, output, errors = _run([self.program, "version", "--template", "{{ .Version }}"], None)
        match = _VERSION.fullmatch(output.strip())
        if code or not match:
            raise HelmError(
                f"`{self.program} version` does not print a version, so it is not Helm: "
                f"{(errors or output).strip()}"
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
    name = plan.spec.name
    arguments = ["template", name, str(chart_dir()), "--namespace", namespace]
    # `helm install` sends no pods of `helm test` either.
    arguments += ["--skip-crds", "--skip-tests", "--values", "-"]
    return Helm(helm).call(name, namespace, *arguments, values=checked_values(plan))


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
    more = ["--install", *(["--create-namespace"] if create_namespace else [])]
    return upgrade(plan.spec.name, namespace, checked_values(plan), Helm(helm, context), *more)


def upgrade(name: str, namespace: str, values: Object, helm: Helm, *more: str) -> Installed:
    """Run `helm upgrade` with these values only, and more options."""
    # Helm merges values into those of the last revision unless --reset-values is given.
    arguments = ["upgrade", name, str(chart_dir()), "--namespace", namespace, "--reset-values"]
    arguments += ["--history-max", str(_REVISIONS), "--output", "json", "--values", "-", *more]
    output = helm.call(name, namespace, *arguments, values=values)
    return Installed(name, namespace, int(_document(helm, output)["version"]))


def preview(plan: Plan, namespace: str, helm: Helm) -> Preview:
    """What `deploy` would change. The API server checks it, and nothing is changed.

    Secrets are left out. Raises HelmError, and SpecError when the chart refuses the values.
    """
    name = plan.spec.name
    arguments = ["upgrade", name, str(chart_dir()), "--namespace", namespace, "--reset-values"]
    arguments += ["--install", "--dry-run=server", "--output", "json", "--values", "-"]
    output = helm.call(name, namespace, *arguments, values=checked_values(plan))
    try:
        before = helm.call(name, namespace, "get", "manifest", name, "--namespace", namespace)
    except ClusterError:
        before = ""
    return Preview(_public(before), _public(str(_document(helm, output)["manifest"])))


def release_chart(name: str, namespace: str, helm: Helm) -> str | None:
    """The chart of a release, with its version; None when there is no release of that name."""
    arguments = ["list", "--filter", f"^{re.escape(name)}$", "--all", "--namespace", namespace]
    output = helm.call(name, namespace, *arguments, "--output", "json")
    found: list[Object] = json.loads(output or "[]")
    return str(found[0]["chart"]) if found else None


def release_values(name: str, namespace: str, helm: Helm) -> Object:
    """The values that a release was installed with; raises ClusterError without a release."""
    arguments = ["get", "values", name, "--namespace", namespace, "--output", "json"]
    values = _document(helm, helm.call(name, namespace, *arguments))
    return values or {}


def undeploy(name: str, namespace: str, *, context: str | None = None, helm: str = "helm") -> None:
    """Run `helm uninstall` and wait until the release's objects are deleted.

    Raises ClusterError when there is no release of that name, and HelmError.
    """
    arguments = ["uninstall", name, "--namespace", namespace, "--wait"]
    Helm(helm, context).call(name, namespace, *arguments)


def _public(manifest: str) -> str:
    """Manifests without Secrets, each after its mark."""
    documents = [part.strip() for part in re.split(r"(?m)^---\s*$", manifest)]
    kept = [each for each in documents if each and not _SECRET.search(each)]
    return "".join(f"---\n{each}\n" for each in kept)


def _document(helm: Helm, output: str) -> Object:
    try:
        document: Object = json.loads(output)
    except ValueError as error:
        helm.version()
        raise HelmError(f"{helm.program} does not print JSON: {output[:200]}") from error
    return document


def _run(command: list[str], text: str | None) -> tuple[int, str, str]:
    """Run a program to its end; its exit code, output and errors.

    An interrupt is passed on, and Helm has time to write that its release has failed: otherwise
    the next command would find an operation in progress.
    """
    if shutil.which(command[0]) is None:
        raise HelmError(
            f"no program {command[0]!r} is on PATH: install Helm 3 or 4, or name it with --helm "
            "PATH"
        )
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        encoding="utf-8", errors="replace",
    ) as process:  # fmt: skip
        try:
            output, errors = process.communicate(text or "")
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
    return process.returncode, output, errors
