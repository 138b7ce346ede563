"""Keeps the state of a training in its workers' memory, from which the next attempt continues.

    import keep

    model.fit(..., callbacks=[..., keep.Callback()])         # with Keras

    state = keep.State(model=model, optimizer=optimizer)     # in a loop of your own
    for step in range(state.restore(), steps):
        ...
        state.commit()
    state.save()

A commit copies the state to shared memory of the worker, which outlives the rank and the attempt.
`restore` finds the newest step that is complete on any worker, or else in a checkpoint, and leaves
all ranks with that state. Nothing here changes how a training ends: where memory or disk is full,
the log says so. Outside of a run of the chart there are only checkpoints.
"""

from .kept_state import State, last_step
from .keras import Callback
from .packed_state import StepKey, pack, read_file
from .worker import FOLDER

__all__ = ["FOLDER", "Callback", "State", "StepKey", "last_step", "pack", "read_file"]
