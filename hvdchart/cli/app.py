"""The command `hvdchart`: parses arguments, prints results, sets exit codes.

Commands import what they need when they run, so that `render` starts fast. Modules with commands
do not import `annotations` from `__future__`: Typer would compile the text of each annotation twice
at every start.
"""

import errno
import os
import re
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from inspect import cleandoc
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperGroup

from hvdchart.cli import image
from hvdchart.cli.terminal import prepare_streams, print_lines, print_remark
from hvdchart.cli.usage import Command
from hvdchart.errors import FileError, HvdchartError
from hvdchart.interrupts import interrupting_signals

# Each command is the function of this name in the module of this name, in the order of `hvdchart
# --help`.
_COMMANDS = {
    "Train": ("run", "dev", "deploy", "undeploy", "stop", "restart", "scale", "wait"),
    "Watch": ("list", "status", "watch", "logs", "events", "top", "tensorboard", "timeline"),
    "Look inside": ("stack", "exec", "report"),
    "Write a spec": ("init", "plan", "render", "discover", "migrate"),
    "Prepare and measure": ("doctor", "build", "image", "bench"),
}
# The names that Helm, kubectl, Docker and schedulers use for a command.
_OTHER_NAMES = {
    "cancel": "stop",
    "delete": "undeploy",
    "install": "deploy",
    "ls": "list",
    "ps": "list",
    "rm": "undeploy",
    "submit": "run",
    "uninstall": "undeploy",
}
# Python has functions of these names: the modules append an underscore to their names.
_TAKEN = ("list", "exec")
# The errors of a write to a full disk, or to /dev/full.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The errors of a path that the system does not let the user name.
_UNUSABLE = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG)


class _Grouped(TyperGroup):
    """The command with its subcommands in groups."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the subcommand of a command line. Raises UsageError for an unknown one."""
        meant = _OTHER_NAMES.get(args[0])
        if meant:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {meant!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        names = [name for group in _COMMANDS.values() for name in group]
        for heading, commands in _COMMANDS.items():
            rows = []
            for name in commands:
                # All groups have the same indent, so that they form one table.
                row = (
                    f"{name:<{max(map(len, names))}}",
                    (self.commands[name].short_help or "").rstrip("."),
                )
                rows.append(row)
            with formatter.section(heading):
                formatter.write_dl(rows)


app = typer.Typer(
    name="hvdchart",
    cls=_Grouped,
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train one script on many nodes of a Kubernetes cluster.",
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from hvdchart import __version__

        print_lines(f"hvdchart {__version__}")
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
    """Train one script on many nodes of a Kubernetes cluster."""


def _add(group: typer.Typer, name: str, function: Callable[..., None]) -> None:
    """Add a command; append its examples and exit codes to its help text unchanged."""
    text, mark, examples = cleandoc(function.__doc__ or "").partition("\nExample")
    # Without an explicit short help, Typer cuts it after 45 characters.
    first = re.split(r"(?<=\.)\s|:\s", text, maxsplit=1)[0].rstrip(".") + "."
    end = f"\b{mark}{examples}"
    group.command(name, cls=Command, help=text, short_help=first, epilog=end)(function)


for _name in (name for group in _COMMANDS.values() for name in group if name != "image"):
    _module = import_module(f"hvdchart.cli.{_name}")
    _function = f"{_name}_" if _name in _TAKEN else _name
    _add(app, _name, getattr(_module, _function))
_image = typer.Typer(no_args_is_help=True, help="Check container images.")
_image.callback()(lambda: None)
_add(_image, "check", image.check)
app.add_typer(_image, name="image", short_help="Check container images.")


@cache
def command() -> Callable[..., None]:
    """Return the command, which Typer builds from the annotations of all subcommands."""
    return typer.main.get_command(app)


def main() -> None:
    """Run the command; print an HvdchartError as one message and exit with its exit code.

    A write to standard output that finds the disk full ends in the same way, and so does a path
    that the user may not use. Any other exception is a defect, and shows a traceback. SIGTERM and
    SIGHUP interrupt each command as Ctrl-C does, so that it removes what it has created.
    """
    with interrupting_signals():
        _run()


def _run() -> None:
    try:
        prepare_streams()
        # The name is set also where Python was started with -m: shell completion works for this
        # name only.
        command()(prog_name="hvdchart")
    except HvdchartError as error:
        print_remark(str(error))
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno in _UNUSABLE and error.filename:
            print_remark(f"{error.filename}: cannot be used: {error.strerror}")
            sys.exit(FileError.exit_code)
        if error.errno not in _FULL:
            raise
        # Otherwise Python writes the buffered output again at exit, and prints a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print_remark(f"cannot write the output: {error.strerror}")
        sys.exit(FileError.exit_code)


if __name__ == "__main__":
    main()
