"""Values that contradict each other about how the run is launched."""

from __future__ import annotations

from tests.chart.refusals.contradiction import Contradiction

TAGS = {"name": "HVD_TAG_OUTPUT", "value": "1"}

CONTRADICTIONS = [
    Contradiction(
        {"launch": {"mode": "custom"}},
        ["launch.mode", "master.args"],
        {"master": {"args": ["mpirun"]}},
    ),
    Contradiction(
        {"launch": {"allowIdleWorkers": True}},
        ["launch.allowIdleWorkers", "launch.mode"],
        {"launch": {"allowIdleWorkers": None}},
    ),
    Contradiction(
        {"launch": {"mode": "direct", "framework": "mpi"}},
        ["launch.framework", "launch.mode"],
        {"launch": {"mode": "mpirun"}},
    ),
    Contradiction(
        {"launch": {"mode": "direct", "options": ["--other"]}},
        ["launch.options", "launch.mode"],
        {"launch": {"options": None}},
    ),
    Contradiction(
        {"launch": {"mode": "custom", "options": ["-v"]}, "master": {"args": ["mpirun"]}},
        ["launch.mode", "launch.options", "launch.binding"],
        {"launch": {"options": None}, "master": {"args": ["mpirun", "-v"]}},
    ),
    Contradiction(
        {"master": {"args": ["/opt/bin/horovodrun", "-np", "2", "a"]}},
        ["master.args", "horovodrun"],
        {"launch": {"mode": "custom"}},
    ),
    Contradiction(
        {"master": {"args": ["time", "$(LAUNCH)"]}},
        ["master.args", "launch.mode"],
        {"launch": {"mode": "custom"}},
    ),
    Contradiction(
        {"launch": {"binding": {"to": "core"}}},
        ["launch.binding.to", "launch.binding.coresPerRank"],
        {"launch": {"binding": {"coresPerRank": 1}}},
    ),
    Contradiction(
        {"launch": {"binding": {"to": "socket", "ranksPerSocket": 1, "coresPerRank": 2}}},
        ["launch.binding.coresPerRank", "launch.binding.to"],
        {"launch": {"binding": {"coresPerRank": None}}},
    ),
    Contradiction(
        {"launch": {"binding": {"ranksPerSocket": 1}}},
        ["launch.binding.ranksPerSocket", "launch.binding.to"],
        {"launch": {"binding": {"to": "socket"}}},
    ),
    Contradiction(
        {"workerGroups": [{"name": "a"}, {"name": "b", "env": [TAGS]}]},
        [
            'HVD_TAG_OUTPUT is not set in workerGroups[a].env but {"name":',
            "workerGroups[b].env",
        ],
        {"worker": {"env": [TAGS]}},
    ),
    Contradiction(
        {"workerGroups": [{"name": "a", "env": [TAGS]}, {"name": "b"}]},
        ['"value":"1"} in workerGroups[a].env but not set in workerGroups[b].env'],
        {"worker": {"env": [TAGS]}},
    ),
]
