"""One login for the sessions of a host: when it is used, when it is not, and what it ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.hvd_pods.worker.ssh.pods import SshPods

pytestmark = pytest.mark.slow
BEGIN = """
import json, os, subprocess
from dataclasses import replace
from pathlib import Path
from hvd_pods.common.paths import GENERATED
from hvd_pods.common.run import Pod
from hvd_pods.master import logins as own
from hvd_pods.master.logins import Logins

own.LOGIN_WITHIN = 60.0
FIRST, OTHER = Pod('127.0.0.1', 'uid-1'), Pod('127.0.0.1', 'uid-2')
logins = Logins(PORT, 'direct')

def begin(command='cat'):
    line = [f'{GENERATED}/bin/ssh', HOST.name, 'echo $SSH_CONNECTION; ' + command]
    pipe = subprocess.PIPE
    return subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

def connection(session):
    # The client's address and port, and the server's.
    return session.stdout.readline().split()[:3]

def ask():
    with begin('true') as session:
        return connection(session)
"""


def observe(pods: SshPods, program: str) -> Any:
    """What a program in the master prints as JSON."""
    return json.loads(pods.master.call(f"PORT = {pods.port}\n{BEGIN}\n{program}"))


def test_sessions_share_a_login_that_only_the_pods_user_reaches(ssh_pods: SshPods) -> None:
    seen = observe(
        ssh_pods,
        """
logins.keep({HOST: FIRST})
before = [ask(), ask()]
logins.keep({HOST: FIRST})
(socket,) = GENERATED.glob('logins-*/*')
modes = [oct(path.stat().st_mode & 0o777) for path in (socket, socket.parent)]
os.environ['HVD_ATTEMPT'] = '7'
with begin('echo $HVD_ATTEMPT') as session:
    last, attempt = connection(session), session.stdout.read()
logins.end()
print(json.dumps([[*before, last], modes, attempt]))
""",
    )
    connections, modes, attempt = seen
    assert len({tuple(one) for one in connections}) == 1
    assert modes == ["0o600", "0o700"]
    assert attempt == "7\n", "each session has its own variables"


@pytest.mark.parametrize(
    "change",
    [
        "logins.keep({HOST: OTHER})",
        "logins.end([HOST])",
        "logins.write_config({HOST: '127.0.0.2'})",
        "logins.keep({HOST: Pod('127.0.0.1')})\nbefore = ask()",
        "logins.keep({HOST: FIRST, **{replace(HOST, name=f'{n}'): FIRST for n in range(64)}})",
    ],
    ids=["another pod", "lost", "another address", "a pod without a UID", "one of many"],
)
def test_no_session_uses_the_login_of_what_was_there_before(ssh_pods: SshPods, change: str) -> None:
    program = f"logins.keep({{HOST: FIRST}})\nbefore = ask()\n{change}\nafter = ask()"
    before, after = observe(
        ssh_pods, f"{program}\nlogins.end()\nprint(json.dumps([before, after]))"
    )
    assert before[1] != after[1]
    assert after[2] == ("127.0.0.2" if "127.0.0.2" in change else "127.0.0.1")


def test_end_of_a_login_ends_its_sessions_and_that_of_a_client_its_own_alone(
    ssh_pods: SshPods,
) -> None:
    seen = observe(
        ssh_pods,
        """
logins.keep({HOST: FIRST})
mark = GENERATED / 'ended'
killed, stays = begin(f'cat; touch {mark}'), begin()
connection(killed), connection(stays)
killed.kill()
# Its command on the worker reads the end of its input.
watch = begin(f'until [ -e {mark} ]; do sleep 0.05; done; echo ended')
connection(watch)
ended = watch.stdout.readline()
stays.stdin.write('still here\\n')
stays.stdin.flush()
answer = stays.stdout.readline()
logins.end()
print(json.dumps([ended, answer, stays.wait(30)]))
""",
    )
    assert seen == ["ended\n", "still here\n", 255]
