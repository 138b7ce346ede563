"""Which framework a run has, from its spec or the imports of its code, and what follows."""

from __future__ import annotations

import base64
import dataclasses

import pytest

from hvdchart.errors import SpecError
from hvdchart.plan.model import Plan
from hvdchart.plan.planner import make_plan, plan_tree
from hvdchart.spec.yaml_tree import parse_document
from hvdchart.values.from_plan import make_values
from hvdchart.values.plan_text import reasons
from tests.support.specs import spec_of_nodes
from tests.unit.archives import make_archive, make_member

NODE = "{name: x, count: 2, coresPerSocket: 4}"
DDP = "import torch\ntorch.distributed.init_process_group('gloo')\n"


def archive(files: dict[str, str]) -> str:
    members = (make_member(f"./{name}", text.encode()) for name, text in files.items())
    return base64.b64encode(make_archive(*members)).decode()


def plan_code(
    files: dict[str, str], command: str = "python train.py", rest: str = "", node: str = NODE
) -> Plan:
    """The plan of a folder's code."""
    spec = spec_of_nodes(node, rest)
    train = dataclasses.replace(spec.train, command=tuple(command.split()))
    code = {"code": {"archive": archive(files)}}
    return make_plan(dataclasses.replace(spec, train=train, values=code))


def plan_jax(node: str) -> Plan:
    spec = spec_of_nodes(node)
    return make_plan(
        dataclasses.replace(spec, train=dataclasses.replace(spec.train, framework="jax"))
    )


def warnings_of_rendezvous(script: str, workers: int) -> list[str]:
    node = f"{{name: x, count: {workers}, coresPerSocket: 4}}"
    plan = plan_code({"train.py": script}, node=node)
    return [line for line in plan.warnings if "trains alone" in line]


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("import torch", "2 ranks"),
        ("import torch.nn", "`torch.distributed.init_process_group()`"),
        ("from tensorflow import keras", "2 ranks"),
        ("from tensorflow import keras", "`hvd.init()`"),
        ("import jax", "`jax.distributed.initialize()`"),
        ("import tensorflow as tf\ntf.distribute.MultiWorkerMirroredStrategy()", "TF_CONFIG"),
        ("import tensorflow as tf\ntf.distribute.MirroredStrategy()", "2 ranks"),
        (DDP, ""),
        ("import torch, horovod.torch", ""),
        ("import torch\nfrom transformers import Trainer", ""),
        ("import torch\nimport transformers as hf\nhf.Trainer()", ""),
        ("import torch\nfrom our_library.ranks import set_up", ""),
        ("import torch, subprocess\nsubprocess.run(['torchrun', 'inner.py'])", ""),
        ("import keras\nkeras.distribution.initialize()", ""),
        ("import torch, os\nshare = os.environ['RANK']", ""),
        ("import torch, numpy, json\nconfig = dict(rank=8)", "2 ranks"),
        ("import numpy", ""),
    ],
)
def test_ranks_that_nothing_joins_are_a_warning(script: str, says: str) -> None:
    text = " ".join(plan_code({"train.py": script, "other.py": DDP}).warnings)
    assert ("trains alone" in text) == bool(says)
    assert says in text
    single = plan_code({"train.py": script}, node="{name: x, count: 1, coresPerSocket: 4}")
    assert "trains alone" not in " ".join(single.warnings)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("import torch\ntorch.save({}, 'model.pt')", "train.py:2 saves model.pt "),
        ("model.save_pretrained('out/best')", "train.py:1 saves out/best"),
        ("import torch\ntorch.save({}, '/data/model.pt')", ""),
        ("import os\nos.chdir(os.environ['OUTPUT_PATH'])\nmodel.save('model.keras')", ""),
        ("image.save(buffer, 'PNG')", ""),
        ("model.save('gs://bucket/model.keras')", ""),
    ],
)
def test_what_is_saved_in_a_folder_of_the_pod_is_a_warning(script: str, says: str) -> None:
    warnings = [line for line in plan_code({"train.py": script}).warnings if "OUTPUT_PATH" in line]
    assert len(warnings) == bool(says)
    assert all(line.startswith(says) for line in warnings)


# A line of a function or a condition.
ASSIGNED = "\n  os.environ['MASTER_ADDR'] = '{}'"
SPAWN = f"import torch.distributed as dist, os\ndef work(rank):{ASSIGNED}"


@pytest.mark.parametrize(
    ("script", "place"),
    [
        (SPAWN.format("localhost"), "train.py:3 "),
        (SPAWN.format("127.0.0.1"), "train.py:3 "),
        (SPAWN.format("10.0.0.7"), ""),
        (f"{DDP}torch.distributed.init_process_group('gloo', 'tcp://localhost:1')", "train.py:3 "),
        (f"{DDP}torch.distributed.init_process_group(init_method='env://')", ""),
        # What it does without a launcher.
        (f"import os\nif 'RANK' not in os.environ:{ASSIGNED.format('::1')}", ""),
    ],
)
def test_ranks_that_meet_on_their_own_worker_are_a_warning(script: str, place: str) -> None:
    warnings = warnings_of_rendezvous(script, 2)
    assert len(warnings) == bool(place)
    assert all(line.startswith(place) for line in warnings)


