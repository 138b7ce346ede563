"""A script with a launcher's line becomes values; nothing of it is lost or guessed."""

from __future__ import annotations

import pytest

from hvdchart.errors import SpecError
from hvdchart.migrate.lines import LauncherLine, parse_or_keep
from hvdchart.migrate.migration_text import report_text
from hvdchart.migrate.script import is_script
from hvdchart.spec.paths import value_at
from tests.support.migrations import migrate_line, migrate_text

HEADER = "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n"


def missing_words(named: str, text: str) -> set[str]:
    """Return the words that should be in a text and are not, whatever else it says."""
    return set(named.split()) - {word.strip(",.:;'") for word in text.split()}


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["mpirun -np 2 python a.py --out $HOME"], "shell $HOME"),
        (["bash", "-x", "mpirun a"], "shell launcher starts"),
        (["bash", "-c", "cd /work && mpirun a"], "shell &&"),
        (["sh", "-c", "`which mpirun` t"], "shell `which mpirun`"),
        (["sh", "-c", "A=1 mpirun t"], "shell launcher starts"),
        (["mpirun", "--no-such-option", "1", "a"], "option --no-such-option mpirun"),
        (["mpirun", "--gloo", "a"], "option --gloo mpirun"),
        (["mpirun", "-np", "4", "-xterm", "1", "a"], "option -xterm mpirun"),
        (["mpirun", "-np", "4", "-fwd-mpirun-port", "a"], "option -fwd-mpirun-port mpirun"),
        (["mpirun", "-np", "many", "a"], "number -np many"),
        (["mpirun", "-H", "a:1,b:x", "a"], "number -H b:x"),
        (["mpirun", "-H", "a,a", "a"], "twice -H a,a"),
        (["mpirun", "-np", "2"], "no command mpirun"),
        (["mpirun", "-np", "1", "a", ":", "-np", "1", "b"], "several programs colon"),
        (["python", "a.py"], "python launcher knows"),
        (["horovodrun", "--config-file", "a", "t"], "--config-file a horovodrun settings"),
        (["horovodrun", "--bind-to", "core", "t"], "option --bind-to known"),
        (["horovodrun", "--cycle-time-ms", "$CYCLE", "t"], "$CYCLE wrong"),
    ],
)
def test_line_that_is_not_understood_stays_unchanged(words: list[str], named: str) -> None:
    """The reason names the kind of the problem and the option, the value or the text."""
    line = parse_or_keep(words)
    assert line == LauncherLine("custom", command=words, custom_reason=line.custom_reason)
    assert missing_words(named, line.custom_reason) == set()


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
        ("#SBATCH -N 4\nsrun -n8 --mpi=pmix --cpu-bind=cores python t", 4, 2),
        ("#SBATCH --ntasks-per-node=4\nsrun --nodes=2 python t", 2, 4),
        ("torchrun --standalone --nproc_per_node=4 t.py", 1, 4),
        ("torchrun --nnodes 2:4 t", 4, 1),
        ("#SBATCH -N 2\ntorchrun --nnodes=$SLURM_NNODES --nproc-per-node=4 t.py", 2, 4),
        # What looks like an option of Slurm in other text.
        (f"#SBATCH --job-name=resnet-n16\n{HEADER}mpirun t", 2, 4),
        ("#SBATCH -J x-n16 -N2\n#SBATCH --ntasks-per-node=4\nmpirun t", 2, 4),
        (f"{HEADER}#SBATCH -o logs/run-n16\nmpirun -np $SLURM_NTASKS t", 2, 4),
        (f"{HEADER}#SBATCH --comment '-n 16'\nmpirun t", 2, 4),
        (f'{HEADER}#SBATCH --comment ""\nmpirun t', 2, 4),
        (f"{HEADER}#SBATCH --mem 8G # with --nodes=4 it was no faster\nmpirun t", 2, 4),
        (f"{HEADER}#SBATCH --container-image=a -c 4\nmpirun t", 2, 4),
        (f"{HEADER}module load openmpi\n#SBATCH --nodes=8\nmpirun t", 2, 4),
        # For Slurm, a comment that is indented ends no header, and no line needs a space.
        (f"#!/bin/sh\n  # two nodes\n{HEADER}mpirun -np 8 t", 2, 4),
        ("#SBATCH--nodes=2\nmpirun -np 8 t", 2, 4),
        (f"{HEADER}  #SBATCH --nodes=8\nmpirun t", 2, 4),
    ],
)
def test_workers_and_slots_are_those_of_the_line(line: str, number: int, slots: int) -> None:
    worker = migrate_line(line).values["worker"]
    assert (worker["number"], worker["slots"]) == (number, slots)


