"""A typed command line, or a script with one, becomes values; nothing of it is lost or guessed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hvdchart.errors import SpecError
from hvdchart.migrate.command_line import parse_command_line
from tests.unit.hvdchart.migrate.old_files import migrate_file, migrate_line, results

DIGEST = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("mpirun -np 12 -H a:8,b:8 t", "12 ranks fill 2 hosts of 8 slots unevenly"),
        ("mpirun -np 12 -H a:8,b:4 t", "the hosts have 4 and 8 slots"),
        ("mpirun -np 17 -H a:8,b:8 t", "17 ranks on 2 hosts of 8 slots; expected at most one a"),
        ("mpirun -np 16 --hostfile hosts t", "only the host file hosts knows the hosts"),
        ("mpirun -H a:0 t", "a host with 0 slots, or 0 ranks"),
        ("mpirun -np 0 -H a:8 t", "a host with 0 slots, or 0 ranks"),
        ("mpirun -np 4 -npernode 0 t", "0 ranks; expected at least one"),
        ("mpirun -np 6 -npernode 4 t", "6 ranks do not fill hosts of 4; expected a multiple"),
        ("mpirun t", "the line does not say how many ranks it starts; expected -np N, or hosts"),
        ("mpirun -np 4 -np 8 t", "two options of the line differ: one says 4, one 8"),
        ("mpirun -np 2 -x A=1 -x A=2 t", "the line sets A to two values"),
        ("docker run -e A=1 -e A=2 a mpirun -np 2 t", "the line sets A to two values"),
        ("mpirun -np $SLURM_NTASKS t", "only a shell knows $SLURM_NTASKS"),
        ("A=1\n[ -n \"$X\" ] && A=2\nmpirun -np 2 t $A", "only a shell knows $A"),
        ("A=1\ntest -f x || unset A\nmpirun -np 2 t ${A:-3}", "only a shell knows ${A:-3}"),
        ("A=1\nlet A=A+1\nmpirun -np 2 t $A", "only a shell knows $A"),
        ("A=1\nread -r A\nmpirun -np 2 t $A", "only a shell knows $A"),
        ("A=1\ndeclare -i A=A+1\nmpirun -np 2 t $A", "only a shell knows $A"),
        ("A+=1\nmpirun -np 2 t $A", "only a shell knows $A"),
        ("A=2\nlet \"A = A * 4\"\nmpirun -np $A t", "only a shell knows $A"),
        ("A=2\nlet 'B=1, A=8'\nmpirun -np $A t", "only a shell knows $A"),
        ("A=2\ndeclare \"A=8\"\nmpirun -np $A t", "only a shell knows $A"),
        ("A=1\ndeclare -ix A=A+1\nmpirun -np 2 t $A", "only a shell knows $A"),
        ("A=1 mpirun -np 2 t $A", "only a shell knows $A"),
        ("mpirun -np 2 python $1", "only a shell knows $1; expected 1=VALUE in a line above"),
        ("mpirun -np 2 python *.py", "only a shell knows *"),
        ("mpirun -np 2 t {a,b}", "only a shell knows {"),
        ("mpirun -np 2 --zoom 1 t", "migrate does not understand option --zoom of mpirun"),
        ("srun -n 2 t", "srun is not a launcher that migrate knows"),
        ("for i in 1 2; do mpirun -np 2 t; done", "for begins more than a simple command"),
        ("run() { mpirun -np 2 t; }", "run begins more than a simple command"),
        ("mpirun -np 2 a\nmpirun -np 2 b", "<line>:2:1: line 2: a second line that starts a"),
        ("cat <<EOF\nmpirun -np 2 a\nEOF", "<< begins more than a simple command"),
        ("mpirun -np 2 'a", "a ' in line 1 is not closed"),
        ("", "no line starts a training; the file begins with nothing"),
        ("ls -l", "no line starts a training; the file begins with ls -l"),
        ("mpirun -np 2 {{ x }}\x00", "control characters"),
        ("horovodrun -np 2 --min-np 4 t", "--min-np is 4, but 1 workers x 2 slots start 2 ranks"),
        ("mpirun -np 2 -ppn 2 -bind-to none -l -mca a b t", "no launcher of mode mpirun has both"),
        ("docker run --zoom 1 a mpirun -np 2 t", "does not understand option --zoom of docker run"),
        ("docker run -v data:/data a mpirun -np 2 t", "-v data:/data is no directory of the host"),
        ("docker run -e TOKEN a mpirun -np 2 t", "-e TOKEN takes the value from the user's shell"),
        ("docker run --shm-size x a mpirun -np 2 t", "x is not a size"),
        ("docker run -u ann a mpirun -np 2 t", "-u ann is not a number"),
        ("docker run -it", "docker run without an image"),
        ("mlt deploy", "no line sets a parameter of the template"),
        ("mlt init --template=pytorch a\nmlt deploy", "mlt init with template pytorch"),
        ("mlt template_config set zoom 1", "zoom is no parameter of mlt's horovod template"),
        ("mlt template_config set num_nodes x", "num_nodes is x; expected a whole number"),
        ("mlt template_config set gpus 4", "a rank had several GPUs"),
    ],
)  # fmt: skip
def test_line_that_does_not_say_enough_is_refused(line: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        migrate_line(line)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("D=/data\nmpirun -np 1 t --data $D/x", ["t", "--data", "/data/x"]),
        ("O='-a -b'\nmpirun -np 1 t $O", ["t", "-a", "-b"]),
        ("O='-a -b'\nmpirun -np 1 t \"$O\"", ["t", "-a -b"]),
        ("mpirun -np 1 t \\\n  --a \\\n  --b # c", ["t", "--a", "--b"]),
        ("# mpirun -np 9 z\nmpirun -np 1 t '#' a#b", ["t", "#", "a#b"]),
        ("mpirun -np 1 t ${LR:-0.1}", ["t", "0.1"]),
        ("A=3 B=4\nmpirun -np 1 t $((A * (B + 1) - 1)) $((B/3))", ["t", "14", "1"]),
        ('mpirun -np 1 t "a\\"b" \'c\\d\' e\\ f', ["t", 'a"b', "c\\d", "e f"]),
        ("mpirun -np 1 t '' \"\"", ["t", "", ""]),
        ("mpirun -np 1 t {x} {}", ["t", "{x}", "{}"]),
        ("bash -c 'mpirun -np 1 t \"a b\"'", ["t", "a b"]),
        ("time nohup sudo -E mpirun -np 1 t > log 2>&1 &", ["t"]),
        ("mpirun -np 1 t\r\n", ["t"]),
        ("mpi=1; mpirun -np $mpi t", ["t"]),
        ("O='-a'\nO+=' -b'\nmpirun -np 1 t $O", ["t", "-a", "-b"]),
        ("A=1\nA=2 mpirun -np 1 t $A", ["t", "1"]),
        ("A=1\nunset A\nmpirun -np 1 t ${A:-3}", ["t", "3"]),
        ("A=1\nreadonly A=2\nlocal -r B=$A\nmpirun -np 1 t $A $B", ["t", "2", "2"]),
        ("cd /w && A=1\nmpirun -np 1 t $A", ["t", "1"]),
        ("A=1\ntest -f x && B=2; mpirun -np 1 t $A", ["t", "1"]),
    ],
)
def test_script_is_read_as_a_shell_reads_it(script: str, arguments: list[str]) -> None:
    assert migrate_line(script).values["master"]["args"] == arguments


def test_script_of_two_nodes() -> None:
    migration = migrate_file("slurm.sh")
    assert migration.values == {
        "master": {
            "args": ["python", "train.py", "--batch-size", "64", "--name", "a b"],
            "env": [{"name": "OMPI_MCA_btl_tcp_if_include", "value": "eth0"}],
        },
        "launch": {"options": ["-bind-to", "none", "-map-by", "slot", "-mca", "pml", "ob1"]},
        "worker": {"number": 2, "slots": 8, "env": [{"name": "NCCL_DEBUG", "value": "INFO"}]},
    }
    assert [check.split(" (")[0] for check in migration.checks[:4]] == [
        "line 5 is dropped",
        "the script ran cd /work/imagenet first: make paths in master.args absolute",
        "nothing in the script sets BATCH: its default 64 is used",
        "the hosts a, b become pods on any nodes: for these nodes set worker.nodeSelector",
    ]
    logs = ("dropped", "", "kubectl logs shows what the ranks print")
    assert results(migration)["line 14: > train.log"] == logs


def test_docker_run_gives_image_volumes_variables_and_gpus() -> None:
    values: Any = migrate_file("docker.sh").values
    assert values["image"] == {"repository": "horovod/horovod", "tag": "0.28.1"}
    assert values["shm"] == {"sizeLimit": "16Gi"}
    assert values["hostNetwork"] is True
    assert values["volumeMounts"] == [
        {"name": "host-1", "mountPath": "/data", "readOnly": True},
        {"name": "host-2", "mountPath": "/out"},
    ]
    assert values["worker"] == {
        "number": 1, "slots": 4, "resources": {"limits": {"nvidia.com/gpu": 4}},
        "env": [{"name": "EPOCHS", "value": "90"}],
    }  # fmt: skip
    assert values["launch"] == {"mode": "horovodrun",
                                "options": ["--timeline-filename", "/out/t.json"]}  # fmt: skip


def test_more_options_of_docker_run() -> None:
    migration = migrate_line(
        "podman run -dit --mount type=bind,source=/d,target=/data,readonly -v/e:/e -eA=b "
        f"--cpus=4 -m 8g -u 0:0 -w /w --gpus 2 --cap-add X a@sha256:{DIGEST} mpirun -np 4 -x A=c t"
    )
    values: Any = migration.values
    assert values["image"] == {"repository": "a", "digest": f"sha256:{DIGEST}"}
    assert values["podSecurityContext"] == {"runAsUser": 0, "runAsNonRoot": False, "runAsGroup": 0}
    assert values["worker"]["resources"] == {
        "limits": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": 4}
    }
    assert values["worker"]["env"] == [{"name": "A", "value": "c"}]
    assert values["volumeMounts"] == [
        {"name": "host-1", "mountPath": "/data", "readOnly": True},
        {"name": "host-2", "mountPath": "/e"},
    ]
    for group in ("master", "worker"):
        assert values[group]["container"] == {"workingDir": "/w"}
    for check in ("the container had 2 GPUs and 4 ranks", "the capability X"):
        assert any(text.startswith(check) for text in migration.checks), check
    beaten = ("dropped", "", "the launcher sets it for all ranks, which wins as before")
    assert results(migration)["line 1: -e A=..."] == beaten


def test_hydra_variables_become_those_of_the_workers() -> None:
    values: Any = migrate_file("hydra.sh").values
    assert values["worker"]["env"] == [
        {"name": "I_MPI_DEBUG", "value": "5"},
        {"name": "OMP_NUM_THREADS", "value": "20"},
        {"name": "KMP_AFFINITY", "value": "granularity=fine,compact,1,0"},
    ]
    assert values["launch"] == {"options": ["-l"]}
    listed = migrate_line("export A=1 B=2\nmpiexec -n 2 -hosts a,b -genvlist A,C t")
    assert listed.values["worker"]["env"] == [{"name": "A", "value": "1"}]
    assert listed.values["master"]["env"] == [{"name": "B", "value": "2"}]
    assert any(check.startswith("B went to the ranks of one host") for check in listed.checks)


def test_mlt_template_becomes_what_its_deploy_script_started() -> None:
    migration = migrate_file("mlt.sh")
    values: Any = migration.values
    assert (migration.release, migration.namespace) == ("unet", "ann")
    assert values["worker"] == {"number": 4, "slots": 2}
    assert values["launch"]["options"][:2] == ["--map-by", "socket:PE=14"]
    assert values["master"]["args"] == [
        "bash", "/src/app/exec_multiworker.sh", "1", "2", "50", "20", "64", "/mnt/brats",
        "/mnt/brats/results", "False", "0.001",
    ]  # fmt: skip
    gpus = migrate_line("mlt template_config set num_nodes 3\nmlt template_config set gpus 1")
    assert gpus.values["worker"] == {
        "number": 3, "slots": 1, "resources": {"limits": {"nvidia.com/gpu": 1}},
    }  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "mpirun -np 2 -H a,b -x A=1 -genv B 2 -mca pml ob1 --map-by=slot -- t -np 3",
        "horovodrun -np 2 --gloo -p 22 --min-np 1 t x",
        "python t",
        "mpirun --zoom",
    ],
)
def test_every_word_of_a_line_is_in_one_part(line: str) -> None:
    parts = parse_command_line(line.split()).parts
    assert [word for part in parts for word in part.words] == line.split()


def test_what_a_program_reads_and_a_script_sources_is_to_be_checked() -> None:
    migration = migrate_line("source env.sh\nmpirun -np 1 t < data.txt > log")
    reasons = {entry.old.partition(": ")[2]: entry.reason for entry in migration.entries}
    assert reasons["< data.txt"] == "ranks have no standard input"
    assert reasons["> log"] == "kubectl logs shows what the ranks print"
    assert "the program read < data.txt: let it open the file itself" in migration.checks
    assert migration.checks[0].endswith(
        "(source env.sh): if it sets variables, write them into the script, and migrate it again"
    )


def test_line_of_a_script_that_is_dropped_is_named_on_the_first_screen() -> None:
    migration = migrate_line("pip install -r a.txt\nexport A=$(date)\nmpirun -np 1 t")
    assert migration.checks[0] == (
        "line 1 is dropped (pip install -r a.txt): do it in the image, or with staging.command"
    )
    assert migration.checks[1].startswith("only a shell knows the value of A (line 2)")
    assert re.search(r"set worker\.resources", " ".join(migration.checks))


@pytest.mark.parametrize(
    "script",
    [
        "pip install x && A=1 mpirun -np 1 t",
        "export A=1; mpirun -np 1 t; unset A",
        "export A=1; mpirun -np 1 t; export B=1 A=2",
        "A=1; export A\nmpirun -np 1 t",
        "declare -x A=1\nmpirun -np 1 t",
        "typeset -rx A=1\nmpirun -np 1 t",
    ],
)
def test_ranks_get_the_variables_that_they_had(script: str) -> None:
    assert migrate_line(script).values["worker"]["env"] == [{"name": "A", "value": "1"}]


@pytest.mark.parametrize(
    "script",
    [
        "make && export A=1 && mpirun -np 1 t",
        "export A; A+=x; mpirun -np 1 t",
        "export A=$(date)\nmpirun -np 1 t",
        "export A=1; read A\nmpirun -np 1 t",
        "export A=1; export -n A\nmpirun -np 1 t",
        'export "A=1"\nmpirun -np 1 t',
    ],
)
def test_variable_of_the_ranks_that_only_a_shell_knows_is_to_be_checked_once(script: str) -> None:
    migration = migrate_line(script)
    assert "env" not in migration.values["worker"]
    checks = [text for text in migration.checks if text.startswith("only a shell knows the value")]
    assert len(checks) == 1
    assert "of A" in checks[0]


def test_variable_that_no_line_uses_is_dropped_with_that_reason() -> None:
    result = results(migrate_line("A=1\nB=2\nmpirun -np 1 t A $B"))
    assert result["line 1"] == ("dropped", "", "no line uses it")
    assert result["line 2"][2] == "its value is in the options and arguments that name it"


@pytest.mark.parametrize("statement", ["read -r A", "let A=1", "unset A", "declare A=1"])
def test_statement_that_changes_variables_alone_needs_no_check(statement: str) -> None:
    migration = migrate_line(f"{statement}\nmpirun -np 1 t")
    named = "its value is in the options and arguments that name it"
    assert results(migration)["line 1"] == ("dropped", "", named)
    assert not any("line 1" in check for check in migration.checks)


def test_dot_that_reads_a_file_is_to_be_checked() -> None:
    (check, *_) = migrate_line(". env.sh\nmpirun -np 1 t").checks
    assert "(. env.sh): if it sets variables" in check
