"""Every wrong spec is refused with one message for each error, and what is derived from a right
one: ranks, cores and reserves of a node, with the figures of GKE's published table.
"""

from __future__ import annotations

import json

import pytest

from hvdchart.errors import SpecError
from hvdchart.quantity import GI, MI
from hvdchart.spec import topology
from hvdchart.spec.load import parse_spec
from tests.support.specs import spec_of_nodes

GOOD = """\
apiVersion: hvdchart/v1
name: run
nodes:
  - name: xeon
    count: 2
    sockets: 2
    coresPerSocket: 28
train:
  command: [python, train.py]
"""


def refused(text: str | bytes) -> SpecError:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(SpecError) as caught:
        parse_spec(data, "a.yaml")
    return caught.value


# What replaces what in the good spec; where the message must point; what it must name.
WRONG_VALUES = [
    ("sockets: 2", "socket: 2", "6:5", "nodes[0]", "'sockets'"),
    ("sockets: 2", "sockets:", "6:5", "nodes[0].sockets", "null"),
    ("    count: 2\n", "", "4:5", "nodes[0]", "'count'"),
    ("    coresPerSocket: 28\n", "", "4:5", "nodes[0]", "coresPerSocket"),
    ("[python, train.py]", "python train.py", "9:12", "train.command", "'python train.py'"),
    (
        "train:\n",
        "volumes: {data: {emptyDir: {}}, x: {emptyDir: {}, mountPath: /data/}}\ntrain:\n",
        "8:62",
        "volumes.x.mountPath",
        "/data",
    ),
    (
        "train:\n",
        "  - {name: xeon, count: 1, gpus: 1}\ntrain:\n",
        "8:12",
        "nodes[1].name",
        "'xeon'",
    ),
    (
        "train:\n",
        "launch: {allowIdleWorkers: true}\ntrain:\n",
        "8:28",
        "launch.allowIdleWorkers",
        "custom",
    ),
    ("28\n", "28\n    minimum: 3\n", "8:14", "nodes[0].minimum", "3 of 2"),
    (
        "train:\n",
        "volumes: {tmp: {emptyDir: {}, mountPath: /t}}\ntrain:\n",
        "8:16",
        "volumes.tmp",
        "'tmp'",
    ),
    (
        "train:\n",
        "volumes: {archive: {emptyDir: {}, mountPath: /t}}\ntrain:\n",
        "8:20",
        "volumes.archive",
        "'archive'",
    ),
    ("28\ntrain:\n", "28\n    spares: 9999\ntrain:\n", "4:3", "nodes", "10001"),
    ("train:\n", "train:\n  env: {HVD_SEED: '1'}\n", "9:19", "train.env.HVD_SEED", "the chart"),
    (
        "train:\n",
        "volumes: {t: {emptyDir: {}, mountPath: /etc}}\ntrain:\n",
        "8:40",
        "volumes.t.mountPath",
        "/etc",
    ),
    (
        "train:\n",
        "volumes: {data: {pvc: a, nfs: {server: b, path: /c}}}\ntrain:\n",
        "8:17",
        "volumes.data",
        "pvc and nfs",
    ),
    (
        "train:\n",
        "volumes: {data: {pvc: a, groups: [z]}}\ntrain:\n",
        "8:35",
        "volumes.data.groups[0]",
        "'z'",
    ),
    (
        "train:\n",
        "volumes: {output: {pvc: a, readOnly: true}}\ntrain:\n",
        "8:38",
        "volumes.output.readOnly",
        "readOnly: false",
    ),
    (
        "    count: 2\n",
        "    count: 2\n    shared: true\n    reserved: {cpu: 1}\n",
        "7:15",
        "nodes[0].reserved",
        "shared: true",
    ),
    (
        "sockets: 2\n    coresPerSocket: 28",
        "numaPerSocket: 4\n    coresPerSocket: 3",
        "6:20",
        "nodes[0].numaPerSocket",
        "3 cores",
    ),
    (
        "train:\n",
        "tuning: {binding: core, slots: 57}\ntrain:\n",
        "8:19",
        "tuning.binding",
        "57 ranks",
    ),
    (
        "train:\n",
        "  - {name: d, count: 1, coresPerSocket: 2, tuning: {binding: none}}\n"
        "tuning: {binding: core}\ntrain:\n",
        "8:62",
        "nodes[1].tuning.binding",
        "core in `tuning.binding`",
    ),
    (
        "train:\n",
        "  - {name: master, count: 1, gpus: 1}\ntrain:\n",
        "8:12",
        "nodes[1].name",
        "'master'",
    ),
    (
        "train:\n",
        "  - {name: g, count: 1, gpus: 1}\ntrain:\n  env: {NVIDIA_VISIBLE_DEVICES: all}\n",
        "10:33",
        "train.env.NVIDIA_VISIBLE_DEVICES",
        "void",
    ),
]


