"""Check what the pages show: code blocks of YAML and JSON parse, tables have a header, and the
commands, make targets, modules and paths exist.

`python -m devtools.checks.pages` prints each place and exits with 1 when there is one. `make docs`
checks links, anchors and the navigation.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import typer
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from devtools.checks.problems import check_files, print_problems
from devtools.common.markdown import command_lines, parse_markdown
from devtools.common.repository import CHART, ROOT
from devtools.pods.program_copies import POD_PROGRAMS
from hvd_pods.shared import contract
from hvdchart.cli import app

FOLDERS = ("charts", "devtools", "docs", "examples", "hvdchart", "images", "tests", "values")
PATH = re.compile(rf"(?:{'|'.join(FOLDERS)})/[-\w./*{{}},]+")
# What looks like a path: the apiVersion of a spec, and labels and annotations of the chart.
NO_PATHS = {
    "hvdchart/v1",
    "hvdchart/settings-hash",
    *(name for name in vars(contract).values() if isinstance(name, str)),
}
# A file of the chart, and one of the programs of the pods, from their own folders.
CHART_PATH = re.compile(r"(?:files|templates)/[\w/.-]+\.\w+")
PROGRAM_FOLDERS = sorted(file.parent.name for file in POD_PROGRAMS.glob("*/__init__.py"))
PROGRAM_PATH = re.compile(rf"(?:{'|'.join(PROGRAM_FOLDERS)})/[\w/]+\.(?:py|json)")
# A checkout has no program `hvdchart`: contributors run its package.
CHECKOUT_COMMAND = ".venv/bin/python -m hvdchart"
# What the command line says of wrong use; Typer gives it no public name.
UsageError: Any = typer.BadParameter.__base__


def page_problems(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and problem for each place of a page that is wrong."""
    for token in parse_markdown(text):
        number = token.map[0] + 1 if token.map else 0
        problems: list[str] = []
        if token.type == "inline" and re.search(r"^\|", token.content, re.MULTILINE):
            problems.append("a row of no table: write it below a header, without an empty line")
        elif token.type == "code_inline":
            problems += [*name_problems(token.content), *path_problems(token.content)]
            problems += command_problems(token.content, whole=False)
        elif token.type in ("fence", "code_block"):
            problems += syntax_problems(token.info, token.content)
            for line in command_lines(token.content):
                problems += [*name_problems(line), *command_problems(line, whole=True)]
        for problem in problems:
            yield number, problem


def syntax_problems(language: str, block: str) -> Iterator[str]:
    """Yield why a code block does not parse."""
    try:
        if language == "yaml":
            list(YAML(typ="safe", pure=True).load_all(block))
        elif language == "json":
            json.loads(block)
    except (YAMLError, json.JSONDecodeError) as error:
        yield f"the code block is no {language}: {error}"


@cache
def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][-a-z0-9]*):", (ROOT / "Makefile").read_text(), re.M))


def name_problems(line: str) -> Iterator[str]:
    """Yield the make targets and the modules of a line that do not exist."""
    target = re.match(r"make ([a-z][-a-z0-9]*)\b", line)
    if target and target[1] not in make_targets():
        yield f"{line}: the Makefile has no target {target[1]}"
    for module in re.findall(r"\bpython3? -m ([\w.]+)", line):
        if module.partition(".")[0] in FOLDERS and not importlib.util.find_spec(module):
            yield f"{line}: there is no module {module}"


def path_problems(code: str) -> Iterator[str]:
    """Yield the path that a text names as code and that does not exist."""
    for form, folder in ((CHART_PATH, CHART), (PROGRAM_PATH, POD_PROGRAMS)):
        if form.fullmatch(code) and not (folder / code).is_file():
            yield f"{code}: {folder.relative_to(ROOT)} has no such file"
    if PATH.fullmatch(code) and code not in NO_PATHS:
        pattern = re.sub(r"\{[^}]*\}|NAME|IMAGE", "*", code).rstrip("/")
        if not any(ROOT.glob(pattern)):
            yield f"{code}: there is no such path"


def command_problems(line: str, *, whole: bool) -> Iterator[str]:
    """Yield what hvdchart would refuse of a line: of a whole command line any argument, otherwise
    the names of commands and options.
    """
    line = line.replace(CHECKOUT_COMMAND, "hvdchart")
    if "-m hvdchart" in line:
        yield f"{line}: write {CHECKOUT_COMMAND}"
    match = re.match(r"hvdchart ([a-z].*)", line)
    if match is None or re.match(r"\w+[.:/]", match[1]):
        return
    words = shlex.split(match[1], comments=True)
    words = words[: next((i for i, word in enumerate(words) if word in ("|", ">", "&&")), None)]
    command: Any = app.command()
    while hasattr(command, "commands"):
        if not words:
            return
        if words[0] not in command.commands:
            yield f"{line}: hvdchart has no command {words[0]}"
            return
        command = command.commands[words.pop(0)]
    if whole:
        try:
            # A command keeps the names of the option for help that it is first used with.
            command.make_context("hvdchart", words, **(app.app.info.context_settings or {}))
        except UsageError as error:
            yield f"{line}: {error.format_message()}"
        return
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    # What follows -- is for another program.
    words = words[: words.index("--")] if "--" in words else words
    named = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    for option in sorted(named - known - {"--help"}):
        yield f"{line}: the command has no option {option}"


def main() -> int:
    """Print all problems. Return 1 when there is one."""
    return print_problems(check_files(page_problems, "*.md"))


if __name__ == "__main__":
    sys.exit(main())