@pytest.mark.parametrize(
    ("line", "number", "named"),
    [
        ("mpirun -np 8 -H a:8,b:8 t", 1, "8 ranks 2 hosts"),
        ("mpirun -np 3 -H a,b t", 1, "3 ranks 2 hosts 1"),
        ("mpirun -np 12 -H a:8,b:4 t", 1, "hosts different slots"),
        ("#SBATCH -N 3 -n 8\nmpirun t", 2, "8 ranks 3 nodes Slurm"),
        ("#SBATCH -N 4\nmpirun -np 2 t", 2, "2 ranks 4 nodes Slurm"),
        ("#SBATCH -n 12 --ntasks-per-node=8\nmpirun t", 2, "12 ranks 1 nodes Slurm"),
        ("mpirun -np 6 -npernode 4 t", 1, "6 fill hosts 4"),
        ("mpirun t", 1, "say many ranks"),
        ("mpirun -np 2 -x A=1 -x A=2 t", 1, "sets A two values"),
        ("mpirun -np $SLURM_NTASKS t", 1, "shell $SLURM_NTASKS"),
        ("mpirun -np 2 python $1", 1, "shell $1"),
        ('mpirun -np 2 t "$(dirname "$0")"/*', 1, 'shell $(dirname "$0")'),
        ("mpirun -np 2 t /data/*", 1, "* needs shell"),
        ("mpirun -np 2 t > log 2>&1 &", 1, "> needs shell"),
        ("mpirun -np 2 t # c", 1, "# needs shell"),
        ("mpirun -np 2 t `a`", 1, "shell `a`"),
        ("#!/bin/sh\ncd /a && mpirun -np 2 t", 2, "launcher cd /a && mpirun"),
        ("#!/bin/sh\necho 'a\nmpirun -np 2 t'", 2, "quote closed line"),
        ("A=1\nmpirun -np 2 t ${A}x", 2, "shell ${A}"),
        ("mpirun -np 2 t ${LR:-0.1}", 1, "shell ${LR:-0.1}"),
        ("mpirun -np 4 -H a:2 -H b:2 t", 1, "two options hosts differently"),
        ("mpirun -np 2 --zoom 1 t", 1, "option --zoom mpirun"),
        ("mpirun -np 2 a\nmpirun -np 2 b", 2, "second line 1"),
        ("cat <<EOF\nmpirun -np 2 a\nEOF", 1, "<< begins command"),
        ("#!/bin/sh\nfor a in 1 2; do mpirun -np 2 a; done", 2, "for begins command"),
        ("#!/bin/sh\nrun() { mpirun -np 2 a; }", 2, "run() begins command"),
        ("mpirun -np 2 'a", 1, "quote closed"),
        ("horovodrun -np 2 --min-np 4 t", 1, "fewest 2 workers slots"),
        ("mpirun -np 2 -ppn 2 t", 1, "option -ppn mpirun"),
        ("#!/bin/sh\nsudo mpirun -np 2 t", 2, "launcher sudo mpirun -np 2 t"),
        ("A=1 torchrun --nproc-per-node 2 a\nmpirun -np 2 b", 1, "launcher torchrun"),
        ("B='x y' exec srun -n 2 a\nmpirun -np 2 b", 1, "launcher exec srun"),
        ("nohup mpirun -np 2 a &\nmpirun -np 2 b", 1, "launcher nohup mpirun"),
        ("mpirun -np 2 \\ \n  t", 1, "space backslash"),
        ("mpirun -np 2 t\n# a\xa0b", 2, r"character \xa0"),
        ("A=1 mpirun -np 2 t", 1, "got A=1 mpirun"),
        ("#SBATCH --nodes=2-4\nmpirun t", 1, "number --nodes 2-4"),
        ("#SBATCH -n 2\n#SBATCH -N\nmpirun t", 2, "-N no value"),
        ("#SBATCH -n 2 -N --exclusive\nmpirun t", 1, "number -N --exclusive"),
        # Slurm reads -n odes=2.
        ("#SBATCH -nodes=2\nmpirun t", 1, "number -n odes=2"),
        ("#!/bin/sh\npython train.py", 0, "begins launcher python"),
        ("torchrun --nnodes 4:2 t.py", 1, "--nnodes 4 more than 2"),
        ("torchrun --nnodes 1:a t.py", 1, "number --nnodes a"),
        ("torchrun --nproc-per-node gpu t.py", 1, "number --nproc-per-node gpu"),
        ("torchrun --zoom t.py", 1, "torchrun option --zoom"),
        ("torchrun --nproc-per-node 2 t.py $X", 1, "shell $X"),
        ("torchrun --node-rank 0 t.py --node-rank $X", 1, "shell $X"),
        ("#!/bin/sh\ntorchrun", 2, "torchrun no command"),
        ("srun -n 3 -N 2 t", 1, "3 ranks 2 nodes Slurm"),
        ("#SBATCH -n 2\nsrun -l t", 2, "-l srun option knows"),
        ("srun -l -n 2 t", 1, "-l srun option knows"),
        ("srun -nodes=2 t", 1, "number -n odes=2"),
        ("srun --N=2 -n 4 t", 1, "--N=2 srun option knows"),
        ("srun -n 2", 1, "srun no command"),
        ("srun -N 2 torchrun --nproc-per-node 4 t.py", 1, "srun starts torchrun"),
        ("srun -N 2 singularity exec --nv a.sif python t", 1, "srun starts singularity image"),
        ("mpirun -np 2 /usr/bin/apptainer run a.sif", 1, "mpirun starts apptainer image"),
        ("deepspeed t.py", 1, "deepspeed launcher knows"),
        ("srun a\nmpirun -np 2 b", 2, "second line 1"),
        ("mpirun -np 2 srun t", 1, "mpirun starts srun"),
        ("horovodrun -np 2 sh -c 'cd /a; torchrun t.py'", 1, "horovodrun starts torchrun"),
        ("mpirun -np 2 -H a,b accelerate launch t.py", 1, "mpirun starts accelerate"),
        ("horovodrun -np 2 python -u -m deepspeed.launcher.runner t.py", 1, "horovodrun starts"),
    ],
)
def test_script_that_is_not_understood_is_refused(line: str, number: int, named: str) -> None:
    """The refusal is of a line (0: of the whole file), and names what is wrong and its value."""
    with pytest.raises(SpecError) as error:
        migrate_line(line)
    assert error.value.place == (f"<line>:{number}:1" if number else "<line>")
    assert missing_words(named, error.value.problem) == set()


