"""The chart on a Kubernetes with a real `nvidia.com/gpu`: `cluster start|run BUNDLE`.

start: the local Kubernetes, which goes on running. run: the chart on it, and its end. The local
Kubernetes comes with the bundle. The pods' image is the machine's root file system: a
small image with /etc, into which /usr and the folders of Python are mounted from the node,
read-only.
`HVD_PROOF_GPU=fake` rehearses it without a GPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from images.gpus.proof.machine import WORK, call, environment, mount_cgroups, the_one, unpack
from images.gpus.proof.machine_image import PACKAGES, mounts, write_image
from images.gpus.proof.places import PREFIX, PROJECT
from images.gpus.proof.pod_scripts import JAX, LOST, METRICS, PROBE, STAYS

GPU = os.environ.get("HVD_PROOF_GPU", "real")
DEVICE = "cuda" if GPU == "real" else "cpu"
# The process of the device plugin.
PLUGIN = WORK / "plugin.pid"
NAMESPACE = "gpu"
LOST_RUN = "a rank is killed three times, keep, warm ranks"
BEGAN = time.monotonic()
found: dict[str, Any] = {}


def say(text: str) -> None:
    print(f"[{time.monotonic() - BEGAN:6.1f}] {text}", flush=True)


class Cluster:
    """The local Kubernetes and its clients."""

    def __init__(self, bundle: Path) -> None:
        self.variables = environment(bundle)
        self.kube = str(the_one("tools/kube-*/kube"))
        self.helm_program = str(the_one("tools/helm4-*/helm"))

    def python(self, *arguments: str, seconds: float = 60) -> str:
        command = [sys.executable, "-m", *arguments]
        return call(command, seconds=seconds, env=self.variables, cwd=PROJECT)

    def connect(self) -> None:
        answer = self.python("devtools.localkube", "kubeconfig")
        self.variables["KUBECONFIG"] = answer.strip().splitlines()[-1]

    def kubectl(self, *arguments: str, check: bool = True) -> str:
        command = [self.kube, "kubectl", "--cache-dir=/tmp/kubectl-cache", *arguments]
        return call(command, check=check, env=self.variables)

    def helm(self, *arguments: str, check: bool = True) -> str:
        return call(
            [self.helm_program, "-n", NAMESPACE, *arguments], check=check, env=self.variables
        )

    def hvdchart(self, command: str, *arguments: str, program: Sequence[str] = ()) -> list[str]:
        """The last lines that a command prints; `program` runs in a worker."""
        line = [sys.executable, "-m", "hvdchart", command, *arguments, "-n", NAMESPACE]
        line += ["--", *program] if program else []
        output = call(line, check=False, seconds=30, env=self.variables, cwd=PROJECT)
        return output.splitlines()[-20:]

    def allocatable(self) -> str:
        path = r"jsonpath={.items[0].status.allocatable.nvidia\.com/gpu}"
        return self.kubectl("get", "nodes", "-o", path, check=False).strip()


def plugins_folder() -> Path:
    """Where the kubelet has its socket for device plugins, which no other mount namespace shows."""
    from devtools.localkube.instance import current
    from devtools.localkube.node_processes import NodeProcesses
    from devtools.localkube.node_setup import DEVICE_PLUGINS

    processes = NodeProcesses.read(current())
    if processes is None:
        raise RuntimeError("the local Kubernetes has no file with its processes")
    return Path(f"/proc/{processes.init.pid}/root{DEVICE_PLUGINS}")


def start_plugin(cluster: Cluster) -> None:
    """Offer the GPU to the kubelet, until `end_plugin`."""
    command = [sys.executable, "-m", "images.gpus.proof.plugin", GPU, str(plugins_folder())]
    log = WORK / "plugin.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env=cluster.variables, start_new_session=True
        )
    PLUGIN.write_text(str(process.pid))
    deadline = time.monotonic() + 30
    while cluster.allocatable() in ("", "0"):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"no nvidia.com/gpu: {log.read_text()}")
        time.sleep(0.5)


def end_plugin() -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(PLUGIN.read_text()), signal.SIGTERM)


def values(**more: Any) -> dict[str, Any]:
    """Values of a release with one worker, which has the GPU."""
    places = mounts()
    made: dict[str, Any] = {
        "image": {"repository": "local/machine", "tag": "1"},
        "shm": {"sizeLimit": "4Gi"},
        "volumeMounts": [
            {"name": f"m{number}", "mountPath": place, "readOnly": True}
            for number, place in enumerate(places)
        ],
        "volumes": [
            {"name": f"m{number}", "hostPath": {"path": place}}
            for number, place in enumerate(places)
        ],
        "worker": {
            "env": [{"name": "TEST_DEVICE", "value": DEVICE}],
            "number": 1,
            "resources": {"limits": {"nvidia.com/gpu": 1}},
            "slots": 1,
        },
    }
    for key, value in more.items():
        made[key] = {**made.get(key, {}), **value} if isinstance(value, dict) else value
    return made


def install(cluster: Cluster, release: str, script: Path, made: dict[str, Any]) -> float:
    """Install a release that runs a script; return the seconds that Helm took."""
    file = WORK / f"{release}.json"
    file.write_text(json.dumps(made, indent=1))
    name = script.name.replace(".", "\\.")
    began = time.monotonic()
    chart = str(PROJECT / "charts/horovod")
    cluster.helm(
        "install", release, chart, "-f", str(file), f"--set-file=code.files.{name}={script}"
    )
    return round(time.monotonic() - began, 2)


def master_log(cluster: Cluster, release: str) -> str:
    selector = f"app.kubernetes.io/instance={release},app.kubernetes.io/component=master"
    options = ["--timestamps", "--tail=-1", "--prefix=false"]
    return cluster.kubectl("-n", NAMESPACE, "logs", "-l", selector, *options, check=False)


def run(cluster: Cluster, release: str, script: Path, made: dict[str, Any]) -> dict[str, Any]:
    """Run a release to its end. Raises RuntimeError unless it completes within 60 seconds."""
    began = time.time()
    seconds = install(cluster, release, script, made)
    try:
        path = "jsonpath={.items[*].status.conditions[*].type}"
        selector = f"app.kubernetes.io/instance={release}"
        state = ""
        while "Complete" not in state and "Failed" not in state and time.time() < began + 60:
            time.sleep(0.3)
            state = cluster.kubectl("-n", NAMESPACE, "get", "jobs", "-l", selector, "-o", path)
        log = master_log(cluster, release)
        (WORK / f"{release}.log").write_text(log)
        if "Complete" not in state:
            pods = cluster.kubectl("-n", NAMESPACE, "describe", "pods", check=False)
            raise RuntimeError(f"{release}: {state or 'no end'}: {log[-2500:]} {pods[-2500:]}")
        lines = log.splitlines()
        results = [line.partition("RESULT ")[2] for line in lines if "RESULT {" in line]
        return {
            "helm install": seconds,
            "seconds to the end": round(time.time() - began, 1),
            "result": json.loads(results[-1]) if results else lines[-1].partition(" ")[2],
        }
    finally:
        uninstall(cluster, release)


def uninstall(cluster: Cluster, release: str) -> None:
    """Not to the end: a worker of the next release waits for the GPU where it has to."""
    cluster.helm("uninstall", release, check=False)


def losses_in(log: str) -> list[dict[str, Any]]:
    """For each kill of a rank, how long the next attempt took, and what the master wrote."""
    found: list[dict[str, Any]] = []
    killed = 0.0
    between: list[str] = []
    for line in log.splitlines():
        _, is_step, step = line.partition("STEP ")
        _, is_parts, parts = line.partition("PARTS ")
        if is_step and " killed at " in step:
            killed = float(step.split()[-1])
            between = []
        elif killed and is_step and " done at " in step:
            found.append(
                {
                    "seconds to the next step": round(float(step.split()[-1]) - killed, 2),
                    "log": between[-12:],
                }
            )
        elif killed and is_parts:
            found[-1]["seconds to the end of"] = {
                part: round(at - killed, 2) for part, at in json.loads(parts).items()
            }
            killed = 0.0
        elif killed:
            between.append(line[:300])
    return found


def attempt(name: str, function: Callable[[], Any]) -> None:
    began = time.monotonic()
    try:
        found[name] = function()
    except Exception as problem:  # noqa: BLE001 - the next run may work
        found[name] = f"FAILED {type(problem).__name__}: {problem}"[-3500:]
    say(f"{name} ({time.monotonic() - began:.1f} s)")
    # The last one counts: a limit loses only what follows.
    print("RESULT", json.dumps(found), flush=True)


def look(cluster: Cluster, script: Path) -> dict[str, Any]:
    """What the commands and the metrics show of a worker that uses the GPU."""
    made = values(launch={"mode": "direct"}, cleanup="Never", metrics={"enabled": True})
    install(cluster, "stay", script, made)
    calls: dict[str, Callable[[], list[str]]] = {
        "nvidia-smi": lambda: cluster.hvdchart("exec", "stay", "0", program=["nvidia-smi"]),
        "top": lambda: cluster.hvdchart("top", "stay"),
        "stack": lambda: cluster.hvdchart("stack", "stay"),
        "status": lambda: cluster.hvdchart("status", "stay"),
        "metrics": lambda: [
            line
            for line in cluster.hvdchart("exec", "stay", "0", program=["python3", "-c", METRICS])
            if line
        ],
    }
    try:
        deadline = time.monotonic() + 40
        while "STAYS" not in master_log(cluster, "stay") and time.monotonic() < deadline:
            time.sleep(0.5)
        # What measures the use of the GPU looks back a second.
        time.sleep(1.5)
        with ThreadPoolExecutor(len(calls)) as pool:
            return dict(zip(calls, pool.map(lambda one: one(), calls.values()), strict=True))
    finally:
        uninstall(cluster, "stay")


def look_at_two(cluster: Cluster, script: Path) -> list[str]:
    """What a user sees who asks for two workers where there is one GPU."""
    made = values(launch={"mode": "direct"})
    made["worker"] = {**made["worker"], "number": 2, "spread": "None"}
    install(cluster, "two", script, made)
    workers = "app.kubernetes.io/instance=two,app.kubernetes.io/component=worker"
    path = "jsonpath={.items[*].status.phase}"
    try:
        deadline = time.monotonic() + 30
        phases: list[str] = []
        # The worker of the release before may still have the GPU.
        while sorted(phases) != ["Pending", "Running"] and time.monotonic() < deadline:
            time.sleep(0.5)
            phases = cluster.kubectl(
                "-n", NAMESPACE, "get", "pods", "-l", workers, "-o", path
            ).split()
        time.sleep(1)
        return [*cluster.hvdchart("status", "two"), *master_log(cluster, "two").splitlines()[-6:]]
    finally:
        uninstall(cluster, "two")


def ddp_values() -> dict[str, Any]:
    """Values for the example of DistributedDataParallel, with the digits of scikit-learn."""
    import sklearn

    digits = Path(sklearn.__file__).parent / "datasets/data/digits.csv.gz"
    return values(
        launch={"mode": "direct", "framework": "torch"},
        master={"args": ["python3", "digits_ddp.py", "--data", str(digits)]},
    )


def jax_values() -> dict[str, Any]:
    """Values for JAX, which would take most of the GPU's memory when it begins."""
    made = values(launch={"mode": "direct", "framework": "jax", "preload": ["jax"]})
    variables = [
        *made["worker"]["env"],
        {"name": "XLA_PYTHON_CLIENT_PREALLOCATE", "value": "false"},
    ]
    return {**made, "worker": {**made["worker"], "env": variables}}


