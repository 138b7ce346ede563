"""The pure parts of what runs inside the pods."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import passwd
import pytest
import rank
import session
import settings
import ssh
from hypothesis import given
from hypothesis import strategies as st

FILES = Path(settings.__file__).parent


def run(**changes: Any) -> settings.Run:
    """A run of two groups."""
    document: dict[str, Any] = {
        "service": "hvd",
        "groups": [
            {"statefulSet": "hvd-cpu", "number": 2, "maximum": 2, "slots": 2, "revision": "r1"},
            {"statefulSet": "hvd-gpu", "number": 1, "maximum": 1, "slots": 4, "revision": "r2"},
        ],
        "args": ["python", "train.py"],
        "mode": "mpirun",
        "options": [],
        "hostsTimeoutSeconds": 60,
        "minRanks": 1,
        "maxRanks": 0,
        "interface": "",
        "sshPort": 2222,
        "cleanup": "OnSuccess",
        "record": "hvd-run",
        "api": True,
        "binding": {"to": "none", "coresPerRank": 0, "ranksPerSocket": 0},
        "transport": "",
    }
    return settings.parse_run(json.dumps({**document, **changes}))


def test_the_runs_hosts_and_ranks() -> None:
    assert [host.address for host in run().hosts] == [
        "hvd-cpu-0.hvd",
        "hvd-cpu-1.hvd",
        "hvd-gpu-0.hvd",
    ]
    assert run().ranks == 2 * 2 + 4


OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}


def test_a_rank_in_its_place() -> None:
    place = rank.find_place(OPEN_MPI)
    assert place == rank.Place(3, 8, 1, 2)
    assert rank.problem(place, 8, "2") is None


@pytest.mark.parametrize(
    ("changes", "slots", "words"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "2", "2 ranks, the hosts' slots add up to 8"),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "8"}, "2", "8 ranks were put on this host"),
        ({}, None, "not a worker"),
    ],
)
def test_a_rank_out_of_place(changes: dict[str, str], slots: str | None, words: str) -> None:
    problem = rank.problem(rank.find_place({**OPEN_MPI, **changes}), 8, slots)
    assert problem is not None
    assert words in problem


def test_a_rank_of_no_known_launcher() -> None:
    assert rank.find_place({"RANK": "0"}) is None
    assert "no known launcher" in str(rank.problem(None, 8, "2"))


@given(st.sets(st.integers(0, 300), min_size=1))
def test_cpu_lists_name_every_cpu_once(cpus: set[int]) -> None:
    named: list[int] = []
    for part in rank.cpu_list(cpus).split(","):
        first, _, last = part.partition("-")
        named += range(int(first), int(last or first) + 1)
    assert named == sorted(cpus)


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(st.dictionaries(NAMES, VALUES))
def test_any_environment_reaches_the_session(environment: dict[str, str]) -> None:
    """Quotes, line breaks, dollar signs: nothing is lost between container and rank."""
    import tempfile

    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssh, "ENVIRONMENT", Path(directory) / "environment")
        ssh.write_environment(environment)
        assert ssh.ENVIRONMENT.stat().st_mode & 0o077 == 0
        assert ssh.read_environment() == environment


def test_a_session_runs_the_command_with_the_containers_values() -> None:
    of_sshd = {"SSH_ORIGINAL_COMMAND": "orted -x", "PATH": "/bin", "SSH_CLIENT": "a"}
    command, environment = session.session(of_sshd, {"PATH": "/opt/bin", "SECRET": "s"})
    assert command == ["/bin/sh", "-c", "orted -x"]
    assert environment == {"PATH": "/opt/bin", "SSH_CLIENT": "a", "SECRET": "s"}
    assert session.session({}, {})[0] == ["/bin/sh", "-i"]


def test_the_client_reaches_hosts_by_address_and_checks_their_key() -> None:
    first = run().hosts[0]
    config = ssh.client_config(2200, {first: "10.1.2.3"})
    assert config.startswith("Host hvd-cpu-0.hvd hvd-cpu-0\n  HostName 10.1.2.3\n")
    assert f"HostKeyAlias {ssh.HOST_KEY_ALIAS}" in config
    assert "Port 2200" in config


def test_a_missing_passwd_entry_is_added_once() -> None:
    image = "root:x:0:0:root:/root:/bin/bash\n"
    added = passwd.passwd_lines(image, 4321, 0)
    assert added[0] == image.strip()
    assert added[1].split(":")[2:4] == ["4321", "0"]
    assert passwd.passwd_lines("\n".join(added), 4321, 0) == added


@pytest.mark.parametrize("file", sorted(FILES.glob("*.py")), ids=lambda file: file.name)
def test_pod_files_need_only_the_standard_library_and_python_3_8(file: Path) -> None:
    import sys

    tree = ast.parse(file.read_text(), feature_version=(3, 8))
    own = {other.stem for other in FILES.glob("*.py")} | {"horovod"}
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            top = name.split(".")[0]
            assert top in sys.stdlib_module_names or top in own, name
