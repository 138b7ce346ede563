"""Functions that are called on the ranks of pods, from a script and from a notebook."""

from __future__ import annotations

import io
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from traitlets.config import Config

from devtools.common.waiting import wait_until
from devtools.toolchain.tools import tool
from hvdchart import Caller, RunFailedError, Spec, parse_spec
from tests.support.images import in_cluster
from tests.support.namespace import Namespace

# The pods do not have this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
SPEC = """
apiVersion: hvdchart/v1
name: calls
nodes: [{{name: n, count: 2, shared: true, coresPerSocket: 1, memory: 1Gi, tuning: {{cpu: 50m}}}}]
image: {{repository: {image[0]}, tag: "{image[1]}"}}
train: {{command: [none]}}
values: {{launch: {{preload: []}}, worker: {{env: [{{name: CALLED, value: "yes"}}]}}}}
"""


@pytest.fixture(scope="class")
def image(kubeconfig: Path) -> list[str]:
    """The repository and the tag of an image with an MPI and this machine's Python."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return in_cluster("cpu", python=python).rsplit(":", 1)


@pytest.fixture(scope="class")
def settings(namespace: Namespace, image: list[str]) -> Iterator[dict[str, Any]]:
    """What a caller needs to reach the namespace."""
    spec: Spec = parse_spec(SPEC.format(image=image))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in namespace.environment().items():
            patch.setenv(name, value)
        patch.setenv("PATH", f"{tool('kubectl').parent}:{os.environ['PATH']}")
        yield {"spec": spec, "namespace": namespace.name, "helm": str(tool("helm4"))}


def who() -> tuple[int, str]:
    """The rank, and what its worker has in its environment."""
    print("I am called", flush=True)
    return int(os.environ["RANK"]), os.environ["CALLED"]


def wait() -> None:
    """Never return."""
    who()
    time.sleep(300)


def version() -> int:
    """Of the code that came with the call."""
    import own_module  # type: ignore[import-not-found]

    return int(own_module.VERSION)


# What `who` returns.
EXPECTED = [(0, "yes"), (1, "yes")]


@dataclass(frozen=True)
class Calls:
    """A caller on two warm workers, the ranks' output, and the module that goes with calls."""

    caller: Caller
    output: io.StringIO
    module: Path

    def count_outputs(self) -> int:
        """How often a rank has said that it is called."""
        return self.output.getvalue().count("I am called\n")


@pytest.fixture(scope="class")
def warm(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calls]:
    """The first call has been made."""
    module = tmp_path_factory.mktemp("code") / "own_module.py"
    module.write_text("VERSION = 1")
    output = io.StringIO()
    with Caller(**settings, code=module.parent, output=output) as caller:
        caller(who)
        yield Calls(caller, output, module)


@pytest.fixture(scope="class")
def closed(warm: Calls) -> None:
    """The caller is closed."""
    warm.caller.close()


class TestWarmWorkers:
    def test_results_are_those_of_the_ranks_in_order(self, warm: Calls) -> None:
        assert warm.caller(who) == EXPECTED

    # The first run's name comes back with its code.
    @pytest.mark.parametrize("number", [2, 1])
    def test_edited_code_goes_with_the_next_call(self, warm: Calls, number: int) -> None:
        warm.module.write_text(f"VERSION = {number}")
        assert warm.caller(version) == [number] * 2

    def test_lost_worker_is_named_and_the_next_call_has_another(
        self, warm: Calls, namespace: Namespace
    ) -> None:
        before = warm.count_outputs()

        def lose() -> None:
            wait_until(lambda: warm.count_outputs() == before + 2, 60, "both ranks run")
            namespace.kubectl("delete", "pod", "calls-worker-1", "--grace-period=0", "--force")

        threading.Thread(target=lose).start()
        with pytest.raises(RunFailedError, match="calls-worker-1"):
            warm.caller(wait)
        assert warm.caller(who) == EXPECTED

    def test_closed_caller_leaves_nothing(self, closed: None, namespace: Namespace) -> None:
        namespace.wait_until_gone("all,secrets")
        assert namespace.helm("list", "--short").stdout == ""


class TestImageOfPythonAlone(TestWarmWorkers):
    """The chart itself starts the ranks where the image has no MPI."""

    @pytest.fixture(scope="class")
    @classmethod
    def image(cls, python_image: dict[str, str]) -> list[str]:
        return [python_image["repository"], python_image["tag"]]


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
def fail():
    raise ValueError("seen in the notebook")
hvdchart.launch(fail, **settings)
""",
]


@pytest.fixture(scope="class")
def cells(
    image: list[str], settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> list[Any]:
    """The outputs of each cell of NOTEBOOK, whose kernel has ended."""
    # Here, because the import of nbformat takes a second.
    import nbclient
    import nbformat

    folder = tmp_path_factory.mktemp("notebook")
    (folder / "calls.spec.yaml").write_text(SPEC.format(image=image))
    written = list(map(nbformat.v4.new_code_cell, NOTEBOOK))
    notebook = nbformat.v4.new_notebook(cells=written)  # type: ignore[no-untyped-call]
    notebook.cells[-1].metadata["tags"] = ["raises-exception"]
    place = {"metadata": {"path": str(folder)}}
    # To undeploy its run, a kernel takes longer than Jupyter waits for its end.
    patient = Config({"KernelManager": {"shutdown_wait_time": 240.0}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEST_NAMESPACE", settings["namespace"])
        patch.setenv("TEST_HELM", settings["helm"])
        patch.setenv("JUPYTER_RUNTIME_DIR", str(folder / "runtime"))
        nbclient.NotebookClient(notebook, timeout=240, resources=place, config=patient).execute()
    return [cell.outputs for cell in notebook.cells]


def text_of(outputs: list[Any]) -> str:
    """What a cell has printed."""
    return "".join(output.get("text", "") for output in outputs)


class TestNotebook:
    def test_function_of_a_cell_is_called_on_the_ranks(self, cells: list[Any]) -> None:
        assert "RESULTS [1.0, 1.0]" in text_of(cells[0])

    def test_output_of_the_ranks_is_in_the_cell(self, cells: list[Any]) -> None:
        assert "rank 1 of 2" in text_of(cells[0])

    def test_exception_of_a_rank_is_raised_in_the_cell(self, cells: list[Any]) -> None:
        raised = cells[-1][-1]
        assert raised.ename == "ValueError"
        assert raised.evalue == "seen in the notebook"
        shown = re.sub(r"\x1b\[[0-9;]*m", "", "".join(raised.traceback))
        assert "RemoteTraceback" in shown
        assert ', in fail\n    raise ValueError("seen in the notebook")\n' in shown
        assert "hvdchart/calls" not in shown

    @pytest.mark.usefixtures("cells")
    def test_end_of_the_kernel_removes_the_release(self, namespace: Namespace) -> None:
        namespace.wait_until_gone("all,secrets")
