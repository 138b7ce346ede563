"""The staging script, run by sh as in a pod, on real files and real locks."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from devtools.pods.program_copies import POD_PROGRAMS

SCRIPT = POD_PROGRAMS / "worker/stage.sh"
# Each run leaves a line, so that runs can be counted.
FETCH = 'echo ran >>"$COUNT"; mkdir -p sub; echo one >a; echo three >"sub/b c"'


class Volume:
    """A volume that pods of a node share, for the script, run by sh."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "set"
        self.state = folder / "set.staging"
        self.partial = self.state / "partial"
        self.count = folder / "count"

    def start(
        self, command: str, key: str = "k1", verify: str = "Size", owner: str = "team/hvd"
    ) -> subprocess.Popen[str]:
        environment = {
            "PATH": os.environ["PATH"],
            "COUNT": str(self.count),
            "STAGING_OWNER": owner,
            "STAGING_PATH": str(self.path),
            "STAGING_KEY": key,
            "STAGING_VERIFY": verify,
        }
        return subprocess.Popen(
            ["sh", str(SCRIPT), "sh", "-c", command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def stage(self, command: str = FETCH, **options: str) -> tuple[int, str]:
        """Run to the end: exit code and log."""
        running = self.start(command, **options)
        log, _ = running.communicate(timeout=30)
        return running.returncode, log

    @property
    def runs(self) -> int:
        """How often the command ran."""
        return len(self.count.read_text().splitlines()) if self.count.exists() else 0


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    return Volume(tmp_path)


@pytest.fixture
def first(volume: Volume, tmp_path: Path) -> Callable[[], str]:
    """A release that is filling the directory; let it go on to its end, and return its log."""
    gate = tmp_path / "gate"
    started = tmp_path / "started"
    for pipe in (gate, started):
        os.mkfifo(pipe)
    pod = volume.start(f"echo >{started}; cat {gate}; {FETCH}", owner="team/first")
    started.read_text()

    def finish() -> str:
        gate.write_text("go")
        log, _ = pod.communicate(timeout=30)
        assert pod.returncode == 0, log
        return log

    return finish


def wait_and_finish(waiting: subprocess.Popen[str], first: Callable[[], str]) -> tuple[int, str]:
    """Let the first release end when another one waits for it; that one's exit code and log."""
    assert waiting.stdout is not None
    assert "another pod is filling" in waiting.stdout.readline()
    first()
    log, _ = waiting.communicate(timeout=30)
    return waiting.returncode, log


def test_staging_fills_the_directory_and_writes_checksums(volume: Volume) -> None:
    code, log = volume.stage()
    assert code == 0, log
    assert (volume.path / "sub" / "b c").read_text() == "three\n"
    lines = (volume.state / "sha256").read_text().splitlines()
    assert lines == [
        f"{hashlib.sha256(content).hexdigest()}  {name}"
        for name, content in (("./a", b"one\n"), ("./sub/b c", b"three\n"))
    ]
    assert "2 files" in log


def test_log_names_the_program_and_no_argument_which_may_be_a_token(volume: Volume) -> None:
    code, log = volume.stage(f"{FETCH}; : --token=hf_secret")
    assert code == 0, log
    assert f"fetching into {volume.path} with sh\n" in log
    assert "hf_secret" not in log


@pytest.mark.parametrize(
    ("damage", "verify", "runs"),
    [("short", "Size", 2), ("one!", "Size", 1), ("one!", "Checksum", 2)],
)
def test_damaged_file_is_fetched_again_when_the_check_detects_it(
    volume: Volume, damage: str, verify: str, runs: int
) -> None:
    volume.stage()
    (volume.path / "a").write_text(damage)
    code, log = volume.stage(verify=verify)
    assert (code, volume.runs) == (0, runs), log
    assert (volume.path / "a").read_text() == ("one\n" if runs == 2 else damage)


@pytest.mark.slow
def test_release_does_not_replace_what_another_one_filled(volume: Volume) -> None:
    """The pods of the other release may be training on it."""
    volume.stage(owner="team/first")
    code, log = volume.stage("echo other >a", key="k2", owner="team/second")
    assert code == 1
    assert "release team/first" in log
    assert (volume.path / "a").read_text() == "one\n"


@pytest.mark.slow
def test_release_may_replace_what_it_has_filled_itself(volume: Volume) -> None:
    volume.stage(owner="team/first")
    code, log = volume.stage("echo more >a", key="k3", owner="team/first")
    assert code == 0, log
    assert (volume.path / "a").read_text() == "more\n"


@pytest.mark.slow
def test_release_may_replace_what_the_user_says_is_another_ones_no_more(volume: Volume) -> None:
    volume.stage(owner="team/first")
    (volume.state / "owner").unlink()
    code, log = volume.stage("echo other >a", key="k2", owner="team/second")
    assert code == 0, log
    assert (volume.path / "a").read_text() == "other\n"


def test_failed_command_publishes_nothing(volume: Volume) -> None:
    code, log = volume.stage("echo half >a; exit 7")
    assert code == 1
    assert "exit code 7" in log
    assert not volume.path.exists()


def test_command_continues_with_what_a_failed_one_has_left(volume: Volume) -> None:
    volume.stage("echo half >a; exit 7")
    code, log = volume.stage("test -f a && echo more >>a")
    assert code == 0, log
    assert (volume.path / "a").read_text() == "half\nmore\n"


def test_releases_that_start_together_fetch_once(volume: Volume, first: Callable[[], str]) -> None:
    code, log = wait_and_finish(volume.start(FETCH, owner="team/second"), first)
    assert code == 0, log
    assert volume.runs == 1


def test_release_that_wants_other_data_names_the_one_that_was_first(
    volume: Volume, first: Callable[[], str]
) -> None:
    other = volume.start("echo other >a", key="k2", owner="team/third")
    code, log = wait_and_finish(other, first)
    assert code == 1
    assert " team/first " in log
    assert (volume.path / "a").read_text() == "one\n"


@pytest.mark.promise("publishers checksums reach no other file of the volume")
def test_publishers_checksums_reach_no_other_file_of_the_volume(
    volume: Volume, tmp_path: Path
) -> None:
    """Neither to remove it, nor to read what never ends while all other pods wait."""
    other = tmp_path / "checkpoint.h5"
    other.write_text("of somebody else")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "a").write_text("of somebody else")
    names = ("../../checkpoint.h5", "././/../../checkpoint.h5", str(other), "/dev/zero", "b/c", "a")
    sums = "".join(f"{'0' * 64}  {name}\\n" for name in names)
    code, log = volume.stage(f"echo one >a; mkdir b; echo two >b/c; printf '{sums}' >SHA256SUMS")
    assert code == 1
    assert re.search(r"\b6 files\b.*\bSHA256SUMS\b", log)
    assert other.read_text() == "of somebody else"
    assert [path.name for path in volume.partial.rglob("*") if path.is_file()] == ["SHA256SUMS"]


@pytest.mark.parametrize(
    "command",
    [
        # As programs show it that do not escape line breaks, this is a line about ./b/a.
        f"ln -s ../../linked b; mkdir -p 'x\n{'0' * 64}  ./b'; echo 1 >'x\n{'0' * 64}  ./b/a'",
        "ln -s ../linked/a a; echo 1 >b",
        "ln -s /dev/zero SHA256SUMS; echo 1 >b",
        "ln -s ../linked sub; echo 1 >b",
        "ln -s /dev/zero a; echo 1 >b",
        'ln -s "$PWD/b" a; echo 1 >b',
    ],
    ids=["line break", "file", "checksums", "folder", "device", "place of the fetch"],
)
@pytest.mark.promise("names and links that lead out of the data are refused")
def test_names_and_links_that_lead_out_of_the_data_are_refused(
    volume: Volume, tmp_path: Path, command: str
) -> None:
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "a").touch()
    code, log = volume.stage(command)
    assert code == 1
    assert "error: " in log
    assert (tmp_path / "linked" / "a").exists()
    assert not volume.path.exists()


