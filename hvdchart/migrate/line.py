"""What a launcher's command line says, in parts. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Part:
    """Some words of a command line. `new` is the chart's key that they became, empty when dropped;
    `reason` says why."""

    words: tuple[str, ...]
    new: str
    reason: str = ""


@dataclass
class CommandLine:
    """A launcher's command line, parsed.

    `ranks` is the number of ranks asked for and `per_host` that of each host, None without one;
    `hosts` are the hosts named with their slots; `min_ranks` and `max_ranks` are the limits of an
    elastic run. `exports` are the -x options: a variable's name and the value given with it, None
    without one. `custom_reason` says why a line of mode `custom` was not parsed.
    """

    mode: str
    options: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    ranks: int | None = None
    exports: list[tuple[str, str | None]] = field(default_factory=list)
    # The option of each export, as it is written: -x, -genv.
    export_options: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    min_ranks: int | None = None
    max_ranks: int | None = None
    custom_reason: str = ""
    per_host: int | None = None
    hosts: list[tuple[str, int | None]] | None = None
    host_file: str = ""
    discovery: str = ""
    # What only a shell knows in an option that the chart sets itself, such as -np $NP.
    unknown: str = ""
    # Why an option is not understood; empty for one that launchers.json does not list.
    problem: str = ""
    # Ranks get all variables of the launcher, as under horovodrun and Hydra.
    exports_all: bool = False

    @property
    def dropped(self) -> list[tuple[str, str]]:
        """The options that the chart does not need, and why, in their order."""
        return [(" ".join(part.words), part.reason) for part in self.parts if not part.new]


def set_once(line: CommandLine, key: str, value: object) -> bool:
    """Keep what an option says; False when an option before says something else."""
    before = getattr(line, key)
    if before not in (None, "", value):
        line.problem = f"two options of the line differ: one says {before}, one {value}"
        return False
    setattr(line, key, value)
    return True


def read_hosts(text: str) -> list[tuple[str, int | None]]:
    """The hosts in a:8,b:8 with their slots; a host that is named twice has a slot more."""
    hosts: dict[str, int | None] = {}
    for entry in text.split(","):
        name, _, slots = entry.strip().partition(":")
        if not name:
            continue
        if slots.isdecimal() and len(slots) < 8:
            hosts[name] = (hosts.get(name) or 0) + int(slots)
        else:
            hosts[name] = (hosts[name] or 1) + 1 if name in hosts else None
    return list(hosts.items())
