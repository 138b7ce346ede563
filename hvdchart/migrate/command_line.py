"""Parse a launcher's command line: mode, options, training command, workers and slots. Pure.

Every option becomes an export, or a `LinePart`, which names the new key. The chart's
files/hvd_pods/shared/launcher_options.json has the options, and how many arguments follow each.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import NamedTuple

from hvd_pods.shared.launcher_options import find_option, option_name
from hvdchart.migrate.line_size import LineSize, NotUnderstoodError, read_count, read_hosts
from hvdchart.spec import horovodrun
from hvdchart.spec.yaml_tree import shorten

WORKER_MINIMUM = "worker.minimum"


class LinePart(NamedTuple):
    """Some words of a line, their key in the chart (empty when dropped), and the reason."""

    words: str
    new: str
    reason: str


class Export(NamedTuple):
    """An option such as -x as written, its variable, and its value, or None."""

    option: str
    variable: str
    value: str | None


@dataclass(frozen=True)
class CommandLine:
    """A launcher's command line, parsed.

    `launcher` is the program, and `framework` is the framework that it starts, empty when unknown.
    With `exports_all`, the ranks get all variables of the launcher, as with horovodrun. `checks`
    lists what to check by hand. `custom_reason` says why a line of mode `custom` was not parsed. A
    part with the key WORKER_MINIMUM sets a minimum in the line: the number of workers decides
    whether the chart gets one.
    """

    mode: str
    launcher: str = "mpirun"
    framework: str = ""
    command: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    size: LineSize = field(default_factory=LineSize)
    exports: tuple[Export, ...] = ()
    exports_all: bool = False
    parts: tuple[LinePart, ...] = ()
    checks: tuple[str, ...] = ()
    custom_reason: str = ""


_CHARTS_MCA = {
    "orte_keep_fqdn_hostnames": "the chart sets it",
    "plm_rsh_agent": "the chart has an `ssh` of its own",
    "plm_rsh_args": "the chart has an `ssh` of its own; the port of its agents is agent.port",
    "plm_rsh_no_tree_spawn": "the chart sets it",
    "plm_rsh_num_concurrent": "the chart sets it",
    "orte_default_hostfile": "the chart writes the host file",
}
_SHELLS = frozenset(("sh", "bash", "dash", "ash"))
_RUN_TEXT = re.compile(r"-[a-z]*c")
LAUNCHERS = ("mpirun", "mpiexec", horovodrun.NAME)
# The launchers whose options are parsed; a line with unknown options has mode `custom`.
_OPEN_MPI = frozenset(("openmpi4", "openmpi5"))
_PER_HOST = ("npernode", "N")
_IN_EVERY_PATH = ("/bin", "/usr/bin", "/usr/local/bin")
_PPR_NODE = re.compile(r"ppr:([1-9][0-9]{0,6}):node(?::.*)?", re.IGNORECASE)
_NEEDS_SHELL = "the line needs a shell before the launcher starts"
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.", re.DOTALL)
_VARIABLE = re.compile(r"'[^']*'|\\.|\$(\w+)|\$\{(\w+)\}")
_EXPANSION = re.compile(r"\$\([^)]*\)?|\$\{[^}]*\}?|\$\w*|`[^`]*`?")
# Options of torchrun that the chart drops: their values do not matter.
_TORCHRUN = re.compile(r"(?:\S*/)?(?:torchrun|python\S* -m torch\.distributed\.run)\s")
_RENDEZVOUS = re.compile(r"(--(?:node|master|rdzv)[-_]\w+[= ])(\"[^\"\s]*\"|[\w${}.:/-]+)")
# What a shell does not pass on to a program: operators, patterns and comments.
_OPERATOR = re.compile(r"\n|&&|\|\||[;|&<>(){}*?\[\]~]|(?<!\S)#")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_STARTS_SSHD_OR_WAITS = re.compile(
    r"(sudo |exec )?((/usr/sbin/)?sshd( [\w./-]+)*|service sshd? (re)?start"
    r"|/etc/init.d/sshd? (re)?start|sleep ([0-9]+[smhd]?|infinity)|tail -f /dev/null)"
)


class _Builder:
    """Collects the settings of a line's options, one after the other."""

    def __init__(self, launcher: str) -> None:
        self.mode = "direct" if launcher == horovodrun.NAME else "mpirun"
        self.launcher = launcher
        self.options: list[str] = []
        self.size = LineSize()
        self.exports: list[Export] = []
        self.parts: list[LinePart] = []
        self.checks: list[str] = []

    def add_part(self, words: str, reason: str, new: str = "") -> None:
        self.parts.append(LinePart(words, new, reason))

    def add_size(self, size: LineSize) -> None:
        """Add the size of an option. Raises NotUnderstoodError when another option differs."""
        self.size = self.size.merged(size)

    def add_export(self, export: Export) -> None:
        """Add a variable for the ranks. Raises NotUnderstoodError when it has another value."""
        others = {other.value for other in self.exports if other.variable == export.variable}
        if not export.variable:
            raise NotUnderstoodError(f"{export.option} names no variable")
        if export.value is not None and others - {export.value, None}:
            raise NotUnderstoodError(f"the line sets {export.variable} to two values")
        self.exports.append(export)

    def build(self, command: Sequence[str]) -> CommandLine:
        return CommandLine(
            self.mode,
            self.launcher,
            command=tuple(command),
            options=tuple(self.options),
            size=self.size,
            exports=tuple(self.exports),
            exports_all=self.launcher == horovodrun.NAME,
            parts=tuple(self.parts),
            checks=tuple(self.checks),
        )


