"""A script with a launcher's line becomes values; nothing of it is lost or guessed."""

from __future__ import annotations

import pytest

from hvdchart.errors import SpecError
from hvdchart.migrate.lines import Line, parse_or_keep
from hvdchart.migrate.script import is_script
from hvdchart.spec.paths import value_at
from tests.support.old_files.migrate import migrate_line, migrate_text

HEADER = "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n"
SHELL = "the line needs a shell before the launcher starts"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["mpirun -np 2 python a.py --out $HOME"], "only a shell knows $HOME"),
        (["bash", "-x", "mpirun a"], SHELL),
        (["bash", "-c", "cd /work && mpirun a"], "&& needs a shell"),
        (["sh", "-c", "`which mpirun` t"], "only a shell knows `which mpirun`"),
        (["sh", "-c", "A=1 mpirun t"], SHELL),
        (
            ["mpirun", "--no-such-option", "1", "a"],
            "the option --no-such-option of mpirun is not known",
        ),
        (["mpirun", "--gloo", "a"], "the option --gloo of mpirun is not known"),
        (["mpirun", "-np", "many", "a"], "-np is many, and no whole number from 1 on"),
        (["mpirun", "-H", "a:1,b:x", "a"], "b:x of -H has no number of slots"),
        (["mpirun", "-H", "a,a", "a"], "-H a,a gives a host twice"),
        (["mpirun", "-np", "2"], "the line gives mpirun no command to run"),
        (
            ["mpirun", "-np", "1", "a", ":", "-np", "1", "b"],
            "the line starts several programs, separated by a colon",
        ),
        (["python", "a.py"], "python is not a launcher that migrate knows"),
        (["horovodrun", "--config-file", "a", "t"], "--config-file a"),
        (["horovodrun", "--bind-to", "core", "t"], "--bind-to"),
        (["horovodrun", "--fusion-threshold-mb", "a", "t"], "--fusion-threshold-mb a"),
        (["horovodrun", "--log-level", "loud", "t"], "--log-level loud"),
        (["horovodrun", "--cycle-time-ms", "$CYCLE", "t"], "$CYCLE"),
    ],
)
def test_line_that_is_not_understood_stays_unchanged(words: list[str], reason: str) -> None:
    line = parse_or_keep(words)
    assert line == Line("custom", command=words, custom_reason=line.custom_reason)
    assert reason in line.custom_reason


