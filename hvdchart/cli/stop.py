"""The command `stop`."""

import sys

from hvdchart.cli.options import Context, Helm, Name, Namespace

EPILOG = """\b
Examples:
  hvdchart stop resnet50
  hvdchart restart resnet50

Exit codes: 0 stopped; 6 Helm failed; 7 there is no such run, or the cluster cannot be used."""


def stop(
    name: Name, namespace: Namespace = None, context: Context = None, helm: Helm = "helm"
) -> None:
    """Stop a run: remove its pods and keep the release.

    To continue from the last checkpoint, use `restart`.
    """
    from hvdchart.run import control
    from hvdchart.run.cluster import Cluster
    from hvdchart.run.helm import Helm as Program

    cluster = Cluster.connect(context, namespace)
    control.stop(cluster, name, Program(helm, context))
    sys.stdout.write(f"run {name} stopped; start it again: hvdchart restart {name}\n")
