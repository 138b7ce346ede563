"""The launcher's command line and environment, and the launcher as it runs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import launch
import mpi
import pytest
from settings import ConfigurationError, RunError

from tests.unit.podfiles.runs import make_run
from tests.unit.podfiles.warm.worker import is_alive
from tests.waiting import wait_until

CORES = {"to": "core", "coresPerRank": 14, "ranksPerSocket": 0}
CORES_BY_SOCKET = {"to": "core", "coresPerRank": 3, "ranksPerSocket": 2}
SOCKETS = {"to": "socket", "coresPerRank": 0, "ranksPerSocket": 2}
OPEN_MPIS = [mpi.OPEN_MPI_4, mpi.OPEN_MPI_5]
HYDRAS = [mpi.INTEL_MPI, mpi.MPICH]
RANK = ["python3", "-I", "-S", "/horovod/bin/rank.py"]


def by_name(value: Any) -> str:
    return getattr(value, "name", str(value))


@pytest.fixture(autouse=True)
def pod_ip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HVD_POD_IP", "10.1.2.3")


@pytest.mark.parametrize("implementation", OPEN_MPIS, ids=by_name)
def test_open_mpi_binds_ranks_itself(implementation: mpi.MpiImplementation) -> None:
    run = make_run(binding=CORES_BY_SOCKET)
    line = launch.build_command(run, implementation)
    assert line == [*mpi.mpirun_line(run, implementation), *RANK, "8", "python", "train.py"]


@pytest.mark.parametrize("implementation", HYDRAS, ids=by_name)
@pytest.mark.parametrize(
    ("binding", "words"),
    [
        ({"to": "none", "coresPerRank": 0, "ranksPerSocket": 0}, []),
        (CORES, ["--bind-to", "core", "--cores-per-rank", "14"]),
        (
            CORES_BY_SOCKET,
            ["--bind-to", "core", "--cores-per-rank", "3", "--ranks-per-socket", "2"],
        ),
        (SOCKETS, ["--bind-to", "socket", "--ranks-per-socket", "2"]),
    ],
)
def test_ranks_under_hydra_bind_themselves(
    implementation: mpi.MpiImplementation, binding: dict[str, Any], words: list[str]
) -> None:
    run = make_run(binding=binding)
    line = launch.build_command(run, implementation)
    expected = [*mpi.mpirun_line(run, implementation), *RANK, *words, "8", "python", "train.py"]
    assert line == expected


def test_horovodrun_command_has_hosts_interface_and_options() -> None:
    run = make_run(interface="eth1", mode="horovodrun", binding=CORES, options=["--verbose"])
    assert launch.build_command(run, mpi.OPEN_MPI_4) == [
        "horovodrun", "-np", "8", "--hostfile", "/horovod/generated/hostfile",
        "--network-interfaces", "eth1", "--ssh-port", "2222", "--verbose",
        *RANK, "--bind-to", "core", "--cores-per-rank", "14", "8", "python", "train.py",
    ]  # fmt: skip
    without = launch.build_command(make_run(mode="horovodrun"), mpi.OPEN_MPI_4)
    assert "--network-interfaces" not in without


@pytest.mark.parametrize(("interface", "named"), [("eth1", ["eth1"]), ("", ["eth0"])])
def test_elastic_command_follows_the_discovery_script(
    interface: str, named: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "default_interface", lambda: "eth0")
    run = make_run(mode="elastic", interface=interface, minRanks=2, maxRanks=12)
    assert launch.build_command(run, mpi.OPEN_MPI_4) == [
        "horovodrun", "-np", "8", "--min-np", "2", "--max-np", "12",
        "--host-discovery-script", "/horovod/generated/bin/hosts",
        "--blacklist-cooldown-range", "1", "10", "--network-interfaces", *named,
        "--ssh-port", "2222", *RANK, "0", "python", "train.py",
    ]  # fmt: skip


@pytest.mark.parametrize("implementation", [*OPEN_MPIS, *HYDRAS], ids=by_name)
def test_custom_command_is_the_users_own(implementation: mpi.MpiImplementation) -> None:
    args = ["mpirun", "-np", "$(NP)", "--hostfile", "$(HOSTFILE)", "./a b", "$HOME"]
    command = launch.build_command(make_run(args=args, mode="custom"), implementation)
    assert command == ["mpirun", "-np", "8", "--hostfile", str(mpi.HOSTFILE), "./a b", "$HOME"]


@pytest.mark.parametrize("implementation", [*OPEN_MPIS, *HYDRAS], ids=by_name)
def test_custom_command_may_include_the_launchers_line(
    implementation: mpi.MpiImplementation,
) -> None:
    wrapped = make_run(args=["time", "$(LAUNCH)", "a", "b"], mode="custom", binding=CORES)
    line = launch.build_command(make_run(args=["a", "b"], binding=CORES), implementation)
    assert launch.build_command(wrapped, implementation) == ["time", *line]


def test_run_without_a_command_runs_the_check() -> None:
    line = launch.build_command(make_run(args=[]), mpi.MPICH)
    assert line[-3:] == ["8", "python3", "/horovod/bin/check.py"]


@pytest.mark.parametrize(
    ("mode", "args", "needed"),
    [
        ("mpirun", ["python"], True),
        ("custom", ["time", "$(LAUNCH)"], True),
        ("custom", ["mpirun"], False),
        ("horovodrun", ["python"], False),
        ("elastic", ["python"], False),
    ],
)
def test_mpirun_is_needed_where_its_line_is_built(mode: str, args: list[str], needed: bool) -> None:
    assert launch.needs_mpirun(make_run(mode=mode, args=args)) == needed


@pytest.fixture
def mpich(tmp_path: Path) -> dict[str, str]:
    """The environment of an image with MPICH."""
    program = tmp_path / "mpirun"
    program.write_text("#!/bin/sh\necho MPICH Version: 5\n")
    program.chmod(0o755)
    return {"PATH": str(tmp_path)}


@pytest.mark.parametrize(
    ("mode", "args", "selected"),
    [
        ("mpirun", ["python"], mpi.MPICH),
        ("custom", ["mpirun"], mpi.MPICH),
        ("custom", ["$(LAUNCH)"], mpi.MPICH),
        ("horovodrun", ["python"], mpi.OPEN_MPI_4),
        ("elastic", ["python"], mpi.OPEN_MPI_4),
    ],
)
def test_select_mpi_is_the_images_where_mpirun_may_start(
    mode: str,
    args: list[str],
    selected: mpi.MpiImplementation,
    mpich: dict[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert launch.select_mpi(make_run(mode=mode, args=args), mpich) is selected
    assert ("mpirun is MPICH" in capsys.readouterr().out) == (selected is mpi.MPICH)


def test_select_mpi_without_an_mpirun_takes_open_mpis_form_or_refuses(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path)}
    script = make_run(mode="custom", args=["./run.sh"])
    assert launch.select_mpi(script, environment) is mpi.OPEN_MPI_4
    for run in (make_run(), make_run(mode="custom", args=["$(LAUNCH)"])):
        with pytest.raises(ConfigurationError, match="no mpirun on PATH"):
            launch.select_mpi(run, environment)


def test_master_env_overrides_the_launchers_settings() -> None:
    inherited = {"OMPI_MCA_pml": "cm", "PATH": "/usr/bin", "OWN": "1"}
    environment = launch.build_environment(make_run(), inherited)
    assert (environment["OMPI_MCA_pml"], environment["OWN"]) == ("cm", "1")
    assert environment["PATH"] == "/horovod/generated/bin:/usr/bin"
    assert environment["OMPI_MCA_btl"] == "^openib,ofi,uct,usnic"
    by_default = launch.build_environment(make_run(), {})["PATH"]
    assert by_default == "/horovod/generated/bin:/usr/local/bin:/usr/bin:/bin"


def test_environment_names_the_interface_of_the_default_route(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launch, "default_interface", lambda: "eth0")
    assert launch.build_environment(make_run(), {})["I_MPI_HYDRA_IFACE"] == "eth0"
    named = launch.build_environment(make_run(interface="eth1", transport="RDMA"), {})
    assert named["I_MPI_HYDRA_IFACE"] == named["PRTE_MCA_prte_if_include"] == "eth1"
    assert named["OMPI_MCA_pml"] == "ucx"


def test_discovery_script_prints_the_live_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "LIVE_HOSTS", tmp_path / "live")
    monkeypatch.setattr(launch, "DISCOVERY", tmp_path / "discovery")
    hosts = make_run().hosts
    launch.write_live_hosts(hosts)
    assert launch.DISCOVERY.stat().st_mode & 0o777 == 0o755
    os.utime(launch.DISCOVERY, (1, 1))
    launch.write_live_hosts(hosts[2:])
    printed = subprocess.run([launch.DISCOVERY], capture_output=True, text=True, check=True).stdout
    assert printed == "hvd-gpu-0.hvd:4\n"
    assert launch.DISCOVERY.stat().st_mtime == 1, "horovodrun may be reading it: written once"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["discovery", "live"]


@pytest.fixture
def launcher() -> Iterator[launch.Launcher]:
    before = signal.getsignal(signal.SIGTERM)
    yield launch.Launcher()
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 1", 1), ("exit 5", 5), ("kill -9 $$", 137)]
)
def test_launcher_returns_the_exit_code_and_shows_the_command(
    launcher: launch.Launcher, script: str, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert launcher.run(["sh", "-c", script], dict(os.environ)) == code
    assert not launcher.was_stopped()
    assert re.search(rf"\$ sh -c '{re.escape(script)}'$", capfd.readouterr().out.strip())


def test_launcher_runs_in_the_given_environment_and_directory(
    launcher: launch.Launcher, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    environment = {"PATH": os.environ["PATH"], "GREETING": "hello"}
    command = ["sh", "-c", "echo $GREETING $HOME $(pwd)"]
    assert launcher.run(command, environment) == 0
    assert launcher.run(command, environment, tmp_path) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [lines[1], lines[3]] == [f"hello {Path.cwd()}", f"hello {tmp_path}"]


def test_launcher_refuses_a_program_that_is_not_on_path(
    launcher: launch.Launcher, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=rf"no horovodrun on PATH \({tmp_path}\)"):
        launcher.run(["horovodrun"], {"PATH": str(tmp_path)})


def test_launcher_passes_a_request_to_end_on(launcher: launch.Launcher, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    script = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); "
        "open(sys.argv[1], 'w').close(); signal.pause()"
    )

    def ask() -> None:
        ready.read_text()
        os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask)
    asking.start()
    code = launcher.run([sys.executable, "-c", script, str(ready)], dict(os.environ))
    asking.join()
    assert (code, launcher.was_stopped()) == (7, True)


def test_launcher_passes_on_a_request_that_comes_while_it_starts(
    launcher: launch.Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process exists then, but the handler of the signal does not know it yet."""
    start = subprocess.Popen

    def start_slowly(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        process = start(*arguments, **options)
        os.kill(os.getpid(), signal.SIGTERM)
        return process

    monkeypatch.setattr(subprocess, "Popen", start_slowly)
    assert launcher.run(["sleep", "20"], dict(os.environ)) == 128 + signal.SIGTERM
    assert launcher.was_stopped()


def test_launcher_starts_nothing_after_a_request_to_end(
    launcher: launch.Launcher, tmp_path: Path
) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    started = tmp_path / "started"
    assert launcher.run(["touch", str(started)], dict(os.environ)) == 143
    assert launcher.was_stopped()
    assert not started.exists()


@pytest.mark.parametrize("ends", ["by itself", "killed"])
def test_a_launch_that_is_ended_leaves_nothing(
    launcher: launch.Launcher, ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where its SSH client waits for a host that is gone; the next launch is another one."""
    monkeypatch.setattr(launch, "SIGNAL_CHECK_EVERY", 0.01)
    monkeypatch.setattr(launch, "END_WITHIN", 0.0 if ends == "killed" else 60.0)
    ready, child = tmp_path / "ready", tmp_path / "child"
    os.mkfifo(ready)
    ignores = "trap '' TERM; " if ends == "killed" else "trap 'exit 9' TERM; "
    script = f"{ignores}sleep 60 & echo $! >{child}; echo >{ready}; wait"
    problem = RunError("host w-0 is lost")

    def end() -> None:
        ready.read_text()
        launcher.abort(problem)

    ending = threading.Thread(target=end)
    ending.start()
    assert launcher.run(["sh", "-c", script], dict(os.environ)) == (137 if ends == "killed" else 9)
    ending.join()
    assert launcher.problem is problem
    assert not launcher.was_stopped()
    wait_until(lambda: is_gone(int(child.read_text())), 10, "the end of the launcher's child")
    launcher.reset()
    assert launcher.run(["true"], dict(os.environ)) == 0
    assert launcher.problem is None


def is_gone(pid: int) -> bool:
    """Whether a process has ended; nobody may reap it."""
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_launch_is_not_begun_when_a_host_is_lost_before(launcher: launch.Launcher) -> None:
    launcher.abort(RunError("host w-0 is lost"))
    assert launcher.run(["sleep", "60"], dict(os.environ)) == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("grace", "asked", "code"),
    [(60.0, 2, 143), (0.0, 2, 9), (60.0, 0, 9)],
    ids=["ranks end in time", "time is over", "no rank was asked"],
)
def test_ranks_may_save_before_the_launcher_is_asked_to_end(
    launcher: launch.Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    grace: float, asked: int, code: int,
) -> None:  # fmt: skip
    """The launcher ends with 143 after its rank, and with 9 when it is asked to end itself."""
    monkeypatch.setattr(launch, "SIGNAL_CHECK_EVERY", 0.01)
    ready, saved = tmp_path / "ready", tmp_path / "saved"
    os.mkfifo(ready)
    launcher.grace = grace
    hosts: list[Any] = []

    def ask(given: Any) -> int:
        hosts.extend(given)
        return asked

    launcher.ask_ranks, launcher.hosts = ask, lambda: make_run().hosts
    ends = "exit 143" if code == 143 else "sleep 60"
    script = (
        f"trap 'exit 9' TERM; echo >{ready}; while [ ! -e {saved} ]; do sleep 0.01; done; "
        f"{ends} & wait $!"
    )

    def end() -> None:
        ready.read_text()
        wait_until(lambda: launcher._process, 20, "the launcher has started")
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: hosts, 20, "the ranks are asked")
        os.kill(os.getpid(), signal.SIGTERM)
        saved.touch()

    ending = threading.Thread(target=end)
    ending.start()
    assert launcher.run(["sh", "-c", script], dict(os.environ)) == code
    ending.join()
    assert launcher.was_stopped()
    assert [host.name for host in hosts] == ["hvd-cpu-0", "hvd-cpu-1", "hvd-gpu-0"]


def test_master_of_an_earlier_epoch_gives_no_notice(
    launcher: launch.Launcher, tmp_path: Path
) -> None:
    """Another master drives the workers: their ranks end now."""
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    launcher.grace, launcher.ask_ranks = 60.0, lambda _: pytest.fail("ranks were asked")

    def lose() -> None:
        ready.read_text()
        launcher.stop()

    losing = threading.Thread(target=lose)
    losing.start()
    script = f"trap 'exit 9' TERM; echo >{ready}; sleep 60 & wait"
    assert launcher.run(["sh", "-c", script], dict(os.environ)) == 9
    losing.join()


def test_what_is_left_of_the_launchers_session_is_ended() -> None:
    script = "set -m; sleep 60 >/dev/null & echo $!; read"
    with subprocess.Popen(
        ["bash", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as leader:
        assert leader.stdout
        left = int(leader.stdout.readline())
        assert os.getpgid(left) != os.getsid(left) == leader.pid
        launch.end_session(leader.pid)
        wait_until(lambda: not is_alive(left), 10, "it is gone")
