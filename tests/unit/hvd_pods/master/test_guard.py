"""What the guard of horovodrun unpickles; tests/images/test_guard.py attacks it with Horovod."""

from __future__ import annotations

import os
import pickle
import socket
import socketserver
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from hvd_pods.master import guard
from tests.fakes.faults import TIMEOUT
from tests.unit.hvd_pods.copies import copy_files

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
        ("os", "system"),
        ("builtins", "eval"),
        ("subprocess", "Popen"),
        ("x", "PingRequest"),
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


@pytest.mark.promise("silent strangers keep no rank away")
def test_silent_strangers_keep_no_rank_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """They can make more connections than have room, again and again."""

    class Server(socketserver.ThreadingTCPServer):
        """In place of Horovod's."""

    module = ModuleType("horovod.runner.http.http_server")
    vars(module).update(RendezvousHTTPServer=Server)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(guard, "MOST_STRANGERS", 4)
    monkeypatch.setattr(guard, "STRANGER_WITHIN", TIMEOUT)
    guard.know_addresses("f00d")
    with Server(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()

        def connect() -> socket.socket:
            return socket.create_connection(("127.0.0.1", server.server_address[1]), TIMEOUT)

        silent = [connect() for _ in range(9)]
        with connect() as rank:
            rank.sendall(b"HVD f00d HTTP/1.0\r\n\r\n")
            assert rank.recv(5) == b"known"
        assert silent[0].recv(1) == b"", "the oldest has made room"
        for connection in silent:
            connection.close()
        server.shutdown()


@pytest.mark.parametrize(
    ("name", "is_exported"),
    [
        ("HOROVOD_FUSION_THRESHOLD", True),
        ("NCCL_DEBUG", True),
        ("PYTHONUNBUFFERED", True),
        ("AWS_SECRET_ACCESS_KEY", False),
        ("MY_HOROVOD_TOKEN", False),
        ("HVD_NOTICES", False),
        ("PATH", False),
        # Horovod's own choice.
        ("HOROVOD_OWN", False),
    ],
)
def test_command_lines_of_ranks_show_no_other_variables(
    monkeypatch: pytest.MonkeyPatch, name: str, is_exported: bool
) -> None:
    """All of master.env and the run's secret were in /proc/*/cmdline of workers (issue 44)."""
    module = ModuleType("horovod.runner.common.util.env")
    vars(module).update(is_exportable=lambda name: name != "HOROVOD_OWN")
    package = ModuleType("horovod.runner.common.util")
    vars(package).update(env=module)
    for each in (package, module):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    guard.export_little()
    assert module.is_exportable(name) is is_exported


def become(folder: Path, script: str, mode: str = "horovodrun") -> subprocess.CompletedProcess[str]:
    """Run the guard of a pod, which becomes a script that stands for horovodrun."""
    program = folder / "horovodrun"
    program.write_text(f"#!{sys.executable}\n{script}")
    program.chmod(0o755)
    guard_of_pod = copy_files(folder / f"pod-{mode}", sys.executable) / "hvd_pods/master/guard.py"
    return subprocess.run(
        [sys.executable, str(guard_of_pod), mode, str(program), "-np", "1"],
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_horovodrun_finds_its_own_modules_and_none_of_the_charts(tmp_path: Path) -> None:
    """In a pod, a program is a link into the folder that Python then searches."""
    (tmp_path / "own.py").touch()
    done = become(tmp_path, "import sys, own; print(sys.argv[1:])\nimport launch")
    assert "['-np', '1']" in done.stdout
    assert "No module named 'launch'" in done.stderr


@pytest.fixture(
    params=["def read(self, sent): raise KeyError('on purpose')", "pass", "raise SyntaxError"]
)
def unguarded(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder with a Horovod that cannot be guarded.

    Its messages may be of classes that only another version of Horovod has.
    """
    util = tmp_path / "horovod/runner/common/util"
    util.mkdir(parents=True)
    (util / "codec.py").write_text("from cloudpickle import loads as loads_base64")
    (util / "secret.py").write_text("def compute_digest(*_): return b''")
    network = f"class Wire:\n def __init__(self, key): ...\n {request.param}"
    (util / "network.py").write_text(network)
    (tmp_path / "cloudpickle.py").write_text("from pickle import loads")
    return tmp_path


@pytest.mark.slow
def test_horovodrun_that_cannot_be_guarded_runs_as_it_is(unguarded: Path) -> None:
    load = "from horovod.runner.common.util.codec import *\nprint(loads_base64({}))"
    done = become(unguarded, load.format(pickle.dumps(os.getcwd)))
    assert done.returncode == 0, done.stderr
    assert "cannot be guarded" in done.stdout
    assert done.stdout.endswith("<built-in function getcwd>\n")


@pytest.mark.slow
def test_elastic_horovodrun_that_cannot_be_guarded_is_refused(unguarded: Path) -> None:
    refused = become(unguarded, "print('ran')", "elastic")
    assert (refused.returncode, refused.stdout) == (os.EX_CONFIG, "")
    assert "cannot be guarded" in refused.stderr
