"""Writes the pages of the reference that the code knows: docs/command.md, from the command's own
help, and the tables of docs/reference.md: exit codes, events and metrics."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    """The text of docs/command.md."""
    return "\n".join([_HEAD, *_sections(app.command(), "hvdchart")]).rstrip() + "\n"


def _sections(group: Any, name: str) -> Iterator[str]:
    for word, command in sorted(group.commands.items()):
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from _sections(command, f"{name} {word}")
            continue
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
        usage = [p.make_metavar(_context(command)) for p in arguments]
        yield f"## {name} {word}\n"
        yield f"```\n{' '.join([name, word, *(['[OPTIONS]'] if options else []), *usage])}\n```\n"
        undescribed = [p.opts[0] for p in (*arguments, *options) if not getattr(p, "help", None)]
        if undescribed or not command.help:
            sys.exit(f"{name} {word}: no help for {', '.join(undescribed) or 'the command'}")
        yield f"{_text(command.help)}\n"
        if arguments or options:
            rows = [(_names(one, command), _meaning(one)) for one in (*arguments, *options)]
            yield f"{table(('Argument or option', 'Meaning'), rows)}\n"


def _context(command: Any) -> Any:
    return command.context_class(command)


def _names(parameter: Any, command: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.make_metavar(_context(command))}`"
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    if parameter.is_flag or parameter.count:
        return names
    return f"{names} {parameter.make_metavar(_context(command))}"


def _meaning(parameter: Any) -> str:
    text = _text(getattr(parameter, "help", None)).replace("\n", " ")
    low, high = (getattr(parameter.type, name, None) for name in ("min", "max"))
    limits = [] if low is None else [f"at least {low}" if high is None else f"{low} to {high}"]
    default = parameter.opts[0] if parameter.default is True else parameter.default
    # Most flags are off by default; other kinds of defaults are computed.
    is_shown = isinstance(default, str | int | float) and default is not False and default != ""
    notes = [*limits, *([f"default: `{default}`"] if is_shown else [])]
    return f"{text} ({'; '.join(notes)})" if notes else text


def _text(help_text: str | None) -> str:
    """A help text as Markdown: its lines joined to paragraphs."""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", help_text or "")]
    return "\n\n".join(part.replace("<", "&lt;") for part in paragraphs if part)


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
