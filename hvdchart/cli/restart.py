"""The command `restart`."""

from hvdchart.cli.options import Context, HelmProgram, Name, Namespace, connect_with_helm
from hvdchart.cli.terminal import print_lines, print_remark


def restart(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    helm_program: HelmProgram = "helm",
) -> None:
    """Start a run again, whether it has ended or not; the script resumes if it can.

    Example:
      hvdchart restart resnet50 && hvdchart logs resnet50

    Exit codes: 0 started; 6 Helm failed; 7 there is no such run, or the cluster cannot be used.
    """
    from hvdchart.run.change import control

    cluster, helm = connect_with_helm(context, namespace, helm_program)
    generation = control.restart(cluster, name, helm, print_remark)
    print_lines(f"run {name} starts again (`master.generation={generation}`)")