@pytest.mark.parametrize(("old", "new", "place", "path", "value"), WRONG_VALUES)
def test_wrong_value_is_refused_at_its_place(
    old: str, new: str, place: str, path: str, value: str
) -> None:
    assert old in GOOD
    error = refused(GOOD.replace(old, new, 1))
    assert (error.place, error.path) == (f"a.yaml:{place}", path), str(error)
    assert value in f"{error.problem} {error.expected}"
    assert "\n" not in str(error)


def test_all_errors_of_a_spec_are_reported_at_once() -> None:
    text = GOOD.replace("name: run", "name: Run").replace("count: 2", "count: 0")
    text = text.replace("sockets: 2", "socket: 2") + "  env: {1A: x, B: true}\nlaunch: 7\n"
    error = refused(text)
    assert [single.place for single in error.errors] == [
        f"a.yaml:{place}" for place in ("2:7", "6:5", "5:12", "10:9", "10:19", "11:9")
    ]
    assert str(error) == "\n".join(map(str, error.errors))
    assert (error.place, error.path) == ("a.yaml:2:7", "name")


def test_all_contradictions_of_a_spec_are_reported_at_once() -> None:
    text = GOOD.replace(
        "    count: 2\n", "    count: 2\n    cpuManager: static\n    shared: true\n"
    )
    error = refused(text + "  checkpoints: a\nlaunch: {options: [--np, --gloo]}\n")
    assert [single.path for single in error.errors] == [
        "nodes[0].cpuManager",
        "nodes[0].cpuManager",
        "train.checkpoints",
        "launch.options[0]",
    ]
    assert ["shared: true" in single.problem for single in error.errors[:2]] == [True, False]


OUTPUT_OF_X = "horovod: {timeline: true}\nvolumes: {output: {pvc: a, groups: [x]}}"
STATIC = "coresPerSocket: 4, cpuManager: static"


@pytest.mark.parametrize(
    ("group", "rest"),
    [
        # Of three cores the kubelet and the pods beside the worker have the rest.
        (f"{STATIC}, memory: 8Gi, reserved: {{cpu: 2400m}}", ""),
        (f"{STATIC}, threadsPerCore: 2, memory: 8Gi, reserved: {{cpu: 5400m}}", ""),
        (f"{STATIC}, memory: 8Gi, tuning: {{cpu: 2}}", ""),
        (f"{STATIC}, tuning: {{memory: 1Gi}}", ""),
        (STATIC, "tuning: {memory: 1Gi}"),
        ("gpus: 1, memory: 1Gi, reserved: {memory: 1048575Ki}", ""),
        ("coresPerSocket: 4, tuning: {slots: 4, binding: core}", ""),
        ("coresPerSocket: 4, tuning: {binding: socket}", ""),
        ("coresPerSocket: 4", OUTPUT_OF_X),
        ("coresPerSocket: 4, tuning: {binding: none}", "launch: {options: [--bind-to, core]}"),
    ],
)
def test_spec_at_the_limit_is_right(group: str, rest: str) -> None:
    spec_of_nodes(f"{{name: x, count: 2, {group}}}", rest)