@pytest.mark.parametrize(
    ("line", "number", "slots"),
    [
        ("mpirun -np 16 -H a:8,b:8 t", 2, 8),
        ("mpirun -np 16 -H a,b t", 2, 8),
        ("mpirun -np 4 -H a:8 t", 1, 4),
        ("mpirun -np 16 -npernode 4 t", 4, 4),
        ("mpirun -np 16 --map-by ppr:4:node t", 4, 4),
        ("mpirun -np 2 -npernode 4 t", 1, 2),
        ("horovodrun -np 8 --slots-per-host 4 --min-np 4 --max-np 16 t", 2, 4),
        ("horovodrun --min-np 4 --slots 2 --host-discovery-script d.sh t", 2, 2),
        ("#SBATCH --nodes=2\n#SBATCH --ntasks-per-node 4\nmpirun t", 2, 4),
        ("#SBATCH -N 4\nmpirun -np 8 t", 4, 2),
        ("#SBATCH -N 4\nmpirun -np 4 -H a:2,b:2 t", 2, 2),
        ("#SBATCH --nodes 2 --ntasks=8\nmpirun -np $SLURM_NTASKS t", 2, 4),
        ("#SBATCH --ntasks=64 --ntasks-per-node=8\nmpirun t", 8, 8),
        ("#SBATCH --ntasks=8\nmpirun t", 1, 8),
        ("#SBATCH -N 4 -n 8 --ntasks-per-node=8\nmpirun t", 4, 2),
        ("#SBATCH -N 4 --ntasks-per-node=8\nmpirun -npernode 4 t", 4, 4),
        ("mpirun -np 4 -pernode t", 4, 1),
        ("mpirun -np 4 --map-by ppr:2:node:PE=8 t", 2, 2),
        ("horovodrun -Ha:4,b:4 -p22 t", 2, 4),
        ("srun -N 2 --ntasks-per-node 4 python t", 2, 4),
        ("#SBATCH -N 2 --ntasks-per-node=4\nsrun python t", 2, 4),
        ("#SBATCH -N 4\nsrun -n 8 python t", 4, 2),
        ("#SBATCH --ntasks-per-node=4\nsrun --nodes=2 python t", 2, 4),
        ("torchrun --standalone --nproc_per_node=4 t.py", 1, 4),
        ("torchrun --nnodes 2:4 t", 4, 1),
        ("#SBATCH -N 2\ntorchrun --nnodes=$SLURM_NNODES --nproc-per-node=4 t.py", 2, 4),
        # What looks like an option of Slurm in other text.
        (f"#SBATCH --job-name=resnet-n16\n{HEADER}mpirun t", 2, 4),
        ("#SBATCH -J x-n16 -N2\n#SBATCH --ntasks-per-node=4\nmpirun t", 2, 4),
        (f"{HEADER}#SBATCH -o logs/run-n16\nmpirun -np $SLURM_NTASKS t", 2, 4),
        (f"{HEADER}#SBATCH --comment '-n 16'\nmpirun t", 2, 4),
        (f"{HEADER}#SBATCH --mem 8G # with --nodes=4 it was no faster\nmpirun t", 2, 4),
        (f"{HEADER}module load openmpi\n#SBATCH --nodes=8\nmpirun t", 2, 4),
    ],
)
def test_workers_and_slots_are_those_of_the_line(line: str, number: int, slots: int) -> None:
    worker = migrate_line(line).values["worker"]
    assert (worker["number"], worker["slots"]) == (number, slots)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("mpirun -np 8 -H a:8,b:8 t", "8 ranks on 2 hosts of 8 slots; expected a rank for each"),
        ("mpirun -np 3 -H a,b t", "3 ranks on 2 hosts of 1 slots"),
        ("mpirun -np 12 -H a:8,b:4 t", "the hosts have different numbers of slots"),
        ("#SBATCH -N 3 -n 8\nmpirun t", "8 ranks on 3 nodes of Slurm; expected as many"),
        ("#SBATCH -N 4\nmpirun -np 2 t", "2 ranks on 4 nodes of Slurm"),
        ("#SBATCH -n 12 --ntasks-per-node=8\nmpirun t", "12 ranks on 1 nodes of Slurm"),
        ("#SBATCH -N 4 --ntasks-per-node=8\nmpirun -np 8 t", "8 ranks on 4 nodes of Slurm"),
        ("mpirun -np 6 -npernode 4 t", "6 ranks do not fill hosts of 4 slots; expected a multiple"),
        ("mpirun t", "the line does not say how many ranks it starts; expected -np N, or hosts"),
        ("mpirun -np 2 -x A=1 -x A=2 t", "the line sets A to two values"),
        ("mpirun -np $SLURM_NTASKS t", "only a shell knows $SLURM_NTASKS"),
        ("mpirun -np 2 python $1", "only a shell knows $1; expected its value in its place"),
        ('mpirun -np 2 t "$(dirname "$0")"/*', 'only a shell knows $(dirname "$0")'),
        ("mpirun -np 2 t /data/*", "* needs a shell; expected the launcher's line alone"),
        ("mpirun -np 2 t > log 2>&1 &", "> needs a shell; expected the launcher's line alone"),
        ("mpirun -np 2 t # c", "# needs a shell; expected the launcher's line alone"),
        ("mpirun -np 2 t `a`", "only a shell knows `a`; expected its value in its place"),
        ("#!/bin/sh\ncd /a && mpirun -np 2 t", "a launcher follows another command: cd /a && mpi"),
        ("#!/bin/sh\necho 'a\nmpirun -np 2 t'", "line 2: a quote is not closed in this line"),
        ("A=1\nmpirun -np 2 t ${A}x", "only a shell knows ${A}; expected its value in its place"),
        ("mpirun -np 2 t ${LR:-0.1}", "only a shell knows ${LR:-0.1}; expected its value in its"),
        (
            "mpirun -np 4 -H a:2 -H b:2 t",
            "two options of the line set hosts differently; expected one of them",
        ),
        ("mpirun -np 2 --zoom 1 t", "the option --zoom of mpirun is not known"),
        ("mpirun -np 2 a\nmpirun -np 2 b", "<line>:2:1: line 2: a second line that starts a"),
        ("cat <<EOF\nmpirun -np 2 a\nEOF", "<< begins more than a simple command"),
        (
            "#!/bin/sh\nfor a in 1 2; do mpirun -np 2 a; done",
            "for begins more than a simple command",
        ),
        ("#!/bin/sh\nrun() { mpirun -np 2 a; }", "run() begins more than a simple command"),
        ("mpirun -np 2 'a", "line 1: a quote is not closed; expected the complete line"),
        ("horovodrun -np 2 --min-np 4 t", "the fewest are 2 workers of 2 slots, but 1 workers x 2"),
        ("mpirun -np 2 -ppn 2 t", "the option -ppn of mpirun is not known"),
        (
            "#!/bin/sh\nsudo mpirun -np 2 t",
            "the file begins with sudo mpirun -np 2 t; expected one",
        ),
        ("A=1 mpirun -np 2 t", "expected values of the old horovod chart"),
        ("#SBATCH --nodes=2-4\nmpirun t", "line 1: --nodes is 2-4, and no whole"),
        ("#!/bin/sh\npython train.py", "no line begins with a launcher"),
        ("torchrun --nnodes 4:2 t.py", "--nnodes: 4 is more than 2"),
        (
            "torchrun --nnodes 1:a t.py",
            "--nnodes is a, and no whole number",
        ),
        ("torchrun --nproc-per-node gpu t.py", "--nproc-per-node is gpu, and no whole number"),
        ("torchrun --zoom t.py", "the option --zoom of torchrun is not known"),
        ("torchrun --nproc-per-node 2 t.py $X", "only a shell knows $X"),
        ("torchrun --node-rank 0 t.py --node-rank $X", "only a shell knows $X"),
        ("#!/bin/sh\ntorchrun", "the line gives torchrun no command to run"),
        ("srun -n 3 -N 2 t", "3 ranks on 2 nodes of Slurm"),
        ("srun -l -n 2 t", "-l of srun is not known; expected the line without it, or"),
        ("srun -n 2", "the line gives srun no command to run"),
        (
            "srun -N 2 torchrun --nproc-per-node 4 t.py",
            "srun starts torchrun; expected the line of",
        ),
    ],
)
def test_script_that_is_not_understood_is_refused(line: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        migrate_line(line)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("mpirun -np 1 t \\\n  --a \\\n  --b", ["t", "--a", "--b"]),
        ("# mpirun -np 9 z\nmpirun -np 1 t '#' a#b", ["t", "#", "a#b"]),
        (
            'mpirun -np 1 t "a\\"b" \'c\\d\' e\\ f "" \'$x\' "*;"',
            ["t", 'a"b', "c\\d", "e f", "", "$x", "*;"],
        ),
        ("#!/bin/sh\nexec > log\necho `a` $(b) $? a\\ > c &\n  mpirun -np 1 t", ["t"]),
        (
            'torchrun --rdzv_endpoint="${A}:1" --node-rank $B --rdzv-id "a b" t.py',
            ["python3", "t.py"],
        ),
        ('#SBATCH -n 2\nmpirun t ${SLURM_NTASKS}x "$SLURM_NPROCS"', ["t", "2x", "2"]),
    ],
)
def test_script_is_read_as_a_shell_reads_it(script: str, arguments: list[str]) -> None:
    assert migrate_line(script).values["master"]["args"] == arguments


