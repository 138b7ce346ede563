"""Which random states of imported modules a fork renews, and where its program is looked for."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hvd_pods.warm import script

NAMES = (
    "numpy.random",
    "torch",
    "tensorflow.python.ops.stateful_random_ops",
    "tensorflow.python.eager.context",
    "keras.src.backend.common.global_state",
)


@pytest.fixture(autouse=True)
def nothing_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests may have imported frameworks."""
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)


class State(list[int]):  # noqa: PLW1641 - as a tensor is compared
    """A tensor with the state of a generator."""

    def __eq__(self, other: object) -> Any:
        assert isinstance(other, State)
        return SimpleNamespace(all=lambda: list(self) == list(other))

    def __ne__(self, other: object) -> Any:
        assert isinstance(other, State)
        return SimpleNamespace(all=lambda: list(self) != list(other))


def put(monkeypatch: pytest.MonkeyPatch, name: str, **attributes: Any) -> None:
    """Import a module that has these attributes."""
    module = ModuleType(name)
    vars(module).update(attributes)
    monkeypatch.setitem(sys.modules, name, module)


def test_rank_without_these_modules_has_nothing_to_renew() -> None:
    script.renew_randomness()
    assert not set(NAMES) & sys.modules.keys(), "an import would take its time"


def test_numpy_is_seeded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    renewed: list[str] = []
    put(monkeypatch, "numpy.random", seed=lambda: renewed.append("numpy"))
    script.renew_randomness()
    assert renewed == ["numpy"]


@pytest.mark.parametrize(("state", "is_renewed"), [([1, 2], False), ([1, 3], True), ([], True)])
def test_torch_is_seeded_anew_where_an_import_has_drawn_a_number(
    monkeypatch: pytest.MonkeyPatch, state: list[int], is_renewed: bool
) -> None:
    renewed: list[str] = []
    put(
        monkeypatch, "torch",
        default_generator=SimpleNamespace(get_state=lambda: State(state)),
        Generator=lambda: SimpleNamespace(get_state=lambda: State([1, 2])),
        seed=lambda: renewed.append("torch"),
    )  # fmt: skip
    script.renew_randomness()
    assert bool(renewed) == is_renewed


@pytest.mark.parametrize("generator", [None, "of the import"])
def test_generator_of_tensorflow_is_made_anew_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, generator: str | None
) -> None:
    renewed: list[str] = []
    put(
        monkeypatch, NAMES[2], global_generator=generator, set_global_generator=renewed.append,
        Generator=SimpleNamespace(from_non_deterministic_state=lambda: "of the rank"),
    )  # fmt: skip
    script.renew_randomness()
    assert renewed == (["of the rank"] if generator else [])


def test_seeds_of_operations_are_drawn_anew_where_any_was_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    renewed: list[str] = []
    for context in (None, SimpleNamespace(), SimpleNamespace(_rng=None)):
        put(monkeypatch, NAMES[3], _context=context)
        script.renew_randomness()
    assert renewed == []
    random = SimpleNamespace(seed=lambda: renewed.append("operations"))
    put(monkeypatch, NAMES[3], _context=SimpleNamespace(_rng=random))
    script.renew_randomness()
    assert renewed == ["operations"]


def test_generator_of_keras_is_made_anew_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"global_seed_generator": "of the import", "other": "stays"}
    put(monkeypatch, NAMES[4], set_global_attribute=kept.__setitem__)
    script.renew_randomness()
    assert kept == {"global_seed_generator": None, "other": "stays"}


def test_what_multiprocessing_has_kept_of_the_import_is_corrected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = SimpleNamespace(authkey=b"of the import")
    python: list[str] = []
    put(
        monkeypatch, "multiprocessing.process",
        ORIGINAL_DIR="/elsewhere", current_process=lambda: process,
    )  # fmt: skip
    put(monkeypatch, "multiprocessing.spawn", set_executable=python.append)
    monkeypatch.chdir(tmp_path)
    script._correct_multiprocessing()
    assert vars(sys.modules["multiprocessing.process"])["ORIGINAL_DIR"] == str(tmp_path)
    assert (len(process.authkey), python) == (32, [sys.executable])
    for name in ("multiprocessing.process", "multiprocessing.spawn"):
        monkeypatch.delitem(sys.modules, name)
    script._correct_multiprocessing()
    assert python == [sys.executable], "it was not imported"


def test_first_folder_of_modules_is_that_of_a_new_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").touch()
    (tmp_path / "link.py").symlink_to("project/train.py")
    monkeypatch.chdir(tmp_path)
    folders = {"file": str(tmp_path / "project"), "module": str(tmp_path), "code": ""}
    for kind, folder in folders.items():
        assert script.first_path({"kind": kind, "target": "link.py"}) == folder
    monkeypatch.setattr(sys, "flags", SimpleNamespace(safe_path=True))
    for kind in folders:
        assert script.first_path({"kind": kind, "target": "link.py"}) is None


def test_older_python_adds_the_folder_of_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no option to leave it out."""
    monkeypatch.setattr(sys, "flags", SimpleNamespace())
    script = {"kind": "file", "target": str(tmp_path / "train.py")}
    assert script.first_path(script) == str(tmp_path)


def test_traceback_begins_in_the_script() -> None:
    """Frames of the chart's own are only left out before those of the script."""
    program = {"kind": "code", "target": "def f():\n  1 / 0\nf()"}
    error = script._execute(program, {"__name__": "__main__"})
    assert isinstance(error, ZeroDivisionError)
    trace = script._own_part(error.__traceback__)
    assert trace is not None
    assert (trace.tb_frame.f_code.co_filename, trace.tb_lineno) == ("<string>", 3)
    assert trace.tb_next is not None
    assert trace.tb_next.tb_frame.f_code.co_name == "f"
    error = script._execute({"kind": "code", "target": "1 /"}, {})
    assert isinstance(error, SyntaxError)
    assert script._own_part(error.__traceback__) is None
