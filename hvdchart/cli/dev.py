"""The subcommands for the user's own code: dev runs it at each save, code gives it back."""

import sys
import threading
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hvdchart.cli.build import Builder, LoadWith, Verbose, with_own_image
from hvdchart.cli.options import (
    Context,
    CreateNamespace,
    Files,
    Helm,
    Name,
    Namespace,
    Settings,
    Specs,
    plan_specs,
    print_warnings,
)
from hvdchart.cli.terminal import say
from hvdchart.errors import ClusterError, FileError, HvdchartError

if TYPE_CHECKING:
    from hvdchart.run.cluster import Cluster

# A run of `dev` is not repeated after a failure, and the workers wait for the next change.
_VALUES = {"cleanup": "Never", "master": {"backoffLimit": 0}}


def register(app: typer.Typer) -> None:
    """Add the subcommands."""
    app.command()(dev)
    app.command()(code)


def dev(
    code: Annotated[
        Path, typer.Option("--code", metavar="PATH", help="Script or folder to watch and to run.")
    ],
    specs: Specs = None,
    files: Files = None,
    settings: Settings = None,
    namespace: Namespace = None,
    context: Context = None,
    helm: Helm = "helm",
    create_namespace: CreateNamespace = False,
    builder: Builder = None,
    load_with: LoadWith = "",
    verbose: Verbose = False,
) -> None:
    """Run the code, and run it again each time that it is saved.

    The project's image is built first, as `deploy` does. The workers stay between the runs. Ctrl-C
    stops the run and keeps the workers for the next change; Ctrl-C again uninstalls the release.
    """
    from hvdchart.code.changes import CodeChanges
    from hvdchart.run import helm as helm_module
    from hvdchart.run.cluster import Cluster

    cluster = Cluster.connect(context, namespace)
    log = _Log(cluster)
    changes = CodeChanges(code)
    name = ""
    is_deployed = is_stopped = must_stop = False
    said: set[str] = set()

    def say_once(text: str) -> None:
        """An image that is there is remarked at the first save only."""
        if text not in said:
            said.add(text)
            say(text)

    while True:
        try:
            # Not where the interrupt is caught: another one may come at any moment.
            if must_stop:
                cluster.suspend_jobs(name)
                must_stop = False
                say("run stopped; the workers wait for the next change. Ctrl-C uninstalls them")
            for change in changes:
                if isinstance(change, FileError):
                    say(f"{change}; waiting for the next change")
                    continue
                is_stopped = False
                try:
                    paths, plan = plan_specs(specs, files, settings, {**_VALUES, "code": change})
                    plan = with_own_image(
                        plan, paths, cluster, builder=builder, load_with=load_with,
                        report=say_once, verbose=verbose,
                    )  # fmt: skip
                    if not name:
                        print_warnings(plan)
                    # An interrupted Helm may have created some of the release.
                    name = plan.spec.name
                    helm_module.deploy(
                        plan, cluster.namespace, context=context, helm=helm,
                        create_namespace=create_namespace,
                    )  # fmt: skip
                except HvdchartError as error:
                    if not is_deployed:
                        raise
                    say(f"{error}; waiting for the next change")
                    continue
                is_deployed = True
                log.show(name)
        except KeyboardInterrupt:
            if is_stopped or not name:
                break
            is_stopped = must_stop = True
    if name:
        # There is no release when Helm was interrupted before it had begun.
        with nullcontext() if is_deployed else suppress(ClusterError):
            helm_module.undeploy(name, cluster.namespace, context=context, helm=helm)
            say(f"release {name} uninstalled from namespace {cluster.namespace}")
    raise typer.Exit(130)


def code(
    name: Name,
    folder: Annotated[
        Path, typer.Option("--write", "-w", metavar="FOLDER", help="New folder for the files.")
    ],
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Write the code of a run, as the cluster has it, to a folder."""
    from hvdchart.code.unpack import unpack_code
    from hvdchart.run.cluster import Cluster

    cluster = Cluster.connect(context, namespace)
    config_map = cluster.code(name)
    if config_map is None:
        raise ClusterError(
            f"no run {name} with code in namespace {cluster.namespace}: its image has the code, or "
            "there is no such run"
        )
    for file in unpack_code(config_map, folder):
        sys.stdout.write(f"{folder / file}\n")


class _Log:
    """Prints the master's log of each run in the background, and how the run ended."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._name = ""
        self._wanted = threading.Event()
        self._printed: set[str] = set()
        self._reported = ""
        threading.Thread(target=self._print, name="log", daemon=True).start()

    def show(self, name: str) -> None:
        """Print the release's newest run; while an earlier one is printed, go on with this one."""
        self._name = name
        self._wanted.set()

    def _print(self) -> None:
        while self._wanted.wait():
            self._wanted.clear()
            try:
                self._print_run()
            except HvdchartError as error:
                say(f"{error}; the run continues, without its log here")

    def _print_run(self) -> None:
        from hvdchart.run.logs import follow
        from hvdchart.run.status import run_status

        earlier = frozenset(self._printed)
        for line in follow(self._cluster, self._name, component="master"):
            # The pods of the runs before are deleted a moment later.
            if line.pod not in earlier:
                self._printed.add(line.pod)
                sys.stdout.write(f"{line.text}\n")
                sys.stdout.flush()
        current = run_status(self._cluster.release(self._name))
        # A run that replaced another one may have been printed together with it.
        if current.job == self._reported:
            return
        self._reported = current.job
        progress = f" at {current.progress.text(is_over=True)}" if current.progress else ""
        say(f"run {current.state}{progress}{f': {current.reason}' if current.reason else ''}")
