"""Draw the master's events and effects, docs/pictures/loop.svg, and write the tables in
docs/inside.md. The source is the code in charts/horovod/files/hvd_pods.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import ModuleType

from devtools.docs_gen.generated import replace_sections, table
from hvd_pods.common import contract
from hvd_pods.rules import (
    attempt_workers,
    decide,
    diagnosis,
    effects,
    events,
    launch_abort,
    newcomers,
    pod_replacement,
    rank_notices,
    record_lock,
    run_end,
    session_lease,
    stalls,
    training,
    worker_selection,
)
from hvd_pods.rules.state import Decision

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "inside.md"
PICTURE = ROOT / "docs" / "pictures" / "loop.svg"
RULES = (
    decide,
    attempt_workers,
    worker_selection,
    rank_notices,
    pod_replacement,
    diagnosis,
    training,
    stalls,
    launch_abort,
    newcomers,
    record_lock,
    session_lease,
    run_end,
)
# Heights of a line and of the space around a group, in pixels, and the left edges of the columns.
LINE = 20
SPACE = 44
LEFT = 20
MIDDLE = 390
RIGHT = 690
WIDTH = 1020
STYLE = """<style>
  text { font-family: system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #1f2933 }
  .title { font-size: 15px; font-weight: 600 }
  .line { font-size: 14px; fill: #52606d }
</style>"""
HEAD = (
    '<defs><marker id="head" markerWidth="9" markerHeight="9" refX="8" refY="4.5" orient="auto">'
    '<path d="M0,0 L9,4.5 L0,9 z" fill="#486581"/></marker></defs>'
)


def groups() -> dict[str, list[str]]:
    """Return the events and effects by the comments above them, in the order of the code."""
    found: dict[str, list[str]] = {}
    for module, base in ((events, events.Event), (effects, effects.Effect)):
        leaves = find_leaves(module, base)
        for line in inspect.getsource(module).splitlines():
            title = re.fullmatch(r"# (E\w+ .*):", line)
            name = re.match(r"class (\w+)\(", line)
            if title:
                found[title[1]] = []
            elif name and name[1] in leaves:
                found[list(found)[-1]].append(name[1])
    return found


def find_leaves(module: ModuleType, base: type) -> set[str]:
    """Return the classes of a module that derive from `base` and have no subclasses."""
    classes = {item for item in vars(module).values() if isinstance(item, type)}
    derived = {item for item in classes if issubclass(item, base) and item is not base}
    above = {base for item in derived for base in item.__mro__[1:]}
    return {item.__name__ for item in derived - above}


def picture() -> str:
    """Draw the loop: events on the left, effects on the right."""
    columns = {"Events": LEFT, "Effects": RIGHT}
    ends = dict.fromkeys(columns, 20)
    parts = []
    for title, names in groups().items():
        kind = title.split()[0]
        x = columns[kind]
        y = ends[kind]
        height = LINE * len(names) + SPACE
        parts.append(_box(x, y, 310, height - 12, title, names))
        ends[kind] = y + height
    height = max(ends.values()) + 8
    middle = height // 2
    rules = [f"{module.__name__.rpartition('.')[2]}.py" for module in RULES]
    text = ["one queue, one thread:", "decide(state, event, moment)", "-> (state, effects)", *rules]
    box = LINE * len(text) + SPACE - 12
    parts.append(_box(MIDDLE, middle - box // 2, 240, box, "The loop", text))
    for x, end in ((LEFT + 312, MIDDLE - 4), (MIDDLE + 242, RIGHT - 4)):
        parts.append(
            f'<path d="M{x},{middle} H{end}" stroke="#486581" stroke-width="2" '
            'marker-end="url(#head)"/>'
        )
    label = "The master's loop: sources put events on a queue, decide turns them into effects"
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
    background = f'<rect width="{WIDTH}" height="{height}" rx="10" fill="#ffffff"/>'
    return "\n".join(
        [f'{start} aria-label="{label}">', STYLE, HEAD, background, *parts, "</svg>\n"]
    )


def _box(x: int, y: int, width: int, height: int, title: str, lines: list[str]) -> str:
    shown = [
        f'<text class="line" x="{x + 14}" y="{y + 46 + LINE * number}">{line}</text>'
        for number, line in enumerate(line.replace(">", "&gt;") for line in lines)
    ]
    frame = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="#f0f4f8"/>'
    return "\n".join(
        [frame, f'<text class="title" x="{x + 14}" y="{y + 24}">{title}</text>', *shown]
    )


def reached() -> dict[str, set[str]]:
    """Return the effects and follow-up events of each function of the rules, including the
    functions that it calls.

    The effect `Log` is left out.
    """
    known = {name for title, names in groups().items() if title[:7] == "Effects" for name in names}
    sources: dict[str, ModuleType | type[Decision]] = {
        module.__name__.rpartition(".")[2]: module for module in RULES
    }
    # The rules call the methods of a decision on an argument, by the argument's name.
    texts = {
        own: inspect.getsource(source) for own, source in {**sources, "decision": Decision}.items()
    }
    return find_reached(texts, known - {"Log"})


def find_reached(sources: Mapping[str, str], known: Collection[str]) -> dict[str, set[str]]:
    """Return which names of `known` each function uses, by module and function; `sources` are by
    module.

    A function that calls an item of a table, a dictionary of the module, may call all its items.
    Exits with a message when it calls an item of something else, which would be left out.
    """
    parts = dict(part for own, source in sources.items() for part in _parts(own, source))
    asked: dict[str, set[str]] = {}
    calls: dict[str, set[str]] = {}
    for place, part in parts.items():
        own = place.partition(".")[0]
        nodes = list(ast.walk(part))
        words = {ast.unparse(node) for node in nodes if isinstance(node, (ast.Name, ast.Attribute))}
        calls[place] = {_full_name(own, word) for word in words}
        asked[place] = words & set(known)
        for call in (node for node in nodes if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Subscript):
                name = _full_name(own, ast.unparse(call.func.value))
                if name not in parts:
                    sys.exit(f"{place} calls what is in {name}: make it a dictionary of the module")
            elif ast.unparse(call.func) == "decision.add_event" and isinstance(
                call.args[0], ast.Call
            ):
                asked[place].add(ast.unparse(call.args[0].func))
    for _ in asked:
        for name in asked:
            asked[name] |= {e for called in calls[name] & asked.keys() for e in asked[called]}
    return asked


def _parts(own: str, source: str) -> Iterator[tuple[str, ast.AST]]:
    """Yield the functions and the tables of a module's source by their full names."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield f"{own}.{node.name}", node
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            name = f"{own}.{ast.unparse(target)}"
            if isinstance(node.value, ast.Dict):
                yield name, ast.List(node.value.values, ast.Load())
            elif isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "dict":
                yield name, node.value


def _full_name(own: str, name: str) -> str:
    """Return a name with its module, which is `own` for a name without one."""
    return name if "." in name else f"{own}.{name}"


def event_table() -> str:
    """Return a table of each event, its meaning, and the effects and events that may follow at
    once.
    """
    following = reached()
    rows = []
    for title, names in groups().items():
        for name in names if title.startswith("Events") else []:
            handler = decide.HANDLERS.get(getattr(events, name))
            if handler is None:
                continue
            where = f"{handler.__module__.rpartition('.')[2]}.{handler.__name__}"
            text = (inspect.getdoc(getattr(events, name)) or "").split("\n\n")[0]
            follow = ", ".join(sorted(following[where])) or "nothing"
            rows.append((f"`{name}`", " ".join(text.split()), follow))
    return table(("Event", "What has happened", "May follow at once"), rows)


def variables() -> str:
    """Return a table of the variables between the chart, its users and its pods."""
    rows = []
    way = ""
    for line, name, comment in _constants(contract):
        if line.startswith("# == "):
            way = line.removeprefix("# == ")
        elif name.startswith("HVD_"):
            rows.append((f"`{name}`", way, comment))
    return table(("Variable", "Way", "Content"), rows)


def _constants(module: ModuleType) -> Iterator[tuple[str, str, str]]:
    """Yield each line of a module, with the text of its constant and the comment above, if any."""
    comment: list[str] = []
    for line in inspect.getsource(module).splitlines():
        name = re.fullmatch(r'[A-Z_]+ = "(\w+)"', line)
        yield line, name[1] if name else "", " ".join(comment)
        comment = [*comment, line[2:]] if line.startswith("# ") else []


def generated_texts() -> dict[Path, str]:
    sections = {"events of the master": event_table(), "variables": variables()}
    return {PICTURE: picture(), PAGE: replace_sections(PAGE, sections)}
