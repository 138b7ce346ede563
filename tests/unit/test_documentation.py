"""Links, code blocks, commands and paths in the documentation are right."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import typer
from ruamel.yaml import YAML

from hvdchart.cli import app
from hvdchart.project import templates
from tests.pages import blocks, tokens

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "images").rglob("*.md")),
    *sorted((ROOT / "charts").rglob("*.md")),
]
# CHANGELOG.md names what was there in earlier versions.
CURRENT = [page for page in PAGES if page.name != "CHANGELOG.md"]
FOLDERS = ("charts", "devtools", "docs", "examples", "hvdchart", "images", "tests", "values")
API = "hvdchart/v1"
# What the command line says of wrong use; Typer gives it no public name.
UsageError: Any = typer.BadParameter.__base__
PATH = re.compile(rf"(?:{'|'.join(FOLDERS)})/[-\w./*{{}},]+")


def links(page: Path) -> Iterator[str]:
    for token in tokens(page):
        target = token.attrGet("href") or token.attrGet("src")
        if isinstance(target, str) and not re.match(r"[a-z]+:", target):
            yield unquote(target)


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    names: set[str] = set()
    flat = tokens(page)
    for index, token in enumerate(flat):
        if token.type == "heading_open":
            text = "".join(t.content for t in flat[index + 1].children or () if not t.children)
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            number = sum(1 for known in names if re.fullmatch(rf"{re.escape(slug)}(-\d+)?", known))
            names.add(f"{slug}-{number}" if number else slug)
    return names


def code(page: Path) -> Iterator[str]:
    """Every command line in code blocks and every inline code span."""
    yield from (token.content for token in tokens(page) if token.type == "code_inline")
    yield from command_lines(page)


def command_lines(page: Path) -> Iterator[str]:
    """Every line of code blocks, with those that a line goes on in."""
    for token in tokens(page):
        if token.type in ("fence", "code_block"):
            joined = token.content.replace("\\\n", " ")
            yield from (line.strip().removeprefix("$ ") for line in joined.splitlines())


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_and_anchors_exist(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)} links to {link}: no such file"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{name(page)} links to {link}: no such heading"


def test_every_page_is_reachable_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for link in links(page):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.is_dir():
                waiting += target.glob("*.md")
            elif target.suffix == ".md":
                waiting.append(target)
    assert sorted(map(name, set(PAGES) - reached)) == []


def test_index_has_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    assert sorted(map(name, set(PAGES) - linked - {index})) == []


def test_page_of_tests_has_each_folder_with_tests() -> None:
    page = (ROOT / "docs" / "testing.md").read_text("utf-8")
    described = [ROOT / path for path in re.findall(r"^\| `(tests/[\w/]+)` \|", page, re.M)]
    files = (ROOT / "tests").rglob("test_*.py")
    folders = {file.parent for file in files} - {ROOT / "tests" / "unit"}
    missing = [f for f in folders if not any(f.is_relative_to(known) for known in described)]
    assert sorted(map(str, missing)) == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=name)
def test_page_says_first_what_it_is_for(page: Path) -> None:
    flat = tokens(page)
    first = next(i for i, token in enumerate(flat) if token.type == "paragraph_open")
    assert "This page" in flat[first + 1].content, f"{name(page)}: begin with what it is for"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_yaml_and_json_code_blocks_parse(page: Path) -> None:
    for text in blocks(page, "yaml"):
        list(YAML(typ="safe", pure=True).load_all(text))
    for text in blocks(page, "json"):
        json.loads(text)


def test_dockerfiles_install_packages_as_root_and_run_as_another_user() -> None:
    """The user of the images, 1000, cannot write to the environment that pip installs into."""
    dockerfiles = [(name(page), text) for page in CURRENT for text in blocks(page, "dockerfile")]
    assert dockerfiles
    for where, text in [*dockerfiles, ("hvdchart init --dockerfile", templates._DOCKERFILE)]:
        user = "1000"
        for line in text.splitlines():
            word, _, rest = line.strip().partition(" ")
            if word == "USER":
                user = rest
            assert user == "0" or not re.search(r"\b(pip|apt-get) install", rest), (
                f"{where}: {line}"
            )
        assert user == "1000", where


@pytest.mark.parametrize("page", CURRENT, ids=name)
def test_make_targets_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][-a-z0-9]*):", makefile, re.M))
    for line in code(page):
        for target in re.findall(r"^make ([a-z][-a-z0-9]*)\b", line):
            assert target in targets, f"{name(page)}: `{line}`: make has no target {target}"


@pytest.mark.parametrize("page", CURRENT, ids=name)
def test_python_modules_exist(page: Path) -> None:
    for line in code(page):
        for module in re.findall(r"\bpython3? -m ([\w.]+)", line):
            if module.partition(".")[0] in FOLDERS:
                assert importlib.util.find_spec(module), f"{name(page)}: `{line}`: no such module"


@pytest.mark.parametrize("page", CURRENT, ids=name)
def test_hvdchart_commands_and_options_exist(page: Path) -> None:
    commands = app.command().commands  # type: ignore[attr-defined]
    for line in code(page):
        match = re.match(r"(?:\S*python3? -m )?hvdchart ([a-z]+)(.*)", line)
        if match is None or re.match(r"hvdchart \w+[.:/]", line):
            continue
        command = commands.get(match[1])
        assert command, f"{name(page)}: `{line}`: hvdchart has no command {match[1]}"
        words = shlex.split(match[2].partition("|")[0].partition(">")[0], comments=True)
        if hasattr(command, "commands"):
            assert words[0] in command.commands, f"{name(page)}: `{line}`"
            command = command.commands[words.pop(0)]
        options = {
            option
            for parameter in command.params
            for option in (*parameter.opts, *parameter.secondary_opts)
        }
        # What follows is for another program.
        words = words[: words.index("--")] if "--" in words else words
        given = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert given <= options | {"--help"}, f"{name(page)}: `{line}`: {given - options}"


@pytest.mark.parametrize("page", CURRENT, ids=name)
def test_hvdchart_accepts_the_command_lines_of_code_blocks(page: Path) -> None:
    """As they stand: with every argument that a command needs, and no other one."""
    for line in command_lines(page):
        match = re.match(r"(?:\S*python3? -m )?hvdchart ([a-z].*)", line)
        # docs/command.md has the forms of commands.
        if match is None or "[OPTIONS]" in line:
            continue
        words = shlex.split(match[1], comments=True)
        words = words[: next((i for i, w in enumerate(words) if w in ("|", ">")), None)]
        command: Any = app.command()
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        try:
            # A command keeps the names of the option for help that it is first used with.
            command.make_context("hvdchart", words, **(app.app.info.context_settings or {}))
        except UsageError as error:
            pytest.fail(f"{name(page)}: `{line}`: {error.format_message()}")


@pytest.mark.parametrize("page", CURRENT, ids=name)
def test_paths_of_this_repository_exist(page: Path) -> None:
    for token in tokens(page):
        if token.type == "code_inline" and PATH.fullmatch(token.content) and token.content != API:
            pattern = re.sub(r"\{[^}]*\}|NAME|IMAGE", "*", token.content).rstrip("/")
            assert any(ROOT.glob(pattern)), f"{name(page)}: `{token.content}` does not exist"
