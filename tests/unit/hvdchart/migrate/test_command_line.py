"""An old launcher's command line is parsed, or kept unchanged when a part is not understood."""

from __future__ import annotations

import pytest

from hvdchart.migrate.command_line import parse_command_line


@pytest.mark.parametrize(
    ("words", "mode", "command"),
    [
        (["mpirun -np 2 python a.py"], "mpirun", ["python", "a.py"]),
        (["  mpirun python a.py"], "mpirun", ["python", "a.py"]),
        (["mpirun -np 2 sh -c 'a $B > c'"], "mpirun", ["sh", "-c", "a $B > c"]),
        (["mpirun -np 2 env A=b python a.py"], "mpirun", ["env", "A=b", "python", "a.py"]),
        (["/usr/bin/mpiexec", "-n", "2", "--", "a"], "mpirun", ["a"]),
        (["orterun", "a", "--", "b"], "mpirun", ["a", "--", "b"]),
        (["mpirun", "python", "a b.py", "$HOME"], "mpirun", ["python", "a b.py", "$HOME"]),
        (["bash", "-c", "mpirun -np 2 \\\n  a --b=c"], "mpirun", ["a", "--b=c"]),
        (["/bin/sh", "-ec", "mpirun a"], "mpirun", ["a"]),
        (["horovodrun -np 2 --gloo a"], "horovodrun", ["a"]),
        (["horovodrun -np 2 --min-np 1 a"], "elastic", ["a"]),
        (["horovodrun --host-discovery-script ./d.sh a"], "elastic", ["a"]),
    ],
)
def test_training_command_is_split_from_its_launcher(
    words: list[str], mode: str, command: list[str]
) -> None:
    line = parse_command_line(words)
    assert (line.mode, line.command, line.custom_reason) == (mode, command, "")


SHELL = "the line needs a shell before the launcher starts"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["mpirun -np 2 python a.py --out $HOME"], SHELL),
        (["mpirun -np 2 python a.py > log"], SHELL),
        (["A=b mpirun -np 2 python a.py"], SHELL),
        (["mpirun -np 2 python *.py"], SHELL),
        (["mpirun -np 2 'unclosed"], SHELL),
        (["bash", "-x", "mpirun a"], SHELL),
        (["bash", "-c", "cd /work && mpirun a"], SHELL),
        (["mpirun", "--no-such-option", "1", "a"],
         "migrate does not understand option --no-such-option of mpirun"),
        (["mpirun", "-np", "many", "a"], "migrate does not understand option -np of mpirun"),
        (["mpirun", "-np"], "migrate does not understand option -np of mpirun"),
        (["mpirun", "-np", "12345678", "a"], "migrate does not understand option -np of mpirun"),
        (["mpirun", "--mca", "btl"], "migrate does not understand option --mca of mpirun"),
        (["mpirun", "--mca=btl", "self", "a"],
         "migrate does not understand option --mca=btl of mpirun"),
        (["mpirun", "--tag-output=1", "a"],
         "migrate does not understand option --tag-output=1 of mpirun"),
        (["horovodrun", "--min-np", "few", "a"],
         "migrate does not understand option --min-np of horovodrun"),
        (["mpirun", "-np", "2"], "the line gives mpirun no command to run"),
        (["mpirun", "-np", "1", "a", ":", "-np", "1", "b"],
         "the line starts several programs, separated by a colon"),
        (["python", "a.py"], "python is not a launcher that migrate knows"),
        (["python", "-c", "mpirun a"], "python is not a launcher that migrate knows"),
        ([], "an empty line is not a launcher that migrate knows"),
    ],
)  # fmt: skip
def test_line_that_is_not_understood_stays_unchanged(words: list[str], reason: str) -> None:
    line = parse_command_line(words)
    assert (line.mode, line.command, line.custom_reason) == ("custom", words, reason)
    assert (line.options, line.ranks) == ([], None)


def test_launcher_options_are_kept_in_their_order() -> None:
    words = "mpirun -mca pml ob1 --map-by=slot --tag-output -bind-to none --timeout 5 a"
    line = parse_command_line(words.split())
    assert line.options == words.split()[1:-1]
    assert line.dropped == []


@pytest.mark.parametrize("option", ["-np 4", "-n 4", "-c 4", "--num-proc 4", "-np=4"])
def test_number_of_ranks_is_read_and_dropped(option: str) -> None:
    assert parse_command_line(["mpirun", "-np", "1234567", "a"]).ranks == 1234567
    line = parse_command_line(["mpirun", *option.split(), "a"])
    reason = "the chart takes it from worker.number and worker.slots"
    assert (line.ranks, line.options, line.dropped) == (4, [], [(option, reason)])


@pytest.mark.parametrize(
    ("launcher", "option", "reason"),
    [
        ("mpirun", "-H a:1", "the chart takes it from worker.number"),
        ("mpirun", "--hostfile /etc/mpi/hostfile", "the chart takes it from worker.number"),
        ("mpirun", "--allow-run-as-root", "the chart allows mpirun to run as root"),
        ("horovodrun", "-p 2222", "the chart takes it from ssh.port"),
        ("horovodrun", "--ssh-port=22", "the chart takes it from ssh.port"),
        ("horovodrun", "--slots-per-host 2", "the chart takes it from worker.slots"),
        ("horovodrun", "--mpi", "horovodrun uses MPI by default when Horovod is built with it"),
        ("mpirun", "--mca plm_rsh_no_tree_spawn 1", "the chart sets it"),
        ("mpirun", "-mca plm_rsh_agent ssh", "the chart uses an SSH command of its own"),
    ],
)
def test_option_that_the_chart_sets_is_dropped(launcher: str, option: str, reason: str) -> None:
    line = parse_command_line([launcher, *option.split(), "--verbose", "a"])
    assert (line.options, line.dropped) == (["--verbose"], [(option, reason)])


@pytest.mark.parametrize("words", [["mpirun", "--gloo", "a"], ["horovodrun", "--xml", "a"]])
def test_option_of_another_launcher_is_not_understood(words: list[str]) -> None:
    reason = f"migrate does not understand option {words[1]} of {words[0]}"
    assert parse_command_line(words).custom_reason == reason


def test_exports_are_read_with_and_without_a_value() -> None:
    line = parse_command_line(["mpirun -x PATH -x A=b=c -x E= a"])
    assert line.exports == [("PATH", None), ("A", "b=c"), ("E", "")]
    assert (line.options, line.dropped) == ([], [])


@pytest.mark.parametrize("options", ["--min-np 2 --max-np 6", "--max-np 6 --min-np 2"])
def test_elastic_limits_are_read(options: str) -> None:
    line = parse_command_line([f"horovodrun -np 4 {options} --host-discovery-script d.sh a"])
    assert (line.mode, line.ranks, line.min_ranks, line.max_ranks) == ("elastic", 4, 2, 6)
    reason = "the chart takes it from launch.mode elastic"
    assert line.dropped[1:] == [("--host-discovery-script d.sh", reason)]
