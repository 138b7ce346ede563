"""Old values files and MPIJobs become values that Helm takes; nothing is lost in silence."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft7Validator
from typer.testing import CliRunner

from hvdchart.cli.app import app
from hvdchart.errors import SpecError
from hvdchart.migrate.command_line import take_apart
from hvdchart.migrate.convert import Migration, migrate
from hvdchart.migrate.ledger import leaves, values_schema
from hvdchart.migrate.report import report_text, values_text
from hvdchart.spec.load import dotted
from hvdchart.spec.yaml_tree import parse

OLD = Path(__file__).parent / "old"
FILES = sorted(OLD.glob("*.yaml"))
SCHEMA = values_schema()


def migrated(name: str) -> Migration:
    return migrate(parse((OLD / name).read_bytes(), name), SCHEMA)


def fates(found: Migration) -> dict[str, tuple[str, str]]:
    return {line.old: (line.fate, line.new) for line in found.lines}


def assert_nothing_is_lost(tree: Any, found: Migration) -> None:
    told = {line.old for line in found.lines}
    assert [path for leaf in leaves(tree, ()) if (path := dotted(leaf)) not in told] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_nothing_is_lost(path: Path) -> None:
    root = parse(path.read_bytes(), path.name)
    assert_nothing_is_lost(root.plain, migrate(root, SCHEMA))


def test_the_old_gpu_chart() -> None:
    found = migrated("stable-gpu.yaml")
    values = found.values
    assert values["master"]["args"][:2] == ["sh", "-c"]
    assert values["master"]["args"][2].endswith("python /examples/train.py")
    assert values["launch"]["options"] == [
        "--mca", "btl_tcp_if_include", "eth0", "--display-map", "--tag-output",
    ]  # fmt: skip
    assert values["worker"]["slots"] == 4
    assert values["worker"]["capabilities"] == ["IPC_LOCK"]
    env = {entry["name"]: entry["value"] for entry in values["worker"]["env"]}
    assert env == {
        "NCCL_DEBUG": "INFO", "EPOCHS": "3", "VERBOSE": "true", "LOST": "1", "NCCL_IB_DISABLE": "1",
    }  # fmt: skip
    assert values["volumes"][1]["name"] == values["volumeMounts"][1]["name"] == "user-tmp"
    assert fates(found)["someKey.of[0]"][0] == "dropped"
    why = {line.old: line.why for line in found.lines}
    assert "the chart makes the SSH keys" in why["ssh.hostKey"]
    text = values_text(found, "old.yaml") + report_text(found)
    assert "bm90IGEga2V5" not in text, "a private key was printed"


def test_a_line_that_needs_a_shell_stays_whole() -> None:
    values = migrated("docker-helm-cpu.yaml").values
    assert values["launch"]["mode"] == "custom"
    assert values["master"]["args"][:2] == ["bash", "-c"]
    assert values["master"]["args"][2].startswith("cd /work && mpirun -np 4")
    assert values["image"] == {"repository": "horovod/horovod", "tag": "0.24.3"}


@pytest.mark.parametrize(
    ("words", "mode", "command"),
    [
        (["mpirun -np 2 python a.py"], "mpirun", ["python", "a.py"]),
        (["mpirun -np 2 sh -c 'a $B > c'"], "mpirun", ["sh", "-c", "a $B > c"]),
        (["/usr/bin/mpiexec", "-n", "2", "--", "a"], "mpirun", ["a"]),
        (["bash", "-c", "mpirun -np 2 \\\n  a --b=c"], "mpirun", ["a", "--b=c"]),
        (["horovodrun -np 2 --gloo a"], "horovodrun", ["a"]),
        (["horovodrun -np 2 --min-np 1 a"], "elastic", ["a"]),
        # A shell has work to do, or something is not known: the line stays as it is.
        (["mpirun -np 2 python a.py --out $HOME"], "custom", None),
        (["mpirun -np 2 python a.py > log"], "custom", None),
        (["A=b mpirun -np 2 python a.py"], "custom", None),
        (["mpirun -np 2 python *.py"], "custom", None),
        (["mpirun -np 2 'unclosed"], "custom", None),
        (["mpirun", "--no-such-option", "1", "a"], "custom", None),
        (["mpirun", "-np", "many", "a"], "custom", None),
        (["mpirun", "-np", "2"], "custom", None),
        (["mpirun", "-np", "1", "a", ":", "-np", "1", "b"], "custom", None),
        (["python", "a.py"], "custom", None),
    ],
)
def test_command_lines(words: list[str], mode: str, command: list[str] | None) -> None:
    line = take_apart(words)
    assert (line.mode, line.command) == (mode, words if command is None else command)
    assert bool(line.why_custom) is (mode == "custom")


def test_the_old_master_was_a_host() -> None:
    text = b"worker: {number: 2}\nmaster: {args: [mpirun -np 3 python a.py]}\n"
    found = migrate(parse(text, "old.yaml"), SCHEMA)
    assert found.values["worker"]["number"] == 3
    assert not any("3 ranks; now" in check for check in found.checks)


def test_an_mpijob() -> None:
    found = migrated("mpijob-v1.yaml")
    values = found.values
    assert (found.release, found.namespace) == ("imagenet", "vision")
    assert values["image"]["repository"] == "registry.example:5000/vision/imagenet"
    assert values["worker"]["slots"] == values["worker"]["resources"]["limits"]["nvidia.com/gpu"]
    assert values["shm"] == {"sizeLimit": "16Gi"}
    assert [entry["name"] for entry in values["worker"]["env"]] == ["NCCL_DEBUG", "TOKEN"]
    assert values["cleanup"] == "Always"
    assert (values["queueName"], values["priorityClassName"]) == ("research", "high")
    lost = " ".join(found.checks)
    for name in ("fetch", "sidecar", "envFrom", "4 ranks; now 2 workers x 8 slots make 16"):
        assert name in lost


def test_an_elastic_mpijob() -> None:
    values = migrated("mpijob-v2beta1.yaml").values
    assert values["launch"]["mode"] == "elastic"
    assert values["launch"]["elastic"] == {"minRanks": 2, "maxRanks": 6}
    assert values["cleanup"] == "Always", "the chart refuses a time to live without"
    assert values["worker"]["number"] == 2, "runLauncherAsWorker makes one worker more"
    assert values["podSecurityContext"] == {"fsGroup": 2000, "runAsUser": 1000}
    image = values["image"]
    assert f"{image['repository']}:{image['tag']}".startswith("team/elastic@sha256:0123")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a list", "<old>:1:1: got a list of 1; expected a values file of the old horovod chart"),
        ("kind: Pod\napiVersion: v1", "apiVersion 'v1', kind 'Pod'"),
        ("other: 1", "none of the old charts' keys"),
        ("worker: {number: 2}\nworkerGroups: []", "<old>:2:15: workerGroups is a key of this"),
        ("worker: {number: many}", '<old>:1:18: worker.number: got "many"; expected a whole'),
        ("worker: {number: 0}", "worker.number: the chart's worker.number does not take it"),
        ("worker: 3", "<old>:1:9: worker: got 3; expected a map"),
        ("useHostNetwork: maybe\nworker: {}", "expected true or false"),
        ("worker: {}\nvolumes: {a: b}", "<old>:2:10: volumes: got"),
    ],
)
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(SpecError) as refused:
        migrate(parse(text.encode(), "<old>"), SCHEMA)
    assert message in str(refused.value)


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-1, 70000), st.text(max_size=8),
    st.sampled_from(["yes", "16Gi", "mpirun -np 4 python a.py", "a:b", "None", "OpenMPI"]),
)  # fmt: skip
TREES = st.recursive(
    SCALARS,
    lambda below: st.one_of(
        st.lists(below, max_size=3),
        st.dictionaries(st.sampled_from(["name", "image", "env", "args", "limits", "own"]), below),
    ),
    max_leaves=6,
)


def spots(value: Any) -> list[tuple[Any, Any]]:
    """Every place of a tree: the container and the key or index in it."""
    found: list[tuple[Any, Any]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for step, child in items:
        found.append((value, step))
        if isinstance(child, dict | list):
            found += spots(child)
    return found


CHANGES = st.lists(st.tuples(st.integers(0, 10**6), TREES), max_size=4)


def changed(path: Path, changes: list[tuple[int, Any]]) -> Any:
    """An old file with other values at some of its places."""
    tree = copy.deepcopy(parse(path.read_bytes(), path.name).plain)
    for place, value in changes:
        here, step = (every := spots(tree))[place % len(every)]
        here[step] = copy.deepcopy(value)
    return tree


@given(st.sampled_from(FILES), CHANGES)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_change_of_an_old_file(path: Path, changes: list[tuple[int, Any]]) -> None:
    tree = changed(path, changes)
    try:
        root = parse(json.dumps(tree).encode(), path.name)
        found = migrate(root, SCHEMA)
    except SpecError as refused:
        if path.name in str(refused):
            return
        raise
    assert_nothing_is_lost(root.plain, found)
    values = parse(values_text(found, path.name).encode(), "values").plain
    assert list(Draft7Validator(dict(SCHEMA)).iter_errors(values)) == []


def test_the_command(tmp_path: Path) -> None:
    output, report = tmp_path / "values.yaml", tmp_path / "report.txt"
    arguments = ["migrate", str(OLD / "mpijob-v1.yaml"), "-o", str(output), "--report", str(report)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "helm install imagenet" in output.read_text()
    assert "command[0] to [19] -> master.args" in report.read_text()
