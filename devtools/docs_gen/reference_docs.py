"""Write the pages of the reference from the code: docs/command.md, from the command's own help, and
tables of exports of the library, messages of Kubernetes with their remedies, and versions.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from typer.main import get_command

import hvdchart
from devtools.common.repository import CHART, DOCS, ROOT
from devtools.docs_gen.generated import markdown_table, replace_sections, wrap_text
from devtools.pods.program_copies import POD_PROGRAMS
from devtools.toolchain.tools import HELM_3, HELM_4, kubernetes_releases, module_version
from hvd_pods.shared.run_events import BY_REASON, RunEvent
from hvdchart.cli import app
from hvdchart.errors import HvdchartError
from images.builder.catalogue import load_catalogue

EVENTS_PAGE = DOCS / "life.md"
# Written by `make schemas`.
APIS = ROOT / "tests" / "chart" / "kubernetes-api.json"
# Typer's own exit codes.
DONE = 0
WRONG_USE = 2
_HEAD = """\
# The command

This page lists the commands of `hvdchart` and their exit codes. `hvdchart COMMAND --help` prints
the arguments, the options, examples and the exit codes of one command.
[The commands of a run](operate.md) explains how the commands are used together.

## Commands

"""


def command_page() -> str:
    """Return the text of docs/command.md. Exits with a message when a command, an argument or an
    option has no help.
    """
    command: Any = get_command(app.app)
    if undescribed := [*_find_undescribed(command, "hvdchart")]:
        sys.exit(f"no help for {', '.join(undescribed)}")
    commands = markdown_table(
        ("Command", "What it does"),
        (
            (f"`hvdchart {name}`", subcommand.get_short_help_str(limit=120).rstrip("."))
            for name, subcommand in command.commands.items()
        ),
    )
    interrupted = (
        "Exit code 130 means that the command was interrupted. The run continues, except that of "
        "`dev` and `bench`, which uninstall it. SIGTERM and a closed terminal interrupt each "
        "command in the same way, and the signal then ends it."
    )
    return wrap_text(f"{_HEAD}{commands}\n\n## Exit codes\n\n{exit_codes()}\n\n{interrupted}\n")


def _find_undescribed(command: Any, name: str) -> Iterator[str]:
    """Yield each visible part of the command that has no help text."""
    if not command.help:
        yield name
    for parameter in command.params:
        if not parameter.help:
            yield f"{name} {parameter.opts[0]}"
    for word, below in getattr(command, "commands", {}).items():
        yield from _find_undescribed(below, f"{name} {word}")


def exit_codes() -> str:
    """Return the exit codes of the command: those of its errors, and Typer's own."""
    rows = {DONE: "Done", WRONG_USE: "Wrong use of the command line"}
    for error in sorted(_subclasses(HvdchartError), key=lambda kind: kind.exit_code):
        first = " ".join((error.__doc__ or "").split()).split(". ")[0].rstrip(".")
        # The general error comes first among several errors with one code.
        rows.setdefault(error.exit_code, first)
    return markdown_table(("Exit code", "Meaning"), sorted(rows.items()))


def _subclasses(kind: type[HvdchartError]) -> Iterator[type[HvdchartError]]:
    for subclass in kind.__subclasses__():
        if subclass.__module__ == "hvdchart.errors":
            yield subclass
            yield from _subclasses(subclass)


def created_events() -> set[str]:
    """Return the reasons of all events that the master creates: of each RunEvent in its rules."""
    sources = [file.read_text("utf-8") for file in (POD_PROGRAMS / "rules").glob("*.py")]
    names = {name for text in sources for name in re.findall(r"\bRunEvent\.([A-Z_]+)", text)}
    return {RunEvent[name].reason for name in names}


def described_events() -> set[str]:
    """Return the events in the table of docs/life.md."""
    table = re.search(r"^\| Event \| .*\n\|[-|]+\|\n((?:\|.*\n)+)", EVENTS_PAGE.read_text(), re.M)
    if table is None:
        sys.exit(f"{EVENTS_PAGE}: the table of events is missing")
    return set(re.findall(r"^\| `(\w+)` \| ", table[1], re.M))


