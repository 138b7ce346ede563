"""Helm's commands by pyhelm3, which knows their options and what they print.

Only this module uses pyhelm3. It differs from pyhelm3's own commands in these points:

- Helm gets a list of arguments, without a shell.
- Ctrl-C neither waits for an event loop, nor ends a change half-way (`helm_process`).
- Values keep their characters: Helm refuses the surrogate pairs that pyhelm3 sends for emoji.
- Manifests are texts for people, where pyhelm3 parses objects.
- Commands and options that pyhelm3 lacks are added: its dry run does not ask the API server.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import pyhelm3

from hvdchart.chart_files import chart_dir
from hvdchart.run.helm_process import run_to_end
from hvdchart.run.state.release import Object

_Result = TypeVar("_Result")
# pyhelm3's own `disable_validation` adds each character of the option as an argument.
NO_VALIDATION = "--disable-openapi-validation"
# A template of the name of a release's chart, and of what Chart.yaml of this chart alone says.
_CHART = (
    '{"name": {{printf "%q" .Release.Chart.Metadata.Name}}, '
    '"own": {{printf "%q" (index .Release.Chart.Metadata.Annotations "hvdchart/chart")}}}'
)


class HelmCommand(pyhelm3.Command):  # type: ignore[misc] # pyhelm3 has no types
    """A command of Helm: `complete_command` returns the result of one of its methods.

    `revisions` is the number of revisions of a release to keep. `options` are added to the command.
    """

    def __init__(
        self, program: str, context: str | None, revisions: int, options: Sequence[str]
    ) -> None:
        super().__init__(history_max_revisions=revisions)
        self._program = program
        self._added = [*options]
        if context:
            self._added += ["--kube-context", context]

    async def run(self, command: list[Any], input: bytes | None = None) -> bytes:
        """Run Helm with these arguments and this input; return its standard output.

        pyhelm3's own methods call it. Raises CalledProcessError, whose `stderr` is text, when Helm
        fails.
        """
        values = json.dumps(json.loads(input), ensure_ascii=False) if input else ""
        arguments = [self._program, *map(str, command), *self._added]
        ended = run_to_end(arguments, values.encode())
        if ended.code:
            raise subprocess.CalledProcessError(ended.code, command, ended.output, ended.message)
        return ended.output.encode()

    async def upgrade(
        self, name: str, namespace: str, values: Object, *, create_namespace: bool = False
    ) -> Any:
        """Install or upgrade a release with these values; return it as Helm prints it in JSON."""
        # Without --reset-values, Helm merges values into those of the last revision.
        return await self.install_or_upgrade(
            name,
            chart_dir(),
            values,
            namespace=namespace,
            create_namespace=create_namespace,
            reset_values=True,
        )

    async def render(self, name: str, namespace: str, values: Object) -> str:
        """Return the manifests of the chart with these values."""
        command = ["template", name, str(chart_dir()), "--namespace", namespace]
        # `helm install` does not send the pods of `helm test`, either.
        command += ["--skip-crds", "--skip-tests", "--values", "-"]
        return (await self.run(command, json.dumps(values).encode())).decode()

    async def get_manifest(self, name: str, namespace: str) -> str:
        """Return the manifests of a release as Helm sent them."""
        return (await self.run(["get", "manifest", name, "--namespace", namespace])).decode()

    async def get_metadata(self, name: str, namespace: str) -> Any:
        """Return the revision and the status of a release, as Helm prints them in JSON."""
        command = ["get", "metadata", name, "--namespace", namespace, "--output", "json"]
        return json.loads(await self.run(command))

    async def get_chart(self, name: str, namespace: str) -> Any:
        """Return the `name` of a release's chart, and `own`, which is empty for another chart."""
        command = ["get", "all", name, "--namespace", namespace, "--template", _CHART]
        return json.loads(await self.run(command))


def complete_command(command: Coroutine[Any, Any, _Result]) -> _Result:
    """Return the result of a method of `HelmCommand`, without an event loop.

    Raises the exceptions of the method, and RuntimeError if it waits for anything but Helm.
    """
    try:
        command.send(None)
    except StopIteration as end:
        result: _Result = end.value
        return result
    raise RuntimeError("pyhelm3 waits for something other than Helm")
