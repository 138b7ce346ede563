"""The list of the nodes that have the staged data: written by masters, with a fake API server."""

from __future__ import annotations

from typing import Any

import pytest

from hvd_pods.cluster import kube, staged
from hvd_pods.shared.run import Pod, Run, Worker
from tests.support.fakes import faults
from tests.support.fakes.api import FakeApi
from tests.support.runs import make_run
from tests.unit.hvd_pods.support.call_limits import ONCE
from tests.unit.hvd_pods.support.master_pod import read_log

NODE_LIST = "horovod-staged-1"
GROUP = {"stateful_set": "hvd-worker", "number": 3, "maximum": 3, "slots": 1, "revision": "r1"}


def staging_run(node_list: str = NODE_LIST) -> Run:
    """A run of three workers whose data are on their nodes."""
    return make_run(groups=[{**GROUP, "staged": node_list}])


def on_nodes(run: Run, *nodes: str) -> dict[Worker, Pod]:
    """The run's workers on these nodes."""
    return {
        worker: Pod("10.0.0.1", "uid", node)
        for worker, node in zip(run.workers, nodes, strict=True)
    }


def listed(api_server: FakeApi) -> list[str]:
    item: Any = api_server.find("core/configmaps", NODE_LIST)
    return sorted(item["data"])


def test_nothing_is_listed_of_a_run_without_data_on_nodes(api_server: FakeApi) -> None:
    run = staging_run("")
    staged.add_nodes(run, kube.Api(ONCE), on_nodes(run, "a", "b", "b"))
    assert api_server.requests == []


def test_nothing_is_listed_without_the_nodes_names(api_server: FakeApi) -> None:
    """DNS does not tell them."""
    run = staging_run()
    staged.add_nodes(run, kube.Api(ONCE), on_nodes(run, "", "", ""))
    assert api_server.requests == []


def test_the_first_run_makes_a_node_list(
    api_server: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    run = staging_run()
    staged.add_nodes(run, kube.Api(ONCE), on_nodes(run, "a", "b", "b"))
    assert listed(api_server) == ["a", "b"]
    item: Any = api_server.find("core/configmaps", NODE_LIST)
    assert item["metadata"]["labels"] == {"hvdchart/node-list": "staged"}
    added, before = read_log(capsys)
    assert NODE_LIST in added
    assert added.endswith("nodes a, b")
    assert before.startswith("0 of 2 nodes")


def test_later_runs_add_to_the_node_list(
    api_server: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    run = staging_run()
    api = kube.Api(ONCE)
    staged.add_nodes(run, api, on_nodes(run, "a", "b", "b"))
    read_log(capsys)
    staged.add_nodes(run, api, on_nodes(run, "b", "c", "c"))
    assert listed(api_server) == ["a", "b", "c"]
    added, before = read_log(capsys)
    assert added.endswith("nodes c")
    assert before.startswith("1 of 2 nodes")


@pytest.mark.parametrize(
    ("method", "there"), [("GET", [NODE_LIST]), ("PATCH", []), ("PATCH", [NODE_LIST])]
)
def test_a_node_list_that_cannot_be_written_is_logged_and_asked_for_once(
    api_server: FakeApi, method: str, there: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run = staging_run()
    for name in there:
        api_server.put("core/configmaps", {"metadata": {"name": name}})
    api_server.fail(method, f"core/configmaps/{NODE_LIST}", faults.status(503))
    staged.add_nodes(run, kube.Api(ONCE), on_nodes(run, "a", "b", "c"))
    assert len(api_server.asked(method, f"core/configmaps/{NODE_LIST}")) == 1
    assert "503" in read_log(capsys)[0]
