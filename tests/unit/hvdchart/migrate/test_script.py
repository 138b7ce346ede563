"""A typed command line, or a script with one, becomes values; nothing of it is lost or guessed."""

from __future__ import annotations

import pytest

from hvdchart.errors import SpecError
from hvdchart.migrate.command_line import parse_command_line
from tests.unit.hvdchart.migrate.old_files import migrate_line

SHELL = "the line needs a shell before the launcher starts"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["mpirun -np 2 python a.py --out $HOME"], SHELL),
        (["bash", "-x", "mpirun a"], SHELL),
        (["bash", "-c", "cd /work && mpirun a"], SHELL),
        (["sh", "-c", "`which mpirun` t"], SHELL),
        (["sh", "-c", "A=1 > f; mpirun t $A"], SHELL),
        (
            ["mpirun", "--no-such-option", "1", "a"],
            "migrate does not understand option --no-such-option of mpirun",
        ),
        (["mpirun", "--gloo", "a"], "migrate does not understand option --gloo of mpirun"),
        (["mpirun", "-np", "many", "a"], "-np is many, and no whole number from 1 on"),
        (["mpirun", "-H", "a:1,b:x", "a"], "b:x of -H has no number of slots"),
        (["mpirun", "-H", "a,a", "a"], "-H a,a gives a host twice"),
        (["mpirun", "-np", "2"], "the line gives mpirun no command to run"),
        (
            ["mpirun", "-np", "1", "a", ":", "-np", "1", "b"],
            "the line starts several programs, separated by a colon",
        ),
        (["python", "a.py"], "python is not a launcher that migrate knows"),
    ],
)
def test_line_that_is_not_understood_stays_unchanged(words: list[str], reason: str) -> None:
    line = parse_command_line(words)
    assert (line.mode, line.command, line.custom_reason) == ("custom", words, reason)
    assert (line.options, line.ranks) == ([], None)


@pytest.mark.parametrize(
    ("line", "number", "slots"),
    [
        ("mpirun -np 16 -H a:8,b:8 t", 2, 8),
        ("mpirun -np 16 -H a,b t", 2, 8),
        ("mpirun -np 8 -H a:8,b:8 t", 1, 8),
        ("mpirun -np 4 -H a:8,b:8 t", 1, 4),
        ("mpirun -np 16 -npernode 4 t", 4, 4),
        ("mpirun -np 16 --map-by ppr:4:node t", 4, 4),
        ("mpirun -np 2 -npernode 4 t", 1, 2),
        ("mpiexec.hydra -n 16 -ppn 2 -hosts a,b,c,d,e,f,g,h t", 8, 2),
        ("horovodrun -np 8 --slots-per-host 4 --min-np 4 --max-np 16 t", 2, 4),
        ("horovodrun --min-np 4 --slots 2 --host-discovery-script d.sh t", 2, 2),
        ("#SBATCH --nodes=2\n#SBATCH --ntasks-per-node 4\nmpirun t", 2, 4),
        ("#SBATCH -N 4\nmpirun -np 8 t", 4, 2),
        ("#SBATCH -N 4\nmpirun -np 4 -H a:2,b:2 t", 2, 2),
        ("#SBATCH --nodes 2 --ntasks=8\nmpirun -np $SLURM_NTASKS t", 2, 4),
        ("#SBATCH --ntasks=64 --ntasks-per-node=8\nmpirun t", 8, 8),
        ("#SBATCH --ntasks=8\nmpirun t", 1, 8),
        ("#SBATCH -N 4 --ntasks-per-node=8\nmpirun -np 8 t", 1, 8),
        ("#SBATCH -N 4 -n 8 --ntasks-per-node=8\nmpirun t", 4, 2),
        ("#SBATCH -N 4 --ntasks-per-node=8\nmpirun -npernode 4 t", 4, 4),
    ],
)
def test_workers_and_slots_are_those_of_the_line(line: str, number: int, slots: int) -> None:
    worker = migrate_line(line).values["worker"]
    assert (worker["number"], worker["slots"]) == (number, slots)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("mpirun -np 12 -H a:8,b:8 t", "12 ranks fill 2 hosts of 8 slots unevenly"),
        ("mpirun -np 8 -H a:8,b:8 --map-by node t", "8 ranks fill 2 hosts of 8 slots unevenly"),
        ("mpirun -np 12 -H a:8,b:4 t", "the hosts have 4 and 8 slots"),
        ("#SBATCH -N 3 -n 8\nmpirun t", "8 ranks on the 3 nodes of #SBATCH; expected as many"),
        ("#SBATCH -N 4\nmpirun -np 2 t", "2 ranks on the 4 nodes of #SBATCH"),
        ("#SBATCH -n 12 --ntasks-per-node=8\nmpirun t", "12 ranks on nodes of 8 tasks of #SBATCH"),
        ("mpirun -np 6 -npernode 4 t", "6 ranks do not fill hosts of 4 slots; expected a multiple"),
        ("mpirun t", "the line does not say how many ranks it starts; expected -np N, or hosts"),
        ("mpirun -np 2 -x A=1 -x A=2 t", "the line sets A to two values"),
        ("mpirun -np $SLURM_NTASKS t", "only a shell knows $SLURM_NTASKS"),
        ("mpirun -np $((2 * 4)) t", "only a shell knows $((2 * 4)); expected its value, set above"),
        ('A=1\n[ -n "$X" ] && A=2\nmpirun -np 2 t $A', "only a shell knows $A"),
        ("A=1\nreadonly A=2\nmpirun -np 2 t $A", "only a shell knows $A"),
        ("A=~/x\nmpirun -np 2 t $A", "only a shell knows $A"),
        ("A+=1\nmpirun -np 2 t $A", "only a shell knows $A"),
        ("mpirun -np 2 python $1", "only a shell knows $1; expected its value in its place"),
        ('mpirun -np 2 t "$(dirname "$0")"/*', 'only a shell knows $(dirname "$0")'),
        ("A=$B\nmpirun -np 2 t ${A}x", "only a shell knows ${A}; expected A=VALUE in a line above"),
        ("mpirun -np 2 --zoom 1 t", "migrate does not understand option --zoom of mpirun"),
        ("mpirun -np 2 a\nmpirun -np 2 b", "<line>:2:1: line 2: a second line that starts a"),
        ("cat <<EOF\nmpirun -np 2 a\nEOF", "<< begins more than a simple command"),
        ("for a in 1 2; do mpirun -np 2 a; done", "for begins more than a simple command"),
        ("run() { mpirun -np 2 a; }", "( begins more than a simple command"),
        ("mpirun -np 2 'a", "<line>: what begins with ' in line 1 is not closed"),
        ("horovodrun -np 2 --min-np 4 t", "--min-np is 4, but 1 workers x 2 slots start 2 ranks"),
        ("mpirun -np 2 -ppn 2 -bind-to none -l -mca a b t", "no launcher of mode mpirun has both"),
        ("docker run -v data:/data a mpirun -np 2 t", "-v data:/data is no directory of the host"),
        ("docker run -e TOKEN a mpirun -np 2 t", "-e TOKEN takes the value from the user's shell"),
        ("docker run -v /a:/dev/shm b mpirun -np 2 t", "/dev/shm belongs to the system"),
        ("mlt template_config set zoom 1", "zoom is no parameter of mlt's horovod template"),
        ("mlt template_config set gpus 4", "each rank had a pod of its own with 4 GPUs"),
    ],
)
def test_line_that_does_not_say_enough_is_refused(line: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        migrate_line(line)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("D=/data\nmpirun -np 1 t --data $D/x", ["t", "--data", "/data/x"]),
        ("O='-a -b'\nO+=' -c'\nmpirun -np 1 t $O \"$O\"", ["t", "-a", "-b", "-c", "-a -b -c"]),
        ("mpirun -np 1 t \\\n  --a \\\n  --b # c", ["t", "--a", "--b"]),
        ("# mpirun -np 9 z\nmpirun -np 1 t '#' a#b", ["t", "#", "a#b"]),
        ("mpirun -np 1 t ${LR:-0.1} ${2-y}", ["t", "0.1", "y"]),
        ("A=\nmpirun -np 1 t ${A:-b} ${A} c", ["t", "b", "c"]),
        ('mpirun -np 1 t "a\\"b" \'c\\d\' e\\ f "" "$"', ["t", 'a"b', "c\\d", "e f", "", "$"]),
        ("bash -c 'mpirun -np 1 t \"a b\"'", ["t", "a b"]),
        ("time nohup sudo -E mpirun -np 1 t > log 2>&1 &", ["t"]),
        ("A=1\nA=2 mpirun -np 1 t $A", ["t", "1"]),
        ("A=1\ntest -f x && B=2; mpirun -np 1 t $A", ["t", "1"]),
        ("A=' a  b '\nmpirun -np 1 t $A b", ["t", "a", "b", "b"]),
        ("> log A=1 mpirun -np 1 -x A t", ["t"]),
        ("exec > log\necho `a` $(b) $? a\\ > c & mpirun -np 1 t | tee x", ["t"]),
    ],
)
def test_script_is_read_as_a_shell_reads_it(script: str, arguments: list[str]) -> None:
    assert migrate_line(script).values["master"]["args"] == arguments


