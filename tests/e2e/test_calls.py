"""Functions that are called on the ranks of pods, from a script and from a notebook."""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from traitlets.config import Config

from devtools.toolchain.tools import tool
from hvdchart import Launcher, RunFailedError, Spec, TimeLimitError, parse_spec
from hvdchart.calls.connection import RemoteTraceback
from tests.e2e.cluster import Namespace
from tests.waiting import wait_until

# The pods do not have this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
ROOT = Path(__file__).resolve().parents[2]
SPEC = """
apiVersion: hvdchart/v1
name: calls
nodes: [{{name: n, count: 2, shared: true, coresPerSocket: 1, memory: 1Gi, tuning: {{cpu: 50m}}}}]
image: {{repository: {image[0]}, tag: {image[1]}}}
train: {{command: [none]}}
values: {{launch: {{preload: []}}, worker: {{env: [{{name: CALLED, value: "yes"}}]}}}}
"""


@pytest.fixture
def settings(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a launcher needs to reach the namespace."""
    for name, value in namespace.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{tool('kubectl').parent}:{os.environ['PATH']}")
    spec: Spec = parse_spec(SPEC.format(image=namespace.image.rsplit(":", 1)))
    return {"spec": spec, "namespace": namespace.name, "helm": str(tool("helm4"))}


def who() -> tuple[int, str]:
    """The rank, and what its worker has in its environment."""
    print("I am called", flush=True)
    return int(os.environ["OMPI_COMM_WORLD_RANK"]), os.environ["CALLED"]


def fail() -> None:
    """Fail on the second rank alone."""
    if who()[0] == 1:
        raise LookupError("no such brain")
    time.sleep(300)


def wait() -> None:
    """Never return."""
    who()
    time.sleep(300)


def large() -> bytes:
    """100 MB."""
    return bytes(100_000_000)


def version() -> int:
    """Of the code that came with the call."""
    import own_module  # type: ignore[import-not-found]

    return int(own_module.VERSION)


def measure(what: str, call: Callable[[], Any]) -> Any:
    """Make a call, and print how long it took."""
    began = time.monotonic()
    try:
        return call()
    finally:
        print(f"MEASURED {what}: {time.monotonic() - began:.2f} s")


def test_calls_on_warm_workers_and_a_lost_one(
    namespace: Namespace, settings: dict[str, Any], tmp_path: Path
) -> None:
    output = io.StringIO()
    code = tmp_path / "own_module.py"
    code.write_text("VERSION = 1")
    with Launcher(**settings, code=tmp_path, output=output) as launcher:
        expected = [(0, "yes"), (1, "yes")]
        assert measure("first call, with its install", lambda: launcher(who)) == expected
        assert output.getvalue().count("I am called\n") == 2
        # The first run's name comes back with its code.
        for number in (2, 1):
            code.write_text(f"VERSION = {number}")
            assert measure("call with edited code", lambda: launcher(version)) == [number] * 2
        release = namespace.helm("history", "calls").stdout
        for _ in range(3):
            assert measure("a call on warm workers", lambda: launcher(who)) == expected
        assert launcher(large) == [bytes(100_000_000)] * 2

        with pytest.raises(LookupError, match="no such brain") as caught:
            measure("a call that fails", lambda: launcher(fail))
        assert isinstance(caught.value.__cause__, RemoteTraceback)
        assert "rank 1 on calls-worker-1" in str(caught.value.__cause__)
        with pytest.raises(TimeLimitError):
            launcher(wait, timeout=2)
        assert launcher(who) == expected

        output.truncate(0)

        def lose() -> None:
            wait_until(lambda: output.getvalue().count("I am called") == 2, 60, "both ranks run")
            namespace.kubectl("delete", "pod", "calls-worker-1", "--grace-period=0", "--force")

        threading.Thread(target=lose).start()
        with pytest.raises(RunFailedError, match="calls-worker-1") as lost:
            measure("a call whose worker is lost", lambda: launcher(wait))
        print("MEASURED", lost.value)
        assert measure("the call after it", lambda: launcher(who)) == expected
        assert namespace.helm("history", "calls").stdout == release, "no call upgrades the release"
    namespace.wait_until_gone("all,secrets")
    assert namespace.helm("list", "--short").stdout == ""


NOTEBOOK = [
    """
import asyncio, os
import hvdchart
assert asyncio.get_running_loop().is_running()

def average(scale):
    import horovod.tensorflow as hvd
    import tensorflow as tf
    hvd.init()
    print("rank", hvd.rank(), "of", hvd.size())
    return float(hvd.allreduce(tf.constant(scale * hvd.rank())))

settings = dict(spec="calls.spec.yaml", namespace=os.environ["TEST_NAMESPACE"],
                helm=os.environ["TEST_HELM"])
print("RESULTS", hvdchart.launch(average, [2.0], **settings))
""",
    """
print("AGAIN", hvdchart.launch(lambda: len(os.environ) > 0, **settings))
""",
    """
def fail():
    raise ValueError("seen in the notebook")
hvdchart.launch(fail, **settings)
""",
]


def test_notebook_calls_functions_of_its_cells(
    namespace: Namespace, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Here, because the import of nbformat takes a second.
    import nbclient
    import nbformat

    spec = SPEC.format(image=namespace.image.rsplit(":", 1))
    (tmp_path / "calls.spec.yaml").write_text(spec)
    monkeypatch.setenv("TEST_NAMESPACE", settings["namespace"])
    monkeypatch.setenv("TEST_HELM", settings["helm"])
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    cells = list(map(nbformat.v4.new_code_cell, NOTEBOOK))
    notebook = nbformat.v4.new_notebook(cells=cells)  # type: ignore[no-untyped-call]
    notebook.cells[-1].metadata["tags"] = ["raises-exception"]
    place = {"metadata": {"path": str(tmp_path)}}
    # To undeploy its run, a kernel takes longer than Jupyter waits for its end.
    patient = Config({"KernelManager": {"shutdown_wait_time": 240.0}})
    nbclient.NotebookClient(notebook, timeout=240, resources=place, config=patient).execute()
    first, second, third = (cell.outputs for cell in notebook.cells)
    text = "".join(output.get("text", "") for output in first)
    assert "RESULTS [1.0, 1.0]" in text
    assert "rank 1 of 2" in text
    assert "AGAIN [True, True]" in "".join(output.get("text", "") for output in second)
    assert (third[-1].ename, third[-1].evalue) == ("ValueError", "seen in the notebook")
    assert "RemoteTraceback" in "".join(third[-1].traceback)
    # The end of the kernel removes the release.
    namespace.wait_until_gone("all,secrets")
