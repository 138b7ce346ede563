"""What becomes of whole files, two reports word for word, and the command that writes them.

To write both again after a change: `python -m tests.unit.hvdchart.migrate.test_migration_text`.
"""

from __future__ import annotations

import shlex
from itertools import zip_longest
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from hvdchart.cli.app import app
from hvdchart.errors import SpecError
from hvdchart.migrate.migration_text import report_text, values_text
from hvdchart.spec.yaml_tree import MAX_BYTES
from tests.support.old_files.migrate import FILES, FOLDER, PATHS, migrate_old, migrate_path

HERE = Path(__file__).parent
# One of a file of objects, one of a script.
SAMPLES = [PATHS["mpijob-v1.yaml"], PATHS["slurm.sh"]]
WHOLE_FILES = YAML(typ="safe").load(HERE / "whole_files.yaml")


def whole_report(path: Path) -> str:
    """The values file and the report of one of the files."""
    migration = migrate_path(path)
    return f"{values_text(migration, path.name)}---\n{report_text(migration)}"


def expected_report(path: Path) -> Path:
    return HERE / "reports" / f"{path.stem}.txt"


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_values_and_report_of_a_whole_file(path: Path) -> None:
    expected = expected_report(path).read_text("utf-8")
    assert whole_report(path) == expected, f"the report of {path.name} is another one"


def test_what_becomes_of_each_file_is_known() -> None:
    files = {f"{path.parent.name}/{path.name}" for path in FILES if path not in SAMPLES}
    assert set(WHOLE_FILES) == files


@pytest.mark.parametrize("name", WHOLE_FILES)
class TestWholeFile:
    """`hvdchart migrate` of a file that a user has, or that has each key."""

    def test_values_are_those_that_the_file_means(self, name: str) -> None:
        migration = migrate_path(FOLDER / name)
        read = [migration.source, migration.release, migration.namespace]
        assert (read, migration.values) == (WHOLE_FILES[name]["read"], WHOLE_FILES[name]["values"])

    def test_each_thing_to_check_is_told(self, name: str) -> None:
        common = {check for path in SAMPLES for check in migrate_path(path).checks}
        checks = migrate_path(FOLDER / name).checks
        own = [check for check in checks if check not in common]
        starts = WHOLE_FILES[name].get("checks", [])
        pairs = zip_longest(own, starts, fillvalue="")
        assert [check[: len(start)] for check, start in pairs] == starts
        assert len(checks) - len(own) == WHOLE_FILES[name]["common checks"]

    def test_report_says_why_a_value_is_dropped_or_changed(self, name: str) -> None:
        entries = migrate_path(FOLDER / name).entries
        for old, start in WHOLE_FILES[name].get("reasons", {}).items():
            reasons = [entry.reason for entry in entries if entry.old.endswith(old)]
            assert any(reason.startswith(start) for reason in reasons), (old, reasons)


def test_line_for_a_shell_has_names_as_words() -> None:
    migration = migrate_old()
    migration.release = "a b"
    migration.namespace = "team; curl x | sh #"
    line = values_text(migration, "values.yaml").splitlines()[1].removeprefix("#")
    assert shlex.split(line)[2:6] == ["a b", "charts/horovod", "--namespace", migration.namespace]


def test_letters_that_nobody_sees_are_escaped() -> None:
    text = report_text(migrate_old(**{"a\u00a0b\\": 1}))
    assert "a\\xa0b\\" in text
    assert "\u00a0" not in text


def test_command_writes_values_and_report_to_files(tmp_path: Path) -> None:
    output = tmp_path / "values.yaml"
    report = tmp_path / "report.txt"
    path = PATHS["mpijob-v1.yaml"]
    done = CliRunner().invoke(
        app, ["migrate", str(path), "-w", str(output), "--report", str(report)]
    )
    assert (done.exit_code, done.output) == (0, "")
    assert f"{output.read_text()}---\n{report.read_text()}" == whole_report(path)


def test_values_and_report_cannot_be_one_file(tmp_path: Path) -> None:
    output = tmp_path / "values.yaml"
    words = ["migrate", str(PATHS["mpijob-v1.yaml"]), "-w", str(output), "--report"]
    done = CliRunner().invoke(app, [*words, f"{tmp_path}/./values.yaml"])
    assert (done.exit_code, output.exists()) == (2, False)


def test_command_reads_standard_input_and_prints_values_and_report() -> None:
    line = PATHS["slurm.sh"].read_text()
    done = CliRunner().invoke(app, ["migrate", "-"], input=line)
    assert done.exit_code == 0
    expected = whole_report(PATHS["slurm.sh"]).replace("from slurm.sh", "from standard input")
    assert f"{done.stdout}---\n{done.stderr}" == expected


@pytest.mark.parametrize(
    "content", [b"for a in b: [c", b"a" * (MAX_BYTES + 1), b"a: \xff\xfe"], ids=len
)
def test_refused_file_leaves_no_file_behind(tmp_path: Path, content: bytes) -> None:
    given = tmp_path / "in"
    output = tmp_path / "values.yaml"
    report = tmp_path / "report.txt"
    given.write_bytes(content)
    done = CliRunner().invoke(
        app, ["migrate", str(given), "-w", str(output), "--report", str(report)]
    )
    assert isinstance(done.exception, SpecError)
    assert (sorted(tmp_path.iterdir()), done.stdout) == ([given], "")


if __name__ == "__main__":
    for file in SAMPLES:
        expected_report(file).write_text(whole_report(file), "utf-8")
