"""Commands, paths, messages and tests that the documentation names exist.

MkDocs checks links, anchors and the navigation: tests/unit/devtools/test_docs_gen.py.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from ruamel.yaml import YAML

from devtools.common.repository import CHART, DOCS, ROOT
from devtools.docs_gen import promises
from devtools.docs_gen.chart_docs import load_source
from hvd_pods.master.failure_causes import PERMANENT, SURE_TO_REPEAT
from hvd_pods.master.gpu_problems import GPU_PROBLEMS
from hvd_pods.master.prober import ProbeLimits
from hvd_pods.rules.stalls import KEPT_STOP_LIMITS_SECONDS
from hvd_pods.shared import contract
from hvd_pods.shared.exit_codes import BAD_CONFIGURATION, LOST_MASTER
from hvd_pods.shared.run_events import RunEvent
from hvdchart.chart_files import read_data
from hvdchart.cli import app
from hvdchart.spec.fields import RELEASE_NAME
from tests.support.pages import blocks, tokens

PODS = CHART / "files" / "hvd_pods"
FOLDERS = ("charts", "devtools", "docs", "examples", "hvdchart", "images", "tests", "values")
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(page for name in FOLDERS for page in sorted((ROOT / name).rglob("*.md"))),
]
# What looks like a path: the apiVersion of a spec, and labels and annotations of the chart.
NO_PATHS = {
    "hvdchart/v1",
    "hvdchart/settings-hash",
    *(name for name in vars(contract).values() if isinstance(name, str)),
}
PATH = re.compile(rf"(?:{'|'.join(FOLDERS)})/[-\w./*{{}},]+")
# A file of the chart or of its programs, from there.
OF_CHART = re.compile(r"(?:files|templates)/[\w/.-]+\.\w+")
OF_PODS = re.compile(
    r"(?:agent|cluster|library|master|pod|rank|rules|shared|warm|worker)/[\w/]+\.(?:py|json)"
)
# What the command line says of wrong use; Typer gives it no public name.
UsageError: Any = typer.BadParameter.__base__
every_page = pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix()
)


def spans(page: Path) -> list[str]:
    """The code inside the text of a page."""
    return [token.content for token in tokens(page) if token.type == "code_inline"]


def command_lines(page: Path) -> Iterator[str]:
    """The lines of code blocks, each with those in which it is continued."""
    for token in tokens(page):
        if token.type in ("fence", "code_block"):
            joined = token.content.replace("\\\n", " ")
            yield from (line.strip().removeprefix("$ ") for line in joined.splitlines())


@every_page
def test_yaml_and_json_code_blocks_parse(page: Path) -> None:
    for text in blocks(page, "yaml"):
        list(YAML(typ="safe", pure=True).load_all(text))
    for text in blocks(page, "json"):
        json.loads(text)


@every_page
def test_rows_of_a_table_have_a_header(page: Path) -> None:
    """A row below an empty line is shown as text."""
    text = re.sub(r"^( *)```.*?^\1```", "", page.read_text("utf-8"), flags=re.M | re.S)
    tables = re.findall(r"(?:^\|.*\n)+", text, flags=re.M)
    assert all(re.match(r"\|.*\n\|[\s:|-]+\n", found) for found in tables), tables


def test_dockerfiles_install_packages_as_root_and_run_as_another_user() -> None:
    """The user of the images, 1000, cannot write to the environment that pip installs into."""
    dockerfiles = [text for page in PAGES for text in blocks(page, "dockerfile")]
    assert dockerfiles
    for text in dockerfiles:
        user = "1000"
        for line in text.splitlines():
            user = line.split()[1] if line.startswith("USER ") else user
            assert user == "0" or not re.search(r"\b(pip|apt-get) install", line), text
        assert user == "1000", text


@every_page
def test_make_targets_modules_and_paths_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z][-a-z0-9]*):", (ROOT / "Makefile").read_text(), re.M))
    for line in (*spans(page), *command_lines(page)):
        assert {*re.findall(r"^make ([a-z][-a-z0-9]*)\b", line)} <= targets, line
        for module in re.findall(r"\bpython3? -m ([\w.]+)", line):
            known = module.partition(".")[0] not in FOLDERS or importlib.util.find_spec(module)
            assert known, f"{line}: there is no such module"
    for path in spans(page):
        for form, folder in ((OF_CHART, CHART), (OF_PODS, PODS)):
            assert not form.fullmatch(path) or (folder / path).is_file(), f"{path} does not exist"
        if PATH.fullmatch(path) and path not in NO_PATHS:
            pattern = re.sub(r"\{[^}]*\}|NAME|IMAGE", "*", path).rstrip("/")
            assert any(ROOT.glob(pattern)), f"{path} does not exist"


def find_command(line: str) -> tuple[Any, list[str]] | None:
    """The command of a line and its arguments; None for a line that is not about one."""
    # A checkout has no program `hvdchart`: contributors run its package.
    line = line.replace(".venv/bin/python -m hvdchart", "hvdchart")
    assert "-m hvdchart" not in line, "the pages have one spelling of the command"
    match = re.match(r"hvdchart ([a-z].*)", line)
    if match is None or re.match(r"\w+[.:/]", match[1]):
        return None
    words = shlex.split(match[1], comments=True)
    words = words[: next((i for i, word in enumerate(words) if word in ("|", ">", "&&")), None)]
    command: Any = app.command()
    while hasattr(command, "commands"):
        if not words:
            return None
        assert words[0] in command.commands, f"{line}: hvdchart has no command {words[0]}"
        command = command.commands[words.pop(0)]
    return command, words


@every_page
def test_commands_and_options_in_the_text_exist(page: Path) -> None:
    for line in spans(page):
        command, words = find_command(line) or (None, [])
        if command is not None:
            known = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
            # What follows -- is for another program.
            words = words[: words.index("--")] if "--" in words else words
            given = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
            assert given <= known | {"--help"}, line


@every_page
def test_hvdchart_accepts_the_command_lines_of_code_blocks(page: Path) -> None:
    """As they stand: with every argument that a command needs, and no other one."""
    for line in command_lines(page):
        command, words = find_command(line) or (None, [])
        if command is not None:
            try:
                # A command keeps the names of the option for help that it is first used with.
                command.make_context("hvdchart", words, **(app.app.info.context_settings or {}))
            except UsageError as error:
                pytest.fail(f"{line}: {error.format_message()}")


def test_commands_that_verify_a_release_name_one_repository_and_one_workflow_at_a_tag() -> None:
    """An owner, or a pattern, would take what any other repository or branch of it has signed."""
    lines = [line for page in PAGES for line in command_lines(page)]
    (identity,) = (line for line in lines if line.startswith("IDENTITY="))
    assert re.fullmatch(
        r"IDENTITY=https://github\.com/\$REPOSITORY/(\S+)@refs/tags/v\$VERSION", identity
    )
    workflow = identity.partition("$REPOSITORY/")[2].partition("@")[0]
    assert (ROOT / workflow).is_file()
    needed = {
        "gh attestation verify": {"--repo $REPOSITORY", "--cert-identity $IDENTITY"},
        "cosign verify": {"--certificate-identity $IDENTITY", "--certificate-oidc-issuer $ISSUER"},
    }
    for program, options in needed.items():
        found = [line for line in lines if line.startswith(f"{program} ")]
        assert found
        for line in found:
            given = set(re.findall(r"--\S+ \$?\S+", line))
            assert options <= given, line
            assert "--owner" not in line, line


def test_each_row_of_the_threat_model_has_a_promise_that_a_test_guards() -> None:
    """`make generate` refuses a promise without a test."""
    text = promises.PAGE.read_text("utf-8")
    tables = re.findall(r"\b[Tt]est \|\n\|(?: ?:?-+:? ?\|)+\n((?:\|.*\n)+)", text)
    rows = "".join(tables).splitlines()
    assert len(rows) > 80
    assert not re.findall(r"^- ", text, re.M), "promises are rows of tables"
    assert [row for row in rows if not promises.find_linked(row)] == []


def test_page_of_messages_names_the_event_of_a_broken_gpu_for_broken_gpus_alone() -> None:
    """After other problems of GPUs, the next attempt uses the same workers."""
    entries = (DOCS / "troubleshooting.md").read_text("utf-8").split("\n\n")
    event = RunEvent.GPU_FAILED.reason
    for problem in GPU_PROBLEMS:
        found = [each for each in entries if any(words in each for words in problem.words)]
        assert found, f"no entry has {' or '.join(problem.words)}"
        for entry in found:
            assert (f"`{event}`" in entry) == problem.is_broken, entry


def section(page: Path, title: str) -> str:
    """The text of a page from a heading to the next one."""
    _, found, rest = page.read_text("utf-8").partition(f" {title}\n")
    assert found, f"{page} has no heading {title}"
    return re.split(r"^#+ ", rest, maxsplit=1, flags=re.M)[0]


def test_table_of_exit_codes_says_after_which_ones_the_job_makes_another_master() -> None:
    text = section(DOCS / "life.md", "Exit codes of the master")
    follows = dict(re.findall(r"^\| (\d+) \|.*\| (.*) \|$", text, re.M))
    assert {int(code) for code in follows} == {0, BAD_CONFIGURATION, *LOST_MASTER}
    made = {int(code) for code, what in follows.items() if "creates another master" in what}
    assert made == {*LOST_MASTER}


def test_lists_of_exceptions_that_end_a_run_are_those_of_the_master() -> None:
    text = section(DOCS / "life.md", "What ends the run")
    items = dict(
        re.findall(r"^- (At once|The second time in a row): ((?:.+\n)+?)(?=-|\n)", text, re.M)
    )
    listed = {when: {*re.findall(r"`(\w+)`", names)} for when, names in items.items()}
    assert listed == {
        "At once": PERMANENT,
        "The second time in a row": SURE_TO_REPEAT - PERMANENT,
    }


def test_table_of_rules_has_each_module_of_the_rules() -> None:
    table = section(DOCS / "inside.md", "One loop decides").partition("are in |\n")[2]
    rows = [line for line in table.splitlines() if line.startswith("|")]
    named = {name for row in rows for name in re.findall(r"`(\w+\.py)`", row)}
    assert named == {file.name for file in (PODS / "rules").glob("*.py")} - {"__init__.py"}


def test_page_of_pipelines_has_the_longest_name_of_a_run() -> None:
    text = " ".join((DOCS / "gitops.md").read_text("utf-8").split())
    assert f"at most {RELEASE_NAME.longest} of the characters" in text
    in_queue = read_data("resources.json")["statefulSetName"]["inQueue"] - len("-worker")
    assert f"{in_queue} in a queue of Kueue" in text


def test_pages_have_one_time_in_which_a_lost_worker_is_detected() -> None:
    launch = load_source()["properties"]["launch"]["properties"]
    seconds = launch["lostAfterSeconds"]["effective"] + ProbeLimits().suspect_interval_seconds
    for name in ("faults.md", "comparison.md"):
        text = (DOCS / name).read_text("utf-8")
        found = re.findall(r"^\|.*(?:node|network).*(?:within|at most) (\d+) s\b", text, re.M)
        assert found == [f"{seconds:.0f}"], name


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("stalls.md", r"all ranks \[keep their state\]\S*, after .*?at least (\d+) s\b"),
        ("adr/0017-stalls-and-notices.md", r"costs no step: at least (\d+) s\b"),
    ],
)
def test_page_has_the_time_of_a_stopped_rank_that_keeps_its_state(page: str, words: str) -> None:
    text = " ".join((DOCS / page).read_text("utf-8").split())
    assert re.findall(words, text) == [f"{KEPT_STOP_LIMITS_SECONDS[0]:.0f}"]
