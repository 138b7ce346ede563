"""Ranks of one worker do not share random states. Stand-ins have those of NumPy and Torch.

tests/e2e/test_training.py has the same with TensorFlow itself.
"""

from __future__ import annotations

import pytest

from tests.unit.hvd_pods.warm.worker import RANDOM_MODULES, make_worker, warm_up

pytestmark = pytest.mark.slow

PRELOAD = [name.replace("/", ".").replace(".__init__", "") for name in RANDOM_MODULES]
DRAW = """
import random, numpy.random, torch, multiprocessing
print(random.random())
print(numpy.random.own.random())
print(torch.default_generator.own.random())
print(multiprocessing.current_process().authkey)
"""


def test_ranks_share_no_random_state_that_the_import_has_touched() -> None:
    with make_worker(RANDOM_MODULES) as worker, warm_up(worker, [*PRELOAD, "framework"]):
        first, second = (worker.show(DRAW).splitlines() for _ in range(2))
    assert "cold" not in first[0]
    assert [one for one, other in zip(first, second, strict=True) if one == other] == []
