"""The mutation run reaches every module, and only what runs."""

from __future__ import annotations

from devtools.checks.mutation import ROOT, TARGETS, modules_of, mutants_of


def test_every_module_is_in_one_target() -> None:
    modules = [module for target in TARGETS for module in modules_of(target)]
    expected = [
        *ROOT.glob("hvdchart/**/*.py"),
        *ROOT.glob("charts/horovod/files/*.py"),
    ]
    assert sorted(modules) == sorted(expected)


def test_mutants_change_code_and_not_annotations() -> None:
    module = ROOT / "hvdchart" / "text.py"
    assert {mutant.module for mutant in mutants_of(module)} <= {"hvdchart/text.py"}
    bit_or = [m for m in mutants_of(ROOT / "hvdchart/quantity.py") if "BitOr" in m.operator]
    assert bit_or == [], "`str | None` is an annotation"


def test_every_target_has_tests() -> None:
    missing = [
        path for _, tests in TARGETS.values() for path in tests if not (ROOT / path).exists()
    ]
    assert missing == []