def parse_command_line(words: Sequence[str]) -> CommandLine:
    """Parse a command line; if a part is not understood, return it unchanged with mode `custom`."""
    try:
        return parse_line(words)
    except NotUnderstoodError as error:
        return CommandLine("custom", command=tuple(words), custom_reason=str(error))


def parse_line(texts: Sequence[str]) -> CommandLine:
    """Parse a line of mpirun, its relatives or horovodrun. Raises NotUnderstoodError."""
    first, *words = unwrap_shell(texts)
    launcher = PurePosixPath(first).name
    if launcher not in LAUNCHERS:
        raise NotUnderstoodError(f"{launcher} is not a launcher that migrate knows")
    line = _Builder(launcher)
    known = (launcher, *(f"{path}/{launcher}" for path in _IN_EVERY_PATH))
    if launcher != horovodrun.NAME and first not in known:
        line.checks.append(
            f"the launcher was {first}: here it is the {launcher} that the image's "
            "PATH finds first; check that this is the same"
        )
    while words and words[0].startswith("-") and words[0] != "--":
        is_horovods = launcher == horovodrun.NAME
        width = (_parse_horovods if is_horovods else _parse_option)(words, line)
        words = words[width:]
    is_gloo = any(part.words == "--gloo" for part in line.parts)
    if line.mode == "direct" and not (is_gloo or line.size.min_ranks or line.size.discovery):
        line.checks.append(
            "horovodrun without --gloo used MPI where Horovod had it, and launch.mode direct is "
            "Horovod over Gloo: for MPI set launch.mode to mpirun"
        )
    if words[:1] == ["--"]:
        line.add_part("--", "it ends the launcher's options")
        words = words[1:]
    if not words:
        raise NotUnderstoodError(f"the line gives {launcher} no command to run")
    if ":" in words:
        raise NotUnderstoodError("the line starts several programs, separated by a colon")
    return line.build(words)


def split_line(text: str, known: Mapping[str, str] | None = None) -> list[str]:
    """Return the words of one command, with the values of known variables.

    Raises NotUnderstoodError for a line of which a shell changes more than quotes.
    """
    given = known or {}
    text = text.replace("\\\n", "").strip()
    text = _VARIABLE.sub(lambda found: given.get(found[1] or found[2] or "", found[0]), text)
    if _TORCHRUN.match(text):
        text = _RENDEZVOUS.sub(
            lambda found: found[1] + shlex.quote(found[2].replace('"', "")), text
        )
    # A shell expands nothing between single quotes.
    expanded = _QUOTED.sub(lambda found: found[0] if found[0].startswith('"') else "", text)
    refuse_expansion(expanded)
    if found := _OPERATOR.search(_QUOTED.sub("", text)):
        raise NotUnderstoodError(
            f"{found[0].strip() or 'a line break'} needs a shell",
            "the launcher's line alone, without other commands, redirections and patterns",
        )
    try:
        return shlex.split(text)
    except ValueError:
        raise NotUnderstoodError("a quote is not closed", "the complete line") from None


def refuse_expansion(text: str) -> None:
    """Raise NotUnderstoodError for a text with a variable or the output of a command."""
    if found := _EXPANSION.search(text):
        problem = f"only a shell knows {shorten(found[0])}"
        raise NotUnderstoodError(problem, "its value in its place")


def unwrap_shell(words: Sequence[str], known: Mapping[str, str] | None = None) -> Sequence[str]:
    """Return the launcher's words, with the values of known variables.

    Raises NotUnderstoodError for a shell that does more than start one program.
    """
    text = words[0] if len(words) == 1 and " " in words[0] else ""
    if len(words) == 3 and PurePosixPath(words[0]).name in _SHELLS:
        if not _RUN_TEXT.fullmatch(words[1]):
            raise NotUnderstoodError(_NEEDS_SHELL)
        text = words[2]
    if not text and words:
        return words
    only = split_line(text, known)
    if not only or _ASSIGNMENT.match(only[0]):
        raise NotUnderstoodError(_NEEDS_SHELL)
    return only


