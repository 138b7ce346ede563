"""`make demo`: from whatever is there to a model trained in pods, with every step shown and timed.

Each step is skipped when its result is there: tools and images are kept by content, a running
cluster is left alone. Only the release of the last demo is replaced.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from devtools.common.errors import ImageError, LocalkubeError
from devtools.common.ui import console, note, step
from devtools.demo import clusters
from devtools.demo.kubectl import CommandError, Kubectl, run
from devtools.toolchain.tools import tool

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "horovod"
SPEC = ROOT / "values" / "local.spec.yaml"
VALUES = ROOT / "build" / "demo-values.yaml"
NAMESPACE = "hvd-demo"
RELEASE = "hvd"
RESULT = "RESULT "
# How long Helm may take to make or remove a release: neither waits for the training.
HELM_TIMEOUT = "120s"
# How long the master's pod may take to start, an image pull included, and the Job to end after it.
START_SECONDS, END_SECONDS = 600, 120


@dataclass(frozen=True)
class Session:
    """One demo on one cluster."""

    cluster: clusters.Cluster
    kubectl: Kubectl

    def helm(self, *arguments: str) -> None:
        """Run Helm on the demo's release."""
        command = [str(tool("helm3")), *arguments, "--namespace", NAMESPACE]
        run(command, self.kubectl.variables())


def make_namespace(session: Session) -> None:
    """A namespace that enforces the strictest Pod Security level."""
    manifest = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": NAMESPACE,
            "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        },
    }
    session.kubectl.run("apply", "--filename", "-", input=json.dumps(manifest))


def render_values() -> None:
    """What a user would run, on the spec that ships with the repository."""
    VALUES.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "hvdchart", "render", str(SPEC), "-o", str(VALUES)]
    subprocess.run(command, cwd=ROOT, check=True)


def install(session: Session) -> None:
    """Replace the last demo's release."""
    uninstall = ["uninstall", RELEASE, "--ignore-not-found", "--wait"]
    session.helm(*uninstall, "--timeout", HELM_TIMEOUT)
    overrides = [f"--set={key}={value}" for key, value in session.cluster.values.items()]
    session.helm("install", RELEASE, str(CHART), "--values", str(VALUES), *overrides)


def follow(session: Session) -> dict[str, float]:
    """Show the master's log to its end and return the script's result.

    Raises CommandError when the Job did not complete; the log has been shown by then.
    """
    kubectl = session.kubectl
    selector = f"app.kubernetes.io/instance={RELEASE}"
    job = kubectl.run("get", "jobs", f"--selector={selector}", "--output=name").strip()
    name = job.partition("/")[2]
    kubectl.master_started(name, START_SECONDS)
    result: dict[str, float] = {}
    with subprocess.Popen(
        kubectl.command("logs", "--follow", job),
        env=kubectl.variables(),
        stdout=subprocess.PIPE,
        text=True,
    ) as log:
        for line in log.stdout or ():
            # mpirun may have been asked to tag lines with their rank.
            _, mark, text = line.partition(RESULT)
            if mark:
                result = json.loads(text)
            else:
                print(f"  {line}", end="", flush=True)
    if kubectl.job_end(name, END_SECONDS) != "Complete":
        why = kubectl.run("get", job, "--output=jsonpath={.status.conditions[*].message}")
        raise CommandError(f"{job} did not complete: {why}")
    if not result:
        raise CommandError(f"{job} completed, but its log holds no line {RESULT!r}")
    return result


def farewell(session: Session, result: dict[str, float], seconds: float) -> None:
    """Accuracy, throughput, and what to try next."""
    console.rule()
    note(
        f"accuracy   {result['accuracy']:.4f} on held-out digits\n"
        f"throughput {result['images_per_second']:.0f} images/s over {result['ranks']:.0f} ranks\n"
        f"whole demo {seconds:.0f} s"
    )
    values = VALUES.relative_to(ROOT)
    note(f"""
to look around, in this shell first:
  export {session.cluster.exports(ROOT / ".venv" / "bin")}
and then, for example:
  kubectl -n {NAMESPACE} get pods,jobs
  helm -n {NAMESPACE} upgrade {RELEASE} charts/horovod -f {values} --set worker.number=3
  python -m hvdchart render {SPEC.relative_to(ROOT)} --explain
  helm -n {NAMESPACE} uninstall {RELEASE}
  {session.cluster.stop_hint}""")


def demo(cluster_kind: str) -> None:
    """All of it. What it raises says what a person can do."""
    began = time.monotonic()
    for name in ("helm3", "kubectl"):
        tool(name)
    cluster = clusters.start(cluster_kind)
    session = Session(cluster, Kubectl(NAMESPACE, cluster.environment))
    with step("render values/local.spec.yaml"):
        render_values()
    with step(f"helm install {RELEASE} charts/horovod -f {VALUES.relative_to(ROOT)}"):
        make_namespace(session)
        install(session)
    note(f"the training, in pods (set up in {time.monotonic() - began:.0f} s):")
    result = follow(session)
    farewell(session, result, time.monotonic() - began)


def main() -> int:
    """Parse the command line and run the demo; 1 with a plain message when it cannot go on."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cluster", choices=sorted(clusters.KINDS), default="local")
    arguments = parser.parse_args()
    try:
        demo(arguments.cluster)
    except (clusters.DemoError, CommandError, ImageError, LocalkubeError) as problem:
        console.print(f"[red]error[/] {problem}", soft_wrap=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