@pytest.mark.parametrize("target", [".", "sub/gone", "/gone/python3", "sub", "../set/a"])
def test_links_that_lead_to_nobody_elses_data_are_kept(volume: Volume, target: str) -> None:
    """As snapshots and virtual environments have them."""
    fetch = f"{FETCH}; ln -s {target} link"
    assert [volume.stage(fetch)[0], volume.stage(fetch)[0]] == [0, 0]
    assert volume.runs == 1
    assert (volume.path / "link").readlink() == Path(target)


def test_link_is_refused_when_what_it_leads_to_appears(volume: Volume, tmp_path: Path) -> None:
    fetch = f"{FETCH}; ln -sfn ../other link"
    assert volume.stage(fetch)[0] == 0
    (tmp_path / "other").mkdir()
    code, log = volume.stage(fetch)
    assert code == 1
    assert "such as ./link:" in log


@pytest.mark.slow
@pytest.mark.parametrize(
    "line", ["SHA256 (a) = {}", "{}  link", "{} *link", "SHA256 (folder/b c) = {}"]
)
def test_files_that_fail_the_publishers_checksums_are_removed(volume: Volume, line: str) -> None:
    """They may have BSD's format, and name links."""
    links = "ln -sf a link; ln -sfn sub folder"
    digest = hashlib.sha256(b"right\n").hexdigest()

    def fetch(content: str) -> tuple[int, str]:
        return volume.stage(
            f'mkdir -p sub; for file in a \'sub/b c\'; do [ -f "$file" ] || echo {content} >"$file"'
            f"; done; {links}; echo '{line.format(digest)}' >SHA256SUMS"
        )

    code, log = fetch("wrong")
    assert code == 1
    assert "1 files " in log
    # A command that keeps what it has does not keep the wrong file.
    assert fetch("right")[0] == 0


def test_log_shows_no_control_characters_of_names(volume: Volume) -> None:
    code, log = volume.stage("ln -s / \"$(printf 'a\\033[31m')\"; touch 'b\\033'")
    assert code == 1
    assert "such as ./a[31m:" in log
    assert "\x1b" not in log