@pytest.mark.parametrize(
    ("group", "rest", "path", "values"),
    [
        (
            f"{STATIC}, memory: 8Gi, reserved: {{cpu: 2401m}}",
            "",
            "nodes[0].cpuManager",
            ["4 cores", "2401m", "600m"],
        ),
        (
            f"{STATIC}, threadsPerCore: 2, memory: 8Gi, reserved: {{cpu: 5401m}}",
            "",
            "nodes[0].cpuManager",
            ["4 cores", "5401m", "600m"],
        ),
        (
            f"{STATIC}, memory: 8Gi, tuning: {{cpu: 2500m}}",
            "",
            "nodes[0].tuning.cpu",
            ["2500m", "static"],
        ),
        ("coresPerSocket: 4, reserved: {cpu: 4}", "", "nodes[0].reserved.cpu", ["all 4"]),
        (
            "coresPerSocket: 4}, {name: y, count: 1, gpus: 1",
            OUTPUT_OF_X,
            "horovod.timeline",
            ["`volumes.output`"],
        ),
        (
            "coresPerSocket: 4, tuning: {binding: core}",
            "launch: {options: [--bind-to, core]}",
            "launch.options[0]",
            ["`tuning.binding`", "core"],
        ),
        (
            "gpus: 2",
            "values: {worker: {slots: 1}}",
            "values.worker.slots",
            ["1 slots", "2 GPUs"],
        ),
    ],
)
def test_spec_beyond_the_limit_is_refused(
    group: str, rest: str, path: str, values: list[str]
) -> None:
    with pytest.raises(SpecError) as caught:
        spec_of_nodes(f"{{name: x, count: 2, {group}}}", rest)
    assert caught.value.path == path
    assert [value for value in values if value not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("group", "longest", "path"),
    [
        ("gpus: 1", 45, "name"),
        ("gpus: 1}, {name: NAME, count: 1, gpus: 1", 21, "nodes[1].name"),
    ],
)
def test_name_leaves_room_for_the_hash_of_a_statefulset(
    group: str, longest: int, path: str
) -> None:
    """A StatefulSet is named RUN-GROUP; the only group becomes `worker`."""

    def read_with(length: int) -> None:
        run = "r" * (length if path == "name" else 30)
        spec_of_nodes(f"{{name: x, count: 2, {group.replace('NAME', 'g' * length)}}}", name=run)

    read_with(longest)
    with pytest.raises(SpecError) as caught:
        read_with(longest + 1)
    assert caught.value.path == path


@pytest.mark.parametrize(("values", "longest"), [("queueName: q", 36), ("gang: Volcano", 45)])
def test_a_queue_leaves_less_room_for_the_name(values: str, longest: int) -> None:
    """As the chart has it: Kueue's label has two hashes."""

    def read_with(length: int) -> None:
        spec_of_nodes("{name: x, count: 2, gpus: 1}", f"values: {{{values}}}", "r" * length)

    read_with(longest)
    with pytest.raises(SpecError, match=f" {longest} ") as caught:
        read_with(longest + 1)
    assert caught.value.path == "name"


# Without the 600m that DaemonSets and the master request.
@pytest.mark.parametrize(
    ("millis", "reserved"),
    [
        (0, 0),
        (1000, 60),
        (2000, 70),
        (3000, 75),
        (4000, 80),
        (5000, 83),
        (8000, 90),
        (8001, 91),
        (112_000, 350),
    ],
)
def test_cpu_reserve_follows_the_table(millis: int, reserved: int) -> None:
    assert topology.node_reserve_cpu(millis) == reserved + 600


# In MiB, without 100 for eviction and the 768 that DaemonSets and the master request.
@pytest.mark.parametrize(
    ("size", "reserved"),
    [(0, 0), (4, 1024), (8, 1843.2), (16, 2662.4), (128, 9543.68), (256, 12165.12)],
)
def test_memory_reserve_follows_the_table(size: int, reserved: float) -> None:
    assert topology.node_reserve_memory(size * GI) == int(reserved * MI) + 868 * MI


@pytest.mark.parametrize(
    ("group", "rest", "slots"),
    [
        ("coresPerSocket: 8", "tuning: {slots: 3}", 3),
        ("coresPerSocket: 8, tuning: {slots: 5}", "tuning: {slots: 3}", 5),
        ("coresPerSocket: 8, tuning: {slots: 5}", "values: {worker: {slots: 2}}", 2),
        ("coresPerSocket: 8", "values: {worker: null}", 1),
        # Several groups become workerGroups, whose own numbers count.
        ("gpus: 1}, {name: y, count: 1, gpus: 1", "values: {worker: {slots: 2}}", 1),
    ],
)
def test_slots_are_those_of_values_of_the_group_of_all_or_by_rule(
    group: str, rest: str, slots: int
) -> None:
    spec = spec_of_nodes(f"{{name: x, count: 1, {group}}}", rest)
    assert topology.slots(spec.nodes[0], spec) == slots


