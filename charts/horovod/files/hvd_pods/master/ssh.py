"""The command `ssh` of this pod: starts a program in a worker, by the worker's agent.

Launchers start their daemons with it, and scripts may use it. It takes the options that such
programs pass and refuses all others by name. As with OpenSSH, the words after the host are one line
for a shell: they are joined by spaces, and this command asks the worker for `/bin/sh -c LINE`. That
needs no right beyond the master's: the master may start any program.

Python passes the streams to the gateway, and then becomes a shell that waits for the exit code: a
launcher keeps one such process for each host.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn, Sequence

SSH_FAILURE_STATUS = 255
# Options without a value. They concern terminals, addresses, versions and forwarding, which the
# agent does not have; -n is obeyed. -f (ssh continues in the background) and -N (ssh starts no
# program) are refused.
FLAGS = "246ACKTXYaknqtvx"
# Options whose value has no effect: the agent has one port, one user and its own keys.
WITH_VALUE = "bceilp"
# Settings that launchers, the MPI operator, rsync and scripts pass with -o.
SETTINGS = {
    "batchmode",
    "bindaddress",
    "checkhostip",
    "compression",
    "connecttimeout",
    "connectionattempts",
    "globalknownhostsfile",
    "identitiesonly",
    "identityfile",
    "loglevel",
    "passwordauthentication",
    "port",
    "serveralivecountmax",
    "serveraliveinterval",
    "stricthostkeychecking",
    "tcpkeepalive",
    "user",
    "userknownhostsfile",
}
# Waits for the exit code on a descriptor. The end of the gateway ends it, too.
WAITS_ON = 3
WAIT = f'read -r code <&{WAITS_ON} && exit "$code"; exit {SSH_FAILURE_STATUS}'


class UsageError(Exception):
    """The command line is not one that this program allows."""


def parse(arguments: Sequence[str]) -> tuple[str, str, bool]:
    """Return host, line for a shell, and whether standard input is to be empty.

    Raises UsageError for an option that is not known, and without a host or a line.
    """
    rest = list(arguments)
    is_empty = _take_options(rest)
    if not rest:
        raise UsageError("no host is named")
    host = rest.pop(0).rpartition("@")[2]
    # OpenSSH takes options after the host, too, and horovodrun has them there.
    is_empty = _take_options(rest) or is_empty
    if not rest:
        raise UsageError("no command is named: a worker has no interactive login; use kubectl exec")
    return host, " ".join(rest), is_empty


def _take_options(rest: list[str]) -> bool:
    """Remove the options at the begin of the arguments; return whether -n is among them."""
    is_empty = False
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--":
            break
        letter = option[1:2]
        if letter == "o" or (letter and letter in WITH_VALUE):
            if len(option) == 2 and not rest:
                raise UsageError(f"{option} has no value")
            value = option[2:] or rest.pop(0)
            name = value.replace("=", " ").split()[:1]
            if letter == "o" and (not name or name[0].lower() not in SETTINGS):
                raise UsageError(f"-o {value} is not supported")
        elif letter and all(letter in FLAGS for letter in option[1:]):
            is_empty = is_empty or "n" in option
        else:
            raise UsageError(f"{option} is not supported")
    return is_empty


def refuse(problem: object) -> NoReturn:
    print(f"[hvd] error: ssh: {problem}", file=sys.stderr, flush=True)
    sys.exit(SSH_FAILURE_STATUS)


def main() -> NoReturn:
    """Start the program, and become a shell that waits for its end."""
    try:
        host, line, is_empty = parse(sys.argv[1:])
    except UsageError as problem:
        refuse(problem)
    for number in range(3):
        if not os.path.exists(f"/proc/self/fd/{number}"):
            # This opens the lowest free descriptor, in place of one that the caller has closed.
            os.open(os.devnull, os.O_RDWR)
    if is_empty:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # Import this late: usage errors are then reported at once.
    from hvd_pods.master import gateway_client

    try:
        client = gateway_client.ask(host, ["/bin/sh", "-c", line])
    except OSError as problem:
        refuse(f"the master does not take programs for workers: {problem}")
    if client.fileno() != WAITS_ON:
        os.dup2(client.fileno(), WAITS_ON)
    # A dup2 to the same number does not make it inheritable: exec would close it.
    os.set_inheritable(WAITS_ON, True)
    try:
        os.execv("/bin/sh", ["/bin/sh", "-c", WAIT])
    except OSError as problem:
        refuse(f"this image has no /bin/sh, which waits for the program: {problem}")


if __name__ == "__main__":
    main()
