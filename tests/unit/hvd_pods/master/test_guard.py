"""What the guard of horovodrun unpickles; tests/images/test_guard.py attacks it with Horovod."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from types import ModuleType

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hvd_pods.master import guard

MODULE = "horovod.runner.common.util.network"


class PingRequest:
    """As Horovod's."""


@pytest.fixture(autouse=True)
def network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module with a message, and with what is none, as if horovodrun had loaded it."""
    module = ModuleType(MODULE)
    monkeypatch.setattr(PingRequest, "__module__", MODULE)
    monkeypatch.setattr(PingRequest, "sent", "by Horovod", raising=False)
    others = {"OwnRequest": subprocess.Popen, "Service": PingRequest, "os": os}
    vars(module).update(PingRequest=PingRequest, **others)
    monkeypatch.setitem(sys.modules, MODULE, module)


def name_of(module: str, name: str) -> bytes:
    """The part of a pickle that puts on its stack what a module has by this name."""
    return f"c{module}\n{name}\n".encode()


def test_data_and_messages_are_read() -> None:
    value = ({"eth0": [("10.0.0.1", 4242)]}, b"key", {"a"}, 1.5, None)
    assert guard.read_messages(pickle.dumps(value)) == value
    read = guard.read_messages(name_of(MODULE, "PingRequest") + b")\x81}S'index'\nK\x03sb.")
    assert isinstance(read, PingRequest)
    assert vars(read) == {"index": 3}


@pytest.mark.parametrize(
    ("module", "name"),
    [
        *(("os", "system"), ("builtins", "eval"), ("subprocess", "Popen"), ("x", "PingRequest")),
        *((MODULE, name) for name in ("OwnRequest", "Service", "os.system", "NoRequest")),
        ("horovod.runner.not_loaded", "PingRequest"),
    ],
)
def test_everything_else_is_refused(module: str, name: str) -> None:
    with pytest.raises(pickle.UnpicklingError, match="is no message of Horovod"):
        guard.read_messages(name_of(module, name) + b".")


def test_pickle_cannot_change_horovods_classes() -> None:
    # BUILD of the class itself, with a state that sets an attribute.
    change = name_of(MODULE, "PingRequest") + b"N(S'sent'\nS'by others'\ndq\x00\x86b."
    assert guard.read_messages(change).sent == "by others"
    assert PingRequest.sent == "by Horovod"  # type: ignore[attr-defined]


RAN: list[object] = []


def run(*values: object) -> None:
    """What no pickle may call."""
    RAN.append(values)


# Names, values, and what calls or builds something of them.
PARTS = [name_of(__name__, "run"), name_of(MODULE, "PingRequest"), name_of("os", "getpid")]
PARTS += [b"(", b")", b"}", b"]", b"N", b"S'a'\n", b"K\x01", b"\x85", b"\x86", b"t", b"0", b"2"]
PARTS += [b"R", b"b", b"o", b"\x81", b"\x92", b"\x93", b"i" + PARTS[0][1:], b"P1\n", b"\x82\x01"]


@pytest.mark.fuzz
@given(st.lists(st.sampled_from(PARTS), max_size=20).map(b"".join) | st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(name_of(__name__, "run") + b"S'a'\n\x85R")
def test_no_pickle_calls_anything(content: bytes) -> None:
    # Broken pickles fail in many ways.
    with contextlib.suppress(Exception):
        guard.read_messages(content + b".")
    assert not RAN
