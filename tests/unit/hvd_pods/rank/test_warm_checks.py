"""Commands, scripts and variables with which a rank must start cold."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from hvd_pods.rank import warm_checks
from hvd_pods.rank.warm_checks import (
    ColdStart,
    PythonProgram,
    check_environment,
    check_interpreter,
    check_script,
    check_use,
    parse_command,
)


@pytest.fixture
def pythons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the Python `a/python3`, from whose folder it finds its packages.

    The link `b/python3` leads to it. Another program, `a/sh`, is beside it on the PATH.
    """
    (tmp_path / "a").mkdir()
    (tmp_path / "a/python3").touch(0o755)
    (tmp_path / "a/sh").touch(0o755)
    (tmp_path / "b").mkdir()
    (tmp_path / "b/python3").symlink_to(tmp_path / "a/python3")
    monkeypatch.setenv("PATH", str(tmp_path / "a"))
    return tmp_path


def make_library(file: Path) -> Path:
    file.parent.mkdir()
    file.touch()
    return file


def test_python_of_the_rank_may_be_the_workers(pythons: Path) -> None:
    check_interpreter("python3", str(pythons / "a/python3"))


@pytest.mark.parametrize("program", ["sh", "python4", "ROOT/a/sh"])
def test_another_program_is_not_the_workers_python(pythons: Path, program: str) -> None:
    with pytest.raises(ColdStart, match=f"{pythons}/a/python3, "):
        check_interpreter(program.replace("ROOT", str(pythons)), str(pythons / "a/python3"))


def test_python_that_is_gone_is_not_the_ranks(pythons: Path) -> None:
    with pytest.raises(ColdStart, match=f"{pythons}/gone/python3, "):
        check_interpreter("python3", str(pythons / "gone/python3"))


def test_python_of_another_folder_has_other_packages(pythons: Path) -> None:
    with pytest.raises(ColdStart, match=f"{pythons}/b/python3 .*{pythons}/a/python3"):
        check_interpreter(str(pythons / "b/python3"), str(pythons / "a/python3"))


@pytest.mark.parametrize(
    ("rank", "warm", "same"),
    [
        ("ROOT/mpi:ROOT/mpi:ROOT/a", "ROOT/mpi:ROOT/a", True),
        ("/usr/lib", None, True),
        ("/usr/lib:ROOT/a:", "ROOT/a", True),
        ("ROOT/a:ROOT/mpi", "ROOT/mpi:ROOT/a", False),
        ("ROOT/mpi", None, False),
        # What Debian's Open MPI 5 adds.
        ("ROOT/linked:ROOT/a", "ROOT/a", True),
        ("ROOT/linked:ROOT/missing", None, True),
    ],
)
def test_folders_of_libraries_may_be_repeated(
    tmp_path: Path,
    rank: str,
    warm: str | None,
    same: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_library(tmp_path / "mpi/libmpi.so.40")
    make_library(tmp_path / "a/liba.so")
    usual_library = make_library(tmp_path / "usual/libpmix.so.2")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/libpmix.so.2").symlink_to(usual_library)
    usual = (*warm_checks.USUAL_FOLDERS, str(tmp_path / "usual"))
    monkeypatch.setattr(warm_checks, "USUAL_FOLDERS", usual)
    root = str(tmp_path)
    before = {} if warm is None else {"LD_LIBRARY_PATH": warm.replace("ROOT", root)}
    with nullcontext() if same else pytest.raises(ColdStart, match="LD_LIBRARY_PATH"):
        check_environment({"LD_LIBRARY_PATH": rank.replace("ROOT", root)}, before)


def test_variables_of_launchers_and_sessions_may_differ() -> None:
    names = ["OMPI_MCA_btl", "PMIX_RANK", "HVD_ATTEMPT", "HOROVOD_RANK", "PWD"]
    names += ["NCCL_SOCKET_IFNAME", "PYTHONUNBUFFERED", "TORCHELASTIC_RUN_ID", "MASTER_ADDR"]
    names += ["MASTER_PORT", "JAX_COORDINATOR_ADDRESS"]
    check_environment(dict.fromkeys(names, "/tmp"), {})


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["-O", "train.py"], "^python3 .* -O$"),
        (["-uX", "dev", "train.py"], "^python3 .* -X$"),
        (["--version"], "^python3 .* --$"),
        (["-"], "standard input"),
        (["no-such-file.py"], r"no-such-file\.py"),
    ],
)
def test_command_that_a_fork_cannot_run_is_named(words: list[str], reason: str) -> None:
    with pytest.raises(ColdStart, match=reason):
        parse_command(["python3", *words])


@pytest.mark.parametrize(
    "statement",
    [
        "os.environ['TF_X'] = '1'",
        "os.environ.setdefault('OMP_NUM_THREADS', '1')",
        "os.putenv('KMP_X', '1')",
        "os.environ.update({'A': '1', 'XLA_FLAGS': '1'})",
        "os.environb[b'TF_X'] = b'1'",
        "if True: os.environ['KERAS_BACKEND'] = 'torch'",
        "environ.update({'A': '1'}, TF_X='1')",
        "os.environ.update(**{'TF_X': '1'})",
        "os.environ[\n    'TF_X'\n] = '1'",
    ],
)
def test_script_that_sets_what_its_imports_read_starts_cold(statement: str) -> None:
    before = f"import os\n{statement}\nimport framework.sub as f\n"
    after = f"import os\nfrom framework import sub\n{statement}\n"
    with pytest.raises(ColdStart, match=r"sets (TF_X|OMP_|KMP_X|XLA_|MKL_X|KERAS_)"):
        check_script(PythonProgram("code", before, [], False), ["framework.sub"])
    check_script(PythonProgram("code", after, [], False), ["framework.sub"])


@pytest.mark.parametrize(
    "text",
    [
        "os.environ['CUDA_VISIBLE_DEVICES'] = '0'",
        "os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'",
        "os.environ['OF_THE_USER'] = '1'",
        "print(os.environ['TF_X'])",
        "os.environ[name] = '1'",
        "os.environ = syntax error",
        "x = os.environ['A'] == 'TF_X'",
        # Other mappings than the environment.
        "d['TF_X'] = os.environ['A']",
        "d.update({'TF_X': 1}, TF_X=os.environ['A'])",
        "import framework; os.environ['TF_X'] = '1'",
    ],
)
def test_script_that_sets_nothing_of_the_imports_stays_warm(text: str) -> None:
    check_script(PythonProgram("code", text, [], False), ["framework"])


@pytest.mark.parametrize(
    "text",
    [
        "import slow",
        "def f():\n    from slow.x import y",
        "import utilities",
        "from . import x",
        "import os, slow as s",
        "from importlib import import_module",
        "__import__('sl' + 'ow')",
        "exec('import slow')",
    ],
)
def test_program_that_may_need_it_waits(text: str) -> None:
    check_use(PythonProgram("code", text, [], unbuffered=False))


@pytest.mark.parametrize(
    "text", ["import sys\nfrom os import path", "import os as o, sys", "no Python:", ""]
)
def test_program_of_the_standard_library_does_not_wait(text: str) -> None:
    with pytest.raises(ColdStart, match="imported"):
        check_use(PythonProgram("code", text, [], unbuffered=False))
