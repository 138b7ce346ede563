"""Runs that are installed for a while."""

from __future__ import annotations

import pytest

from hvdchart.errors import HelmError
from hvdchart.run.cluster import Cluster
from hvdchart.run.temporary import temporary_run
from tests.fakes.cluster import FakeCluster
from tests.fakes.program import StubProgram
from tests.unit.hvdchart.run.test_helm import plan


def test_why_a_run_was_not_installed_is_said_also_where_its_rest_cannot_be_removed(
    fake_cluster: FakeCluster, helm: StubProgram
) -> None:
    helm.answer("upgrade", errors="Error: no quota", code=1)
    helm.answer("uninstall", errors="Error: timed out", code=1)
    temporary = temporary_run(Cluster.connect(), plan(), context=None, program="helm")
    with pytest.raises(HelmError, match=r"^helm upgrade: Error: no quota$"), temporary:
        pass
    assert "uninstall" in helm.commands()
