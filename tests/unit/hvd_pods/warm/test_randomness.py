"""Ranks of one worker do not share random states. Stand-ins have those of NumPy and Torch.

tests/e2e/test_training.py has the same with TensorFlow itself.
"""

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
}
PRELOAD = [name.replace("/", ".").replace(".__init__", "") for name in MODULES]
DRAW = """
import random, numpy.random, torch, multiprocessing
print(random.random())
print(numpy.random.own.random())
print(torch.default_generator.own.random())
print(multiprocessing.current_process().authkey)
"""


def test_ranks_share_no_random_state_that_the_import_has_touched() -> None:
    with make_worker(MODULES) as worker, warm(worker, [*PRELOAD, "framework"]):
        first, second = (worker.show(DRAW).splitlines() for _ in range(2))
    assert "cold" not in first[0]
    for one, other in zip(first, second, strict=True):
        assert one != other
