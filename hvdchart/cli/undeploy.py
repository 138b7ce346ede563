"""The command `undeploy`."""

from hvdchart.cli.options import Context, HelmProgram, Names, Namespace, connect_with_helm
from hvdchart.cli.terminal import print_notes, print_remark
from hvdchart.errors import ClusterError, NoRunError


def undeploy(
    names: Names,
    namespace: Namespace = None,
    context: Context = None,
    helm_program: HelmProgram = "helm",
) -> None:
    """Uninstall runs. The contents of their volumes are not deleted.

    PersistentVolumeClaims that the values themselves create (extraObjects) are part of the release
    and are removed with it, unless they have the annotation helm.sh/resource-policy: keep.

    Examples:
      hvdchart undeploy resnet50 --namespace team
      hvdchart undeploy resnet50 resnet101

    Exit codes: 0 uninstalled; 6 Helm failed; 7 there is no such run, the name is that of
    another chart's release, or the cluster cannot be used.
    """
    from hvdchart.run.change.control import check_is_own, remove_release

    cluster, helm = connect_with_helm(context, namespace, helm_program)
    problem: ClusterError | None = None
    for name in names:
        try:
            check_is_own(cluster, name, helm)
            removed = remove_release(cluster, name, helm)
        except NoRunError as error:
            if len(names) == 1:
                raise
            # Continue with the other runs after a misspelt name.
            print_remark(str(error))
            problem = ClusterError("not all runs were uninstalled")
            continue
        print_notes(f"release {name} uninstalled from namespace {cluster.namespace}")
        print_notes(*(f"removed, although Helm did not know it: {name}" for name in removed))
    if problem:
        raise problem
