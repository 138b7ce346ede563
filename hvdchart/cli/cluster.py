"""The commands that look at a cluster: `discover` and `doctor`."""

from typing import Annotated, Any

import typer

from hvdchart.cli import options
from hvdchart.cli.options import Context, Output, connect, write_output
from hvdchart.cli.terminal import say, show
from hvdchart.errors import ClusterError


def discover(
    selector: Annotated[
        str,
        typer.Option(
            "--selector", "-l", metavar="SELECTOR", help="Label selector for nodes, e.g. pool=gpu."
        ),
    ] = "",
    fit: Annotated[
        int | None,
        typer.Option(min=1, metavar="RANKS", help="Use only free nodes, for this many ranks."),
    ] = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the run in the spec.")] = "run",
    output: Output = None,
    context: Context = None,
) -> None:
    """Write a spec for the cluster's nodes.

    Comments mark what the Kubernetes API does not provide.

    Examples:
      hvdchart discover -w run.spec.yaml
      hvdchart discover --selector pool=gpu --fit 16 -w run.spec.yaml

    Exit codes: 0 written; 5 the file cannot be written; 7 the cluster cannot be used, or has no
    such nodes.
    """
    from hvdchart.discover.nodes import read_nodes
    from hvdchart.discover.spec_text import spec_text

    cluster = connect(context)
    nodes = cluster.nodes(selector)
    if not nodes:
        labels = f" with labels {selector}" if selector else ""
        raise ClusterError(f"the cluster has no nodes{labels}")
    try:
        pods: list[dict[str, Any]] | None = cluster.all_pods()
    except ClusterError as error:
        if fit is not None:
            raise
        pods = None
        say(f"{error}; continuing without the pods")
    facts = read_nodes(nodes, pods or [], cluster.node_topologies())
    text = spec_text(facts, name, fit, selector, pods_known=pods is not None)
    write_output(output, text)


def doctor(
    specs: options.Specs = None,
    files: options.Files = None,
    settings: options.Settings = None,
    namespace: options.Namespace = None,
    context: options.Context = None,
    helm: options.Helm = "helm",
    is_builder_needed: Annotated[
        bool, typer.Option("--builder", help="Count a missing image builder as a problem.")
    ] = False,
    output: options.Format = "text",
) -> None:
    """Check tools, cluster, permissions and capacity, and print a remedy for each problem.

    With SPEC, also check whether the namespace would admit its run and has room for it.

    Examples:
      hvdchart doctor
      hvdchart doctor run.spec.yaml --namespace team

    Exit codes: 0 no problem was found; 3, 4 the spec is wrong; 7 there are problems.
    """
    import dataclasses

    from hvdchart.doctor.examine import examine_cluster, examine_tools
    from hvdchart.doctor.findings import Finding, report
    from hvdchart.image.engines import ENGINES, working_engines
    from hvdchart.quantity import pluralize

    values = None
    if specs or files:
        from hvdchart.values.check import checked_values
        from hvdchart.values.merge import merge_values
        from hvdchart.values.schema import default_values

        _, plan = options.plan_specs(specs, files, settings)
        values = merge_values(default_values(), checked_values(plan))
    engines = working_engines()
    missing = f"none of {', '.join(ENGINES)} works here"
    builder = Finding(
        "image builder",
        "ok" if engines else "problem" if is_builder_needed else "unknown",
        ", ".join(engines) or missing,
        "" if engines else "install and start one to build images; --code needs none",
    )
    findings = [*examine_tools(helm), builder, *examine_cluster(context, namespace, values)]
    if output != "text":
        options.print_document([dataclasses.asdict(finding) for finding in findings], output)
    else:
        show(*report(findings))
    problems = sum(1 for finding in findings if finding.state == "problem")
    if problems:
        raise ClusterError(f"{pluralize(problems, 'problem')} found")