# How a shell lets a value have spaces, commas and ends of commands.
SECRETS = [
    "secret",
    "a,secret",
    '"a secret"',
    "'a secret'",
    "\"a \"'b 'secret",
    'a" b "secret',
    r"a\ secret",
    r'"a \" secret"',
    r"$'a\' secret'",
    '"a; secret"',
    "'a && secret'",
    "$(printf a secret)",
    "$(printf $(printf a) secret)",
    '"$(printf "a secret")"',
    "`printf a secret`",
    "${B:-a secret}",
    "(a secret)",
]


@pytest.mark.parametrize("value", SECRETS)
@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/sh\nexport A={}\n",
        "#!/bin/sh\nexport A+={}\n",
        "#!/bin/sh\nB=1 A={} mpirun -np 2 t\n",
        "#!/bin/sh\nexport A={} && mpirun -np 2 t\n",
    ],
)
def test_values_of_variables_are_hidden(text: str, value: str) -> None:
    with pytest.raises(SpecError) as error:
        migrate_text(text.format(value))
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("value", ["secret", '"a secret"', "'a,secret'"])
def test_values_of_variables_for_slurm_are_hidden(value: str) -> None:
    migration = migrate_text(f"#!/bin/sh\n#SBATCH --export=B,A={value},C\nmpirun -np 2 t\n")
    assert "--export=B,A=...,C" in report_text(migration)
    assert "secret" not in report_text(migration)


