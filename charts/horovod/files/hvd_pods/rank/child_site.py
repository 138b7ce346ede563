"""The module that Python imports first in a cold rank, in place of any `sitecustomize`.

The rank writes its stack on request (worker/stacks.py), counts the steps of a script that reports
none (rank/step_count.py), and reports to the master the exception that ends it
(rank/exception_notice.py). Everything else stays as it is without this module: the path, the
variables and the image's own `sitecustomize`. The image's Python may be 3.5 or newer; notices need
3.7.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List

# A folder that contains only a link to this file.
HERE = os.path.dirname(__file__)
# The parent of the package `hvd_pods`.
PROGRAMS_PARENT = os.readlink(__file__).rsplit("/", 3)[0]


def report_end(rank: int) -> None:
    """Report to the master the exception that ends this process, before Python prints it."""
    show = sys.excepthook
    process = os.getpid()
    path = list(sys.path)

    def excepthook(kind: "Any", error: "Any", trace: "Any") -> None:
        # A script may print an exception that it has caught, and a fork may fail without the rank.
        # Import no module after a KeyboardInterrupt: Python would then not end by SIGINT.
        is_end = getattr(sys, "last_value", None) is error and os.getpid() == process
        if is_end and not isinstance(error, KeyboardInterrupt):
            notify(rank, error, path)
        show(kind, error, trace)

    if sys.__excepthook__ is show:
        # Scripts compare the two, and their own hooks call this one.
        sys.__excepthook__ = excepthook
    sys.excepthook = excepthook


def notify(rank: int, error: BaseException, path: "List[str]") -> None:
    """Send the notice. An error here must not change how the rank ends."""
    before = sys.path
    try:
        # Exclude the script's folder: its modules may have any name.
        sys.path = [PROGRAMS_PARENT, *path]
        from hvd_pods.rank import exception_notice

        exception_notice.notify(os.environ, rank, error)
    except BaseException:  # noqa: BLE001, S110
        pass
    finally:
        sys.path = before


def count_steps(rank: int) -> None:
    """Count the steps of the script. An error here must not change the script's behavior."""
    before = list(sys.path)
    try:
        sys.path.insert(0, PROGRAMS_PARENT)
        from hvd_pods.rank import step_count

        step_count.begin(rank)
    except BaseException:  # noqa: BLE001, S110
        # For instance, Python is older than the chart's programs support.
        pass
    finally:
        sys.path[:] = before


sys.path[:] = [folder for folder in sys.path if folder != HERE]
# Last, so that the script's own modules of these names come first.
sys.path.append(os.readlink(__file__).rsplit("/", 2)[0] + "/library")
folders = [word for word in os.environ.pop("PYTHONPATH", "").split(os.pathsep) if word != HERE]
if folders:
    os.environ["PYTHONPATH"] = os.pathsep.join(folders)
chosen = os.environ.pop("HVD_SITE", "")
try:
    descriptor, number, own_rank = map(int, chosen.split())
    report_end(own_rank)

    import faulthandler

    faulthandler.register(number, descriptor)
    if descriptor > 2:
        # Only this process keeps the descriptor, not the programs that it starts.
        os.set_inheritable(descriptor, False)
except (AttributeError, ImportError, OSError, ValueError):
    # Python is not CPython.
    pass
else:
    count_steps(own_rank)
# The image's own module. Without one, Python continues.
del sys.modules[__name__]
__import__(__name__)
