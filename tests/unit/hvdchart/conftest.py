"""What the tests share."""

from __future__ import annotations

from tests.support.fakes.fixtures import (  # noqa: F401
    fake_cluster,
    helm,
    hvdchart,
    kubeconfig_file,
    programs,
)
from tests.unit.hvdchart.runs import docker, finished, kubectl, running, spec  # noqa: F401
