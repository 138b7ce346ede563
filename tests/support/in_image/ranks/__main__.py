"""`mpirun -np 2 python -m ranks [CHECK...]`: runs the checks of the installed framework.

Without names, all checks run. Rank 0 prints one line, RESULT and a JSON object: for each check, the
errors by rank; an empty object when the check passed on all ranks.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
import traceback
from collections.abc import Callable
from types import ModuleType

Check = Callable[[], None]


def checks_in(*modules: ModuleType) -> list[Check]:
    """Return the functions of these modules without arguments that return None, in their order."""
    return [
        function
        for module in modules
        for function in vars(module).values()
        if inspect.isfunction(function)
        and function.__module__ == module.__name__
        and function.__annotations__ == {"return": "None"}
    ]


def found() -> tuple[ModuleType, list[Check]]:
    """Return Horovod's module for the framework of this image, and the checks for it."""
    if importlib.util.find_spec("torch") is not None:
        import horovod.torch

        from . import of_torch

        return horovod.torch, checks_in(of_torch)
    import horovod.tensorflow

    from . import any_keras
    from .helpers import IS_KERAS_3

    if IS_KERAS_3:
        from . import keras_3 as own
    else:
        from . import keras_2 as own  # type: ignore[no-redef]
    return horovod.tensorflow, checks_in(any_keras, own)


def main() -> None:
    hvd, checks = found()
    hvd.init()
    wanted = sys.argv[1:]
    results = {}
    for check in checks:
        if wanted and check.__name__ not in wanted:
            continue
        try:
            check()
            failure = ""
        # Any failure is the result of this check: the other ranks wait for it.
        except Exception:  # noqa: BLE001
            failure = traceback.format_exc()
        everyone = hvd.allgather_object(failure)
        results[check.__name__] = {rank: text for rank, text in enumerate(everyone) if text}
    if hvd.rank() == 0:
        print(f"RESULT {json.dumps(results)}", flush=True)


if __name__ == "__main__":
    main()
