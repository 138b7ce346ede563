"""Carries over variables: of containers, of a launcher's -x, and $(NAME) of Kubernetes. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hvdchart.migrate.ledger import Ledger, NewPath
from hvdchart.migrate.line import CommandLine
from hvdchart.spec.paths import KeyPath
from hvdchart.spec.yaml_tree import Plain

Entry = dict[str, Plain]
# Kubernetes' own rule: $$ is a dollar, $(NAME) a variable, anything else stays.
_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
_LAUNCHER_WINS = "the launcher sets it for all ranks, which wins as before"


class Environment:
    """The variables of one list, in their order. Those in `winning` win over the file's others."""

    def __init__(self, winning: Mapping[str, Entry] | None = None) -> None:
        self.winning = dict(winning or {})
        self.entries: dict[str, Entry] = {}

    def add(self, entry: Entry) -> bool:
        """Add a variable, in place of an earlier one; False when a winning one replaces it."""
        name = str(entry.get("name"))
        self.entries[name] = self.winning.get(name, entry)
        return self.entries[name] == entry

    def put(self, ledger: Ledger, new: NewPath, old: KeyPath) -> None:
        """Put the variables at `new` in the chart's values."""
        entries = {**self.entries, **self.winning}
        if entries:
            ledger.put(new, list(entries.values()), old)


def map_entries(ledger: Ledger, old: KeyPath) -> dict[str, Entry]:
    """The variables in a map of names to values, without nulls."""
    entries: dict[str, Entry] = {}
    for name, value in ledger.map_at(*old).items():
        if value is not None:
            text = ledger.text_at(*old, name)
            entries[name] = {
                "name": name, "value": text.lower() if isinstance(value, bool) else text
            }  # fmt: skip
    return entries


def add_variable_map(ledger: Ledger, old: KeyPath, environment: Environment, reason: str) -> None:
    """Add a map of names to values to the variables for worker.env."""
    entries = map_entries(ledger, old)
    for name in ledger.map_at(*old):
        path = (*old, name)
        if name not in entries:
            ledger.drop(path, "")
        elif environment.add(entries[name]):
            ledger.change(path, ("worker", "env"), reason)
        else:
            ledger.drop(path, _LAUNCHER_WINS)


def list_entries(ledger: Ledger, old: KeyPath) -> dict[str, Entry]:
    """The variables in a container's list; the last of a name counts, as in Kubernetes."""
    entries: dict[str, Entry] = {}
    for path in ledger.items_at(*old):
        entry = {key: value for key, value in ledger.map_at(*path).items() if value is not None}
        name = ledger.text_at(*path, "name")
        if not name:
            raise ledger.error(path, "a variable without a name", "a name and a value")
        if entry.get("value") is not None:
            text = ledger.text_at(*path, "value")
            entry["value"] = expand_references(ledger, (*path, "value"), text, entries, keep=True)
        entries[name] = entry
    return entries


def add_variable_list(ledger: Ledger, old: KeyPath, environment: Environment, new: NewPath) -> None:
    """Add a container's list of variables to those for `new`."""
    entries = list_entries(ledger, old)
    last = {ledger.text_at(*path, "name"): path for path in ledger.items_at(*old)}
    for path in ledger.items_at(*old):
        name = ledger.text_at(*path, "name")
        if last[name] != path and ledger.value_at(*path) != ledger.value_at(*last[name]):
            ledger.drop(path, "a later entry sets the same variable, which wins")
        elif environment.add(entries[name]):
            ledger.change(path, new)
        else:
            ledger.drop(path, _LAUNCHER_WINS)


def expand_references(
    ledger: Ledger, old: KeyPath, text: str, entries: Mapping[str, Entry], *, keep: bool = False
) -> str:
    """`text` with $(NAME) replaced by the value of the variable, as Kubernetes does it.

    A name that no variable has stays. Raises SpecError for a variable whose value the file does not
    have (valueFrom); with `keep` such a reference stays, for Kubernetes to replace.
    """

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$$" if keep else "$"
        entry = entries.get(match[1])
        value = str((entry or {}).get("value", ""))
        inside = [entries.get(inner[1], {}) for inner in _REFERENCE.finditer(value)]
        if entry is None or (keep and "valueFrom" in entry):
            return match[0]
        if not keep and any("valueFrom" in each for each in [entry, *inside]):
            problem = f"{match[0]} has its value from the cluster (valueFrom)"
            expected = f"a program that reads the variable {match[1]} itself"
            raise ledger.error(old, problem, expected)
        return value if keep else value.replace("$$", "$")

    return _REFERENCE.sub(replace, text)


def exported(
    ledger: Ledger, old: KeyPath, line: CommandLine, launcher: Mapping[str, Entry]
) -> dict[str, Entry]:
    """The variables that the launcher at `old` gives to all ranks, with an entry for each option.

    An export without a value has the value of the launcher's own variable.
    """
    winning: dict[str, Entry] = dict(launcher) if line.exports_all else {}
    for (name, value), given in zip(line.exports, line.export_options, strict=True):
        # The value may be a secret.
        option = f"{given} {name}" if value is None else f"{given} {name}=..."
        if value is not None:
            # Kubernetes would replace $(NAME) and $$ in the new variable.
            winning[name] = {"name": name, "value": re.sub(r"\$(?=[$(])", "$$", value)}
        elif name in launcher:
            winning[name] = launcher[name]
        else:
            ledger.add_part(old, option, "", "every rank has its worker's environment")
            continue
        ledger.add_part(old, option, "worker.env", "every rank has its worker's environment")
    for name, entry in winning.items():
        unknown = [
            match[1]
            for match in _REFERENCE.finditer(str(entry.get("value", "")))
            if match[1] in launcher and match[1] not in winning
        ]
        if unknown:
            problem = f"{name} is exported and refers to {unknown[0]}, which only the launcher has"
            raise ledger.error(old, problem, f"-x {unknown[0]} too, or a value in the file")
    return winning
