"""How SIGTERM and SIGHUP end a program that has something to remove."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(60)
WAIT = "print('ready', flush=True)\ntime.sleep(60)"
HEAD = """\
import atexit, os, signal, sys, time
from hvdchart.interrupts import exit_on_signals, interrupting_signals
"""
EXITS = f"""{HEAD}
exit_on_signals()
atexit.register(print, 'removed')
{WAIT}
"""
IN_A_FORK = f"""{HEAD}
exit_on_signals()
atexit.register(print, 'removed')
if os.fork() == 0:
    os.kill(os.getpid(), {{0}})
    time.sleep(60)
print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
os._exit(0)
"""
INTERRUPTED = f"""{HEAD}
with interrupting_signals():
    try:
        print('ready', flush=True)
        time.sleep(60)
    finally:
        os.kill(os.getpid(), {{0}})
        print('removed', flush=True)
"""
IGNORED = f"""{HEAD}
signal.signal({{0}}, signal.SIG_IGN)
exit_on_signals()
with interrupting_signals():
    os.kill(os.getpid(), {{0}})
    print('continues')
"""
SIGNALS = [signal.SIGTERM, signal.SIGHUP]


def end(program: str, sent: signal.Signals) -> tuple[str, int]:
    """Send a signal to a program that is ready; what it printed after that, and its exit code."""
    with subprocess.Popen(
        [sys.executable, "-c", program.replace("{0}", str(int(sent)))],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        process.send_signal(sent)
        return process.stdout.read(), process.wait()


def output(program: str, sent: signal.Signals) -> str:
    command = [sys.executable, "-c", program.replace("{0}", str(int(sent)))]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("sent", SIGNALS)
def test_program_that_calls_launch_removes_its_release(sent: signal.Signals) -> None:
    assert end(EXITS, sent) == ("removed\n", 128 + sent)


@pytest.mark.parametrize("sent", SIGNALS)
def test_fork_of_it_ends_by_the_signal_and_removes_nothing(sent: signal.Signals) -> None:
    assert output(IN_A_FORK, sent) == f"-{int(sent)}\n"


@pytest.mark.parametrize("sent", SIGNALS)
def test_command_ends_by_the_signal_after_it_has_removed_its_release(sent: signal.Signals) -> None:
    """A second signal does not keep it from that."""
    assert end(INTERRUPTED, sent) == ("removed\n", -sent)


@pytest.mark.parametrize("sent", SIGNALS)
def test_signal_that_is_ignored_stays_so(sent: signal.Signals) -> None:
    """As nohup ignores SIGHUP."""
    assert output(IGNORED, sent) == "continues\n"
