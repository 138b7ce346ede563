"""Which requests of ranks the warm process grants."""

from __future__ import annotations

import fcntl
import gc
import os
from pathlib import Path
from typing import Any

import pytest

from hvd_pods.warm import warm_state as checked
from hvd_pods.warm.warm_state import WarmState
from tests.unit.hvd_pods.warm.worker import RANDOM_MODULES, make_worker, warm_up

OPTIMIZERS = """
class optim:
    def SGD(parameters, lr):
        {body}
class nn:
    Parameter = list
def zeros(size):
    return [0.0] * size
"""


def request(**changes: Any) -> dict[str, Any]:
    """A rank's request that nothing speaks against."""
    return {
        "descriptors": [0, 1, 2],
        "cpus": sorted(os.sched_getaffinity(0)),
        "environment": {},
        "folder": str(Path.cwd()),
        "first path": "/nowhere",
        **changes,
    }


@pytest.fixture
def warm_state(monkeypatch: pytest.MonkeyPatch) -> WarmState:
    """A warm process of one thread."""
    monkeypatch.setattr(checked, "threads", lambda: 1)
    return WarmState()


def torch_whose_optimizer(body: str) -> dict[str, str]:
    """A PyTorch that does this when an optimizer is made."""
    return {"torch": RANDOM_MODULES["torch"] + OPTIMIZERS.format(body=body), "late": ""}


@pytest.mark.parametrize(
    ("environment", "remedy"),
    [
        ({}, "set OMP_NUM_THREADS"),
        ({"OMP_NUM_THREADS": "2"}, None),
        ({"OMP_NUM_THREADS": "2", "OMP_PLACES": "cores"}, "unset OMP_PLACES"),
    ],
)
def test_bound_rank_must_not_have_counted_other_cpus(
    warm_state: WarmState, environment: dict[str, str], remedy: str | None
) -> None:
    reason = warm_state.find_reason(request(cpus=[999], environment=environment))
    assert (remedy in reason) if remedy and reason else (reason == remedy)


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/a:src", "PYTHONPATH has the relative path src"), ("/a:/b:", None)],
    ids=["relative", "absolute"],
)
def test_relative_path_has_another_meaning_in_another_folder(
    warm_state: WarmState, path: str, reason: str | None
) -> None:
    assert warm_state.find_reason(request(environment={"PYTHONPATH": path})) == reason


def test_descriptor_that_an_import_has_opened_is_not_replaced(
    warm_state: WarmState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc, "freeze", lambda: None)
    # Other tests may have left sockets: take numbers that are free.
    with (tmp_path / "file").open("w") as file:
        number = fcntl.fcntl(file, fcntl.F_DUPFD, 300)
        warm_state.load([])
        os.close(number)
        number_of_the_rank = fcntl.fcntl(file, fcntl.F_DUPFD, number + 1)
        reason = warm_state.find_reason(request(descriptors=[0, number]))
        other = warm_state.find_reason(request(descriptors=[0, number_of_the_rank]))
        os.close(number_of_the_rank)
    assert reason
    assert reason.endswith(f" {number}")
    assert other is None


def test_module_that_uses_a_gpu_is_not_forked(warm_state: WarmState) -> None:
    """Its context cannot be used in a fork."""
    warm_state.opened = {5: "/dev/null", 7: "/dev/nvidia0"}
    assert "(/dev/nvidia0)" in (warm_state.find_reason(request()) or "")
    warm_state.opened = {5: "/dev/null", 6: "socket:[1]"}
    assert warm_state.find_reason(request()) is None


@pytest.mark.parametrize(
    ("entry", "shadows"),
    [
        ("framework.py", True),
        ("framework.pyc", True),
        ("framework/__init__.py", True),
        # A part of a namespace, which other folders may add to.
        ("framework/model.py", False),
        ("framework.txt", False),
        ("sys.py", False),
    ],
)
def test_module_beside_the_script_takes_precedence(
    warm_state: WarmState, tmp_path: Path, entry: str, shadows: bool
) -> None:
    (tmp_path / entry).parent.mkdir(exist_ok=True)
    (tmp_path / entry).touch()
    warm_state.tops = {"framework", "sys"}
    reason = warm_state.find_reason(request(**{"first path": str(tmp_path)}))
    expected = f"{tmp_path / entry} takes precedence over the imported module framework"
    assert reason == (expected if shadows else None)


def test_ranks_have_what_the_first_optimizer_imports() -> None:
    with make_worker(torch_whose_optimizer("import late")) as worker, warm_up(worker, ["torch"]):
        assert worker.show("import sys; print('late' in sys.modules)") == "True\n"


def test_variables_that_an_optimizer_sets_are_left_to_the_script() -> None:
    body = "import os; os.environ['OF_THE_OPTIMIZER'] = '1'"
    with make_worker(torch_whose_optimizer(body)) as worker, warm_up(worker, ["torch"]):
        shown = worker.show("import os; print(os.environ.get('OF_THE_OPTIMIZER'))")
        assert shown == "None\n"


def test_ranks_start_cold_where_no_optimizer_can_be_made() -> None:
    modules = torch_whose_optimizer("raise ValueError('no such option')")
    with make_worker(modules) as worker, warm_up(worker, ["torch"]):
        assert "ValueError: no such option" in worker.log
