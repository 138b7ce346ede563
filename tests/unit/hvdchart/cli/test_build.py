"""The image that `deploy` and `dev` build first."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvdchart.cli.build import with_own_image
from hvdchart.image.build import Source
from hvdchart.plan.planner import make_plan
from hvdchart.run.cluster import Cluster
from hvdchart.spec.load import parse_spec
from tests.fakes.cluster import FakeCluster
from tests.fakes.program import StubProgram

SPEC = b"""apiVersion: hvdchart/v1
name: hvd
nodes: [{name: n, count: 2, coresPerSocket: 4, memory: 8Gi}]
image: {repository: host:5000/r}
train: {command: [train]}
"""


def test_the_image_of_a_plan_is_built_unless_a_preview_is_asked_for(
    fake_cluster: FakeCluster, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    docker = StubProgram(programs, "docker")
    docker.answer("inspect", code=1)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM a\n")
    told: list[str] = []
    plan = with_own_image(
        make_plan(parse_spec(SPEC)), [folder / "run.spec.yaml"], Cluster.connect(),
        builder=None, load_with="", verbose=False, report=told.append,
    )  # fmt: skip
    tag = Source(folder, "host:5000/r").reference().rpartition(":")[2]
    assert plan.spec.values["image"] == {"tag": tag}
    assert [word for word in docker.commands() if word != "info"] == ["inspect", "build", "push"]
    assert not [line for line in told if "would" in line]
