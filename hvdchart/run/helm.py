"""Calls the program `helm`; no other module does."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
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
_GRACE = 10.0
# Seconds after which a wait looks for interrupts: Python sees one that comes just before only then.
_PART = 0.2
# Seconds in which a second Ctrl-C is the same as the first.
_TWICE_WITHIN = 0.3


@dataclass(frozen=True)
class Helm:
    """The program, a name on PATH or a path, and the kubeconfig's context that it uses."""

    program: str = "helm"
    context: str | None = None
    # How many revisions of a release it keeps: it reads all of them at each upgrade.
    revisions: int = 10

    def call(
        self, name: str, namespace: str, arguments: Sequence[str], values: Object | None = None
    ) -> str:
        """What a command of Helm about a release prints. Raises HelmError and NoRunError."""
        command = [self.program, *arguments, "--namespace", namespace]
        command += ["--kube-context", self.context] if self.context else []
        # Helm refuses the surrogate pairs with which json.dumps escapes emoji and the like.
        text = "" if values is None else json.dumps(values, ensure_ascii=False)
        code, output, message = _run(command, text.encode())
        if code == 0:
            return output
        if "release: not found" in message:
            raise NoRunError(name, namespace)
        # Not before: it takes as long as a tenth of a second.
        self.version()
        remedy = remedy_for(message, name, namespace)
        raise HelmError(f"helm {arguments[0]}: {message}{f'; {remedy}' if remedy else ''}")

    def read(
        self, name: str, namespace: str, arguments: Sequence[str], values: Object | None = None
    ) -> Any:
        """As `call`, with what Helm prints as JSON."""
        output = self.call(name, namespace, [*arguments, "--output", "json"], values)
        try:
            return json.loads(output)
        except (ValueError, RecursionError) as error:
            self.version()
            raise HelmError(f"{self.program} does not print JSON: {output[:200]}") from error

    def version(self) -> str:
        """The program's version. Raises HelmError if it is too old, or the program is not Helm."""
        _, output, message = _run([self.program, "version", "--template", "{{ .Version }}"])
        match = _VERSION.fullmatch(output.strip())
        if not match:
            raise HelmError(
                f"`{self.program} version` does not print a version, so it is not Helm: "
                f"{output.strip() or message}"
            )
        if (int(match[2]), int(match[3])) < _OLDEST:
            oldest = ".".join(map(str, _OLDEST))
            raise HelmError(
                f"{self.program} is Helm {match[1]}: install Helm 4, or Helm {oldest} or newer, or "
                "name one with --helm PATH"
            )
        return match[1]


def manifests(plan: Plan, namespace: str, program: str = "helm") -> str:
    """The manifests that `helm install` would send to the cluster, as Helm writes them.

    `program` is Helm's: a name on PATH or a path. The cluster is not contacted, so the chart cannot
    look up existing SSH keys and generates new ones each time. Raises HelmError, and SpecError when
    the chart refuses the spec's own `values`.
    """
    # `helm install` sends no pods of `helm test` either.
    options = ["--skip-crds", "--skip-tests", "--values", "-"]
    arguments = ["template", plan.spec.name, str(chart_dir()), *options]
    return Helm(program).call(plan.spec.name, namespace, arguments, checked_values(plan))


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
    arguments = ["upgrade", name, str(chart_dir()), "--install", "--reset-values", "--values", "-"]
    arguments += ["--history-max", str(helm.revisions)]
    arguments += ["--create-namespace"] if create_namespace else []
    arguments += [] if is_validated else ["--disable-openapi-validation"]
    return int(helm.read(name, namespace, arguments, values)["version"])


def preview(plan: Plan, namespace: str, helm: Helm) -> tuple[str, str]:
    """The manifests of a release as they are, empty without one, and as `deploy` would apply them.

    The API server checks these, and nothing is changed. Secrets are left out. Raises HelmError, and
    SpecError when the chart refuses the values.
    """
    name = plan.spec.name
    arguments = ["upgrade", name, str(chart_dir()), "--reset-values", "--install"]
    arguments += ["--dry-run=server", "--values", "-"]
    after = helm.read(name, namespace, arguments, checked_values(plan))["manifest"]
    try:
        before = helm.call(name, namespace, ["get", "manifest", name])
    except ClusterError:
        before = ""
    return _public(before), _public(str(after))


