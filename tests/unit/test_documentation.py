"""The documentation says what the programs do.

`make lint` checks that the commands and paths which it names exist.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from devtools.checks.problems import find_files
from devtools.common.markdown import code_blocks, command_lines
from devtools.common.repository import CHART, DOCS, ROOT
from devtools.docs_gen import promises
from devtools.docs_gen.chart_docs import load_source
from hvd_pods.master.failure_causes import PERMANENT, SURE_TO_REPEAT
from hvd_pods.master.gpu_problems import GPU_PROBLEMS
from hvd_pods.master.prober import ProbeLimits
from hvd_pods.rules.stalls import KEPT_STOP_LIMITS_SECONDS
from hvd_pods.shared.exit_codes import BAD_CONFIGURATION, LOST_MASTER
from hvd_pods.shared.run_events import RunEvent
from hvdchart.chart_files import read_data
from hvdchart.spec.fields import RELEASE_NAME

PODS = CHART / "files" / "hvd_pods"
PAGES = [ROOT / page for page in find_files("*.md")]


def test_dockerfiles_install_packages_as_root_and_run_as_another_user() -> None:
    """The user of the images, 1000, cannot write to the environment that pip installs into."""
    dockerfiles = [text for page in PAGES for text in code_blocks(page, "dockerfile")]
    assert dockerfiles
    for text in dockerfiles:
        user = "1000"
        for line in text.splitlines():
            user = line.split()[1] if line.startswith("USER ") else user
            assert user == "0" or not re.search(r"\b(pip|apt-get) install", line), text
        assert user == "1000", text


def test_commands_that_verify_a_release_name_one_repository_and_one_workflow_at_a_tag() -> None:
    """An owner, or a pattern, would take what any other repository or branch of it has signed."""
    blocks = [block for page in PAGES for block in code_blocks(page)]
    lines = [line for block in blocks for line in command_lines(block)]
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
        commands = [line for line in lines if line.startswith(f"{program} ")]
        assert commands
        for line in commands:
            assert options <= set(re.findall(r"--\S+ \$?\S+", line)), line
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
        named = [entry for entry in entries if any(words in entry for words in problem.words)]
        assert named, f"no entry has {' or '.join(problem.words)}"
        for entry in named:
            assert (f"`{event}`" in entry) == problem.is_broken, entry


def section(page: Path, title: str) -> str:
    """The text of a page from a heading to the next one."""
    _, heading, rest = page.read_text("utf-8").partition(f" {title}\n")
    assert heading, f"{page} has no heading {title}"
    return re.split(r"^#+ ", rest, maxsplit=1, flags=re.M)[0]


def test_table_of_exit_codes_says_after_which_ones_the_job_makes_another_master() -> None:
    text = section(DOCS / "life.md", "Exit codes of the master")
    follows = dict(re.findall(r"^\| (\d+) \|.*\| (.*) \|$", text, re.M))
    assert {int(code) for code in follows} == {0, BAD_CONFIGURATION, *LOST_MASTER}
    repeated = {int(code) for code, what in follows.items() if "creates another master" in what}
    assert repeated == {*LOST_MASTER}


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
        limits = re.findall(r"^\|.*(?:node|network).*(?:within|at most) (\d+) s\b", text, re.M)
        assert limits == [f"{seconds:.0f}"], name


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
