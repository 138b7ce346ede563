"""Values that contradict each other about images."""

from __future__ import annotations

from tests.chart.refusals.contradiction import AT_DATA, DATA_VOLUMES, Contradiction

CONTRADICTIONS = [
    Contradiction(
        {"image": {"repository": ""}, "master": {"image": {"repository": "a"}}},
        ["image.repository", "worker.image.repository"],
        {"worker": {"image": {"repository": "a"}}},
    ),
    Contradiction(
        {"image": {"repository": ""}, "worker": {"image": {"repository": "a"}}},
        ["image.repository", "master.image.repository"],
        {"master": {"image": {"repository": "a"}}},
    ),
    Contradiction(
        {
            "image": {"repository": ""},
            "worker": {"image": {"repository": "a"}},
            "master": {"image": {"repository": "a"}},
            "tensorboard": {"enabled": True, "logDir": "/data"},
            "volumes": DATA_VOLUMES,
            "volumeMounts": AT_DATA,
        },
        ["image.repository", "tensorboard.image.repository"],
        {"image": {"repository": "a"}},
    ),
]