def release_chart(name: str, namespace: str, helm: Helm) -> str | None:
    """The name of a release's chart; None when there is no release of that name."""
    try:
        return str(helm.read(name, namespace, ["get", "metadata", name])["chart"])
    except ClusterError:
        return None


def release_values(name: str, namespace: str, helm: Helm) -> Object:
    """The values that a release was installed with; raises ClusterError without a release."""
    values: Object | None = helm.read(name, namespace, ["get", "values", name])
    return values or {}


def undeploy(name: str, namespace: str, helm: Helm) -> None:
    """Run `helm uninstall`, and wait until it is done. Raises NoRunError and HelmError."""
    helm.call(name, namespace, ["uninstall", name, "--wait"])


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


def _run(command: Sequence[str], values: bytes = b"") -> tuple[int, str, str]:
    """Run a program to its end; its exit code, output and errors.

    Ctrl-C does not reach a Helm that changes something: one that is interrupted leaves objects of
    both revisions, and no revision that has all of them. It has time to end; the next Ctrl-C asks
    it to end at once. A Helm that reads ends with Ctrl-C, and may ask at the terminal.
    """
    if shutil.which(command[0]) is None:
        raise HelmError(
            f"no program {command[0]!r} is on PATH: install Helm 4 or 3, or name it with --helm "
            "PATH"
        )
    changes = command[1] in ("upgrade", "uninstall") and "--dry-run=server" not in command
    # What follows an interrupt, one after the other; first the wait for a change.
    steps = [*([None] if changes else []), signal.SIGTERM, signal.SIGKILL]
    given: bytes | None = values
    pipe = subprocess.PIPE
    with (
        _interrupts() as presses,
        subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=changes
        ) as process,
    ):
        taken, last = 0, 0.0
        while True:
            with suppress(subprocess.TimeoutExpired):
                output, errors = process.communicate(given, timeout=_PART)
                break
            given, now = None, time.monotonic()
            is_asked = taken < len(presses) and now - presses[0] > _TWICE_WITHIN
            if is_asked or (taken and now - last > _GRACE):
                if taken == len(steps):
                    output = errors = b""
                    break
                _end(process, steps[taken])
                taken, last = taken + 1, now
    message = errors.decode(errors="replace").strip() or f"exit code {process.returncode}"
    return process.returncode, output.decode(errors="replace"), message


@contextmanager
def _interrupts() -> Iterator[list[float]]:
    """The times at which Ctrl-C is pressed in the block; what it is for happens after the block."""
    presses: list[float] = []
    before = signal.getsignal(signal.SIGINT)
    # No other thread gets signals.
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield presses
        return

    def press(*_: object) -> None:
        # A terminal and what forwards its signals may send the first one twice.
        if not presses or time.monotonic() - presses[0] > _TWICE_WITHIN:
            presses.append(time.monotonic())

    signal.signal(signal.SIGINT, press)
    try:
        yield presses
    finally:
        signal.signal(signal.SIGINT, before)
    _repeat(before, len(presses))


def _repeat(handler: Callable[..., object], times: int) -> None:
    """Call a signal's handler, and raise KeyboardInterrupt at the end if it did."""
    is_raised = False
    for _ in range(times):
        try:
            handler(signal.SIGINT, None)
        except KeyboardInterrupt:
            is_raised = True
    if is_raised:
        raise KeyboardInterrupt


def _end(process: subprocess.Popen[bytes], sent: signal.Signals | None) -> None:
    """Send a signal to Helm, or without one say that its change is waited for."""
    with suppress(OSError, ValueError):
        if sent is None:
            print("hvdchart: waiting for Helm to end; Ctrl-C again stops it", file=sys.stderr)
        elif os.getpgid(process.pid) == process.pid:
            # Also the plugin that Helm may have started for credentials.
            os.killpg(process.pid, sent)
        else:
            process.send_signal(sent)