def runs(cluster: Cluster) -> None:
    """Each run of the chart, one after another, as there is one GPU; the last may be lost."""
    scripts = WORK / "scripts"
    scripts.mkdir(exist_ok=True)
    texts = {"probe.py": PROBE, "lost.py": LOST, "jax_probe.py": JAX, "stays.py": STAYS}
    for name, text in texts.items():
        (scripts / name).write_text(text)
    probe = scripts / "probe.py"
    warm = {"mode": "direct", "preload": ["torch", "horovod.torch"]}

    def lose() -> dict[str, Any]:
        made = values(launch=warm, master={"backoffLimit": 10})
        result = run(cluster, "lost", scripts / "lost.py", made)
        return {**result, "kills": losses_in((WORK / "lost.log").read_text())}

    attempt("direct", lambda: run(cluster, "probe", probe, values(launch={"mode": "direct"})))
    attempt(LOST_RUN, lose)
    attempt("JAX", lambda: run(cluster, "jax", scripts / "jax_probe.py", jax_values()))
    attempt("what the commands show", lambda: look(cluster, scripts / "stays.py"))
    attempt("direct, warm ranks", lambda: run(cluster, "warm", probe, values(launch=warm)))
    example = PROJECT / "examples/digits_ddp.py"
    attempt("DistributedDataParallel", lambda: run(cluster, "ddp", example, ddp_values()))
    attempt("mpirun", lambda: run(cluster, "mpi", probe, values(launch={"mode": "mpirun"})))
    attempt("two workers, one GPU", lambda: look_at_two(cluster, probe))