@pytest.mark.parametrize(
    "value", ['"a secret', "'a secret", "$(a secret", "`a secret", "(a secret"]
)
def test_values_that_do_not_end_are_hidden(value: str) -> None:
    with pytest.raises(SpecError) as error:
        migrate_text(f"#!/bin/sh\nexport A={value}\n")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("value", ['"A=a secret"', "'A=a secret'", '"B C A=a secret"'])
def test_variable_within_quotes_is_hidden(value: str) -> None:
    with pytest.raises(SpecError) as error:
        migrate_text(f"#!/bin/sh\nexport {value} && mpirun -np 2 t\n")
    assert "A=" in str(error.value)
    assert "secret" not in str(error.value)


def test_error_shows_what_is_no_value_of_a_variable() -> None:
    with pytest.raises(SpecError) as error:
        migrate_text('#!/bin/sh\nexport A="a secret" && mpirun -np 2 t\n')
    assert "export A=... && mpirun -np 2 t" in str(error.value)


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
        # Between double quotes, an apostrophe is a letter, and a backslash ends a variable.
        ("#SBATCH -n 2\nmpirun t \"it's $SLURM_NTASKS\" 'a'", ["t", "it's 2", "a"]),
        ("#SBATCH -n 2\nmpirun t it\\'s $SLURM_NTASKS 'a'", ["t", "it's", "2", "a"]),
        (r'mpirun -np 1 t "\$x" "a\`b" "\c"', ["t", "$x", "a`b", r"\c"]),
        (r"mpirun -np 1 t a\ #b", ["t", "a #b"]),
        ("torchrun --nproc-per-node 2 --no-python ./t --a", ["./t", "--a"]),
        ("torchrun --no_python python3 -c 'import t'", ["python3", "-c", "import t"]),
    ],
)
def test_script_is_read_as_a_shell_reads_it(script: str, arguments: list[str]) -> None:
    assert migrate_line(script).values["master"]["args"] == arguments


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (
            "#!/bin/sh\ncd /a && export A=secret\nB=secret\nmpirun -np 1 t",
            "dropped line 2 (cd) 3 (B)",
        ),
        ("mpirun -np 1 -x A t", "launcher gives A value"),
        ("#SBATCH -n 2 --export=B,A=secret,C\nmpirun t", "(-n 2 --export=B,A=...,C) worker.number"),
        ("srun -n 2 --export=ALL,A=secret t", "srun variables worker.env"),
        ("mpirun -np 8 -rf ranks.txt t", "rank file ranks.txt dropped launch.binding"),
        ("#PBS -l select=2:mpiprocs=4\nmpirun -np 8 t", "batch (#PBS worker.number"),
        ("#!/bin/sh\n#BSUB -n 8\nmpirun -np 8 t", "batch (#BSUB worker.slots"),
        ("mpirun -np 2 -H localhost:2 t", "one machine worker.number"),
        ("/opt/openmpi/bin/mpirun -np 1 t", "launcher /opt/openmpi/bin/mpirun PATH same"),
        (
            "horovodrun -np 1 --network-interfaces eth0,eth1 t",
            "interface eth0,eth1 network.interface",
        ),
    ],
)
def test_what_is_dropped_is_to_be_checked(line: str, named: str) -> None:
    migration = migrate_line(line)
    checks = migration.checks
    assert any(not missing_words(named, text) for text in checks), checks
    assert "secret" not in report_text(migration)


