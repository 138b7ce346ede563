"""The user's code: packed from the mounted ConfigMap, unpacked in each pod."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hvd_pods.master import user_code
from hvd_pods.pod import code_archive, packages
from hvd_pods.shared.errors import ConfigurationError, RunError
from hvd_pods.shared.run import Code, Pod
from tests.support.fakes.agents import ScriptedAgents
from tests.support.release_keys import ReleaseKeys
from tests.support.runs import make_run
from tests.unit.archives import make_archive, make_member


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """The mounted ConfigMap, as the kubelet writes it: links into a hidden directory."""
    source = tmp_path / "source"
    code = tmp_path / "code"
    (source / "..2026_11_22").mkdir(parents=True)
    (source / "..data").symlink_to("..2026_11_22")
    code.mkdir()
    return source


def mount(source: Path, name: str, content: bytes) -> None:
    """Add a key to the mounted ConfigMap."""
    (source / "..2026_11_22" / name).write_bytes(content)
    (source / name).symlink_to(Path("..data", name))


def list_files(directory: Path) -> dict[str, bytes]:
    """Return the files below a directory."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def as_in_the_job(mounted: Path) -> Code:
    """What a Job says of the code that is mounted now."""
    return Code("v1", code_archive.digest(code_archive.read_source(mounted)), "hvd-code-v1")


def make_code(mounted: Path, **options: Any) -> user_code.UserCode:
    folder = mounted.with_name("code")
    return user_code.UserCode(as_in_the_job(mounted), mounted, folder, **options)


def unpacked(mounted: Path, **options: Any) -> user_code.UserCode:
    """Code that asks for a package, which is installed within `install_timeout_seconds`."""
    mount(mounted, "train.py", b"train")
    mount(mounted, "requirements.txt", b"numpy")
    code = make_code(mounted, **options)
    code.unpack()
    return code


def replace_by_link(code: Path) -> None:
    precious = code.parent.parent / "precious"
    precious.mkdir()
    code.rename(code.with_name("moved"))
    code.symlink_to(precious)


