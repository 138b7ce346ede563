"""Rare parts of command lines and scripts: variables before the launcher, names, images, mounts."""

from __future__ import annotations

import pytest

from hvdchart.errors import SpecError
from hvdchart.migrate.command_line import parse_command_line
from tests.unit.hvdchart.migrate.old_files import migrate_job, migrate_line, results


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("mpirun -np 2 -x=A=$B t", "only a shell knows $B; expected B=VALUE in a line above"),
        ("docker run $IMAGE mpirun -np 2 t", "only a shell knows $IMAGE in $IMAGE"),
        ("docker run -v /a:/dev/shm b mpirun -np 2 t", "/dev/shm belongs to the system"),
    ],
)
def test_value_that_cannot_be_used_is_refused(line: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        migrate_line(line)
    assert message in str(error.value)


@pytest.mark.parametrize("option", ["-x =1", "-genvlist ,"])
def test_variable_without_a_name_is_not_understood(option: str) -> None:
    line = parse_command_line(["mpirun", "-np", "2", *option.split(), "t"])
    reason = f"migrate does not understand option {option.split()[0]} of mpirun"
    assert (line.mode, line.custom_reason) == ("custom", reason)


def test_variable_that_env_sets_before_the_launcher_reaches_the_ranks() -> None:
    migration = migrate_line("env -i A=1 mpirun -np 2 -x A t")
    assert migration.values["worker"]["env"] == [{"name": "A", "value": "1"}]


def test_variable_that_env_takes_from_the_shell_is_to_be_checked() -> None:
    migration = migrate_line("env A=$B C=1 mpirun -np 1 t")
    assert migration.values["worker"]["env"] == [{"name": "C", "value": "1"}]
    unknown = "only a shell knows the value of A: set it in worker.env if the ranks need it"
    assert unknown in migration.checks


def test_tilde_inside_a_word_is_text() -> None:
    assert migrate_line("mpirun -np 1 t a~b").values["master"]["args"] == ["t", "a~b"]
    with pytest.raises(SpecError, match="only a shell knows ~"):
        migrate_line("mpirun -np 1 t ~/b")


def test_shared_memory_of_the_host_is_dropped_as_a_mount() -> None:
    migration = migrate_line("docker run -v /dev/shm:/dev/shm a mpirun -np 2 t")
    reason = ("dropped", "", "the chart mounts /dev/shm itself")
    assert results(migration)["line 1: -v /dev/shm:/dev/shm"] == reason
    assert "volumes" not in migration.values


def test_exported_variable_that_refers_to_one_of_the_launcher_alone_is_refused() -> None:
    secret = {"secretKeyRef": {"name": "s", "key": "k"}}
    env = [{"name": "B", "valueFrom": secret}, {"name": "A", "value": "$(B)/x"}]
    with pytest.raises(SpecError) as error:
        migrate_job(launcher_container__command=["mpirun", "-x", "A", "t"],
                    launcher_container__env=env)  # fmt: skip
    message = "A is exported and refers to B, which only the launcher has; expected -x B too"
    assert message in str(error.value)
    both = migrate_job(launcher_container__command=["mpirun", "-x", "A", "-x", "B", "t"],
                       launcher_container__env=env)  # fmt: skip
    assert sorted(entry["name"] for entry in both.values["worker"]["env"]) == ["A", "B"]


@pytest.mark.parametrize(
    ("given", "check"),
    [
        ("'\"device=0,1\"'", "the container had 2 GPUs and 4 ranks: here each rank has one GPU"),
        ("count=2", "the container had 2 GPUs and 4 ranks: here each rank has one GPU"),
        ("capabilities=gpu,utility", ""),
        ("all", ""),
    ],
)
def test_gpus_of_docker_are_compared_with_the_ranks(given: str, check: str) -> None:
    migration = migrate_line(f"docker run --gpus {given} a mpirun -np 4 t")
    assert migration.values["worker"]["resources"] == {"limits": {"nvidia.com/gpu": 4}}
    checks = [text for text in migration.checks if "the container had" in text]
    assert checks == ([check] if check else [])


@pytest.mark.parametrize("value", ["''", "' '", "' a '", "' a  b '"])
def test_spaces_at_the_ends_of_a_value_make_no_argument(value: str) -> None:
    arguments = migrate_line(f"A={value}\nmpirun -np 1 t $A b").values["master"]["args"]
    assert arguments == ["t", *value.strip("'").split(), "b"]


def test_dollars_are_doubled_in_variables_and_single_in_the_command() -> None:
    migration = migrate_job(
        launcher_container__command=["mpirun", "-x", "B", "t", "$(A)", "$$(A)", "$(C)"],
        launcher_container__env=[{"name": "A", "value": "x$$y"}, {"name": "B", "value": "$(A)z"}],
    )
    assert migration.values["master"]["args"] == ["t", "x$y", "$(A)", "$(C)"]
    assert migration.values["worker"]["env"] == [{"name": "B", "value": "x$$yz"}]


def test_option_that_gives_all_variables_of_the_launcher_to_the_ranks() -> None:
    lines = [parse_command_line(["mpirun", option, "t"]) for option in ("-genvall", "-genvnone")]
    assert [line.exports_all for line in lines] == [True, False]


def test_statements_of_one_line_are_numbered() -> None:
    result = results(migrate_line("A=1; B=2; date; mpirun -np 1 t $A $B"))
    assert [key for key in result if ": " not in key] == [
        "line 1", "line 1, part 2", "line 1, part 3", "line 1, part 4"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["A=1 > f; mpirun t $A", "A=1 & mpirun t $A", "A=1 | mpirun t", "sleep 1 > f; mpirun t"]
)
def test_statement_with_more_effects_before_the_launcher_needs_a_shell(text: str) -> None:
    line = parse_command_line(["sh", "-c", text])
    assert (line.mode, line.command) == ("custom", ["sh", "-c", text])


def test_redirection_may_come_before_the_words_of_a_line() -> None:
    migration = migrate_line("> log A=1 mpirun -np 1 -x A t")
    assert migration.values["master"]["args"] == ["t"]
    assert migration.values["worker"]["env"] == [{"name": "A", "value": "1"}]


@pytest.mark.parametrize("text", ["$MPIRUN -np 2 t", "A=; $A", "`which mpirun` t"])
def test_line_whose_program_only_a_shell_knows_needs_a_shell(text: str) -> None:
    line = parse_command_line(["sh", "-c", text])
    reason = "the line needs a shell before the launcher starts"
    assert (line.mode, line.custom_reason) == ("custom", reason)


def test_slots_of_horovodrun_have_one_argument() -> None:
    line = parse_command_line(["horovodrun", "-np", "2", "--slots", "1", "t", "a"])
    assert (line.command, line.per_host) == (["t", "a"], 1)


@pytest.mark.parametrize(
    ("option", "unknown"), [("-e A=$B", "$B in -e A=$B"), ("-v $D:/d", "$D in -v $D:/d")]
)
def test_value_of_docker_that_only_a_shell_knows_is_refused(option: str, unknown: str) -> None:
    with pytest.raises(SpecError) as error:
        migrate_line(f"docker run {option} a mpirun -np 2 t")
    assert f"only a shell knows {unknown}; expected its value" in str(error.value)


@pytest.mark.parametrize("line", ["docker pull a", "docker", "podman login"])
def test_other_commands_of_docker_are_left_out(line: str) -> None:
    migration = migrate_line(f"{line}\nmpirun -np 1 t")
    assert migration.values["master"]["args"] == ["t"]
    assert any(f"line 1 is dropped ({line})" in check for check in migration.checks)


def test_lone_dollar_is_text() -> None:
    assert migrate_line('mpirun -np 1 t a$ $ "b$"').values["master"]["args"] == [
        "t", "a$", "$", "b$"
    ]  # fmt: skip


def test_line_with_ranks_of_a_host_alone_has_one_worker() -> None:
    migration = migrate_line("mpirun -npernode 4 t")
    assert migration.values["worker"] == {"number": 1, "slots": 4}
    assert "the line names no hosts: set worker.number" in migration.checks


def test_only_a_privileged_container_is_to_be_checked_for_it() -> None:
    for option, is_named in (("--rm", False), ("--privileged", True)):
        checks = migrate_line(f"docker run {option} a mpirun -np 2 t").checks
        assert any(check.startswith("--privileged is ") for check in checks) == is_named, option
