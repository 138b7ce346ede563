"""Ranks that meet a defect of Horovod 0.28.1: `mended_defects_ranks.py CASE`.

Each rank that comes to the end prints RESULT and what it has then. horovodrun runs the cases of
elastic runs, and finds the hosts with the script `hosts` beside this file.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn
from urllib.request import urlopen

import elastic_ranks

HOSTS = Path(__file__).with_name("hosts")
LOST_AT = 3
STEPS = 6


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def grouped_dense_and_sparse_gradients() -> Any:
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    row = tf.constant([hvd.rank()])
    sparse = tf.IndexedSlices(tf.ones((1, 2)), row, dense_shape=tf.constant([2, 2]))
    dense, reduced = hvd.grouped_allreduce([tf.ones(3), sparse], op=hvd.Sum)
    return [dense.numpy().tolist(), tf.convert_to_tensor(reduced).numpy().tolist()]


def variables_of_a_rank_that_joins() -> Any:
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    total = tf.Variable(100.0 * hvd.rank())
    state = hvd.elastic.TensorFlowState([total], step=0)
    grow(hvd, state, lambda: total.assign_add(hvd.allreduce(tf.constant(1.0))))
    return [state.step, float(total)]


def optimizer_of_a_rank_that_joins() -> Any:
    """Which has no variables before its first step."""
    import horovod.tensorflow.keras as hvd
    import tensorflow as tf

    hvd.init()
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam())
    model.compile(optimizer, "mse")
    state = hvd.elastic.KerasState(model, step=0)
    grow(hvd, state, lambda: model.train_on_batch(tf.ones((4, 2)), tf.ones((4, 1))))
    return [state.step, int(optimizer.iterations)]


def grow(hvd: Any, state: Any, take_step: Any) -> None:
    """Train alone for some steps, and then with the rank of a second host."""

    @hvd.elastic.run  # type: ignore[untyped-decorator]
    def train(state: Any) -> None:
        while hvd.size() == 1 or state.step < STEPS:
            if hvd.size() == 1 and state.step == LOST_AT:
                with HOSTS.open("a") as script:
                    script.write("echo 127.0.0.1:1\n")
                while True:  # until the second host is known
                    state.commit()
                    time.sleep(0.1)
            take_step()
            state.step += 1

    train(state)


def rank_lost_beside_process_sets() -> Any:
    hvd, make_state, add = training()
    hvd.init(process_sets="dynamic")

    @hvd.elastic.run  # type: ignore[untyped-decorator]
    def train(state: Any) -> None:
        state.worlds = [*state.worlds, hvd.size()]
        own_set = [hvd.add_process_set([rank]) for rank in range(hvd.size())][hvd.rank()]
        while state.step < STEPS:
            if state.step == LOST_AT and len(state.worlds) == 1 and hvd.rank() == 1:
                die()
            add(process_set=own_set)
            add(process_set=hvd.global_process_set)
            state.step += 1
            state.commit()

    state = make_state()
    train(state)
    return [state.step, state.worlds]


def rank_lost_while_ranks_meet() -> Any:
    from horovod.common.exceptions import HostsUpdatedInterrupt

    hvd, make_state, add = training()
    hvd.init()

    @hvd.elastic.run  # type: ignore[untyped-decorator]
    def train(state: Any) -> None:
        state.worlds = [*state.worlds, hvd.size()]
        while state.step < STEPS:
            if state.step == LOST_AT and len(state.worlds) == 1:
                if hvd.rank() == 1:
                    ask_for_rank()
                    die()
                raise HostsUpdatedInterrupt(skip_sync=False)
            add()
            state.step += 1

    state = make_state()
    train(state)
    return [state.step, state.worlds]


def ask_for_rank() -> None:
    """The driver answers when all ranks have asked; they begin to connect then."""
    names = ("GLOO_RENDEZVOUS_ADDR", "GLOO_RENDEZVOUS_PORT", "HOSTNAME", "LOCAL_RANK")
    server, port, host, slot = (os.environ[f"HOROVOD_{name}"] for name in names)
    with urlopen(f"http://{server}:{port}/rank_and_size/{host}:{slot}") as answer:
        answer.read()


def ranks_without_work() -> Any:
    """The share of a CPU that this rank takes, after rank 1 was stopped for a moment."""
    import horovod.tensorflow as hvd

    hvd.init()
    if hvd.rank() == 1:
        subprocess.run(["sh", "-c", "kill -STOP $PPID; sleep 0.1; kill -CONT $PPID"], check=True)
    shares = []
    for _ in range(5):
        began = time.monotonic()
        taken = time.process_time()
        time.sleep(0.5)
        shares.append((time.process_time() - taken) / (time.monotonic() - began))
    # One that does not run for a while makes the other one wait, too.
    return min(shares)


def training() -> tuple[Any, Any, Any]:
    """Horovod, a state, and an allreduce."""
    hvd, totals, make_state, ones_like, *_ = elastic_ranks.tensorflow()

    def add(**options: Any) -> None:
        # A rank that was started later would count its own names otherwise.
        hvd.allreduce(ones_like(totals[0]), name="sum", **options)

    return hvd, lambda: make_state(step=0, worlds=[]), add


def main() -> None:
    print(f"RESULT {globals()[sys.argv[1]]()}", flush=True)


if __name__ == "__main__":
    main()
