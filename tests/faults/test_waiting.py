"""Trainings wait for what comes late, and no longer."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest

from devtools.localkube.instance import current_instance
from tests.faults.node import call_after
from tests.faults.stale_dns import stale_dns
from tests.faults.training import FAULT_STEP, TRAINING_STEPS, Training
from tests.support.namespace import Values

LATE = 30.0


@pytest.mark.rare
@pytest.mark.fault("worker 30 s late")
def test_late_worker(training: Training) -> None:
    namespace = training.namespace
    node = current_instance().node_name
    label = f"{namespace.name[-8:]}/late"
    groups = [{"name": "a", "number": 1}, {"name": "b", "number": 1, "nodeSelector": {label: "no"}}]
    training.install(TRAINING_STEPS, workerGroups=groups)
    with ExitStack() as stack:
        stack.callback(namespace.kubectl, "label", "node", node, f"{label}-")
        # The delay is the fault: there is no event to wait for.
        time.sleep(LATE)
        came = time.time()
        namespace.kubectl("label", "node", node, f"{label}=no")
        training.finish(came)


WITHOUT_ACCOUNT: Values = {"serviceAccount": {"create": False}, "cleanup": "Never"}


@pytest.mark.rare
@pytest.mark.parametrize(
    "values",
    [
        pytest.param({}, marks=pytest.mark.fault("worker deleted, DNS stale 30 s")),
        pytest.param(
            WITHOUT_ACCOUNT,
            marks=pytest.mark.fault("worker deleted, DNS stale 30 s, no service account"),
        ),
    ],
)
def test_stale_dns(training: Training, values: Values) -> None:
    """The master finds its workers in DNS only where it may not read EndpointSlices."""
    node = current_instance()
    with stale_dns(str(node.gateway_ip), str(node.control_ip)) as dns:
        domain = f"{training.namespace.name}.svc.cluster.local"
        servers = {"nameservers": [str(node.gateway_ip)], "searches": [domain]}
        pods = {"podSpec": {"dnsPolicy": "None", "dnsConfig": servers}}
        fault = training.run_to(FAULT_STEP, TRAINING_STEPS, master=pods, worker=pods, **values)
        dns.stale = True
        call_after(LATE, lambda: setattr(dns, "stale", False))
        training.namespace.kubectl("delete", "pod", "hvd-worker-1", "--grace-period=0", "--force")
        training.finish(fault)
        assert dns.repeated or not values, "nobody asked for a name while DNS was stale"
