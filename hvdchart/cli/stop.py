"""The command `stop`."""

from hvdchart.cli.options import Context, HelmProgram, Name, Namespace, connect_with_helm
from hvdchart.cli.terminal import print_lines, print_remark


def stop(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    helm_program: HelmProgram = "helm",
) -> None:
    """Stop a run: remove its pods and keep the release.

    If the run has ended already, this removes the workers that are left. To continue from the last
    checkpoint, use `restart`. Before the workers end, they write what `keep` holds to OUTPUT_PATH.
    If OUTPUT_PATH is not on a volume, the command prints a warning.

    Examples:
      hvdchart stop resnet50
      hvdchart restart resnet50

    Exit codes: 0 stopped, or ended before; 6 Helm failed; 7 there is no such run, or the cluster
    cannot be used.
    """
    from hvdchart.run.change import control

    cluster, helm = connect_with_helm(context, namespace, helm_program)
    before = control.stop(cluster, name, helm, print_remark)
    again = f"start it again: hvdchart restart {name} -n {cluster.namespace}"
    if not before.over:
        print_lines(f"run {name} stopped; {again}")
    else:
        outcome = "its workers are removed" if before.workers_left else "nothing was left to stop"
        print_lines(f"run {name} has {before.state} already: {outcome}; {again}")