def only_starts_sshd(words: Sequence[str]) -> bool:
    """Return whether a worker's command only waits or starts sshd, which the chart replaces."""
    is_shell = len(words) == 3 and PurePosixPath(words[0]).name in _SHELLS
    text = words[2] if is_shell else " ".join(words)
    return not text or bool(_STARTS_SSHD_OR_WAITS.fullmatch(text))


def _parse_horovods(words: Sequence[str], line: _Builder) -> int:
    """Add the first option of a line of horovodrun; return its number of words.

    Raises NotUnderstoodError.
    """
    try:
        option = horovodrun.take_option(words)
        values = horovodrun.read_values(option)
    except horovodrun.HorovodrunError as error:
        raise NotUnderstoodError(str(error)) from None
    entry = option.entry
    names = entry["names"]
    text = str(option)
    if "min-np" in names:
        line.add_size(LineSize(min_ranks=read_count(option.name, values[0])))
        line.add_part(text, "", WORKER_MINIMUM)
    elif "max-np" in names:
        line.add_size(LineSize(max_ranks=read_count(option.name, values[0])))
        line.add_part(text, "worker.number is the most workers of a run")
    elif "host-discovery-script" in names:
        line.add_size(LineSize(discovery=values[0]))
        line.add_part(text, "the master follows its workers itself")
    elif "network-interface" in names:
        line.add_part(text, "pods have interfaces of their own")
        line.checks.append(
            f"the line names the interface {values[0]}: if the pods have more than one, set "
            "network.interface"
        )
    elif option.name == "--mpi":
        line.mode = "mpirun"
        line.add_part(text, "launch.mode mpirun is the chart's default")
    elif "instead" in entry:
        raise NotUnderstoodError(f"{option} of {horovodrun.NAME}: use {entry['instead']}")
    elif "variable" in entry:
        content = horovodrun.read_content(entry, values)
        line.add_export(Export(option.name, entry["variable"], content))
    else:
        line.add_size(_read_size(option.name, entry.get("value", ""), "".join(values[:1])))
        line.add_part(text, horovodrun.explain_left_out(entry))
    return len(option.words)


def _parse_option(rest: Sequence[str], line: _Builder) -> int:
    """Add the first option of a line of mpirun; its number of words. Raises NotUnderstoodError."""
    name = option_name(rest[0])
    option = find_option(rest[0])
    given, equals, value = rest[0].partition("=")
    arguments = option.get("arguments", 0)
    words = rest[: 1 if equals else 1 + arguments]
    is_known = bool(option) and not _OPEN_MPI.isdisjoint(option.get("readBy", _OPEN_MPI))
    is_whole = arguments == 1 if equals else len(words) == 1 + arguments
    if not is_known or not is_whole:
        raise NotUnderstoodError(f"migrate does not understand option {rest[0]} of {line.launcher}")
    value = value if equals else "".join(words[1:2])
    if name == "x":
        variable, has_value, content = value.partition("=")
        line.add_export(Export(given, variable, content if has_value else None))
        return len(words)
    chart_value = "worker.slots" if name in _PER_HOST else option.get("value", "")
    line.add_size(_read_size(given, chart_value, value))
    reason = f"the chart takes it from {chart_value}" if chart_value else ""
    if name.endswith("mca"):
        reason = _CHARTS_MCA.get(words[1], "")
    elif name == "allow-run-as-root":
        reason = "the chart allows mpirun to run as root"
    if reason:
        line.add_part(" ".join(words), reason)
    else:
        line.options += words
        line.add_part(" ".join(words), "unchanged", "launch.options")
    return len(words)


def _read_size(option: str, chart_value: str, value: str) -> LineSize:
    """Return an option's number of ranks or hosts. Raises NotUnderstoodError."""
    name = option.lstrip("-")
    if chart_value == "worker.slots":
        return LineSize(per_host=read_count(option, value))
    if chart_value == "worker.number and worker.slots":
        return LineSize(ranks=read_count(option, value))
    if name in ("host", "H", "hosts"):
        return LineSize(hosts=read_hosts(option, value))
    if chart_value == "worker.number":
        return LineSize(host_file=value)
    if name == "pernode":
        return LineSize(per_host=1)
    match = _PPR_NODE.fullmatch(value) if name == "map-by" else None
    return LineSize(per_host=int(match[1])) if match else LineSize()