@pytest.mark.parametrize(
    ("line", "env", "check"),
    [
        ("pip install x && A=1 mpirun -np 1 t", {"A": "1"}, "line 1 is dropped (pip install x)"),
        ("export A=1; mpirun -np 1 t; export B=1 A=2", {"A": "1"}, ""),
        ("export A=1; /opt/x/bin/mpirun -np 1 t", {"A": "1"}, "the launcher was /opt/x/bin/mpirun"),
        ('A=1; export A "B=2"\nmpirun -np 1 t', {"A": "1", "B": "2"}, ""),
        ("env -i A=1 mpirun -np 2 -x A t", {"A": "1"}, ""),
        # A line of Hydra, whatever its launcher is called.
        ("export A=1\nmpirun -ppn 1 -hosts a,b -n 2 t", {"A": "1"}, ""),
        ("export A=1 B=2\nmpirun -ppn 1 -n 2 -genvnone -genv C=3 t", {"C": "3"}, "A, B went to"),
        (
            "export A=1 B=2\nmpiexec -n 2 -hosts a,b -genvlist A,C t",
            {"A": "1"},
            "B went to the ranks of one host only",
        ),
        # What only a shell knows is to be checked.
        ("env A=$B C=1 mpirun -np 1 t", {"C": "1"}, "only a shell knows the value of A: set it in"),
        ("make && export A=1 && C=1 mpirun -np 1 t", {"C": "1"}, "only a shell knows the value of"),
        ("export A C=1; A+=x; mpirun -np 1 t", {"C": "1"}, "only a shell knows the value of A: "),
        ("export A=1 C=1; read A\nmpirun -np 1 t", {"C": "1"}, "only a shell knows the value of A"),
        ("declare -x A=1\nC=1 mpirun -np 1 t", {"C": "1"}, "line 1 is dropped (declare A): write"),
    ],
)
def test_variables_that_a_launcher_gives_to_its_ranks(
    line: str, env: dict[str, str], check: str
) -> None:
    migration = migrate_line(line)
    assert {e["name"]: e["value"] for e in migration.values["worker"]["env"]} == env
    assert any(text.startswith(check) for text in migration.checks), migration.checks
