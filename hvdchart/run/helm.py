"""Calls Helm, through pyhelm3 and the program `helm`; no other module does."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyhelm3

from hvdchart.chart_files import chart_dir
from hvdchart.errors import ClusterError, HelmError, NoRunError
from hvdchart.plan.model import Plan
from hvdchart.run.helm_errors import remedy_for
from hvdchart.run.release import Object
from hvdchart.values.check import checked_values

T = TypeVar("T")
# Older ones cannot ask the API server what an upgrade would change.
_OLDEST = (3, 13)
_VERSION = re.compile(r"v?((\d+)\.(\d+)\.\S+)")
_SECRET = re.compile(r"(?m)^kind: Secret$")
# A value of a ConfigMap's binaryData.
_ARCHIVE = re.compile(r"(?m)^( +[-._\w]+: )([A-Za-z0-9+/]{100,}={0,2})$")
# Seconds that Helm has to end after an interrupt; then it is asked to, and has them again.
_GRACE = 10
# Seconds after which a wait looks for signals again.
_PART = 0.2
# Seconds in which a second Ctrl-C is the same as the first.
_TWICE_WITHIN = 0.3


class _FailedError(Exception):
    """Helm has ended with another exit code than 0; the message is Helm's."""


class _Command(pyhelm3.Command):  # type: ignore[misc] # pyhelm3 has no types
    """pyhelm3's commands of Helm, started from a list of arguments: pyhelm3 uses a shell."""

    def __init__(self, options: Sequence[str], **settings: Any) -> None:
        super().__init__(**settings)
        self._options = options

    async def run(self, command: list[Any], input: bytes | None = None) -> bytes:
        arguments = [self._executable, *map(str, command), *self._options]
        if self._kubecontext:
            arguments += ["--kube-context", self._kubecontext]
        if input:
            # Helm refuses the surrogate pairs with which json.dumps escapes emoji and the like.
            input = json.dumps(json.loads(input), ensure_ascii=False).encode()
        code, output, errors = _run(arguments, input)
        if code:
            raise _FailedError(errors.strip() or f"exit code {code}")
        return output