def test_ranks_of_one_worker_may_meet_on_it() -> None:
    assert warnings_of_rendezvous(SPAWN.format("localhost"), 1) == []


@pytest.mark.parametrize(
    ("script", "place"),
    [
        ("import torch\ntorch.distributed.init_process_group('nccl')", "train.py:2 "),
        ("from torch import distributed as d\nd.init_process_group(backend='NCCL')", "train.py:2 "),
        (
            "from torch.distributed import init_process_group as i, init_process_group\n"
            "if __name__ == '__main__':\n  init_process_group('nccl')",
            "train.py:3 ",
        ),
        # On CPUs, it uses Gloo.
        (DDP.replace("'gloo'", "'nccl' if torch.cuda.is_available() else 'gloo'"), ""),
        ("import torch.distributed as d\nif d.ok():\n  d.init_process_group('nccl')", ""),
        (DDP.replace("gloo", "cpu:gloo,cuda:nccl"), ""),
    ],
)
def test_nccl_without_gpus_is_a_warning(script: str, place: str) -> None:
    warnings = [line for line in plan_code({"train.py": script}).warnings if "nccl" in line]
    assert len(warnings) == bool(place)
    assert all(line.startswith(place) for line in warnings)
    with_gpus = plan_code({"train.py": script}, node="{name: x, count: 2, gpus: 1}")
    assert "nccl" not in " ".join(with_gpus.warnings)


def test_custom_command_may_join_the_ranks() -> None:
    plan = plan_code({"train.py": "import torch"}, rest="launch: {mode: custom}")
    assert "trains alone" not in " ".join(plan.warnings)


@pytest.mark.parametrize(
    ("script", "others", "framework"),
    [
        (DDP, {}, "torch"),
        ("from torch import distributed as dist", {}, "torch"),
        ("import accelerate", {}, "torch"),
        ("import torch", {}, None),
        ("import jax\njax.distributed.initialize()", {}, "jax"),
        ("from mpi4py import MPI", {}, "mpi"),
        (f"{DDP})", {}, None),
        (f"{DDP}import_module('horovod.torch')", {}, None),
        # Horovod's scripts use parts of others, and a script's own modules count.
        (f"{DDP}import horovod.torch as hvd", {}, "horovod"),
        (f"{DDP}import lib", {"lib.py": "import horovod"}, "horovod"),
        (f"{DDP}from a import b", {"a/b.py": "import mpi4py"}, None),
        ("", {"other.py": DDP}, None),
        # MPI reduces in PyTorch.
        (DDP.replace("gloo", "mpi"), {}, "mpi"),
        (DDP.replace("'gloo'", "backend='cpu:mpi'"), {}, "mpi"),
        (f"{DDP}BACKENDS = ['gloo', 'mpi']", {}, "torch"),
    ],
)
def test_framework_is_that_of_the_script(
    script: str, others: dict[str, str], framework: str | None
) -> None:
    assert plan_code({"train.py": script, **others}).framework.name == framework


def test_file_that_is_no_python_is_a_warning_with_its_line() -> None:
    broken = {"lib.py": "import torch\nx = (", "other.py": "x = = 1"}
    first = plan_code({"train.py": "import lib", **broken}).warnings[0]
    assert first.startswith("lib.py:2: invalid syntax: '(' was never closed: x = (; ranks")
    assert "other.py" not in " ".join(plan_code({"train.py": "", **broken}).warnings)


@pytest.mark.parametrize("text", [f"x = {'+'.join(['1'] * 20_000)}", f"x = {'-' * 100_000}1"])
def test_file_that_this_python_cannot_parse_is_a_warning(text: str) -> None:
    """Without one, the plan is that of a program without a framework."""
    warnings = plan_code({"train.py": f"{DDP}{text}"}).warnings
    assert any(warning.startswith("train.py: ") for warning in warnings)


HVD = "import horovod"


@pytest.mark.parametrize(
    ("files", "command", "framework"),
    [
        ({"train.py": DDP}, "python -u ./train.py --epochs 3", "torch"),
        ({"train.py": DDP}, "bash run.sh", None),
        ({"a/train.py": "from . import b", "a/b.py": DDP}, "python -m a.train", "torch"),
        ({"a/t.py": DDP, "a/__init__.py": HVD}, "python -m a.t", "horovod"),
        ({"a/__init__.py": "", "a/__main__.py": DDP}, "python -m a", "torch"),
        ({"a/t.py": DDP}, "python -m cProfile -m a.t", "torch"),
        ({"a/t.py": f"{DDP}import b", "a/b.py": HVD}, "python a/t.py", "horovod"),
        ({"a/b/t.py": f"{DDP}from ..c import d", "a/c/d.py": HVD}, "python -m a.b.t", "horovod"),
    ],
)
def test_script_is_that_of_the_command(
    files: dict[str, str], command: str, framework: str | None
) -> None:
    assert plan_code(files, command).framework.name == framework


