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
from importlib import import_module
from typing import Annotated

import typer
import typer.main

from hvdchart.cli import image, templates
from hvdchart.cli.terminal import say, show
from hvdchart.errors import FileError, HvdchartError

# Each is the function of that name in the module of that name, in the order of `hvdchart --help`.
_COMMANDS = (
    *("render", "plan", "schema", "init", "config", "build", "deploy", "undeploy", "run", "dev"),
    *("code", "list", "status", "logs", "events", "wait", "stop", "restart", "scale", "top"),
    *("exec", "stack", "debug", "tensorboard", "timeline", "doctor", "discover", "migrate"),
    *("tune", "bench"),
)
# Python has a function of the name, or the module imports its own.
_OTHER_NAMES = {"list": "list_runs", "exec": "exec_in_pod"}
# How a write to a full disk, or to /dev/full, fails.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Groups of one command: what the group is about, and its command.
_GROUPS: dict[str, tuple[str, str, Callable[..., None]]] = {
    "templates": ("Templates of new projects.", "list", templates.list_templates),
    "image": ("Check container images.", "check", image.check),
}
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


for _name in _COMMANDS:
    _module = import_module(f"hvdchart.cli.{_name}")
    app.command(_name, epilog=_module.EPILOG)(getattr(_module, _OTHER_NAMES.get(_name, _name)))
for _name, (_about, _word, _function) in _GROUPS.items():
    _group = typer.Typer(no_args_is_help=True, help=_about)
    _group.callback()(lambda: None)
    _group.command(_word, epilog=import_module(f"hvdchart.cli.{_name}").EPILOG)(_function)
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