@dataclass(frozen=True)
class Helm:
    """The program, a name on PATH or a path, and the kubeconfig's context that it uses."""

    program: str = "helm"
    context: str | None = None
    # How many revisions of a release it keeps: it reads all of them at each upgrade.
    revisions: int = 10
    # Further options of every command.
    options: tuple[str, ...] = ()

    @property
    def command(self) -> Any:
        """pyhelm3's commands, each a coroutine for `call`."""
        return _Command(
            self.options,
            executable=self.program,
            kubecontext=self.context,
            history_max_revisions=self.revisions,
        )

    def call(self, what: str, name: str, namespace: str, command: Coroutine[Any, Any, T]) -> T:
        """What a command of Helm about a release answers. Raises HelmError and NoRunError."""
        try:
            return _result(command)
        except _FailedError as error:
            message = str(error)
        except (ValueError, RecursionError) as error:
            self.version()
            output = str(getattr(error, "doc", error))[:200]
            raise HelmError(f"{self.program} does not print JSON: {output}") from error
        if "release: not found" in message:
            raise NoRunError(name, namespace)
        # Not before: it takes as long as a tenth of a second.
        self.version()
        remedy = remedy_for(message, name, namespace)
        raise HelmError(f"helm {what}: {message}{f'; {remedy}' if remedy else ''}")

    def version(self) -> str:
        """The program's version. Raises HelmError if it is too old, or the program is not Helm."""
        try:
            output = str(_result(self.command.version())).strip()
        except _FailedError as error:
            output = str(error)
        match = _VERSION.fullmatch(output)
        if not match:
            raise HelmError(
                f"`{self.program} version` does not print a version, so it is not Helm: {output}"
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
    arguments = ["template", plan.spec.name, str(chart_dir()), "--namespace", namespace]
    # `helm install` sends no pods of `helm test` either.
    arguments += ["--skip-crds", "--skip-tests", "--values", "-"]
    # Not pyhelm3's own `template`: it returns parsed objects, and people read Helm's text.
    helm = Helm(program)
    run = helm.command.run(arguments, json.dumps(checked_values(plan)).encode())
    output: bytes = helm.call("template", plan.spec.name, namespace, run)
    return output.decode()


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
    if not is_validated:
        # pyhelm3's own disable_validation adds each character of it as an argument.
        helm = replace(helm, options=(*helm.options, "--disable-openapi-validation"))
    # Helm merges values into those of the last revision unless --reset-values is given.
    command = helm.command.install_or_upgrade(
        name, chart_dir(), values, namespace=namespace, create_namespace=create_namespace,
        reset_values=True,
    )  # fmt: skip
    revision: Object = helm.call("upgrade", name, namespace, command)
    return int(revision["version"])


def preview(plan: Plan, namespace: str, helm: Helm) -> tuple[str, str]:
    """The manifests of a release as they are, empty without one, and as `deploy` would apply them.

    The API server checks these, and nothing is changed. Secrets are left out. Raises HelmError, and
    SpecError when the chart refuses the values.
    """
    name = plan.spec.name
    arguments = ["upgrade", name, str(chart_dir()), "--namespace", namespace, "--reset-values"]
    # Not pyhelm3's own `install_or_upgrade`: its dry run does not ask the API server.
    arguments += ["--install", "--dry-run=server", "--output", "json", "--values", "-"]

    async def read(arguments: list[str], values: Object | None = None) -> str:
        text = None if values is None else json.dumps(values).encode()
        output: bytes = await helm.command.run(arguments, text)
        return str(json.loads(output)["manifest"]) if values else output.decode()

    after = helm.call("upgrade", name, namespace, read(arguments, checked_values(plan)))
    try:
        present = read(["get", "manifest", name, "--namespace", namespace])
        before = helm.call("get", name, namespace, present)
    except ClusterError:
        before = ""
    return _public(before), _public(after)


def release_chart(name: str, namespace: str, helm: Helm) -> str | None:
    """The name of a release's chart; None when there is no release of that name."""

    async def read() -> str:
        # Not pyhelm3's own `list`, which has no filter: `--all` is an option of Helm 3 alone.
        arguments = ["get", "metadata", name, "--namespace", namespace, "--output", "json"]
        return str(json.loads(await helm.command.run(arguments))["chart"])

    try:
        return helm.call("get", name, namespace, read())
    except ClusterError:
        return None


def release_values(name: str, namespace: str, helm: Helm) -> Object:
    """The values that a release was installed with; raises ClusterError without a release."""
    command = helm.command.get_values(name, namespace=namespace)
    values: Object = helm.call("get", name, namespace, command)
    return values


def undeploy(name: str, namespace: str, helm: Helm) -> None:
    """Run `helm uninstall`, and wait until it is done. Raises NoRunError and HelmError."""
    command = helm.command.uninstall(name, namespace=namespace, wait=True)
    helm.call("uninstall", name, namespace, command)


def _result(command: Coroutine[Any, Any, T]) -> T:
    """What a command of pyhelm3 answers; no event loop, because asyncio's holds back Ctrl-C."""
    try:
        command.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("pyhelm3 waits for something other than Helm")


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


def _run(command: list[str], values: bytes | None) -> tuple[int, bytes, str]:
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
    begun: Future[subprocess.Popen[bytes]] = Future()
    ended: Future[tuple[int, bytes, str]] = Future()

    def carry() -> None:
        pipe = subprocess.PIPE
        try:
            with subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=changes
            ) as process:
                begun.set_result(process)
                output, errors = process.communicate(values or b"")
            ended.set_result((process.returncode, output, errors.decode(errors="replace")))
        except (OSError, ValueError) as problem:
            (ended if begun.done() else begun).set_exception(problem)

    try:
        try:
            # Ctrl-C reaches the main thread alone: it cuts neither the start nor the input.
            threading.Thread(target=carry, daemon=True).start()
        except RuntimeError:
            # This program ends, and Python starts no more threads.
            carry()
        _await(begun, math.inf)
        return _await(ended, math.inf)
    except KeyboardInterrupt:
        _end(begun, ended, changes)
        raise


def _await(carried: Future[T], seconds: float) -> T:
    """The result of another thread. Raises TimeoutError, or KeyboardInterrupt on Ctrl-C.

    It waits in parts: Python sees a signal that comes just before a wait only after it.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            return carried.result(timeout=_PART)
        except TimeoutError:
            if time.monotonic() > until:
                raise


@contextmanager
def _ignored_interrupts() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(begun: Future[subprocess.Popen[bytes]], ended: Future[Any], changes: bool) -> None:
    """Wait for a Helm that changes something, and end it when it takes long or after Ctrl-C."""
    if changes:
        # A terminal and what forwards its signals may send the first one twice.
        with _ignored_interrupts(), suppress(TimeoutError):
            _await(ended, _TWICE_WITHIN)
            return
        with suppress(KeyboardInterrupt, TimeoutError):
            with suppress(OSError, ValueError):
                print("hvdchart: waiting for Helm to end; Ctrl-C again stops it", file=sys.stderr)
            _await(ended, _GRACE)
            return
    for sent in (signal.SIGTERM, signal.SIGKILL):
        with suppress(KeyboardInterrupt, TimeoutError, OSError):
            process = _await(begun, _GRACE)
            if changes:
                # Also the plugin that Helm may have started for credentials.
                os.killpg(process.pid, sent)
            else:
                process.send_signal(sent)
        with suppress(KeyboardInterrupt, TimeoutError):
            _await(ended, _GRACE)
            return