class CodeOfWorker:
    """A worker with the code v1 of a run, and with packages, that is to get the code v2."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self.folder / "v1").mkdir(parents=True)
        (self.folder / ".packages").mkdir()
        (self.folder / "left by a person").touch()

    def receive(self, content: bytes, *, keeps_packages: bool = False) -> int:
        """Get the code; the exit code of the program that unpacks it."""
        return code_archive.replace("v2", content, self.folder, keeps_packages=keeps_packages)

    def folders(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if path.is_dir())


@pytest.fixture
def of_worker(tmp_path: Path) -> CodeOfWorker:
    return CodeOfWorker(tmp_path / "code")


def test_files_and_archive_are_one_directory(mounted: Path) -> None:
    archive = make_archive(
        make_member("model", kind=tarfile.DIRTYPE),
        make_member("./model/net.py", b"net"),
        make_member("model/data.py", b"data"),
        # A folder that comes after what is in it, and one without its parent.
        make_member("deep/er/x", b"x"),
        make_member("deep", kind=tarfile.DIRTYPE),
        make_member("empty/folder", kind=tarfile.DIRTYPE),
        make_member("run.sh", b"run", mode=0o744),
    )
    mount(mounted, "archive.tgz", archive)
    mount(mounted, "train.py", b"train")
    code = make_code(mounted)
    code.unpack()
    found = list_files(code.directory)
    modules = {"model/data.py": b"data", "model/net.py": b"net"}
    assert found == {**modules, "deep/er/x": b"x", "run.sh": b"run", "train.py": b"train"}
    assert (code.directory / "empty" / "folder").is_dir()
    assert (code.directory / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (code.directory / "train.py").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("archive", "problem"),
    [
        (b"no archive", "not a gzip file|could not be opened"),
        (make_archive(make_member("train.py", b"0" * 9000))[:-30], "end-of-stream|unexpected end"),
        (make_archive(make_member("/etc/passwd")), "'/etc/passwd' is outside"),
        (make_archive(make_member("a/../../b")), "'a/../../b' is outside"),
        (
            make_archive(make_member("link", kind=tarfile.SYMTYPE, target="/etc")),
            "'link' is neither",
        ),
        (make_archive(make_member("pipe", kind=tarfile.FIFOTYPE)), "'pipe' is"),
    ],
    ids=["no archive", "cut", "absolute path", "path outside", "link", "pipe"],
)
def test_broken_archive_is_a_wrong_configuration(
    mounted: Path, archive: bytes, problem: str
) -> None:
    mount(mounted, "archive.tgz", archive)
    code = make_code(mounted)
    with pytest.raises(ConfigurationError, match=rf"`code\.archive`: .*({problem})"):
        code.unpack()
    assert not code.directory.exists()


@pytest.mark.parametrize("changed", ["train.py", "archive.tgz", "sitecustomize.py"])
@pytest.mark.promise("code that is not that of the job is not unpacked")
def test_code_that_is_not_that_of_the_job_is_not_unpacked(mounted: Path, changed: str) -> None:
    mount(mounted, "train.py", b"train")
    mount(mounted, "archive.tgz", make_archive(make_member("a.py", b"a")))
    code = make_code(mounted)
    (mounted / changed).unlink(missing_ok=True)
    mount(mounted, changed, make_archive(make_member("a.py", b"evil")))
    with pytest.raises(ConfigurationError, match=r"ConfigMap hvd-code-v1 "):
        code.unpack()
    assert not code.directory.exists()


def test_worker_that_cannot_take_the_code_is_named_and_the_others_have_it(
    mounted: Path, agents: ScriptedAgents
) -> None:
    workers = make_run().workers
    agents.install('[ "$1" = hvd-cpu-0.hvd ] || { echo "no room" >&2; exit 1; }')
    code = unpacked(mounted)
    with pytest.raises(RunError, match=r": hvd-cpu-1: no room$"):
        code.deliver(agents.access, {workers[0]: Pod("10.0.0.1"), workers[1]: Pod("10.0.0.2")})
    assert code.is_on(workers[0], Pod("10.0.0.1"))
    assert not code.is_on(workers[0], Pod("10.0.0.9")), "a new pod of the same name"
    assert not code.is_on(workers[1], Pod("10.0.0.2"))


def test_keys_of_another_release_are_a_wrong_configuration(
    mounted: Path, agents: ScriptedAgents, tmp_path: Path
) -> None:
    """Another attempt would find the same keys."""
    workers = make_run().workers
    other = ReleaseKeys().of_master(tmp_path / "other")
    with pytest.raises(ConfigurationError, match=r"hvd-cpu-0 and 2 more: .*agent\.generation"):
        unpacked(mounted).deliver(
            agents.access._replace(keys=other), {worker: Pod("10.0.0.3") for worker in workers}
        )


def test_each_attempt_hands_out_the_code_anew(mounted: Path, agents: ScriptedAgents) -> None:
    agents.install('echo "$1" >>asked; cat >/dev/null')
    worker = make_run().workers[0]
    code = unpacked(mounted)

    def attempt(uid: str) -> None:
        code.forget()
        code.deliver(agents.access, {worker: Pod("10.0.0.1", uid)})
        code.deliver(agents.access, {worker: Pod("10.0.0.1", uid)})

    attempt("uid-1")
    attempt("uid-1")
    attempt("uid-2")
    asked = (mounted.parent / "asked").read_text().split()
    assert asked == [worker.address] * 3


@pytest.mark.parametrize(
    "change",
    [
        lambda code: (code / "train.py").unlink(),
        lambda code: (code / "train.py").write_bytes(b"changed"),
        lambda code: (code / "more.py").write_bytes(b"more"),
        lambda code: code.chmod(0o500),
        replace_by_link,
    ],
    ids=["deleted", "changed", "added", "read-only", "link"],
)
def test_code_that_the_training_has_changed_is_replaced(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    content = make_archive(make_member("train.py", b"train"))
    code = tmp_path / "code" / "v1"
    code.parent.mkdir()
    code_archive.unpack(content, code)
    change(code)
    code_archive.unpack(content, code)
    assert list_files(code) == {"train.py": b"train"}
    assert not code.is_symlink()
    assert list_files(tmp_path / "precious") == {}


def test_workers_without_the_packages_are_not_used(
    mounted: Path, agents: ScriptedAgents, tmp_path: Path
) -> None:
    workers = make_run().workers
    agents.install(
        f'echo "$2" >>{tmp_path}/asked\n'
        "case $1.$2 in *-0.hvd*packages.py*) echo numpy-2.0; echo x is incompatible.;; "
        "*packages.py*) echo 'no numpy: do this' >&2; exit 78;; esac"
    )
    code = unpacked(mounted, install_timeout_seconds=60.0)
    addresses = {worker: Pod(f"10.0.0.{number}") for number, worker in enumerate(workers)}
    with pytest.raises(ConfigurationError) as error:
        code.deliver(agents.access, addresses)
    assert str(error.value) == (
        "cannot install requirements.txt on hvd-cpu-1: no numpy: do this"
    ), "no attempt can help"
    assert [code.is_on(worker, addresses[worker]) for worker in workers] == [True, False, True]
    assert "keep-packages" in (tmp_path / "asked").read_text()


def test_command_of_the_users_own_finds_the_packages_in_the_master(
    mounted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does the launcher of an image without an mpirun, which the packages may have."""
    monkeypatch.setattr(packages, "install", lambda code, within: f"for {code.name}")
    code = unpacked(mounted, install_timeout_seconds=60.0)
    image = {"PATH": str(tmp_path)}
    bare = code.prepare_launcher("mpirun", image)
    assert bare["PATH"] == f"{tmp_path}:{packages.PACKAGES_FOLDER}/current/bin"
    (tmp_path / "mpirun").touch(0o755)
    assert code.prepare_launcher("mpirun", image) == image
    assert "PYTHONPATH" in code.prepare_launcher("custom", image)
    own = code.prepare_launcher("mpirun", {**image, "PYTHONPATH": "/data"})
    assert own["PYTHONPATH"].endswith("/site:/data"), "Hydra gives it to the ranks"


def test_code_that_cannot_be_unpacked_replaces_no_other(
    of_worker: CodeOfWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run of the other one may go on."""
    assert of_worker.receive(b"no archive") == 1
    assert f" {of_worker.folder}/v2: " in capsys.readouterr().err
    assert "v1" in of_worker.folders()


@pytest.mark.parametrize(("keeps_packages", "kept"), [(False, ["v2"]), (True, [".packages", "v2"])])
def test_worker_keeps_the_code_that_it_gets_and_no_other(
    of_worker: CodeOfWorker, keeps_packages: bool, kept: list[str]
) -> None:
    assert (
        of_worker.receive(
            make_archive(make_member("train.py", b"train")), keeps_packages=keeps_packages
        )
        == 0
    )
    assert list_files(of_worker.folder / "v2") == {"train.py": b"train"}
    assert of_worker.folders() == kept
