"""The command `hvdchart`: parses arguments, prints results, sets exit codes.

Commands import what they need when they run, so that `render` starts fast. Modules with commands
do not import `annotations` from `__future__`: Typer would compile the text of each annotation twice
at every start.
"""

import errno
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Annotated

import typer
import typer.main

from hvdchart.cli import (
    bench,
    build,
    code,
    config,
    debug,
    deploy,
    dev,
    discover,
    doctor,
    events,
    image,
    init,
    logs,
    migrate,
    plan,
    render,
    restart,
    run,
    scale,
    schema,
    stack,
    status,
    stop,
    templates,
    tensorboard,
    timeline,
    top,
    tune,
    wait,
)
from hvdchart.cli import exec as exec_command
from hvdchart.cli import list as list_command
from hvdchart.cli.terminal import say, show
from hvdchart.errors import FileError, HvdchartError

# Each command and what its help ends with, in the order of `hvdchart --help`.
_COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "render": (render.render, render.EPILOG),
    "plan": (plan.plan, plan.EPILOG),
    "schema": (schema.schema, schema.EPILOG),
    "init": (init.init, init.EPILOG),
    "config": (config.config, config.EPILOG),
    "build": (build.build, build.EPILOG),
    "deploy": (deploy.deploy, deploy.DEPLOY_EPILOG),
    "undeploy": (deploy.undeploy, deploy.UNDEPLOY_EPILOG),
    "run": (run.run, run.EPILOG),
    "dev": (dev.dev, dev.EPILOG),
    "code": (code.code, code.EPILOG),
    "list": (list_command.list_runs, list_command.EPILOG),
    "status": (status.status, status.EPILOG),
    "logs": (logs.logs, logs.EPILOG),
    "events": (events.events, events.EPILOG),
    "wait": (wait.wait, wait.EPILOG),
    "stop": (stop.stop, stop.EPILOG),
    "restart": (restart.restart, restart.EPILOG),
    "scale": (scale.scale, scale.EPILOG),
    "top": (top.top, top.EPILOG),
    "exec": (exec_command.exec_in_pod, exec_command.EPILOG),
    "stack": (stack.stack, stack.EPILOG),
    "debug": (debug.debug, debug.EPILOG),
    "tensorboard": (tensorboard.tensorboard, tensorboard.EPILOG),
    "timeline": (timeline.timeline, timeline.EPILOG),
    "doctor": (doctor.doctor, doctor.EPILOG),
    "discover": (discover.discover, discover.EPILOG),
    "migrate": (migrate.migrate, migrate.EPILOG),
    "tune": (tune.tune, tune.EPILOG),
    "bench": (bench.bench, bench.EPILOG),
}
# How a write to a full disk, or to /dev/full, fails.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_GROUPS = {"templates": templates.app, "image": image.app}
app = typer.Typer(
    name="hvdchart",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Plan and run distributed Horovod training on Kubernetes.",
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from hvdchart import __version__

        show(f"hvdchart {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Plan and run distributed Horovod training on Kubernetes."""


for _name, (_function, _epilog) in _COMMANDS.items():
    app.command(_name, epilog=_epilog)(_function)
for _name, _group in _GROUPS.items():
    app.add_typer(_group, name=_name)


@cache
def command() -> Callable[[], None]:
    """Return the command, which Typer builds from the annotations of all subcommands."""
    return typer.main.get_command(app)


def main() -> None:
    """Run the command; print an HvdchartError as one message and exit with its exit code."""
    try:
        command()()
    except HvdchartError as error:
        say(str(error))
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        # What was not written would be written again at the end, and end in a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        say(f"cannot write the output: {error.strerror}")
        sys.exit(FileError.exit_code)


if __name__ == "__main__":
    main()
