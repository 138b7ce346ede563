"""Values that contradict each other about the nodes of the workers, and the gang."""

from __future__ import annotations

from tests.chart.refusals.contradiction import Contradiction

CONTRADICTIONS = [
    Contradiction(
        {"worker": {"spread": "Required", "affinity": {"podAntiAffinity": {}}}},
        ["worker.spread", "worker.affinity.podAntiAffinity"],
        {"worker": {"spread": "None"}},
    ),
    Contradiction(
        {"gang": "Kubernetes"},
        ["gang", "PodGroup of scheduling.k8s.io/v1beta1"],
        {"gang": "Volcano"},
    ),
]
