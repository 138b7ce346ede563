"""Limits and defaults of what migrate reads: marks of charts, long files, places of errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from hvdchart.errors import SpecError
from hvdchart.migrate.convert import read_bytes
from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.kubernetes import find_problem, value_problem
from hvdchart.spec.yaml_tree import parse
from tests.unit.hvdchart.migrate.old_files import (
    PATHS,
    migrate_line,
    migrate_old,
    migrate_text,
    migrate_tree,
    results,
)


def tree_of(name: str) -> Any:
    """The values of one of the files, to be changed."""
    return YAML(typ="safe").load(PATHS[name].read_text())


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("workers: 2\ngpuCount: 1\nimage: a", "Arena's chart"),
        ("workersCount: 2\nexperimentName: a", "Nauta's pack tf-training-horovod"),
        ("ssh: {useSecrets: true}", "the old horovod chart"),
    ],
)
def test_chart_is_recognised_by_as_few_marks_as_it_needs(text: str, source: str) -> None:
    assert migrate_text(text).source == source


def test_file_is_read_until_one_byte_after_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hvdchart.migrate.convert.MAX_BYTES", 10)
    path = tmp_path / "values.yaml"
    path.write_bytes(b"x" * 20)
    assert read_bytes(path) == (b"x" * 11, str(path))


def test_value_two_keys_below_a_type_of_kubernetes_is_checked() -> None:
    problem = value_problem(["worker", "resources", "limits"], {"cpu": "1x"})
    assert problem is not None
    assert problem.path == ("cpu",)


@pytest.mark.parametrize("key", ["-", "a b"])
def test_key_of_a_toleration_is_checked(key: str) -> None:
    toleration = {"operator": "Exists", "key": key}
    assert value_problem(["worker", "tolerations"], [toleration]) is not None
    assert value_problem(["worker", "tolerations"], [{**toleration, "key": "a"}]) is None


def test_ranks_of_a_socket_where_mlt_names_no_sockets() -> None:
    lines = [f"mlt template_config set {text}" for text in ("num_workers_per_node 4",
                                                            "sockets_per_node 0")]  # fmt: skip
    arguments = migrate_line("\n".join(lines)).values["master"]["args"]
    assert arguments[:3] == ["bash", "/src/app/exec_multiworker.sh", "4"]


def test_script_whose_name_says_that_it_starts_a_training_is_not_left_out() -> None:
    with pytest.raises(SpecError, match="bash is not a launcher that migrate knows"):
        migrate_line("bash mpirun.sh")


def test_missing_value_of_the_chart_of_intel_is_named_at_its_place() -> None:
    tree = tree_of("intel-tlt.yaml")
    with pytest.raises(SpecError, match=r"^<old>:1:\d+: epochs: the key epochs is missing"):
        migrate_tree({**tree, "epochs": ""})
    del tree["epochs"]
    with pytest.raises(SpecError, match=r"^<old>:1:1: the key epochs is missing"):
        migrate_tree(tree)


def test_names_of_the_chart_of_intel() -> None:
    tree = tree_of("intel-tlt.yaml")
    migration = migrate_tree(tree)
    assert migration.values["image"] == {"repository": "registry.example/tlt", "tag": "0.7"}
    result = results(migration)
    assert result["metadata.name"] == ("changed", "helm install NAME", "the name of the release")
    assert result["metadata.namespace"] == ("changed", "helm --namespace", "an option of Helm")
    unnamed = migrate_tree({**tree, "metadata": {}})
    assert (unnamed.release, unnamed.namespace) == ("", "")
    assert "metadata.namespace" not in results(unnamed)


def test_variables_of_the_launcher_of_a_volcano_job_stay_its_own() -> None:
    tree = tree_of("volcano.yaml")
    launcher = tree["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    launcher["env"].append({"name": "L", "value": "1"})
    values = migrate_tree(tree).values
    assert [entry["name"] for entry in values["worker"]["env"]] == ["STEPS"]
    assert [entry["name"] for entry in values["master"]["env"]] == ["STEPS", "L"]


def test_values_after_a_null_that_no_rule_knows_have_entries_too() -> None:
    result = results(migrate_old(unknown=None, zoom=1))
    assert result["unknown"] == ("dropped", "", "null sets nothing")
    assert result["zoom"][0] == "dropped"


def test_affinity_to_nodes_needs_one_term() -> None:
    term = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    for terms, is_refused in (([], True), ([term], False)):
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        problem = value_problem(["worker", "affinity"], {"nodeAffinity": required})
        assert (problem is not None) == is_refused, f"{len(terms)} terms"


def test_reader_remembers_the_key_that_a_rule_looks_for() -> None:
    reader = InputReader(parse(b"a: {b: [1]}", "a"))
    found = [reader.has(path) for path in (("a", "x"), ("a", "b"), ("a", "b", 0), ("c", "d"))]
    assert found == [False, True, True, False]
    assert reader.known == {(): {"a", "c"}, ("a",): {"x", "b"}, ("c",): {"d"}}


def test_one_document_between_separators_is_read() -> None:
    migration = migrate_text("---\nworker: {number: 2}\nmaster: {args: [mpirun a]}\n...\n---\n")
    assert migration.values["worker"] == {"number": 2}


def test_key_that_is_present_is_not_the_one_that_is_meant() -> None:
    problem = find_problem("Capabilities", {"add": ["A"], "ad": ["B"]})
    assert problem is not None
    assert (problem.path, problem.expected) == (("ad",), "one of drop")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("mpirun -np 2 t\nmlt build", "<line>:1:1: line 1: the script has both mlt and another"),
        ("mlt update a b", "migrate does not understand mlt update a; expected mlt init, temp"),
        ("mlt template_config set gpus", "migrate does not understand mlt template_config set;"),
        ("mlt init a", "mlt init with template hello-world; expected mlt init --template=horovod"),
        ("mlt template_config set gpus $N", "only a shell knows $N; expected its value"),
    ],
)
def test_line_of_mlt_that_is_not_understood_is_refused(script: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        migrate_line(script)
    assert message in str(error.value)


@pytest.mark.parametrize(("shell", "name"), [({}, "sh"), ({"shell": "bash"}, "bash")])
def test_command_of_arena_that_needs_a_shell_keeps_its_own(
    shell: dict[str, str], name: str
) -> None:
    command = "cd /x && mpirun -np 2 t"
    values = migrate_tree({"workers": 2, "gpuCount": 1, "command": command, **shell}).values
    assert values["master"]["args"] == [name, "-c", command]


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("declare -xrgp A=1\nmpirun -np 1 t $A", ["t", "1"]),
        ("rm *;mpirun -np 1 t", ["t"]),
        ("rm ~;mpirun -np 1 t", ["t"]),
        ("rm {a,b};mpirun -np 1 t", ["t"]),
        ('A="";mpirun -np 1 t ""a', ["t", "a"]),
        ("A=$B;mpirun -np 1 t", ["t"]),
        ("echo $?;mpirun -np 1 t", ["t"]),
        ("echo a\\ ;mpirun -np 1 t", ["t"]),
        ("echo $;mpirun -np 1 t", ["t"]),
        ("echo '';mpirun -np 1 t", ["t"]),
        ("echo `a`;mpirun -np 1 t", ["t"]),
        ("echo $(a);mpirun -np 1 t", ["t"]),
        ("echo ${A:-b};mpirun -np 1 t", ["t"]),
        ("echo > a;mpirun -np 1 t", ["t"]),
        ("echo & mpirun -np 1 t", ["t"]),
        ("\n\nmpirun -np 1 t", ["t"]),
    ],
)
def test_statement_ends_where_a_shell_ends_it(script: str, arguments: list[str]) -> None:
    assert migrate_line(script).values["master"]["args"] == arguments


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("A=\nmpirun -np 1 t ${A:-b}", ["t", "b"]),
        ("A=\nmpirun -np 1 t ${A} c", ["t", "c"]),
        ("A=a\nmpirun -np 1 t ${A:-b}", ["t", "a"]),
    ],
)
def test_default_of_a_variable_counts_where_it_is_empty(script: str, arguments: list[str]) -> None:
    assert migrate_line(script).values["master"]["args"] == arguments
