"""The chart on a Kubernetes with a real `nvidia.com/gpu`: `cluster start|run`.

start: start the local Kubernetes and leave it running. run: run the chart on it, then stop it. The
bundle contains the local Kubernetes. The pods' image is the machine's root file system: a small
image with /etc, into which /usr and the folders of Python are mounted from the node, read-only.

kubectl and Helm are called by name, not through devtools/toolchain: the machine has only what the
bundle puts on PATH, and cannot build what the bundle lacks.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from devtools.common.repository import EXAMPLES, ROOT
from devtools.common.waiting import holds_within
from devtools.gpus.machine import CACHE, WORK, mounted_folders, prepare_machine, write_image
from devtools.gpus.pod_scripts import JAX, LOST, METRICS, PROBE, STAYS
from devtools.gpus.stages import stage_command
from devtools.localkube import cluster as localkube
from devtools.localkube import images
from devtools.localkube.instance import current_instance
from devtools.localkube.node_processes import NodeProcesses
from devtools.localkube.node_setup import DEVICE_PLUGINS

# The file with the process of the device plugin.
PLUGIN = WORK / "plugin.pid"
NAMESPACE = "gpu"
LOST_RUN = "a rank is killed three times, keep, warm ranks"
DIRECT = {"mode": "direct"}
WARM = {"mode": "direct", "preload": ["torch", "horovod.torch"]}
measurements: dict[str, Any] = {}


def call(*command: str, check: bool = True) -> str:
    """Return the output of a command. Raises RuntimeError with it when it fails, and
    subprocess.TimeoutExpired when it takes more than a minute.
    """
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )
    output = done.stdout + done.stderr
    if check and done.returncode:
        raise RuntimeError(f"{command} exited with status {done.returncode}: {output[-3000:]}")
    return output


def kubectl(*arguments: str, check: bool = True) -> str:
    command = ("kubectl", "--cache-dir=/tmp/kubectl-cache", "-n", NAMESPACE)
    return call(*command, *arguments, check=check)


def hvdchart(command: str, release: str, *program_in_worker: str) -> list[str]:
    """Return the last lines that a command prints."""
    line = [sys.executable, "-m", "hvdchart", command, release]
    line += ["0", "-n", NAMESPACE, "--"] if program_in_worker else ["-n", NAMESPACE]
    return call(*line, *program_in_worker, check=False).splitlines()[-20:]


def allocatable() -> str:
    path = r"jsonpath={.items[0].status.allocatable.nvidia\.com/gpu}"
    return kubectl("get", "nodes", "-o", path, check=False).strip()


def start_plugin() -> None:
    """Offer the GPU to the kubelet, until `end_plugin`."""
    processes = NodeProcesses.read(current_instance())
    if processes is None:
        raise RuntimeError("the local Kubernetes has no file with its processes")
    # Only the node's mount namespace shows the kubelet's socket.
    folder = f"/proc/{processes.init.pid}/root{DEVICE_PLUGINS}"
    log = WORK / "plugin.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            stage_command("device_plugin", folder), stdout=out, stderr=out, start_new_session=True
        )
    PLUGIN.write_text(str(process.pid))
    if not holds_within(
        lambda: allocatable() not in ("", "0") or process.poll() is not None, 30
    ) or (process.poll() is not None):
        raise RuntimeError(f"no nvidia.com/gpu: {log.read_text()}")


def end_plugin() -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(PLUGIN.read_text()), signal.SIGTERM)


def values(launch: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return values of a release with one worker, which has the GPU."""
    places = {f"m{number}": place for number, place in enumerate(mounted_folders())}
    return {
        "image": {"repository": "local/machine", "tag": "1"},
        "launch": launch,
        "shm": {"sizeLimit": "4Gi"},
        "volumeMounts": [
            {"name": name, "mountPath": place, "readOnly": True} for name, place in places.items()
        ],
        "volumes": [{"name": name, "hostPath": {"path": place}} for name, place in places.items()],
        "worker": {"number": 1, "resources": {"limits": {"nvidia.com/gpu": 1}}, "slots": 1},
        **more,
    }


def install(release: str, script: Path, values: dict[str, Any]) -> float:
    """Install a release that runs a script. Return the seconds that Helm took."""
    file = WORK / f"{release}.json"
    file.write_text(json.dumps(values, indent=1))
    name = script.name.replace(".", "\\.")
    began = time.monotonic()
    options = ("-f", str(file), f"--set-file=code.files.{name}={script}")
    call("helm", "-n", NAMESPACE, "install", release, "charts/horovod", *options)
    return round(time.monotonic() - began, 2)


def uninstall(release: str) -> None:
    """Uninstall a release without waiting: a worker of the next release waits for the GPU if
    needed.
    """
    call("helm", "-n", NAMESPACE, "uninstall", release, check=False)


def master_log(release: str) -> str:
    selector = f"app.kubernetes.io/instance={release},app.kubernetes.io/component=master"
    return kubectl("logs", "-l", selector, "--tail=-1", "--prefix=false", check=False)


