"""Values that contradict each other about the timeline, TensorBoard and metrics."""

from __future__ import annotations

from tests.chart.refusals.contradiction import AT_DATA, DATA_VOLUMES, Contradiction
from tests.chart.render import Values

# By the key of the message.
WITHOUT_POLICY: dict[str, Values] = {
    "networkPolicy.enabled": {"networkPolicy": {"enabled": False}},
    "hostNetwork": {"hostNetwork": True},
}
SIDECAR = {"name": "proxy", "image": "a", "ports": [{"containerPort": 8080}]}
CONTRADICTIONS = [
    Contradiction(
        {"horovod": {"timeline": True}, "volumeMounts": AT_DATA},
        ["horovod.timeline", "worker.env", "OUTPUT_PATH"],
        {"worker": {"env": [{"name": "OUTPUT_PATH", "value": "/data"}]}},
    ),
    Contradiction(
        {"tensorboard": {"enabled": True}, "volumes": DATA_VOLUMES, "volumeMounts": AT_DATA},
        ["tensorboard.logDir", "OUTPUT_PATH"],
        {"tensorboard": {"logDir": "/data"}},
    ),
    Contradiction(
        {"tensorboard": {"enabled": True, "logDir": "/data"}},
        ["tensorboard.logDir", "volumeMounts"],
        {"volumeMounts": AT_DATA, "volumes": DATA_VOLUMES},
    ),
    # A volume of the chart, which TensorBoard's pod has for itself, and one that nobody declares.
    *(
        Contradiction(
            {
                "tensorboard": {"enabled": True, "logDir": "/data/logs"},
                "volumeMounts": [{"name": name, "mountPath": "/data"}],
            },
            ["tensorboard.logDir", "volumes", f'"{name}"'],
            {"volumes": DATA_VOLUMES, "volumeMounts": AT_DATA},
        )
        for name in ("tmp", "x")
    ),
    # Kubernetes takes a volume of no kind as an emptyDir.
    Contradiction(
        {
            "tensorboard": {"enabled": True, "logDir": "/data/logs"},
            "volumes": [{"name": "x"}],
            "volumeMounts": AT_DATA,
        },
        ["tensorboard.logDir", "volumes", '"x"', "emptyDir"],
        {"volumes": DATA_VOLUMES},
    ),
    *(
        Contradiction(
            {
                "tensorboard": {"enabled": True, "logDir": "/data/logs"},
                "volumes": [{"name": "x", kind: {}}],
                "volumeMounts": AT_DATA,
            },
            ["tensorboard.logDir", "volumes", '"x"'],
            {"volumes": DATA_VOLUMES},
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
            "volumes": DATA_VOLUMES,
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
    *(
        Contradiction(
            {"metrics": {"enabled": True, "allowFrom": [{"podSelector": {}}]}, **values},
            ["metrics.allowFrom", key],
            {"metrics": {"allowFrom": None}},
        )
        for key, values in WITHOUT_POLICY.items()
    ),
    Contradiction(
        {"metrics": {"podMonitor": True}},
        ["metrics.podMonitor", "metrics.enabled"],
        {"metrics": {"enabled": True}},
    ),
    Contradiction(
        {"metrics": {"enabled": True}, "agent": {"port": 9400}},
        ["metrics.port", "agent.port"],
        {"metrics": {"port": 9401}},
    ),
    Contradiction(
        {
            "metrics": {"enabled": True, "port": 8080},
            "worker": {"extraContainers": [SIDECAR]},
        },
        ["metrics.port", "worker.extraContainers"],
        {"metrics": {"port": 8081}},
    ),
    Contradiction(
        {
            "agent": {"port": 8080},
            "workerGroups": [{"name": "a", "extraContainers": [SIDECAR]}],
        },
        ["agent.port", "workerGroups[a].extraContainers"],
        {"agent": {"port": 2222}},
    ),
]
