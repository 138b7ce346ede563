"""Values that contradict each other about the timeline, TensorBoard and metrics."""

from __future__ import annotations

from tests.chart.refusals.contradiction import AT_DATA, Contradiction

CONTRADICTIONS = [
    Contradiction(
        {"horovod": {"timeline": True}, "volumeMounts": AT_DATA},
        ["horovod.timeline", "worker.env", "OUTPUT_PATH"],
        {"worker": {"env": [{"name": "OUTPUT_PATH", "value": "/data"}]}},
    ),
    Contradiction(
        {"tensorboard": {"enabled": True}, "volumeMounts": AT_DATA},
        ["tensorboard.logDir", "OUTPUT_PATH"],
        {"tensorboard": {"logDir": "/data"}},
    ),
    Contradiction(
        {"tensorboard": {"enabled": True, "logDir": "/data"}},
        ["tensorboard.logDir", "volumeMounts"],
        {"volumeMounts": AT_DATA},
    ),
    *(
        Contradiction(
            {
                "tensorboard": {"enabled": True, "logDir": "/data/logs"},
                "volumes": [{"name": "x", kind: {}}],
                "volumeMounts": AT_DATA,
            },
            ["tensorboard.logDir", "volumes", '"x"'],
            {"volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "x"}}]},
        )
        for kind in ("emptyDir", "ephemeral")
    ),
    Contradiction(
        {"tensorboard": {"allowFrom": [{"podSelector": {}}]}},
        ["tensorboard.allowFrom", "tensorboard.enabled"],
        {"tensorboard": {"allowFrom": None}},
    ),
    Contradiction(
        {
            "tensorboard": {"enabled": True, "logDir": "/data", "allowFrom": [{"podSelector": {}}]},
            "networkPolicy": {"enabled": False},
            "volumeMounts": AT_DATA,
        },
        ["tensorboard.allowFrom", "networkPolicy.enabled"],
        {"tensorboard": {"allowFrom": None}},
    ),
    Contradiction(
        {"metrics": {"allowFrom": [{"podSelector": {}}]}},
        ["metrics.allowFrom", "metrics.enabled"],
        {"metrics": {"enabled": True}},
    ),
    Contradiction(
        {"metrics": {"podMonitor": True}},
        ["metrics.podMonitor", "metrics.enabled"],
        {"metrics": {"enabled": True}},
    ),
    Contradiction(
        {"metrics": {"enabled": True}, "agent": {"port": 9400}},
        ["metrics.enabled", "agent.port"],
        {"agent": {"port": 2222}},
    ),
]