def start(bundle: Path) -> None:
    """Start the local Kubernetes with the image and the GPU, and leave it running."""

    def done(what: str) -> None:
        found[what] = round(time.monotonic() - BEGAN, 1)
        print("RESULT", json.dumps(found), flush=True)

    unpack(bundle)
    mount_cgroups()
    # Before programs import what no other stage does, and Python writes files beside it.
    if PREFIX.exists() and not PACKAGES.exists():
        shutil.copytree(PREFIX, PACKAGES, symlinks=True)
    done("unpacked")
    cluster = Cluster(bundle)
    cluster.python("devtools.localkube", "up", seconds=120)
    cluster.connect()
    done("the cluster is up")
    cluster.python("devtools.localkube", "load", str(write_image()))
    cluster.kubectl("create", "namespace", NAMESPACE)
    done("the image is there")
    start_plugin(cluster)
    done("the GPU is allocatable")


def main() -> int:
    command = sys.argv[1]
    bundle = Path(sys.argv[2])
    if command == "start":
        start(bundle)
        return 0
    if not PLUGIN.exists():
        raise SystemExit("the local Kubernetes does not run: run the stage cluster-start before")
    cluster = Cluster(bundle)
    try:
        cluster.connect()
        found["allocatable nvidia.com/gpu"] = cluster.allocatable()
        runs(cluster)
    finally:
        end_plugin()
        cluster.python("devtools.localkube", "down", seconds=60)
    failed = [name for name, result in found.items() if str(result).startswith("FAILED")]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
