"""The chart judges launch.options as the planner does, by launcher_options.json."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from hvd_pods.common.launcher_options import given_options
from hvdchart.plan.planner import make_plan
from hvdchart.spec.load import parse_spec
from hvdchart.values.check import checked_values
from tests.chart.render import CHART, helm_template, render, variables
from tests.unit import launch_cases
from tests.unit.hvdchart.values.test_values import HEAD, NODE
from tests.unit.launch_cases import Case

# A template that checks all cases in one run of Helm.
VERDICTS = """problems:
{{- range .Values.cases }}
- {{ include "horovod.optionProblem" (dict "Values" . "Files" $.Files) | quote }}
{{- end }}
"""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a chart with the checks and data files of charts/horovod, and the template above."""
    chart = tmp_path_factory.mktemp("judge")
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: judge\nversion: 1.0.0\n")
    for name in ("templates/checks/_launch.tpl", "files/hvd_pods/common/launcher_options.json"):
        (chart / name).parent.mkdir(parents=True)
        shutil.copy(CHART / name, chart / name)
    (chart / "templates" / "verdicts.yaml").write_text(VERDICTS)
    return chart


def no_launcher_has_all_options(case: Case) -> bool:
    """Whether only the master can say so: by the MPI of its image, options of another are wrong."""
    launchers = set(launch_cases.modes()[case.mode])
    for _, option in given_options(case.options):
        launchers &= set(option.get("readBy", launchers))
    return not launchers


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
def test_chart_refuses_the_options_that_the_planner_refuses(helm: str, judge: Path) -> None:
    cases = list(launch_cases.cases())
    done = helm_template({"cases": [case.values() for case in cases]}, helm=helm, chart=judge)
    assert done.returncode == 0, done.stderr
    problems = YAML(typ="safe").load(done.stdout)["problems"]
    for case, problem in zip(cases, problems, strict=True):
        assert not problem or problem.startswith('launch.options has "')
        if bool(problem) != case.is_refused_by_planner():
            assert not problem, f"{case}: {problem!r}"
            assert no_launcher_has_all_options(case), case


@pytest.mark.parametrize("option", ["--npersocket", "--map-by"])
def test_planned_run_with_an_option_that_binds_renders(option: str) -> None:
    """The planner plans no binding with such an option, because the chart would refuse both."""
    values = checked_values(Case("mpirun", (option, "1")).plan())
    assert values["launch"] == {"binding": {"to": "none"}, "options": [option, "1"]}
    render(values)


@pytest.mark.parametrize(
    ("launch", "memory"),
    [
        ("{}", "256Mi"),
        ("{mode: horovodrun}", "528Mi"),
        ("{mode: elastic, elastic: {maxRanks: 2000}}", "4128Mi"),
    ],
)
def test_plan_gives_the_master_the_memory_that_the_chart_demands(launch: str, memory: str) -> None:
    nodes = NODE.replace("count: 1", "count: 200").replace("coresPerSocket: 4", "coresPerSocket: 1")
    values = checked_values(make_plan(parse_spec(f"{HEAD}{nodes}launch: {launch}\n".encode())))
    assert values["master"]["resources"]["requests"]["memory"] == memory
    render(values)


@pytest.mark.parametrize(
    ("memory", "is_refused"),
    [
        *((text, False) for text in ("64Gi", "65536Mi", "67108864Ki", "0.0625Ti", "68719476736")),
        *((text, False) for text in ("68.8G", "68800M", "68800000k", "0.0688T", "7e10")),
        *((text, True) for text in ("65535Mi", "68.7G", "67108863Ki", "68719476735")),
    ],
)
def test_chart_reads_every_unit_of_memory(memory: str, is_refused: bool) -> None:
    """32,704 ranks of horovodrun need 64 GiB."""
    values = {
        "worker": {"number": 8176, "slots": 4},
        "launch": {"mode": "horovodrun"},
        "master": {"resources": {"requests": {"memory": memory}}},
    }
    done = helm_template(values)
    assert ("SSH client" in done.stderr, done.returncode != 0) == (is_refused, is_refused)


def test_workers_and_planned_groups_name_the_interface_to_the_same_libraries() -> None:
    workers = variables(render({"network": {"interface": "eth1"}}))
    rendered = {name for name, value in workers.items() if value == "eth1"}
    two = json.loads(Case("mpirun", (), interface="eth1").spec())
    two["nodes"].append({**two["nodes"][0], "name": "y", "interface": "eth2"})
    planned = make_plan(parse_spec(json.dumps(two).encode())).launching.group_env["x"]
    # The master passes a common interface to the daemons; otherwise each group sets its own.
    assert set(planned) == rendered | {"OMPI_MCA_oob_tcp_if_include"}
