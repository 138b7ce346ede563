"""Ranks of one worker do not share random states: stand-ins have the states of the frameworks."""

from __future__ import annotations

import pytest

from tests.unit.hvd_pods.warm.worker import make_worker, warm

pytestmark = pytest.mark.slow

# Each generator is seeded when its module is imported; `random` is Python's own.
MODULES = {
    "numpy/__init__": "",
    "numpy/random": "import random\nown = random.Random()\nseed = own.seed\nrandom.random()",
    "torch": """
import random
class State(list):
    def __eq__(self, other):
        return State([list(self) == list(other)])
    def all(self):
        return all(self)
class Generator:
    def __init__(self):
        self.own = random.Random(1)
    def get_state(self):
        return State(self.own.getstate())
default_generator = Generator()
def seed():
    default_generator.own.seed()
""",
    "touched": "import torch\ntorch.default_generator.own.random()",
    "tensorflow/__init__": "",
    "tensorflow/python/__init__": "",
    "tensorflow/python/ops/__init__": "",
    "tensorflow/python/ops/stateful_random_ops": """
import random
class Generator:
    def __init__(self):
        self.own = random.Random()
    @classmethod
    def from_non_deterministic_state(cls):
        return cls()
global_generator = Generator()
def set_global_generator(generator):
    global global_generator
    global_generator = generator
""",
    "tensorflow/python/eager/__init__": "",
    "tensorflow/python/eager/context": """
import random
class Context:
    _rng = random.Random()
_context = Context()
""",
    "keras/__init__": "",
    "keras/src/__init__": "",
    "keras/src/backend/__init__": "",
    "keras/src/backend/common/__init__": "",
    "keras/src/backend/common/global_state": """
attributes = {"global_seed_generator": "made during the import"}
def set_global_attribute(name, value):
    attributes[name] = value
""",
}
# As TensorFlow is until something draws a number.
UNTOUCHED = {
    "tensorflow/python/ops/stateful_random_ops": "global_generator = None",
    "tensorflow/python/eager/context": "class Context: _rng = None\n_context = Context()",
}
PRELOAD = [name.replace("/", ".").replace(".__init__", "") for name in MODULES]
DRAW = """
import random, numpy.random, torch, multiprocessing
from tensorflow.python.ops import stateful_random_ops
from tensorflow.python.eager import context
from keras.src.backend.common import global_state
print(random.random())
print(numpy.random.own.random())
print(torch.default_generator.own.random())
print(stateful_random_ops.global_generator.own.random())
print(context._context._rng.random())
print(multiprocessing.current_process().authkey)
print(global_state.attributes)
"""


def test_ranks_do_not_share_random_states_of_the_import() -> None:
    with make_worker(MODULES) as worker, warm(worker, [*PRELOAD, "framework"]):
        first, second = (worker.show(DRAW).splitlines() for _ in range(2))
    assert "cold" not in first[0]
    for one, other in zip(first[:-1], second[:-1], strict=True):
        assert one != other
    assert first[-1] == "{'global_seed_generator': None}"


def test_untouched_generators_start_as_in_a_new_process() -> None:
    """That of Torch has the same state in all processes, until a script seeds it."""
    draw = "import torch; print(torch.default_generator.own.random())"
    preload = [name for name in PRELOAD if name != "touched"]
    with make_worker(MODULES | UNTOUCHED) as worker, warm(worker, [*preload, "framework"]):
        first, second = (worker.show(draw) for _ in range(2))
    with make_worker(MODULES) as worker:
        assert first == second == worker.show(draw)
