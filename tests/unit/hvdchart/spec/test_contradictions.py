"""Keys that contradict each other, at the limits where they begin to."""

from __future__ import annotations

import pytest

from hvdchart.errors import SpecError
from hvdchart.spec.load import parse_spec
from hvdchart.spec.model import Spec

OUTPUT_OF_X = "horovod: {timeline: true}\nvolumes: {output: {pvc: a, groups: [x]}}"
STATIC = "coresPerSocket: 4, cpuManager: static"


def read(group: str, rest: str = "", name: str = "run") -> Spec:
    nodes = f"nodes: [{{name: x, count: 2, {group}}}]"
    return parse_spec(
        f"apiVersion: hvdchart/v1\nname: {name}\ntrain: {{command: [a]}}\n{nodes}\n{rest}"
    )


@pytest.mark.parametrize(
    ("group", "rest"),
    [
        ("coresPerSocket: 1", ""),
        ("coresPerSocket: 4, numaPerSocket: 4", ""),
        # Of three cores the kubelet and the pods beside the worker have the rest.
        (f"{STATIC}, memory: 8Gi, reserved: {{cpu: 2400m}}", ""),
        (f"{STATIC}, memory: 8Gi, tuning: {{cpu: 2}}", ""),
        (f"{STATIC}, tuning: {{memory: 1Gi}}", ""),
        (STATIC, "tuning: {memory: 1Gi}"),
        ("coresPerSocket: 4, reserved: {cpu: 3999m}", ""),
        ("gpus: 1, memory: 1Gi, reserved: {memory: 1048575Ki}", ""),
        ("coresPerSocket: 4, tuning: {slots: 4, binding: core}", ""),
        ("coresPerSocket: 4, tuning: {binding: socket}", ""),
        ("coresPerSocket: 4", "launch: {mode: elastic, elastic: {minRanks: 2, maxRanks: 2}}"),
        ("coresPerSocket: 4", "horovod: {fusionThreshold: 1Mi}"),
        ("coresPerSocket: 4", OUTPUT_OF_X),
        ("coresPerSocket: 4, interface: eth0", "launch: {options: [--tag-output]}"),
        ("coresPerSocket: 4, tuning: {binding: none}", "launch: {options: [--bind-to, core]}"),
    ],
)
def test_spec_at_the_limit_is_right(group: str, rest: str) -> None:
    read(group, rest)


@pytest.mark.parametrize(
    ("group", "rest", "path", "says"),
    [
        (f"{STATIC}, memory: 8Gi, reserved: {{cpu: 2401m}}", "", "nodes[0].cpuManager",
         "none of 4 cores is left"),
        (f"{STATIC}, memory: 8Gi, tuning: {{cpu: 2500m}}", "", "nodes[0].tuning.cpu",
         "2500m CPUs with cpuManager static"),
        (f"{STATIC}, memory: 8Gi", "tuning: {cpu: 2500m}", "tuning.cpu", "expected whole CPUs"),
        ("coresPerSocket: 4, reserved: {cpu: 4}", "", "nodes[0].reserved.cpu", "reserves all 4"),
        ("gpus: 1, memory: 1Gi, reserved: {memory: 1Gi}", "", "nodes[0].reserved.memory",
         "reserves all of the node's memory"),
        ("coresPerSocket: 4}, {name: y, count: 1, gpus: 1", OUTPUT_OF_X, "horovod.timeline",
         "volumes.output, mounted by all groups"),
        ("coresPerSocket: 4, interface: eth0",
         "launch: {mode: horovodrun, options: [-v, --network-interfaces, eth1]}",
         "launch.options[1]", "but the groups' interface is eth0"),
        ("coresPerSocket: 4, tuning: {binding: core}", "launch: {options: [--bind-to, core]}",
         "launch.options[0]", "but tuning.binding is core"),
        ("gpus: 2", "values: {worker: {slots: 1}}", "values.worker.slots",
         "1 slots on nodes with 2 GPUs"),
    ],
)  # fmt: skip
def test_spec_beyond_the_limit_is_refused(group: str, rest: str, path: str, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(group, rest)
    assert caught.value.path == path
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("name", "groups", "longest"), [("name", "gpus: 1", 45), ("nodes[1].name", None, 21)]
)
def test_name_leaves_room_for_the_hash_of_a_statefulset(
    name: str, groups: str | None, longest: int
) -> None:
    """The only group becomes `worker`."""
    for length in (longest, longest + 1):
        run = "r" * length if groups else "r" * 30
        group = groups or f"gpus: 1}}, {{name: {'g' * length}, count: 1, gpus: 1"
        if length == longest:
            read(group, name=run)
    with pytest.raises(SpecError, match="a name with which it has at most 52") as caught:
        read(group, name=run)
    assert caught.value.path == name


def test_a_node_may_reserve_nothing() -> None:
    reserved = read("coresPerSocket: 4, reserved: {cpu: 0, memory: 0}").nodes[0].reserved
    assert (reserved.cpu, reserved.memory) == (0, 0)
