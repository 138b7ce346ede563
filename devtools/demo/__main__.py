"""`make demo`: set up the missing parts, train a model in pods, and show and time every step.

A step with an existing result is skipped: tools and images are cached by content, and a running
cluster is used. Only the release of the last demo is replaced.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass

from devtools.common.commands import read_output
from devtools.common.errors import DevtoolsError
from devtools.common.repository import CHART, EXAMPLE_VALUES, ROOT
from devtools.common.ui import console, note, show_error, step
from devtools.demo import clusters
from devtools.localkube.instance import LAST_NODE
from devtools.toolchain.kubectl import Kubectl
from devtools.toolchain.tools import tool

SPEC = EXAMPLE_VALUES / "local.spec.yaml"
VALUES = ROOT / "build" / "demo-values.yaml"
NAMESPACE = "hvd-demo"
RELEASE = "hvd"
RESULT = "RESULT "
# The master logs this line when all workers are ready.
FIRST_RANK = "rank 0 of "
# The timeout of Helm for uninstalling a release.
HELM_TIMEOUT = "300s"
# Timeouts: for the start of the master's pod, including an image pull, and for the Job to be marked
# as finished after the end of the master's log.
START_TIMEOUT_SECONDS = 600
END_TIMEOUT_SECONDS = 120


@dataclass(frozen=True)
class Demo:
    """The cluster of this demo, and kubectl in the demo's namespace."""

    cluster: clusters.DemoCluster
    kubectl: Kubectl

    def helm(self, *arguments: str) -> None:
        """Run Helm in the demo's namespace. Raises DevtoolsError when it fails."""
        read_output(
            [str(tool("helm4")), *arguments, "--namespace", NAMESPACE],
            remedy=f"see the release: helm --namespace {NAMESPACE} status {RELEASE}",
            environment=self.kubectl.variables(),
        )


def make_namespace(demo: Demo) -> None:
    """Create a namespace that enforces the strictest Pod Security level."""
    manifest = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": NAMESPACE,
            "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        },
    }
    demo.kubectl.run("apply", "--filename", "-", input=json.dumps(manifest))


def render_values(workers: int | None) -> None:
    """Render the repository's example spec with the command that a user would run."""
    VALUES.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "hvdchart", "render", str(SPEC), "-w", str(VALUES)]
    command += [f"--set=nodes.0.count={workers}"] if workers else []
    subprocess.run(command, cwd=ROOT, check=True)


def install(demo: Demo) -> None:
    """Replace the last demo's release."""
    uninstall = ["uninstall", RELEASE, "--ignore-not-found", "--wait"]
    demo.helm(*uninstall, "--timeout", HELM_TIMEOUT)
    overrides = [f"--set={key}={value}" for key, value in demo.cluster.values.items()]
    demo.helm("install", RELEASE, str(CHART), "--values", str(VALUES), *overrides)


def follow_training(demo: Demo) -> dict[str, float]:
    """Show the master's log until it ends. Return the training script's result.

    Raises DevtoolsError when the Job does not complete, after showing the log.
    """
    kubectl = demo.kubectl
    selector = f"app.kubernetes.io/instance={RELEASE}"
    job = kubectl.run("get", "jobs", f"--selector={selector}", "--output=name").strip()
    name = job.partition("/")[2]
    with step("wait for the master's pod"):
        kubectl.wait_for_job_start(name, START_TIMEOUT_SECONDS)
    result: dict[str, float] = {}
    with subprocess.Popen(
        kubectl.command("logs", "--follow", job),
        env=kubectl.variables(),
        stdout=subprocess.PIPE,
        text=True,
    ) as log:
        for line in log.stdout or ():
            # mpirun may print the rank at the start of the line.
            _, marker, text = line.partition(RESULT)
            if marker:
                result = json.loads(text)
            else:
                print(f"  {line}", end="", flush=True)
            if FIRST_RANK in line:
                workers = f"{selector},app.kubernetes.io/component=worker"
                columns = "custom-columns=WORKER:.metadata.name,NODE:.spec.nodeName"
                table = kubectl.run("get", "pods", f"--selector={workers}", f"--output={columns}")
                note(table.rstrip())
    if kubectl.wait_for_job_end(name, END_TIMEOUT_SECONDS) != "Complete":
        reason = kubectl.run("get", job, "--output=jsonpath={.status.conditions[*].message}")
        raise DevtoolsError(f"{job} did not complete: {reason}", "read the log above")
    if not result:
        raise DevtoolsError(
            f"{job} completed, but its log has no line with {RESULT!r}",
            "make the script print its result as examples/digits.py does",
        )
    return result


def show_summary(demo: Demo, result: dict[str, float], seconds: float) -> None:
    """Print accuracy, throughput, and commands to try next."""
    console.rule()
    note(
        f"accuracy   {result['accuracy']:.4f} on held-out digits\n"
        f"throughput {result['samples_per_second']:.0f} images/s over {result['ranks']:.0f} ranks\n"
        f"total time {seconds:.0f} s"
    )
    values = VALUES.relative_to(ROOT)
    note(f"""
to look around, first run in this shell:
  export {demo.cluster.exports(ROOT / ".venv" / "bin")}
and then, for example:
  kubectl -n {NAMESPACE} get pods,jobs
  helm -n {NAMESPACE} upgrade {RELEASE} charts/horovod -f {values} --set worker.number=3
  python -m hvdchart render {SPEC.relative_to(ROOT)} --explain
  helm -n {NAMESPACE} uninstall {RELEASE}
  {demo.cluster.stop_hint}""")


def demo(cluster_kind: str, nodes: int | None) -> None:
    """Run the whole demo.

    cluster_kind: one of clusters.KINDS. nodes: the number of localkube nodes to use, with one
    worker on each; None for a cluster of the kind, with the workers of the spec.
    Raises DevtoolsError when a step fails, with what to do about it.
    """
    began = time.monotonic()
    for name in ("helm4", "kubectl"):
        tool(name)
    cluster = clusters.start_localkube(nodes) if nodes else clusters.start(cluster_kind)
    demo = Demo(cluster, Kubectl(NAMESPACE, cluster.environment))
    with step("render values/local.spec.yaml"):
        render_values(nodes)
    with step(f"helm install {RELEASE} charts/horovod -f {VALUES.relative_to(ROOT)}"):
        make_namespace(demo)
        install(demo)
    note(f"the training, in pods (set up in {time.monotonic() - began:.0f} s):")
    result = follow_training(demo)
    show_summary(demo, result, time.monotonic() - began)


def main() -> int:
    """Parse the command line and run the demo. Return 1 after an error message."""
    parser = argparse.ArgumentParser(
        "python -m devtools.demo", description="Trains a model in pods."
    )
    parser.add_argument(
        "--cluster",
        choices=sorted(clusters.KINDS),
        default="local",
        help="local: localkube on this machine; kind: a cluster in Docker; current: that of the"
        " current kubeconfig (default: local)",
    )
    parser.add_argument(
        "--nodes",
        type=int,
        choices=range(2, LAST_NODE + 1),
        help="train over so many nodes of the local cluster, with a worker on each",
    )
    arguments = parser.parse_args()
    if arguments.nodes and arguments.cluster != "local":
        parser.error("--nodes needs --cluster local: another cluster has the nodes that it has")
    try:
        demo(arguments.cluster, arguments.nodes)
    except DevtoolsError as error:
        show_error(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