def exports_of_the_library() -> str:
    """Return a table of the exports, with the first paragraph of the docstring of each."""
    names = [name for name in dir(hvdchart) if not name.startswith("_")]
    texts = {name: inspect.getdoc(getattr(hvdchart, name)) or "" for name in names}
    if undescribed := [name for name, text in texts.items() if not text]:
        sys.exit(f"no docstring of {', '.join(undescribed)}")
    rows = ((f"`{name}`", " ".join(text.split("\n\n")[0].split())) for name, text in texts.items())
    return markdown_table(("Name", "Meaning"), rows)


def pod_table() -> str:
    """Return a table of Kubernetes' messages about a pod, the remedy, and whether the run waits."""
    problems = json.loads((POD_PROGRAMS / "shared" / "pod_problems.json").read_text("utf-8"))
    # The kubelet's messages about an image explain why a container waits for it.
    seconds = problems["container"]["ErrImagePull"]["waitSeconds"]
    for entry in problems["image"].values():
        entry["waitSeconds"] = seconds
    # Messages with the same remedy share a row.
    signs: dict[tuple[str, str], list[str]] = {}
    for entries in problems.values():
        for sign, entry in entries.items():
            signs.setdefault((entry["remedy"], _what_follows(entry)), []).append(f"`{sign}`")
    rows = ((", ".join(texts), *cells) for cells, texts in signs.items())
    return markdown_table(("Message", "What to do", "The run"), rows)


def _what_follows(entry: dict[str, object]) -> str:
    seconds = entry.get("waitSeconds")
    if seconds is None:
        return "waits"
    end = "fails" if entry["permanent"] else "tries again"
    return f"{end} after {seconds} s" if seconds else f"{end} at once"


def kubernetes_minors() -> list[str]:
    """Return the Kubernetes releases that the chart is checked against, such as 1.29, the oldest
    first.
    """
    releases = json.loads(APIS.read_text("utf-8"))["releases"]
    return [release.removeprefix("v").rpartition(".")[0] for release in releases]


def versions() -> str:
    """Return a row for each kind of software, with the allowed and the checked versions."""
    chart = YAML(typ="safe").load(CHART / "Chart.yaml")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    images = load_catalogue()
    default, *others = (real.removeprefix("v") for real in kubernetes_releases().values())
    helms = [module_version("tools", module).removeprefix("v") for module in (HELM_4, HELM_3)]
    minors = kubernetes_minors()
    oldest = chart["kubeVersion"].removeprefix(">=").removesuffix(".0-0")
    frameworks = [
        f"{image.framework} {image.versions[image.framework]} (`{name}`)"
        for name, image in images.items()
        if image.framework
    ]
    rows = {
        "Chart and library": (hvdchart.__version__, "one version for both"),
        "Form of the spec": ("`hvdchart/v1`", "every file in `values/`"),
        "Kubernetes": (
            f"{oldest} or newer",
            f"APIs of {minors[0]} to {minors[-1]}; pods in a cluster of {default};"
            f" some by `make test-older` in one of {' and '.join(others)}",
        ),
        "Helm": ("4, and 3; `hvdchart` needs 3.13 or newer", " and ".join(helms)),
        "Python of `hvdchart`": (
            project["requires-python"].replace(">=", "") + " or newer",
            "3.11; by hand, unit tests on 3.12 and 3.13",
        ),
        "Python in the pods": ("3.8 or newer", "3.8 and that of each image"),
        "Horovod": (images["cpu"].versions["horovod"], "in each image"),
        "Frameworks": ("those of the image", ", ".join(frameworks)),
    }
    return markdown_table(("", "Allowed", "Checked"), ((name, *row) for name, row in rows.items()))


def generated_texts() -> dict[Path, str]:
    """Return the text of docs/command.md, and of each page with a table. Exits with a message when
    docs/life.md describes other events than the programs of the pods create.
    """
    created = created_events()
    for event in sorted(described_events() ^ {*BY_REASON} | created ^ {*BY_REASON}):
        wrong = "is not described" if event in created else "is one that nothing creates"
        sys.exit(f"{EVENTS_PAGE}: the event {event} {wrong}")
    sections = {
        "python.md": {"exports": exports_of_the_library()},
        "troubleshooting.md": {"pod problems": pod_table()},
        "compatibility.md": {"versions": versions()},
    }
    pages = {
        DOCS / name: replace_sections(DOCS / name, section_texts)
        for name, section_texts in sections.items()
    }
    return {**pages, DOCS / "command.md": command_page()}