@pytest.mark.parametrize(
    ("line", "check"),
    [
        (
            "#!/bin/sh\ncd /a && export A=secret\nB=secret\nmpirun -np 1 t",
            "lines beside the launcher's are dropped: line 2 (cd), line 3 (B). If",
        ),
        ("mpirun -np 1 -x A t", "the launcher gives A to all ranks, and the file has no value"),
        (
            "horovodrun -np 1 --network-interfaces eth0,eth1 t",
            "the line names the interface eth0,eth1: if the pods have",
        ),
    ],
)
def test_what_is_dropped_is_to_be_checked(line: str, check: str) -> None:
    checks = migrate_line(line).checks
    assert any(text.startswith(check) for text in checks), checks
    assert "secret" not in "".join(checks)


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/sh\nmpirun -np 2 t",
        "#SBATCH -n 2\nmpirun t",
        "mpirun -np 2 t",
        "A=1\nsrun -n 2 t",
        "ulimit -l unlimited\nmpirun -np 2 python t.py\n",
        "python prepare.py\n\n/usr/bin/mpirun -np 2 python t.py\n",
        "conda activate x\ntorchrun --nproc-per-node 2 t.py\n",
    ],
)
def test_script_is_known_by_its_content(text: str) -> None:
    assert migrate_text(text).values["worker"] == {"number": 1, "slots": 2}