@pytest.mark.parametrize(
    ("command", "launcher", "instead"),
    [
        (
            ["torchrun", "--nproc_per_node=4", "--nnodes", "2", "train.py", "--lr", "1"],
            "torchrun",
            "[python, train.py, --lr, 1]",
        ),
        (["torchrun", "--nnodes=2", "-m", "pkg.train"], "torchrun", "[python, -m, pkg.train]"),
        (
            ["/usr/bin/mpirun", "-np", "4", "-x", "A=b.py", "python3", "t.py"],
            "mpirun",
            "[python3, t",
        ),
        (["env", "horovodrun", "-np", "4", "python", "t.py"], "horovodrun", "[python, t.py]"),
        (["accelerate", "launch", "t.py"], "accelerate", "[python, t.py]"),
        (["srun", "./run.sh", "a"], "srun", "[./run.sh, a]"),
        (["mpiexec", "-n", "2", "trainer"], "mpiexec", ""),
        (
            ["python", "-m", "torch.distributed.run", "t.py"],
            "torch.distributed.run",
            "[python, t.py]",
        ),
        (
            ["python3", "-u", "/usr/bin/horovodrun", "-np", "4", "python", "t.py"],
            "horovodrun",
            "[p",
        ),
        (["python3", "-um", "horovod.runner.launch", "t.py"], "horovod.runner.launch", "[python"),
        (["horovodrun", "-np", "4", "mpirun", "-np", "1", "python", "t.py"], "mpirun", "[python"),
        (["sh", "-c", "cd /a && exec torchrun t.py; b"], "torchrun", "[python, t.py]"),
        (["/usr/bin/env", "-u", "A", "B=1", "torchrun", "t.py"], "torchrun", "[python, t.py]"),
        (["env", "A=1", "env", "1-b=2", "torchrun", "t.py"], "torchrun", "[python, t.py]"),
        (["env", "A=b", "deepspeed", "t.py"], "deepspeed", "[python, t.py]"),
    ],
)
def test_command_that_starts_ranks_itself_is_refused(
    command: list[str], launcher: str, instead: str
) -> None:
    """It would start all ranks in each rank, or fail there."""
    error = refused(GOOD.replace("[python, train.py]", json.dumps(command)))
    assert error.path == "train.command"
    assert error.problem.startswith(launcher)
    assert error.expected.startswith(instead)


@pytest.mark.parametrize(
    ("command", "rest", "path", "values"),
    [
        (["-np", "9", "python", "t.py"], "", "train.command", ["9", "4"]),
        (["--min-np", "2", "python", "t.py"], "", "train.command[1]", ["nodes[].minimum"]),
        (["-np", "4", "t"], "launch: {options: [-x]}", "launch.options", ["horovodrun"]),
        (["t"], "  framework: mpi", "train.command", ["train.framework"]),
    ],
)
def test_line_of_horovodrun_that_cannot_be_taken_is_refused(
    command: list[str], rest: str, path: str, values: list[str]
) -> None:
    error = refused(GOOD.replace("[python, train.py]", json.dumps(["horovodrun", *command])) + rest)
    assert error.path == path
    assert [value for value in values if value not in str(error)] == []


@pytest.mark.parametrize("rest", ["", "launch: {mode: direct}", "launch: {mode: mpirun}"])
def test_line_of_horovodrun_becomes_keys_of_the_spec(rest: str) -> None:
    line = ["/bin/horovodrun", "-np", "4", "--cycle-time-ms", "2", "--gloo", "python", "t.py"]
    spec = parse_spec(GOOD.replace("[python, train.py]", json.dumps(line)) + rest)
    assert (spec.launch.mode, spec.train.framework) == ("direct", "horovod")
    assert spec.train.command == ("python", "t.py")
    assert spec.train.env["HOROVOD_CYCLE_TIME"] == "2.0"


@pytest.mark.parametrize(
    ("command", "rest"),
    [
        (["horovodrun", "-np", "3", "t"], "launch: {mode: custom}"),
        (["python", "-c", "mpirun"], ""),
        (["python", "-W", "ignore", "t.py", "mpirun"], ""),
        (["python", "mpirun.py"], ""),
        (["echo", "torchrun"], ""),
        (["sh", "-c", "echo 'torchrun a' # mpirun"], ""),
        (["sh", "-c", "echo 'unclosed; mpirun"], ""),
        (["accelerate", "config"], ""),
        (["env"], ""),
        (["mpirun", "python", "t.py"], "launch: {mode: custom}"),
    ],
)
def test_command_that_only_names_a_launcher_is_taken(command: list[str], rest: str) -> None:
    text = GOOD.replace("[python, train.py]", json.dumps(command)) + rest
    assert parse_spec(text.encode()).train.command == tuple(command)
