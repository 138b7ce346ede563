"""The mutation run reaches every module, and tries mutants with the tests that can notice them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from devtools.checks.mutation import __main__ as command
from devtools.checks.mutation import verdicts
from devtools.checks.mutation.mutants import ROOT, find_mutants, targets
from devtools.checks.mutation.probes import RecordedTest, add_probes, parse_log
from devtools.checks.mutation.reach import Reach, find_importers
from tests.unit.devtools.checks.parity import PARITY, SOURCE, mutant


def make_test(name: str, cpu: float, *functions: str) -> RecordedTest:
    return RecordedTest(f"tests/{name}", 0, cpu, True, list(functions))


def test_every_module_is_in_one_target() -> None:
    modules = [module for found in targets().values() for module in found]
    expected = [*ROOT.glob("hvdchart/**/*.py"), *ROOT.glob("charts/horovod/files/*.py")]
    assert sorted(modules) == sorted(expected)


@pytest.mark.slow
def test_mutants_change_code_and_not_annotations() -> None:
    mutants = list(find_mutants(PARITY, SOURCE))
    assert [each.name for each in mutants if "BitOr" in each.name] == [], "`int | None`"
    changed = mutant("Sub_Add", "number = number - 2").apply(SOURCE)
    assert changed == SOURCE.replace("number - 2", "number + 2")


def test_mutant_knows_the_function_in_whose_body_it_is() -> None:
    assert mutant("NumberReplacer", "LIMIT = 3").function == 0
    default = "def is_even(number: int | None = 8) -> bool:"
    assert mutant("NumberReplacer", default).function == 0, "evaluated on import"
    assert mutant("Eq_NotEq", "return number == 0").function == 6
    assert mutant("RemoveDecorator", "@property").function == 0
    assert mutant("NumberReplacer", "return 1").function == 15, "the inner one"


def test_probes_log_the_functions_that_are_called_and_keep_docstrings(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    source = add_probes(PARITY, SOURCE, tmp_path / "log")
    exec(compile(source, PARITY, "exec"), names)  # noqa: S102
    assert not (tmp_path / "log").exists()
    assert names["is_even"](2) is True
    assert names["is_even"].__doc__ == "Whether a number is even."
    names["untested"].fget()()
    assert (tmp_path / "log").read_text().split() == [f"{PARITY}:{n}" for n in (6, 14, 15)]


def test_calls_of_a_shared_fixture_count_for_each_test_that_uses_it() -> None:
    marks: list[dict[str, Any] | str] = [
        {"begins": "pods"}, "a:1", {"begins": "keys"}, "a:2", {"fixture": "keys"}, "a:3",
        {"fixture": "pods"}, "a:4", {"name": "t::1", "uses": ["pods", "keys"]}, "a:5",
        {"name": "t::2", "uses": ["keys"]}, {"name": "t::3", "uses": []},
    ]  # fmt: skip
    lines = [
        mark
        if isinstance(mark, str)
        else json.dumps({"seconds": 0, "cpu": 0, "passed": True, **mark})
        for mark in marks
    ]
    found = {test.name: test.functions for test in parse_log(lines)}
    assert found == {"t::1": ["a:1", "a:2", "a:3", "a:4"], "t::2": ["a:2", "a:5"], "t::3": []}


def test_tests_of_a_function_come_fastest_first_after_those_of_its_module() -> None:
    function = f"{PARITY}:6"
    tests = [
        make_test("test_a.py::slow", 2, function),
        make_test("test_a.py::fast", 1, function, "hvdchart/other.py:1"),
        make_test("test_parity.py::own", 3, function),
        make_test("test_a.py::other", 0.5, "hvdchart/other.py:1"),
        make_test("test_a.py::too_long", 15, function),
    ]
    chosen = Reach(tests, set(), {}).choose(mutant("Eq_NotEq", "return number == 0"))
    assert [test.name for test in chosen] == [
        "tests/test_parity.py::own", "tests/test_a.py::fast", "tests/test_a.py::slow",
    ]  # fmt: skip
    assert Reach(tests, set(), {}).choose(mutant("NumberReplacer", "return 1")) == []


def test_what_is_read_on_import_is_tried_with_tests_of_the_module_and_of_its_importers() -> None:
    tests = [
        make_test("test_a.py::importer", 1, "hvdchart/other.py:1"),
        make_test("test_a.py::module", 2, f"{PARITY}:6"),
        make_test("test_a.py::neither", 1, "hvdchart/third.py:1"),
    ]
    sources = {
        PARITY: SOURCE,
        "hvdchart/other.py": "from hvdchart.parity import LIMIT",
        "hvdchart/third.py": "import json",
    }
    reach = Reach(tests, {f"{PARITY}:6"}, find_importers(sources))
    limit, body = mutant("NumberReplacer", "LIMIT = 3"), mutant("Eq_NotEq", "return number == 0")
    for each in (limit, body):
        assert reach.is_imported(each)
        assert [test.name for test in reach.choose(each)] == [
            "tests/test_a.py::module", "tests/test_a.py::importer",
        ]  # fmt: skip
    assert not Reach(tests, set(), {}).is_imported(body)


@pytest.mark.parametrize(
    ("module", "own"), [("warm_checks", "warm/test_checks.py"), ("ssh", "ssh/test_login.py")]
)
def test_tests_in_the_folder_of_some_modules_of_pods_are_their_own(module: str, own: str) -> None:
    path = f"charts/horovod/files/{module}.py"
    tests = [
        make_test("unit/podfiles/test_a.py::fast", 1, f"{path}:6"),
        make_test(f"unit/podfiles/{own}::own", 1.5, f"{path}:6"),
        make_test(f"unit/podfiles/{own}::data", 2),
    ]
    reach = Reach(tests, set(), {})
    fast, function, data = (test.name for test in tests)
    for text, operator, names in (
        ("return number == 0", "Eq_NotEq", [function, fast]),
        ("LIMIT = 3", "NumberReplacer", [function, data, fast]),
    ):
        change = mutant(operator, text, module=path)
        assert [test.name for test in reach.choose(change)] == names


def test_tests_of_the_package_come_first_and_of_data_those_of_what_is_generated() -> None:
    function = f"{PARITY}:6"
    tests = [
        make_test("far/test_a.py::fast", 0.5, function),
        make_test("hvdchart/test_a.py::near", 1, function),
        make_test("hvdchart/test_generated.py::all", 1),
        make_test("far/test_generated.py::other", 3),
        make_test("hvdchart/test_parity.py::data", 1.5),
    ]
    reach = Reach(tests, set(), {})
    near, fast, generated, own = (tests[index].name for index in (1, 0, 2, 4))
    for change, names in (
        (mutant("Eq_NotEq", "return number == 0"), [near, fast]),
        (mutant("NumberReplacer", "LIMIT = 3"), [generated, own, near, fast]),
    ):
        assert [test.name for test in reach.choose(change)] == names


def test_files_of_pods_import_each_other_without_a_package() -> None:
    sources = {
        "charts/horovod/files/rank.py": "import basics",
        "charts/horovod/files/basics.py": "",
    }
    assert find_importers(sources) == {
        "charts/horovod/files/basics.py": {"charts/horovod/files/rank.py"}
    }


def test_verdict_holds_until_the_module_or_a_test_that_matters_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "ROOT", tmp_path)
    monkeypatch.setenv("HVD_CACHE", str(tmp_path / "cache"))
    killer, other = make_test("test_a.py::test_one[1]", 1), make_test("test_b.py::test_two", 1)
    killed, living = mutant("NumberReplacer", "LIMIT = 3"), mutant("Gt_GtE", "while number > 0:")

    def write(file: str, text: str) -> None:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
        verdicts.digest_of.cache_clear()
        verdicts.sources_of.cache_clear()

    def known() -> tuple[bool, bool]:
        found = (verdicts.Verdicts().find(each, [other, killer]) for each in (killed, living))
        first, second = (bool(answer) for answer in found)
        return first, second

    one = "@pytest.mark.x\ndef test_one(): ...\n"
    for file in (PARITY, killer.file, other.file):
        write(file, one)
    assert known() == (False, False)
    verdicts.Verdicts().add(killed, [other, killer], {"passes": False, "by": killer.name})
    verdicts.Verdicts().add(living, [other, killer], {"passes": True})
    assert known() == (True, True)
    assert not verdicts.Verdicts().find(living, [killer]), "other tests"
    for file in (other.file, killer.file):
        write(file, f"{one}def test_added(): ...\n")
        assert known() == (True, False)
        write(file, one)
    write(killer.file, one.replace("mark.x", "mark.y"))
    assert known() == (False, False)
    write(killer.file, one)
    write(PARITY, "changed")
    assert known() == (False, False)
    assert verdicts.Verdicts().order(killed, [other, killer]) == [killer, other]
    verdicts.digest_of.cache_clear()
    verdicts.sources_of.cache_clear()


def test_one_mutant_of_each_line_is_tried_and_stays_the_same() -> None:
    mutants = list(find_mutants(PARITY, SOURCE))
    lines = [each.line for each in mutants]
    assert len(set(lines)) < len(lines)
    chosen = command.one_of_each_line(mutants)
    assert sorted(each.line for each in chosen) == sorted(set(lines))
    moved = command.one_of_each_line(find_mutants(PARITY, "\n\n" + SOURCE))
    assert [each.key for each in moved] == [each.key for each in chosen]


def test_mutant_that_the_operator_cannot_make_is_not_valid() -> None:
    source = "try:\n    pass\nexcept (OSError, tarfile.TarError):\n    pass\n"
    changed = [each.apply(source) for each in find_mutants("m.py", source)]
    assert [text is None for text in changed] == [False, True]


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("WAIT = 1.5", 0), ("WAIT = 1e3", 0), ("COUNT = 15", 1), ("COUNT = 1_500", 1),
        ("@dataclass(frozen=True)\nclass A: pass", 0), ("IS_ON = True", 1),
    ],
)  # fmt: skip
def test_times_and_the_intent_of_dataclasses_are_not_changed(line: str, number: int) -> None:
    names = {each.name for each in find_mutants("m.py", line)} - {"RemoveDecorator"}
    assert len(names) == number


def test_part_of_a_run_is_a_random_sample_that_stays_the_same() -> None:
    mutants = list(find_mutants(PARITY, SOURCE))
    chosen = command.choose(mutants, 4)
    assert chosen == command.choose(reversed(mutants), 0)[:4]
    places = [(each.line, each.column) for each in command.choose(mutants, 0)]
    assert places != sorted(places)


def test_reason_of_a_survivor_may_be_for_any_module() -> None:
    change = mutant("NumberReplacer", "LIMIT = 3")
    for key in (change.key, "*: NumberReplacer: LIMIT = 3"):
        assert command.reason_of(change, command.known_survivors({"Why.": [key]})) == "Why."
    other = {"Why.": ["hvdchart/a.py: NumberReplacer: LIMIT = 3"]}
    assert command.reason_of(change, command.known_survivors(other)) is None


def test_survivors_that_have_a_reason_are_lines_of_their_files() -> None:
    keys = [key.split(": ", 2) for key in command.known_survivors(command.read_survivors())]
    gone = [
        (file, text)
        for file, _, text in keys
        if file != "*" and text not in map(str.strip, (ROOT / file).read_text().splitlines())
    ]
    assert gone == []


def test_report_counts_by_target_and_shows_survivors(capsys: pytest.CaptureFixture[str]) -> None:
    limit, body = mutant("NumberReplacer", "LIMIT = 3"), mutant("Eq_NotEq", "return number == 0")
    outcomes = [command.Outcome(limit, True, "LIMIT = 4"), command.Outcome(body, False, "")]
    assert command.report(outcomes, {"base": 1200}, {PARITY: "base"}, {}) == 0.5
    printed = capsys.readouterr().out
    assert f"survived: {PARITY}:3:8 NumberReplacer\n  - LIMIT = 3\n  + LIMIT = 4\n" in printed
    assert printed.endswith("| `base` | 1,200 | 2 | 1 | 50 % | 0 |\n")
    command.report(outcomes, {"base": 1200}, {PARITY: "base"}, {limit.key: "Why."})
    printed = capsys.readouterr().out
    assert "survived:" not in printed
    assert printed.endswith("| `base` | 1,200 | 2 | 1 | 50 % | 1 |\n")


def test_reasons_for_mutants_that_do_not_exist_are_found() -> None:
    mutants = list(find_mutants(PARITY, SOURCE))
    gone = f"{PARITY}: NumberReplacer: LIMIT = 2"
    known = [mutants[0].key, gone, "*: NumberReplacer: LIMIT = 2", "hvdchart/a.py: A: b"]
    assert command.find_gone(known, mutants) == {gone}
