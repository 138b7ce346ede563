"""Measures what many runs at once cost the control plane: real pods on the local cluster.

python -m tests.bench.bench_releases [--releases 50] [--at-once 8]

Installs releases of two workers, so many at once, and waits for the end of all. Each run lasts a
minute, so that nearly all go on at the same time. Ends with an error when a run is lost: when it
has not completed, needed a second master, or left workers. Needs root.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor

from devtools.common.waiting import PROGRAM_PAUSE, wait_until
from devtools.docs_gen.generated import table
from tests.bench.contestants import bench_namespace
from tests.bench.report import as_range, publish
from tests.support.namespace import Namespace

# Seconds that each run trains.
LASTS = 60
# Each asks for little, because all share this machine.
LITTLE = {"requests": {"cpu": "1m", "memory": "16Mi"}}
# The longest that all of it may take, in seconds, on a busy machine.
TIMEOUT = 1200
SCRIPT = f"""
import os, time
time.sleep({LASTS})
print("RANK", os.environ["RANK"], flush=True)
"""
VALUES = {
    "launch": {"mode": "direct"},
    "code": {"files": {"train.py": SCRIPT}},
    "worker": {"number": 2, "resources": LITTLE},
    "master": {"args": ["python3", "train.py"], "resources": LITTLE, "backoffLimit": 0},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", default=50, type=int, help="how many")
    parser.add_argument("--at-once", default=8, type=int, help="installs at the same time")
    options = parser.parse_args()
    names = [f"run-{number}" for number in range(options.releases)]
    with bench_namespace() as namespace:
        before = requests(namespace)
        began = time.monotonic()
        with ThreadPoolExecutor(options.at_once) as pool:
            installs = list(pool.map(lambda name: install(namespace, name), names))
            installed = time.monotonic() - began
            wait_until(
                lambda: ended(namespace) == len(names), TIMEOUT, "all runs end", PROGRAM_PAUSE
            )
            seconds = time.monotonic() - began
        check(namespace, names)
        asked = requests(namespace) - before
        began = time.monotonic()
        with ThreadPoolExecutor(options.at_once) as pool:
            removals = list(pool.map(lambda name: remove(namespace, name), names))
        assert not left(namespace), left(namespace)
        removed = time.monotonic() - began
    rows = [
        ("`helm install`, each, s", as_range(installs)),
        ("all installed, s", f"{installed:.0f}"),
        ("all ended, s", f"{seconds:.0f}"),
        ("`helm uninstall`, each, s", as_range(removals)),
        ("all removed, s", f"{removed:.0f}"),
        ("requests of everybody to the API server, a second", f"{asked / seconds:.0f}"),
    ]
    head = (f"{len(names)} runs of two workers, {options.at_once} installed at once", "")
    figures = {"installs": installs, "seconds": seconds, "requests": asked}
    publish("bench-releases", "performance.md", 1, figures, table(head, rows))


def install(namespace: Namespace, name: str) -> float:
    """Install a release; the seconds that Helm takes."""
    began = time.monotonic()
    namespace.install(name, VALUES)
    return time.monotonic() - began


def remove(namespace: Namespace, name: str) -> float:
    """Uninstall a release; the seconds that Helm takes."""
    began = time.monotonic()
    done = namespace.helm("uninstall", name)
    assert done.returncode == 0, done.stderr
    return time.monotonic() - began


def ended(namespace: Namespace) -> int:
    """How many Jobs have completed or failed."""
    each = "{range .items[*]}{.status.conditions[*].type}{'\\n'}{end}"
    lines = namespace.kubectl("get", "jobs", f"--output=jsonpath={each}").splitlines()
    return sum("Complete" in line or "Failed" in line for line in lines)


def check(namespace: Namespace, names: list[str]) -> None:
    """No run was lost: each has trained once, and its workers are gone."""
    for name in names:
        namespace.assert_completes(name)
        assert len(namespace.master_pods(name)) == 1, name
        assert namespace.log(name).count("RANK") == 2, namespace.log(name)
    workers = "app.kubernetes.io/component=worker"

    def none_is_left() -> bool:
        return not namespace.kubectl("get", "pods", "--selector", workers, "--output=name")

    wait_until(none_is_left, TIMEOUT, "all workers are removed", PROGRAM_PAUSE)


def left(namespace: Namespace) -> str:
    """What the releases have left behind, apart from pods that are ending."""
    kinds = "jobs,statefulsets,services,configmaps,secrets,roles,rolebindings,serviceaccounts"
    listed = namespace.kubectl("get", kinds, "--selector", "app.kubernetes.io/name=horovod")
    return listed.strip()


def requests(namespace: Namespace) -> float:
    """How many requests the API server has had from everybody since it started."""
    text = namespace.kubectl("get", "--raw", "/metrics")
    counts = [line for line in text.splitlines() if line.startswith("apiserver_request_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in counts)


if __name__ == "__main__":
    main()