def test_variables_that_srun_passes_on_need_no_check() -> None:
    assert not [
        check for check in migrate_line("srun -n 2 --export=ALL t").checks if "export" in check
    ]


def test_dropped_option_of_srun_is_shown_as_it_is_written() -> None:
    migration = migrate_line("srun -n 2 --output=$HOME/x.log t")
    assert "--output=$HOME/x.log" in report_text(migration)
    assert "\0" not in report_text(migration)


@pytest.mark.parametrize(
    "program", ["/bin/mpirun", "/usr/bin/mpiexec", "/usr/local/bin/mpirun", "/opt/bin/horovodrun"]
)
def test_launcher_that_is_in_every_path_or_not_used_needs_no_check(program: str) -> None:
    checks = migrate_line(f"{program} -np 1 t").checks
    assert not [check for check in checks if program in check]


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/sh\nmpirun -np 2 t",
        "#SBATCH -n 2\nmpirun t",
        "mpirun -np 2 t",
        "A=1\nmpiexec -n 2 t",
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
        (
            "horovodrun -np 2 --timeline-filename /out/t.json t",
            "worker.env",
            [{"name": "HOROVOD_TIMELINE", "value": "/out/t.json"}],
        ),
        (
            "torchrun --standalone --nproc_per_node=4 t.py",
            "launch",
            {"mode": "direct", "framework": "torch"},
        ),
        ("mpirun -np 2 -mca btl self t", "launch.options", ["-mca", "btl", "self"]),
        (
            "mpirun -np 2 -x MASTER_ADDR=a -x MASTER_PORT=1 -x B=2 t",
            "worker.env",
            [{"name": "B", "value": "2"}],
        ),
        ("mpirun -np 2 -x MASTER_ADDR t", "worker.env", None),
    ],
)
def test_mode_and_options_are_carried_over(line: str, path: str, value: object) -> None:
    assert value_at(migrate_line(line).values, path.split(".")) == value


@pytest.mark.parametrize(
    ("line", "part", "reason"),
    [
        ("horovodrun -np 2 -p 22 t", "line 1: -p 22", "the chart takes it from agent.port"),
        (
            "mpirun -np 2 -mca plm_rsh_args '-p 22' t",
            "line 1: -mca plm_rsh_args -p 22",
            "the chart has an `ssh` of its own; the port of its agents is agent.port",
        ),
        ("mpirun -np 2 -- t", "line 1: --", "it ends the launcher's options"),
        ("mpirun -np 2 t", "line 1: the number of ranks", "1 worker of 2 slots"),
        (
            "torchrun --nproc-per-node 2 --max-restarts 3 t.py",
            "line 1: --max-restarts 3",
            "master.backoffLimit sets the number of retries",
        ),
        ("mpirun -np 2 t\n#SBATCH -N 8", "line 2", "Slurm reads no line after a command"),
    ],
)
def test_report_says_what_becomes_of_a_part(line: str, part: str, reason: str) -> None:
    entries = migrate_line(line).entries
    assert [entry.reason for entry in entries if entry.old == part] == [reason]


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
    options = [
        entry for entry in migration.entries if "--min-np" in entry.old or "--nnodes" in entry.old
    ]
    assert all(entry.new == ("worker.minimum" if minimum else "") for entry in options)


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
