"""The text of a migration, the errors for files that cannot be migrated, and the command."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from hvdchart.cli.app import app
from hvdchart.errors import FileError, SpecError
from hvdchart.migrate.report import report_text, values_text
from hvdchart.spec.yaml_tree import MAX_BYTES
from tests.unit.hvdchart.migrate.old_files import (
    NAMES,
    PATHS,
    assert_every_value_has_an_entry,
    migrate_file,
    migrate_line,
    migrate_text,
    tree_of,
)


@pytest.mark.parametrize("name", NAMES)
def test_every_value_of_a_file_has_one_entry(name: str) -> None:
    migration = migrate_file(name)
    assert_every_value_has_an_entry(tree_of(name).plain, migration)
    values = [entry.old for entry in migration.entries if ": " not in entry.old]
    assert len(values) == len(set(values))


def test_report_has_one_line_for_each_value_or_list() -> None:
    migration = migrate_text(
        "worker: {number: 2, image: {repository: a, tag: '1'}}\n"
        "master: {args: [mpirun, -np 2, python, a.py]}\n"
        "capabilities: {drop: [A, B]}\nuseHostPID: true\n"
    )
    assert report_text(migration) == (
        "read as the old horovod chart: 3 dropped, 5 changed, 3 renamed, 1 carried over\n"
        "to check by hand: 2\n"
        "  1. the Pod Security levels baseline and restricted reject hostPID\n"
        "  2. the pods ran as root; here they run as user 1000 on a read-only root file system. "
        "For an image that needs root set podSecurityContext: {runAsUser: 0, runAsGroup: 0, "
        "fsGroup: 0, runAsNonRoot: false}; for a program that writes into the image set "
        "securityContext: {readOnlyRootFilesystem: false}\n"
        "dropped: 3\n"
        "  master.args: -np 2 (the chart takes it from worker.number and worker.slots)\n"
        "  capabilities (the chart drops all capabilities that it does not add)\n"
        "changed: 5\n"
        "  master -> master.args (each part has a line of its own)\n"
        "  master.args: the training command -> master.args (without its launcher)\n"
        "renamed: 3\n"
        "  worker.image -> image (for master and workers)\n"
        "  useHostPID -> hostPID\n"
        "carried over: 1\n"
        "  worker.number\n"
    )


def test_items_of_a_list_that_moves_share_a_line() -> None:
    migration = migrate_text(
        "worker: {number: 2}\nimagePullSecrets: [{name: a}]\ntolerations: [{key: a}, {key: b}]\n"
        "master: {args: [mpirun a]}\nresources: {claims: [{name: a}, {name: b}]}\n"
    )
    lines = report_text(migration).splitlines()
    assert "  resources -> worker.resources" in lines
    assert "  imagePullSecrets" in lines


def test_values_file_says_how_to_install_it_and_what_to_check() -> None:
    text = values_text(migrate_file("mpijob-v1.yaml"), "old.yaml")
    head = [line for line in text.splitlines() if line.startswith("#")]
    assert head[:3] == [
        "# Migrated from old.yaml by `python -m hvdchart migrate`. To install it:",
        "#   helm install imagenet charts/horovod --namespace vision --values THIS-FILE",
        "# Check by hand first:",
    ]
    assert head[3].startswith("# - the pods ran as the image")
    assert len(head) == 3 + len(migrate_file("mpijob-v1.yaml").checks)


def test_values_file_names_a_placeholder_for_the_release_of_an_old_chart() -> None:
    text = values_text(migrate_file("stable-gpu.yaml"), "old.yaml")
    assert "#   helm install NAME charts/horovod --values THIS-FILE\n" in text


def test_values_file_without_checks_has_no_heading_for_them() -> None:
    migration = migrate_text(
        "apiVersion: kubeflow.org/v1\nkind: MPIJob\nmetadata: {name: job}\nspec:\n"
        "  mpiReplicaSpecs:\n"
        "    Launcher: {template: {spec: {containers: [{name: a, image: a, "
        "command: [mpirun, b]}]}}}\n"
        "    Worker: {template: {spec: {containers: [{name: a, image: a, "
        "securityContext: {runAsUser: 5}}]}}}\n"
    )
    assert migration.checks == ()
    assert "Check" not in values_text(migration, "old") + report_text(migration)


def test_private_key_is_not_printed() -> None:
    migration = migrate_file("stable-gpu.yaml")
    assert "bm90IGEga2V5" not in values_text(migration, "old.yaml") + report_text(migration)


KIND = "expected values of the old horovod chart, Arena's chart, Nauta's pack"
OLD = "ssh: {useSecrets: true}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a list", f"<old>:1:1: got a list of 1; {KIND}"),
        ("kind: Pod\napiVersion: v1", f"<old>:1:1: got apiVersion 'v1', kind 'Pod'; {KIND}"),
        ("kind: MPIJob", f"<old>:1:1: got apiVersion None, kind 'MPIJob'; {KIND}"),
        ("apiVersion: kubeflow.org/v1", "got apiVersion 'kubeflow.org/v1', kind None"),
        ("other: 1",
         f"<old>:1:1: its keys are other; no chart that migrate knows has them; {KIND}"),
        ("worker: {number: 2}\nworkerGroups: []",
         "<old>:2:15: workerGroups is a key of this chart: the file needs no migration"),
        ("worker: {number: many}",
         '<old>:1:18: worker.number: got "many"; expected a whole number'),
        ("worker: {number: true}", "worker.number: got true; expected a whole number"),
        ("worker: {number: '1234567890'}", "expected a whole number"),
        ("worker: {number: 0}",
         "<old>:1:18: worker.number: the chart's worker.number does not accept it: 0 is less than "
         "the minimum of 1; expected a value that worker.number accepts"),
        (f"{OLD}worker: 3", "<old>:2:9: worker: got 3; expected a map"),
        (f"{OLD}driver: 3", "driver: got 3; expected a map"),
        (f"{OLD}worker: {{image: a:1}}", 'worker.image: got "a:1"; expected a map'),
        ("master: {image: a:1}", 'master.image: got "a:1"; expected a map'),
        ("master: {args: [[a]]}", 'master.args[0]: got ["a"]; expected text'),
        (f"useHostNetwork: maybe\n{OLD}",
         '<old>:1:17: useHostNetwork: got "maybe"; expected true or false'),
        (f"{OLD}volumes: {{a: b}}", '<old>:2:10: volumes: got {"a": "b"}; expected a list'),
    ],
)  # fmt: skip
def test_error_names_the_place_the_value_and_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        migrate_text(text)
    assert message in str(error.value)


def test_command_writes_values_and_report_to_files(tmp_path: Path) -> None:
    output, report = tmp_path / "values.yaml", tmp_path / "report.txt"
    arguments = [str(PATHS["mpijob-v1.yaml"]), "-w", str(output), "--report", str(report)]
    done = CliRunner().invoke(app, ["migrate", *arguments])
    assert (done.exit_code, done.output) == (0, "")
    migration = migrate_file("mpijob-v1.yaml")
    assert output.read_text() == values_text(migration, "mpijob-v1.yaml")
    assert report.read_text() == report_text(migration)


def test_command_prints_values_to_stdout_and_the_report_to_stderr() -> None:
    done = CliRunner().invoke(app, ["migrate", str(PATHS["docker-helm-cpu.yaml"])])
    assert done.exit_code == 0
    migration = migrate_file("docker-helm-cpu.yaml")
    assert done.stdout == values_text(migration, "docker-helm-cpu.yaml")
    assert done.stderr == report_text(migration)


def test_command_reads_a_line_from_standard_input() -> None:
    line = "mpirun -np 16 -H a:8,b:8 python train.py"
    done = CliRunner().invoke(app, ["migrate", "--command-line", "-"], input=line)
    assert done.exit_code == 0
    migration = migrate_line(line)
    assert done.stdout == values_text(migration, "standard input")
    assert done.stderr == report_text(migration)


@pytest.mark.parametrize("option", [[], ["--command-line"]])
def test_refused_file_leaves_no_file_behind(tmp_path: Path, option: list[str]) -> None:
    given, output, report = tmp_path / "in", tmp_path / "values.yaml", tmp_path / "report.txt"
    given.write_text("for a in b: [c")
    done = CliRunner().invoke(
        app, ["migrate", *option, str(given), "-w", str(output), "--report", str(report)]
    )
    assert isinstance(done.exception, SpecError)
    assert sorted(tmp_path.iterdir()) == [given]
    assert done.stdout == ""


@pytest.mark.parametrize("arguments", [[], ["a", "--command-line", "b"]])
def test_command_needs_one_file(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, ["migrate", *arguments])
    assert done.exit_code == 2
    assert "give one of FILE and --command-line FILE" in done.stderr


@pytest.mark.parametrize("option", [[], ["--command-line"]])
def test_file_that_cannot_be_read_is_named(tmp_path: Path, option: list[str]) -> None:
    done = CliRunner().invoke(app, ["migrate", *option, str(tmp_path)])
    assert isinstance(done.exception, FileError)
    assert str(done.exception) == f"{tmp_path}: cannot read the file: Is a directory"


@pytest.mark.parametrize("option", [[], ["--command-line"]])
def test_file_that_is_too_long_or_no_text_is_refused(tmp_path: Path, option: list[str]) -> None:
    for content in (b"a" * (MAX_BYTES + 1), b"a: \xff\xfe"):
        (tmp_path / "in").write_bytes(content)
        done = CliRunner().invoke(app, ["migrate", *option, str(tmp_path / "in")])
        assert isinstance(done.exception, SpecError)


def test_report_names_keys_with_dots_and_groups_what_is_alike() -> None:
    lines = report_text(migrate_file("aws.yaml")).splitlines()
    assert (
        "  resources.requests.nvidia.com/gpu, resources.limits.nvidia.com/gpu "
        "(gpus_per_node sets the GPUs)"
    ) in lines
    first = next(line for line in lines if line.endswith(":") or ": " in line)
    assert first.startswith("read as AWS's chart mpijob-horovod-tensorflow-gpu: ")
    assert lines[1].startswith("to check by hand: ")
