"""`mpirun -np 2 python -m ranks [CHECK...]`: all checks, or those named.

Rank 0 prints one line, RESULT and JSON: for each check what was wrong, by rank; nothing when it is
well on all of them.
"""

from __future__ import annotations

import json
import sys
import traceback

import horovod.tensorflow.keras as hvd
from horovod.tensorflow import allgather_object

from . import any_keras
from .helpers import IS_KERAS_3


def main() -> None:
    hvd.init()
    checks = list(any_keras.CHECKS)
    if IS_KERAS_3:
        from . import keras_3

        checks += keras_3.CHECKS
    wanted = sys.argv[1:]
    results = {}
    for check in checks:
        if wanted and check.__name__ not in wanted:
            continue
        try:
            check()
            said = ""
        # Whatever it is, it is this check's result, and the other ranks wait to be told.
        except Exception:  # noqa: BLE001
            said = traceback.format_exc()
        everyone = allgather_object(said)
        results[check.__name__] = {rank: text for rank, text in enumerate(everyone) if text}
    if hvd.rank() == 0:
        print(f"RESULT {json.dumps(results)}", flush=True)


if __name__ == "__main__":
    main()