@pytest.mark.parametrize(
    ("line", "path", "value"),
    [
        (
            "horovodrun -np 2 --fusion-threshold-mb=1 --autotune t",
            "worker.env",
            [
                {"name": "HOROVOD_FUSION_THRESHOLD", "value": "1048576"},
                {"name": "HOROVOD_AUTOTUNE", "value": "1"},
            ],
        ),
        ("horovodrun -np 2 --gloo t", "launch.mode", "direct"),
        ("horovodrun -np 2 --mpi t", "launch.mode", None),
        ("srun -N 2 --ntasks-per-node 4 python t", "launch.mode", None),
        ("torchrun --standalone --nproc_per_node=4 t.py", "launch.mode", "direct"),
    ],
)
def test_mode_and_options_are_carried_over(line: str, path: str, value: object) -> None:
    assert value_at(migrate_line(line).values, path.split(".")) == value


@pytest.mark.parametrize(
    ("line", "minimum", "checks"),
    [
        ("horovodrun -np 8 --slots-per-host 2 --min-np 3 t", 2, True),
        # Fewer workers would have fewer ranks than 7.
        ("horovodrun -np 8 --slots-per-host 2 --min-np 7 t", None, False),
        ("horovodrun -np 8 --slots-per-host 2 --max-np 16 t", None, False),
        ("torchrun --nnodes 2:2 t.py", None, False),
        ("torchrun --nnodes 2:4 t.py", 2, True),
    ],
)
def test_minimum_is_set_only_if_it_is_less_than_all_workers(
    line: str, minimum: int | None, checks: bool
) -> None:
    migration = migrate_line(line)
    assert migration.values["worker"].get("minimum") == minimum
    assert any("down to worker.minimum" in check for check in migration.checks) == checks


@pytest.mark.parametrize(
    ("line", "is_reported"),
    [
        ("horovodrun -np 8 -H a:4,b:4 t", True),
        ("horovodrun -np 2 --gloo t", False),
        ("horovodrun -np 2 --mpi t", False),
        # Horovod is elastic over Gloo alone.
        ("horovodrun -np 2 --min-np 1 t", False),
    ],
)
def test_line_that_may_have_used_mpi_is_to_be_checked(line: str, is_reported: bool) -> None:
    assert any("Gloo" in check for check in migrate_line(line).checks) == is_reported


@pytest.mark.parametrize("text", ["a: |\n  mpirun -np 2 t\n", "mpirun: 2\n", "- mpirun -np 2\n"])
def test_yaml_that_names_a_launcher_is_no_script(text: str) -> None:
    assert not is_script(text.encode())
