"""What lies beside a script and goes with it, or stays; and lines that are no Python."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from pathlib import Path

import pytest

from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.command import Command
from tests.unit.hvdchart.played_runs import installed_values

pytestmark = pytest.mark.timeout(120)


def test_script_that_lies_beside_a_spec_and_stays_there_is_reported(
    hvdchart: Command, tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mine"
    monkeypatch.chdir(tmp_path)
    hvdchart("init", "mine")
    alone = hvdchart("plan", folder / "run.spec.yaml")
    assert str(folder / "train.py") in alone.errors
    assert f"--code {folder}" in alone.errors
    assert "--code" not in hvdchart("plan", folder).errors


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("import torhc\n", "torhc: did you mean torch?"),
        ("open('data/set.csv')\n", " data/set.csv "),
        ("open('other.csv')\nopen('../set.csv')\nimport model_of_mine\n", ""),
    ],
    ids=["slip", "data beside the script", "neither"],
)
def test_script_that_would_miss_something_is_warned_of(
    hvdchart: Command, script: Path, text: str, warning: str
) -> None:
    (script.parent / "data").mkdir()
    (script.parent / "data" / "set.csv").touch()
    script.write_text(text)
    warnings = json.loads(hvdchart("plan", script, "-o", "json").output)["warnings"]
    about_files = [text for text in warnings if "imports" in text or "beside it" in text]
    assert len(about_files) == (1 if warning else 0)
    assert warning in "".join(about_files)


@pytest.mark.parametrize("mode", [0o644, 0o755])
@pytest.mark.parametrize(
    ("first", "code", "says"),
    [
        ("# coding: latin-1", 0, ""),
        ("import torch", 5, "'utf-8'"),
        ("import torch\n\n", 5, "UTF-8"),
        ("# coding: none-such", 5, "none-such"),
    ],
)
def test_script_that_is_not_utf_8_needs_a_coding(
    hvdchart: Command, script: Path, mode: int, first: str, code: int, says: str
) -> None:
    script.write_text(f"{first}\nimport torch  # K\xf6ln\n", encoding="latin-1")
    script.chmod(mode)
    done = hvdchart("plan", script)
    assert done.code == code, done.errors
    assert says in done.errors
    assert ("My_Train.py: " in done.errors) is bool(code)


def test_script_with_a_wrong_line_is_refused_with_the_line(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, script: Path
) -> None:
    script.write_text("import torch\nx = = 1\n")
    done = hvdchart("run", script)
    assert (done.code, done.errors) == (5, "hvdchart: My_Train.py:2: invalid syntax: x = = 1\n")
    assert helm.calls == []


def test_wrong_line_is_a_warning_for_an_image_of_an_unknown_python(
    hvdchart: Command, script: Path
) -> None:
    script.write_text("x = = 1\n")
    done = hvdchart("plan", script, "--image", "team/a:1", "-o", "json")
    assert done.code == 0
    assert json.loads(done.output)["warnings"][0].startswith(
        "My_Train.py:1: invalid syntax: x = = 1; "
    )


@pytest.mark.parametrize("is_named", [False, True])
def test_script_that_would_lack_a_module_beside_it_is_refused(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, script: Path, is_named: bool
) -> None:
    script.write_text("import model\n")
    done = hvdchart("run", script, "--detach", *(["--image", "team/a:1"] if is_named else []))
    # An image of the user's may have the module.
    assert done.code == (0 if is_named else 5)
    assert bool(helm.calls) is is_named
    assert f"--code {script.parent}" in done.errors
    assert ("warning: only" in done.errors) is is_named


def test_module_beside_a_script_may_be_that_of_the_image(hvdchart: Command, script: Path) -> None:
    script.write_text("import torch, tqdm\n")
    (script.parent / "tqdm.py").write_text("")
    assert hvdchart("plan", script).code == 0


@pytest.mark.parametrize(
    ("content", "beside"),
    [
        ("try:\n    import extras\nexcept ImportError:\n    extras = None\n", "extras.py"),
        ("if False:\n    import extras\n", "extras.py"),
        ("def debug():\n    import extras\n", "extras.py"),
        # A package that is installed comes before a folder without __init__.py.
        ("import packaging\n", "packaging/download.py"),
        ("import My_Train\n", "other.py"),
    ],
    ids=["guarded", "condition", "function", "folder", "itself"],
)
def test_script_that_may_do_without_what_is_beside_it_is_planned(
    hvdchart: Command, script: Path, content: str, beside: str
) -> None:
    script.write_text(f"import torch\n{content}")
    file = script.parent / beside
    file.parent.mkdir(exist_ok=True)
    file.write_text("")
    done = hvdchart("plan", script)
    assert done.code == 0, done.errors


def test_what_a_script_uses_beside_it_and_does_not_take_along_is_reported(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, script: Path
) -> None:
    script.write_text("import model\n")
    (script.parent / "requirements.txt").write_text("einops\n")
    done = hvdchart("run", script, "--code", script, "--detach")
    folder = script.parent
    (warning,) = [line for line in done.errors.splitlines() if str(script) in line]
    for name in (script, "requirements.txt and model.py", f"--code {folder}"):
        assert str(name) in warning
    assert installed_values(helm)["master"]["args"] == ["python3", "My_Train.py"]


def test_what_a_script_of_a_spec_leaves_behind_is_reported(
    hvdchart: Command, script: Path, spec: Path
) -> None:
    script.write_text("import model\n")
    done = hvdchart("render", spec, "--code", script)
    (warning,) = [line for line in done.errors.splitlines() if "model.py" in line]
    assert warning.endswith(f"--code {script.parent}")


@pytest.mark.slow
def test_a_folder_comes_with_a_script_in_it(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, script: Path
) -> None:
    (script.parent / "requirements.txt").write_text("einops\n")
    inner = script.parent / "inner" / "train.py"
    inner.parent.mkdir()
    inner.write_text("pass\n")
    done = hvdchart("run", inner, "--code", script.parent, "--detach")
    assert done.code == 0, done.errors
    assert "--code" not in done.errors
    sent = installed_values(helm)
    assert sent["master"]["args"] == ["python3", "inner/train.py"]
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(sent["code"]["archive"]))) as archive:
        names = {*archive.getnames()}
    assert names == {"My_Train.py", "model.py", "inner/train.py", "requirements.txt"}
