"""The PodMonitor, by which Prometheus scrapes the master and the workers."""

from __future__ import annotations

import pytest

from hvd_pods.pod.metrics import (
    MAX_LABEL_NAME_CHARACTERS,
    MAX_LABEL_VALUE_CHARACTERS,
    MAX_LABELS,
    MAX_SERIES,
)
from tests.chart.render import Manifest, of_kind, one, render


@pytest.fixture(scope="module")
def monitored() -> list[Manifest]:
    return render({"metrics": {"enabled": True, "podMonitor": True}})


def test_pod_monitor_scrapes_the_master_and_workers_of_the_release(
    monitored: list[Manifest],
) -> None:
    monitor = one(monitored, "PodMonitor")["spec"]
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert endpoint["port"] == "metrics"
    assert monitor["selector"] == one(monitored, "NetworkPolicy")["spec"]["podSelector"]


def test_pod_monitor_limits_what_a_script_can_send(monitored: list[Manifest]) -> None:
    spec = one(monitored, "PodMonitor")["spec"]
    assert MAX_SERIES < spec["sampleLimit"] <= 2 * MAX_SERIES
    assert MAX_LABELS < spec["labelLimit"] <= 2 * MAX_LABELS
    assert spec["labelNameLengthLimit"] > MAX_LABEL_NAME_CHARACTERS
    assert spec["labelValueLengthLimit"] > MAX_LABEL_VALUE_CHARACTERS
    assert spec["bodySizeLimit"] == "4MB"


def test_pod_monitor_gives_a_run_the_same_labels_in_each_attempt(
    monitored: list[Manifest],
) -> None:
    (endpoint,) = one(monitored, "PodMonitor")["spec"]["podMetricsEndpoints"]
    targets = {rule["targetLabel"]: rule.get("replacement") for rule in endpoint["relabelings"]}
    assert targets == {"release": "hvd", "pod": "hvd-master", "instance": None}


def test_metrics_have_no_pod_monitor_unless_it_is_asked_for() -> None:
    assert of_kind(render({"metrics": {"enabled": True, "podMonitor": False}}), "PodMonitor") == []
