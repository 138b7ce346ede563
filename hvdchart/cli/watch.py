"""The command `watch`."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from hvdchart.cli.options import Context, MaybeName, Namespace, connect_to_run
from hvdchart.cli.terminal import make_console, print_lines, print_notes
from hvdchart.errors import RunFailedError

if TYPE_CHECKING:
    from hvdchart.watch.view_model import View


def watch(
    name: MaybeName = None,
    namespace: Namespace = None,
    context: Context = None,
    is_web: Annotated[
        bool, typer.Option("--web", help="Serve the view as a page for a browser on this machine.")
    ] = False,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, metavar="PORT", help="Port of the page (default: any that is free)."
        ),
    ] = 0,
) -> None:
    """Show a run live: progress, loss, each rank, faults, and the last lines of its log.

    In a terminal, q or Ctrl-C ends the view, and the run continues. Elsewhere, the command prints a
    line for each change.

    Examples:
      hvdchart watch resnet50
      hvdchart watch resnet50 --web

    Exit codes: 0 the run has not failed when the view ends; 7 there is no such run, or the cluster
    cannot be used; 8 the run has failed.
    """
    from hvdchart.run.kube.kubectl import Kubectl
    from hvdchart.watch.updates import follow_views

    if port and not is_web:
        raise typer.BadParameter("--port is that of the page: add --web")
    cluster, name = connect_to_run(name, context, namespace)
    views = follow_views(cluster, name, Kubectl(cluster.namespace, context))
    try:
        last = _serve(views, port) if is_web else _show(views)
    except KeyboardInterrupt:
        # The run continues.
        return
    if last.state == "failed":
        raise RunFailedError(f"run {name} failed")


def _show(views: Iterator["View"]) -> "View":
    """Show views until the last one; return the last one, and leave it on the screen."""
    from hvdchart.watch.terminal import Screen, line_of

    screen = make_console()
    shown = next(views)
    # A dumb terminal, such as that of an editor, cannot redraw the screen.
    if not screen.is_terminal or screen.is_dumb_terminal:
        print_lines(line_of(shown))
        for view in views:
            if line_of(view) != line_of(shown):
                print_lines(line_of(view))
            shown = view
        return shown
    from rich.live import Live

    def draw() -> Screen:
        # Redraw the elapsed time between events.
        return Screen(shown if shown.over else replace(shown, now=time.time()))

    with _q_interrupts(), Live(get_renderable=draw, console=screen, screen=True) as live:
        for view in views:
            shown = view
            live.refresh()
    screen.print(Screen(shown))
    return shown


def _serve(views: Iterator["View"], port: int) -> "View":
    """Serve the page until Ctrl-C, even after the run is over; return the last view."""
    from hvdchart.watch.page_server import serve_page

    shown = next(views)
    with ExitStack() as stack:
        try:
            server = stack.enter_context(serve_page(shown, port))
        except OSError as error:
            raise typer.BadParameter(f"--port {port}: {error.strerror}") from error
        with suppress(KeyboardInterrupt):
            print_lines(f"{shown.name}: {server.address}")
            print_notes("Ctrl-C ends the page; the run continues")
            for view in views:
                shown = view
                server.update(view)
            threading.Event().wait()
    return shown


@contextmanager
def _q_interrupts() -> Iterator[None]:
    """Let the key q work like Ctrl-C, if standard input is a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    main = threading.main_thread().ident
    before = termios.tcgetattr(descriptor)

    def read() -> None:
        while key := os.read(descriptor, 1):
            if key in b"qQ" and main is not None:
                signal.pthread_kill(main, signal.SIGINT)
                return

    tty.setcbreak(descriptor)
    threading.Thread(target=read, daemon=True).start()
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
