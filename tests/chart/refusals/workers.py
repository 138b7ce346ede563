"""Values that contradict each other about the number of workers, and their GPUs."""

from __future__ import annotations

from tests.chart.refusals.contradiction import Contradiction

CONTRADICTIONS = [
    Contradiction(
        {"workerGroups": [{"name": "a", "number": 9000}, {"name": "b", "number": 2000}]},
        ["number and spares of worker and workerGroups", "11000"],
        {"workerGroups": [{"name": "a", "number": 9000}, {"name": "b", "number": 1000}]},
    ),
    Contradiction(
        {
            "worker": {"spares": 1},
            "launch": {"mode": "custom"},
            "master": {"args": ["mpirun", "-H", "hvd-worker-0.hvd:1"]},
        },
        ["worker.spares", "master.args", '"hvd-worker-0"'],
        {"master": {"args": ["mpirun", "--hostfile", "$(HOSTFILE)"]}},
    ),
    Contradiction(
        {
            "worker": {"number": 2, "minimum": 2, "spares": 1},
            "launch": {"mode": "custom"},
            "master": {"args": ["mpirun", "-H", "hvd-worker-0.hvd:1"]},
        },
        ["worker.spares", "master.args", '"hvd-worker-0"'],
        {"worker": {"spares": 0}},
    ),
    Contradiction(
        {"worker": {"number": 2, "minimum": 3}},
        ["worker.minimum", "worker.number"],
        {"worker": {"minimum": 2}},
    ),
    Contradiction(
        {
            "worker": {"minimum": 1},
            "launch": {"mode": "custom"},
            "master": {"args": ["mpirun", "-H", "hvd-worker-0.hvd:1"]},
        },
        ["worker.minimum", "master.args", '"hvd-worker-0"'],
        {"master": {"args": ["time", "$(LAUNCH)", "train"]}},
    ),
    Contradiction(
        {
            "worker": {"number": 2, "minimum": 1},
            "launch": {"mode": "custom"},
            "master": {"args": ["mpirun", "-H", "hvd-worker-0.hvd:1"]},
        },
        ["worker.minimum", "master.args", '"hvd-worker-0"'],
        {"worker": {"minimum": 2}},
    ),
    Contradiction(
        {
            "worker": {
                "slots": 2,
                "resources": {"limits": {"nvidia.com/gpu": 1, "amd.com/gpu": 1}},
            }
        },
        ["worker.resources.limits", "amd.com", "nvidia.com"],
        {"worker": None, "workerGroups": [{"name": "a"}, {"name": "b"}]},
    ),
    Contradiction(
        {
            "worker": {
                "slots": 4,
                "resources": {"limits": {"nvidia.com/mig-1g.5gb": 2, "nvidia.com/mig-2g.10gb": 1}},
            }
        },
        [
            "worker.slots",
            'worker.resources.limits["nvidia.com/mig-1g.5gb"]',
            'worker.resources.limits["nvidia.com/mig-2g.10gb"]',
            "make up 3",
        ],
        {"worker": {"slots": 3}},
    ),
    Contradiction(
        {
            "worker": {
                "slots": 2,
                "env": [{"name": "NVIDIA_VISIBLE_DEVICES"}],
                "resources": {"limits": {"nvidia.com/mig-1g.5gb": 1, "nvidia.com/mig-2g.10gb": 1}},
            }
        },
        ["worker.env", "NVIDIA_VISIBLE_DEVICES", "make up 2"],
        {"worker": {"env": []}},
    ),
    Contradiction(
        {
            "worker": {
                "env": [{"name": "NVIDIA_VISIBLE_DEVICES"}],
                "resources": {"limits": {"nvidia.com/gpu": 1}},
            }
        },
        ["worker.env", "NVIDIA_VISIBLE_DEVICES", 'worker.resources.limits["nvidia.com/gpu"]'],
        {"worker": {"env": []}},
    ),
]
