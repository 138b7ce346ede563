"""Writes the table of the master's events in docs/inside.md from the code in hvd_pods/rules."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from devtools.docs_gen.generated import replace_sections, table
from hvd_pods.rules import decide, ending, gathering, holding, messages, training

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "inside.md"
RULES = (decide, ending, gathering, holding, training)


def reached() -> dict[str, set[str]]:
    """The effects that each function of the rules may ask for, itself or by what it calls."""
    asked: dict[str, set[str]] = {}
    calls: dict[str, set[str]] = {}
    known = {effect.__name__ for effect in messages.Effect.__subclasses__()}
    for module in RULES:
        own = module.__name__.rpartition(".")[2]
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.FunctionDef):
                names = [n for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute))]
                words = {ast.unparse(name) for name in names}
                asked[f"{own}.{node.name}"] = {w[2:] for w in words if w[2:] in known}
                calls[f"{own}.{node.name}"] = {w if "." in w else f"{own}.{w}" for w in words}
    for _ in asked:
        for name in asked:
            asked[name] |= {e for called in calls[name] & asked.keys() for e in asked[called]}
    return asked


def events() -> str:
    """Each event, what it says, and the effects that may follow at once."""
    effects, rows = reached(), []
    for event, handler in decide.HANDLERS.items():
        where = f"{handler.__module__.rpartition('.')[2]}.{handler.__name__}"
        said = (inspect.getdoc(event) or "").split("\n\n")[0]
        follow = ", ".join(sorted(effects[where])) or "nothing"
        rows.append((f"`{event.__name__}`", " ".join(said.split()), follow))
    return table(("Event", "What has happened", "May follow at once"), rows)


def generated_texts() -> dict[Path, str]:
    """The page with its table."""
    return {PAGE: replace_sections(PAGE, {"events of the master": events()})}
