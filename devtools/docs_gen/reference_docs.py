"""Writes the pages of the reference that the code knows: docs/command.md, from the command's own
help, and the tables of docs/reference.md: exit codes, events and metrics."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.cli import get_docs_for_click

from devtools.docs_gen.generated import replace_sections, table
from hvd_pods.common.metrics import METRICS
from hvdchart.cli import app
from hvdchart.errors import HvdchartError

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference.md"
COMMAND = ROOT / "docs" / "command.md"
PROGRAMS = ROOT / "charts" / "horovod" / "files" / "hvd_pods"
EVENTS_PAGE = ROOT / "docs" / "events.md"
# Typer's own.
DONE, WRONG_USE = 0, 2
_HEAD = """\
# The command

This page lists every command of `hvdchart` with its arguments and options, as
`hvdchart COMMAND --help` prints them. `make generate` writes it from the program.
[Operate](operate.md) explains how the commands are used together, and
[the reference](reference.md#exit-codes-of-hvdchart) what their exit codes mean.
"""


def command_page() -> str:
    """The text of docs/command.md, as Typer writes it from the commands. Exits with a message when
    a command, an argument or an option has no help.
    """
    command: Any = app.command()
    if undescribed := [*_undescribed(command, "hvdchart")]:
        sys.exit(f"no help for {', '.join(undescribed)}")
    context = command.context_class(command, info_name="hvdchart")
    page = get_docs_for_click(obj=command, ctx=context, name="hvdchart", title="The command")
    # Examples are indented lines at the end of a help.
    page = re.sub(r"^(?:  \S.*\n)+", r"\n```console\n\g<0>```\n", page, flags=re.MULTILINE)
    return f"{_HEAD}\n{page.partition('# The command')[2].strip()}\n"


def _undescribed(command: Any, name: str) -> Iterator[str]:
    """What a person would see of the command without an explanation."""
    if not command.help:
        yield name
    for parameter in command.params:
        if not parameter.hidden and not parameter.help:
            yield f"{name} {parameter.opts[0]}"
    for word, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            yield from _undescribed(below, f"{name} {word}")


def exit_codes() -> str:
    """The exit codes of the command: those of its errors, and Typer's own."""
    rows = {DONE: "done", WRONG_USE: "wrong use of the command line"}
    for error in sorted(_subclasses(HvdchartError), key=lambda one: one.exit_code):
        first = " ".join((error.__doc__ or "").split(". ")[0].split()).rstrip(".")
        # Of several errors with one code, the general one comes first.
        rows.setdefault(error.exit_code, first)
    return table(("Exit code", "Meaning"), sorted(rows.items()))


def _subclasses(kind: type[HvdchartError]) -> Iterator[type[HvdchartError]]:
    for one in kind.__subclasses__():
        if one.__module__ == "hvdchart.errors":
            yield one
            yield from _subclasses(one)


def metrics_table() -> str:
    """The metrics that master and workers serve."""
    kinds = {name: "counter" if name.endswith("_total") else "gauge" for name in METRICS}
    rows = ((f"`{name}`", kinds[name], text) for name, text in METRICS.items())
    return table(("Metric", "Type", "Meaning"), rows)


def emitted_events() -> set[str]:
    """The reasons of all events that the master creates: of each effect Emit("Reason", ...)."""
    trees = [ast.parse(file.read_text("utf-8")) for file in PROGRAMS.rglob("*.py")]
    calls = [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Call) and n.args]
    reasons = [ast.unparse(c.args[0]) for c in calls if ast.unparse(c.func).endswith("Emit")]
    return {ast.literal_eval(reason) for reason in reasons}


def described_events() -> dict[str, str]:
    """The events that docs/events.md describes, with their descriptions."""
    table = re.search(r"^\| Event \| .*\n\|[-|]+\|\n((?:\|.*\n)+)", EVENTS_PAGE.read_text(), re.M)
    if table is None:
        sys.exit(f"{EVENTS_PAGE}: the table of events is missing")
    return dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table[1], re.M))


def generated_texts() -> dict[Path, str]:
    """The text of docs/command.md, and of docs/reference.md with its tables. Exits with a message
    when docs/events.md describes other events than the programs of the pods create.
    """
    emitted, described = emitted_events(), described_events().keys()
    for event in sorted(emitted ^ described):
        wrong = "is not described" if event in emitted else "is described, and nothing creates it"
        sys.exit(f"{EVENTS_PAGE}: the event {event} {wrong}")
    tables = {"exit codes": exit_codes(), "metrics": metrics_table()}
    return {REFERENCE: replace_sections(REFERENCE, tables), COMMAND: command_page()}