def run(release: str, script: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Run a release to its end. Raises RuntimeError unless it completes within 60 seconds."""
    selector = f"app.kubernetes.io/instance={release}"
    path = "jsonpath={.items[*].status.conditions[*].type}"

    def conditions() -> str:
        return kubectl("get", "jobs", "-l", selector, "-o", path)

    began = time.time()
    seconds = install(release, script, values)
    try:
        holds_within(lambda: {"Complete", "Failed"} & {*conditions().split()}, 60)
        to_the_end = round(time.time() - began, 1)
        log = master_log(release)
        (WORK / f"{release}.log").write_text(log)
        if "Complete" not in conditions().split():
            pods = kubectl("describe", "pods", check=False)
            raise RuntimeError(f"{release}: {log[-2500:]} {pods[-2500:]}")
        results = [line.partition("RESULT ")[2] for line in log.splitlines() if "RESULT {" in line]
        return {
            "helm install": seconds,
            "seconds to the end": to_the_end,
            "result": json.loads(results[-1]) if results else log.splitlines()[-1],
        }
    finally:
        uninstall(release)


def attempt(name: str, function: Callable[[], Any]) -> None:
    began = time.monotonic()
    try:
        measurements[name] = function()
    except Exception as problem:  # noqa: BLE001 - the next run may work
        measurements[name] = f"FAILED {type(problem).__name__}: {problem}"[-3500:]
    print(f"{name} ({time.monotonic() - began:.1f} s)", flush=True)
    # The last result counts: a time limit loses only later runs.
    print("RESULT", json.dumps(measurements), flush=True)


def look(script: Path) -> dict[str, Any]:
    """Return the output of the commands and the metrics for a worker that uses the GPU."""
    install("stay", script, values(DIRECT, cleanup="Never", metrics={"enabled": True}))
    calls: dict[str, tuple[str, ...]] = {
        "nvidia-smi": ("exec", "stay", "nvidia-smi"),
        "top": ("top", "stay"),
        "metrics": ("exec", "stay", "python3", "-c", METRICS),
    }
    try:
        holds_within(lambda: "STAYS" in master_log("stay"), 40)
        # The measurement of the GPU's use covers the last second.
        time.sleep(1.5)
        with ThreadPoolExecutor(len(calls)) as pool:
            return dict(
                zip(
                    calls,
                    pool.map(lambda arguments: hvdchart(*arguments), calls.values()),
                    strict=True,
                )
            )
    finally:
        uninstall("stay")


def run_ddp() -> dict[str, Any]:
    """Run the example of DistributedDataParallel, with the digits of scikit-learn."""
    import sklearn

    digits = Path(sklearn.__file__).parent / "datasets/data/digits.csv.gz"
    master = {"args": ["python3", "digits_ddp.py", "--data", str(digits)]}
    own_values = values({**DIRECT, "framework": "torch"}, master=master)
    return run("ddp", EXAMPLES / "digits_ddp.py", own_values)


def run_jax(script: Path) -> dict[str, Any]:
    """Run JAX, which would allocate most of the GPU's memory at its start."""
    own_values = values({**DIRECT, "framework": "jax", "preload": ["jax"]})
    own_values["worker"]["env"] = [{"name": "XLA_PYTHON_CLIENT_PREALLOCATE", "value": "false"}]
    return run("jax", script, own_values)


def run_all() -> None:
    """Run the chart in each way, one after another, because there is one GPU. A time limit may lose
    the last runs.
    """
    scripts = WORK / "scripts"
    scripts.mkdir(exist_ok=True)
    texts = {"probe.py": PROBE, "lost.py": LOST, "jax_probe.py": JAX, "stays.py": STAYS}
    for name, text in texts.items():
        (scripts / name).write_text(text)
    probe = scripts / "probe.py"
    attempt("direct", lambda: run("probe", probe, values(DIRECT)))
    losing = values(WARM, master={"backoffLimit": 10})
    attempt(LOST_RUN, lambda: run("lost", scripts / "lost.py", losing))
    attempt("JAX", lambda: run_jax(scripts / "jax_probe.py"))
    attempt("what the commands show", lambda: look(scripts / "stays.py"))
    attempt("direct, warm ranks", lambda: run("warm", probe, values(WARM)))
    attempt("DistributedDataParallel", run_ddp)
    attempt("mpirun", lambda: run("mpi", probe, values({"mode": "mpirun"})))


def start() -> None:
    """Start the local Kubernetes with the image and the GPU, and leave it running."""
    prepare_machine()
    localkube.up()
    images.load_everywhere(str(write_image()))
    kubectl("create", "namespace", NAMESPACE)
    start_plugin()


def main() -> int:
    os.environ["HVD_CACHE"] = str(CACHE)
    os.environ["PATH"] += ":/usr/local/sbin:/usr/sbin:/sbin"
    os.environ["KUBECONFIG"] = str(current_instance().kubeconfig)
    if sys.argv[1] == "start":
        start()
        return 0
    if not PLUGIN.exists():
        raise SystemExit("the local Kubernetes does not run: run the stage cluster-start before")
    try:
        measurements["allocatable nvidia.com/gpu"] = allocatable()
        run_all()
    finally:
        end_plugin()
        localkube.down()
    failed = [name for name, result in measurements.items() if str(result).startswith("FAILED")]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
