"""What a command imports: a person waits for everything that it does not use, too."""

from __future__ import annotations

import subprocess
import sys

import pytest

import hvdchart
from tests.support.fakes.cluster import FakeCluster
from tests.unit.hvdchart.objects import MASTER, STATEFUL_SET, WORKERS, job

# What a person should not wait for: each takes 0.03 s or more.
SLOW = {
    "asyncio",
    "jsonschema_rs",
    "pathspec",
    "pydantic",
    "pyhelm3",
    "rich",
    "ruamel",
    "watchfiles",
}
# What only commands on a cluster need.
FOR_CLUSTERS = {"ssl", "urllib3", "yaml"}


def imported(*arguments: str) -> set[str]:
    """The top packages that a new Python has imported when this command ends."""
    program = (
        "import sys\n"
        "from hvdchart.cli.app import main\n"
        f"sys.argv = ['hvdchart', *{arguments!r}]\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "print('\\n' + ' '.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    return {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_nothing_slow(option: str) -> None:
    assert imported(option) & (SLOW | FOR_CLUSTERS) == set()


@pytest.mark.slow
def test_status_imports_nothing_slow(fake_cluster: FakeCluster) -> None:
    fake_cluster.put("jobs", job())
    fake_cluster.put("statefulsets", STATEFUL_SET)
    fake_cluster.put("pods", MASTER, *WORKERS)
    modules = imported("status", "hvd")
    assert modules & SLOW == set()
    assert modules > FOR_CLUSTERS


def test_public_names_are_imported_when_they_are_used() -> None:
    assert [name for name in dir(hvdchart) if getattr(hvdchart, name) is None] == []


def test_unknown_name_of_the_package_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'hvdchart' has no attribute 'none'"):
        hvdchart.none  # type: ignore[attr-defined] # noqa: B018