@pytest.mark.parametrize(
    ("rest", "launch"),
    [
        ("", {"mode": "direct", "preload": ["torch"]}),
        ("launch: {mode: mpirun}", {"preload": ["torch"]}),
        ("launch: {options: [--mca, btl, self]}", {"preload": ["torch"]}),
    ],
)
def test_torch_needs_no_mpi_unless_the_spec_says_otherwise(
    rest: str, launch: dict[str, object]
) -> None:
    values = make_values(plan_code({"train.py": DDP}, rest=rest))
    settings = values["launch"]
    assert isinstance(settings, dict)
    assert {key: settings[key] for key in ("mode", "preload") if key in settings} == launch


@pytest.mark.parametrize(
    ("node", "mode"), [(NODE, "mpirun"), ("{name: x, count: 2, gpus: 2}", "direct")]
)
def test_accelerate_starts_with_mpi_on_cpus(node: str, mode: str) -> None:
    """It prefers MPI there: each rank that mpirun has not started would train alone."""
    spec = spec_of_nodes(node)
    for named in ("torch", None):
        train = dataclasses.replace(spec.train, command=("python", "a.py"), framework=named)
        code = {"code": {"files": {"a.py": "import torch.distributed\nimport accelerate"}}}
        framework = make_plan(dataclasses.replace(spec, train=train, values=code)).framework
        assert framework.name == "torch"
        assert framework.mode == mode


MPI_BACKEND = DDP.replace("gloo", "mpi")


@pytest.mark.parametrize("script", ["import mpi4py", MPI_BACKEND])
def test_program_of_mpi_is_not_started_without_it(script: str) -> None:
    """Each rank would train alone."""
    with pytest.raises(SpecError) as refused:
        plan_code({"train.py": script}, "python train.py", "launch: {mode: direct}")
    assert refused.value.path == "launch.mode"
    assert "train.py:" in refused.value.problem
    assert "mpirun" in refused.value.expected


def test_framework_mpi_of_the_spec_is_not_started_without_mpi() -> None:
    node = "{name: x, count: 2, coresPerSocket: 4}"
    text = (
        "apiVersion: hvdchart/v1\nname: x\nimage: {repository: a}\nlaunch:\n  mode: direct\n"
        f"nodes: [{node}]\ntrain:\n  framework: mpi\n  command: [python, t.py]\n"
    )
    with pytest.raises(SpecError) as refused:
        plan_tree(parse_document(text.encode(), "spec.yaml"))
    assert (refused.value.path, refused.value.place) == ("launch.mode", "spec.yaml:5:9")


def test_framework_of_the_spec_counts_before_what_the_code_names() -> None:
    spec = spec_of_nodes(NODE)
    train = dataclasses.replace(spec.train, command=("python", "train.py"), framework="torch")
    values = {"code": {"archive": archive({"train.py": MPI_BACKEND})}}
    framework = make_plan(dataclasses.replace(spec, train=train, values=values)).framework
    assert framework.name == "torch"


def test_plan_says_which_line_made_it_choose() -> None:
    rows = {row[0]: row[2] for row in reasons(plan_code({"train.py": DDP}))}
    assert rows["launch.mode"] == rows["launch.preload"] == "train.py:2 uses torch.distributed"


def test_ranks_of_jax_have_as_many_threads_as_cores() -> None:
    env = plan_jax(NODE).groups[0].env
    assert env["NPROC"] == env["OMP_NUM_THREADS"] == "4"


def test_ranks_of_jax_on_gpus_have_no_number_of_threads() -> None:
    plan = plan_jax("{name: x, count: 2, coresPerSocket: 4, gpus: 2}")
    assert "NPROC" not in plan.groups[0].env


def test_ranks_of_jax_on_gpus_are_not_started_in_advance() -> None:
    """Warm ranks are not tested on a GPU."""
    plan = plan_jax("{name: x, count: 2, coresPerSocket: 4, gpus: 2}")
    assert plan.framework.preload == ()


@pytest.mark.parametrize(
    "archive",
    ["no base64!", base64.b64encode(b"no archive").decode()],
    ids=["no base64", "no archive"],
)
def test_code_that_cannot_be_read_says_nothing(archive: str) -> None:
    spec = dataclasses.replace(spec_of_nodes(NODE), values={"code": {"archive": archive}})
    assert make_plan(spec).framework.name is None
