"""What becomes of whole files, and the command that writes it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from hvdchart.cli.app import app
from hvdchart.errors import FileError, SpecError
from hvdchart.migrate.migration_text import report_text, values_text
from hvdchart.spec.yaml_tree import MAX_INPUT_BYTES
from tests.support.migrations import FILES, FOLDER, PATHS, migrate_old, migrate_path

WHOLE_FILES = YAML(typ="safe").load(Path(__file__).with_name("whole_files.yaml"))
# How the checks begin that several files have.
COMMON = (
    "the pods ran as the image's user",
    "the program ran as its user",
    "the line does not say what a worker needs",
    "the line names no image",
)


def test_what_becomes_of_each_file_is_known() -> None:
    assert set(WHOLE_FILES) == {f"{path.parent.name}/{path.name}" for path in FILES}


@pytest.mark.parametrize("name", WHOLE_FILES)
class TestWholeFile:
    """`hvdchart migrate` of a file that a user has, or that has each key."""

    def test_values_are_those_that_the_file_means(self, name: str) -> None:
        migration = migrate_path(FOLDER / name)
        read = [migration.source, migration.release, migration.namespace]
        assert read == WHOLE_FILES[name]["read"]
        assert migration.values == WHOLE_FILES[name]["values"]

    def test_each_thing_to_check_is_reported(self, name: str) -> None:
        checks = migrate_path(FOLDER / name).checks
        special = [check for check in checks if not check.startswith(COMMON)]
        starts = WHOLE_FILES[name].get("checks", [])
        assert [check for check in special if not check.startswith(tuple(starts))] == []
        assert len(special) == len(starts)
        assert len(checks) - len(special) == WHOLE_FILES[name]["common checks"]

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
    migration = migrate_path(path)
    assert YAML(typ="safe").load(output) == migration.values
    # Each check is a comment above the values.
    assert all(f"# - {check}\n" in output.read_text() for check in migration.checks)
    told = report.read_text()
    assert all(entry.old in told for entry in migration.entries)
    assert all(entry.reason in told for entry in migration.entries)


def test_values_and_report_cannot_be_one_file(tmp_path: Path) -> None:
    output = tmp_path / "values.yaml"
    words = ["migrate", str(PATHS["mpijob-v1.yaml"]), "-w", str(output), "--report"]
    done = CliRunner().invoke(app, [*words, f"{tmp_path}/./values.yaml"])
    assert done.exit_code == 2
    assert not output.exists()


def test_no_values_are_written_without_their_report(tmp_path: Path) -> None:
    output = tmp_path / "values.yaml"
    words = ["migrate", str(PATHS["mpijob-v1.yaml"]), "-w", str(output)]
    done = CliRunner().invoke(app, [*words, "--report", str(tmp_path / "none" / "report.txt")])
    assert isinstance(done.exception, FileError)
    assert not output.exists()


def test_command_reads_standard_input_and_prints_values_and_report() -> None:
    path = PATHS["slurm.sh"]
    done = CliRunner().invoke(app, ["migrate", "-"], input=path.read_text())
    migration = migrate_path(path)
    assert done.exit_code == 0
    assert done.stdout == values_text(migration, "standard input")
    assert done.stderr == report_text(migration)


@pytest.mark.parametrize(
    "content", [b"for a in b: [c", b"a" * (MAX_INPUT_BYTES + 1), b"a: \xff\xfe"], ids=len
)
def test_refused_file_leaves_no_file_behind(tmp_path: Path, content: bytes) -> None:
    source = tmp_path / "in"
    output = tmp_path / "values.yaml"
    report = tmp_path / "report.txt"
    source.write_bytes(content)
    done = CliRunner().invoke(
        app, ["migrate", str(source), "-w", str(output), "--report", str(report)]
    )
    assert isinstance(done.exception, SpecError)
    assert list(tmp_path.iterdir()) == [source]
    assert done.stdout == ""
