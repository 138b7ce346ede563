"""requirements.txt beside the code: a real pip, and a package index on the loopback."""

from __future__ import annotations

import base64
import os
import re
import shutil
import socket
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

from hvd_pods.pod import packages
from hvd_pods.shared import paths
from hvd_pods.shared.errors import ConfigurationError, RunError
from hvd_pods.shared.pip_output import redact
from hvdchart.run.kube.kubectl import IN_CODE
from tests.support.wheels import Index, serve_index

pytestmark = pytest.mark.slow

LONG = 120.0  # seconds for pip
TEXT = "hvdleaf==1.0"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """An index that has hvdleaf, which needs a package that the image has."""
    with serve_index(tmp_path / "index") as served:
        served.add("hvdleaf", needs=["hvdimage"])
        monkeypatch.setenv("PIP_INDEX_URL", served.url)
        yield served


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python that has pip and nothing else: pip reads what it can find of each package."""
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    home = Path(str(distribution("pip").locate_file("")))
    for part in (home / "pip", *home.glob("pip-*.dist-info")):
        (site / part.name).symlink_to(part)
    return str(folder / "bin" / "python3")


@pytest.fixture
def code(tmp_path: Path, python: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The unpacked code, in a pod whose image has TensorFlow for CPUs and `hvdimage`."""
    image = tmp_path / "image"
    for name, version in (("tensorflow_cpu", "2.21.0"), ("hvdimage", "3.0")):
        info = image / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        text = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        (info / "METADATA").write_text(text)
    folder = tmp_path / "code"
    folder.mkdir()
    # Beside pip, it must not be what pip imports.
    (folder / "json.py").write_text("raise SystemExit('the module of the script')")
    monkeypatch.setattr(packages, "PACKAGES_FOLDER", tmp_path / ".packages")
    monkeypatch.setattr(sys, "executable", python)
    monkeypatch.setenv("PYTHONPATH", str(image))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_REQUIRE_HASHES"):
        monkeypatch.delenv(name, raising=False)
    return folder


def ask(code: Path, *lines: str) -> None:
    (code / "requirements.txt").write_text("\n".join([*lines, ""]))


def version_in_a_rank(name: str) -> str:
    """The version of a module as a rank finds it."""
    show = f"import {name}; print({name}.VERSION)"
    command = [sys.executable, "-c", show]
    done = subprocess.run(
        command, env=packages.add_to(os.environ), capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or done.stderr.splitlines()[-1]


@pytest.fixture
def installed(code: Path, index: Index) -> Path:
    """The code of a run whose packages are installed; the index was asked for nothing since."""
    ask(code, TEXT)
    packages.install(code, LONG)
    index.asked.clear()
    return code


def plant(folder: Path, *names: str) -> None:
    """Write modules that make a folder where they are imported."""
    for name in names:
        (folder / name).write_text("import os; os.mkdir(os.environ['HVD_PLANTED'])")


@pytest.fixture
def unanswered(code: Path, monkeypatch: pytest.MonkeyPatch) -> RunError:
    """Why packages were not installed from an index with a password, at which nothing listens."""
    monkeypatch.setenv("PIP_INDEX_URL", "http://me:hidden@127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    ask(code, TEXT)
    with pytest.raises(RunError) as error:
        packages.install(code, LONG)
    return error.value


def test_what_the_image_lacks_is_installed(code: Path, index: Index) -> None:
    ask(code, TEXT)
    assert packages.install(code, LONG) == "hvdleaf-1.0"
    assert version_in_a_rank("hvdleaf") == "1.0"
    assert index.asked
    assert not [path for path in index.asked if "hvdimage" in path], "the image has it"


def test_packages_of_an_earlier_run_are_not_installed_again(installed: Path, index: Index) -> None:
    assert packages.install(installed, LONG).startswith("nothing")
    assert index.asked == []


def test_ranks_find_the_packages_of_the_latest_run_only(installed: Path, index: Index) -> None:
    index.add("hvdother", "2.0")
    ask(installed, "hvdother")
    assert packages.install(installed, LONG) == "hvdother-2.0"
    assert version_in_a_rank("hvdother") == "2.0"
    assert "No module named 'hvdleaf'" in version_in_a_rank("hvdleaf")
    left = {path.name for path in packages.PACKAGES_FOLDER.iterdir()}
    assert left == {"lock", "current", packages.identify(installed)}


def test_what_an_interrupted_pip_leaves_is_not_taken_for_complete(code: Path, index: Index) -> None:
    ask(code, TEXT)
    (packages.PACKAGES_FOLDER / packages.identify(code)).mkdir(parents=True)
    assert packages.install(code, LONG) == "hvdleaf-1.0"
    assert version_in_a_rank("hvdleaf") == "1.0"


@pytest.mark.parametrize("more", ["", ":"], ids=["", "PYTHONPATH names this folder"])
def test_modules_that_an_earlier_run_has_left_beside_the_packages_do_not_run(
    code: Path, index: Index, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many images end PYTHONPATH with a colon, which stands for the working directory."""
    monkeypatch.setenv("PYTHONPATH", os.environ["PYTHONPATH"] + more)
    packages.PACKAGES_FOLDER.mkdir()
    plant(packages.PACKAGES_FOLDER, "json.py", "hvdimage.py", "sitecustomize.py")
    monkeypatch.setenv("HVD_PLANTED", str(code / "planted"))
    ask(code, TEXT)
    assert packages.install(code, LONG) == "hvdleaf-1.0"
    assert not (code / "planted").exists()


def test_what_horovod_was_compiled_for_stays(code: Path, index: Index) -> None:
    """Under each of its names: pip knows nothing of builds."""
    ask(code, "tensorflow>=2.16")
    assert packages.install(code, LONG).startswith("nothing")
    assert index.asked == []


def test_another_version_of_what_horovod_was_compiled_for_is_refused(
    code: Path, index: Index
) -> None:
    ask(code, "tensorflow==2.15.1")
    with pytest.raises(ConfigurationError, match=r"tensorflow==2\.15\.1.*tensorflow==2\.21\.0"):
        packages.install(code, LONG)


def test_index_that_does_not_answer_is_named_without_its_password(unanswered: RunError) -> None:
    text = str(unanswered)
    assert "http://me:****@127.0.0.1:1/simple" in text
    assert "hidden" not in text


def test_silent_index_is_reported_in_one_line_with_a_remedy(
    unanswered: RunError,
) -> None:
    text = str(unanswered)
    assert "Connection refused" in text
    assert "hvdchart build" in text
    assert "\n" not in text


def test_another_attempt_may_reach_an_index_that_does_not_answer(unanswered: RunError) -> None:
    assert unanswered.exit_code == 1


def test_index_that_takes_connections_and_says_nothing_costs_a_limited_time(
    code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where pip itself would wait for longer."""
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "600")
    ask(code, TEXT)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{silent.getsockname()[1]}/simple")
        # A busy machine may take longer to start pip, which then has not named the index.
        with pytest.raises(RunError, match=r"^pip .* 4 s \(") as error:
            packages.install(code, 4.0)
    assert error.value.exit_code == 1, "another attempt may help"


@pytest.mark.parametrize(
    "lines",
    [
        ["--index-url http://127.0.0.1:1/${INDEX_TOKEN}/simple", "hvdleaf==1"],
        ["hvdleaf==${INDEX_TOKEN}"],
        ["--no-such ${INDEX_TOKEN}"],
        ["a @ https://me:s3cr%2Fet@127.0.0.1:1/a.whl b"],
        ["a @ https://s3cr.et@127.0.0.1:1/a.whl b"],
        ["-r sub/more.txt"],
    ],
    ids=["path", "version", "option", "password", "name", "file"],
)
@pytest.mark.promise("secrets of the requirements are not in messages")
def test_secrets_of_the_requirements_are_not_in_messages(
    code: Path, index: Index, monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    """It goes to the log, to an event and to the record, which others may read."""
    monkeypatch.setenv("INDEX_TOKEN", "s3cr/et")
    monkeypatch.setenv("PIP_RETRIES", "0")
    (code / "sub").mkdir()
    (code / "sub" / "more.txt").write_text("-r../sub/deep.txt\n")
    (code / "sub" / "deep.txt").write_text("a ${INDEX_TOKEN}\n")
    ask(code, *lines)
    with pytest.raises(RunError) as error:
        packages.install(code, LONG)
    assert "****" in str(error.value)
    assert "s3cr" not in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "https://me:pa/ss@index.example/simple",
        "https://me:p@/ss@index.example/simple",
        "https://index.example/a.whl?X-Amz-Signature=pass&x=1",
        "https://index.example/a.whl?x=1&sig=pass#egg=a",
        "https://index.example/s3cr%2fet%3f/simple",
        "https://index.example/s3cr%2Fet%3F/simple",
    ],
)
def test_secrets_are_found_in_each_spelling(text: str) -> None:
    redacted = redact(f"ERROR: cannot read {text}", ["s3cr/et?"])
    assert redacted.startswith("ERROR: cannot read ")
    assert not re.search("ss|s3cr", redacted), redacted
    assert "****" in redacted


@pytest.mark.parametrize("user", ["", "u", "me", "you"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_secrets_are_found_in_base64(user: str, encode: Callable[[bytes], bytes]) -> None:
    spelled = encode(f"{user}:a very long s3cr/et?".encode()).decode()
    redacted = redact(f"Authorization: Basic {spelled}", ["a very long s3cr/et?"])
    assert "****" in redacted
    assert len(redacted) < len("Authorization: Basic ****") + 12, redacted


def test_package_that_the_index_does_not_have_is_a_wrong_configuration(
    code: Path, index: Index
) -> None:
    ask(code, "hvdnone==1")
    with pytest.raises(ConfigurationError, match=f"hvdnone==1.*{index.url}.*hvdchart build"):
        packages.install(code, LONG)
    assert not (packages.PACKAGES_FOLDER / "current").exists()


def test_wrong_hashes_are_a_wrong_configuration(code: Path, index: Index) -> None:
    ask(code, f"{TEXT} --hash=sha256:{'0' * 64}", f"hvdimage==3.0 --hash=sha256:{'0' * 64}")
    with pytest.raises(ConfigurationError, match=r"requirements\.txt .* hvdleaf"):
        packages.install(code, LONG)
    assert not (packages.PACKAGES_FOLDER / "current").exists()


@pytest.mark.parametrize(
    "text", ["-r more.txt", "./wheels/a.whl", "a @ file:b", "-c old.txt", "-e .", "lib/part"]
)
def test_files_that_requirements_name_count_as_well(code: Path, text: str) -> None:
    ask(code, "numpy", text)
    other = shutil.copytree(code, code.parent / "code-2")
    assert packages.identify(other) != packages.identify(code)


def test_another_script_with_the_same_requirements_has_the_same_packages(code: Path) -> None:
    ask(code, "--index-url https://index.example/simple", "numpy \\", "    --hash=sha256:0")
    other = shutil.copytree(code, code.parent / "code-2")
    assert packages.identify(other) == packages.identify(code)


def test_exec_finds_what_a_rank_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell of `hvdchart exec` has the paths and variables once more."""
    code = str(tmp_path / "code")
    monkeypatch.setattr(packages, "PACKAGES_FOLDER", Path(paths.PACKAGES.replace(paths.CODE, code)))
    current = packages.PACKAGES_FOLDER / packages.CURRENT
    version = tmp_path / "code" / "3c5f0e8d21"
    current.mkdir(parents=True)
    version.mkdir(parents=True)
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": "/own"}
    line = [word.replace(paths.CODE, code) for word in IN_CODE]
    show = "import os; print([os.getcwd(), *map(os.environ.get, ('PYTHONPATH', 'PATH'))])"
    command = [*line, sys.executable, "-S", "-c", show]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    expected = packages.add_to(environment)
    assert shown.stdout == f"{[str(version), expected['PYTHONPATH'], expected['PATH']]}\n"


def test_libraries_of_an_mpi_are_found_where_the_image_has_none(tmp_path: Path) -> None:
    before = {"PATH": str(tmp_path), "LD_LIBRARY_PATH": "/opt/lib"}
    after = packages.add_to(before)["LD_LIBRARY_PATH"]
    assert after == f"/opt/lib:{packages.PACKAGES_FOLDER}/current/lib"


def test_libraries_of_an_mpi_are_not_added_to_those_of_the_images_own(tmp_path: Path) -> None:
    """Its mpirun would start ranks with its own libraries' rivals."""
    (tmp_path / "mpirun").touch(0o755)
    before = {"PATH": str(tmp_path), "LD_LIBRARY_PATH": "/opt/lib"}
    assert packages.add_to(before)["LD_LIBRARY_PATH"] == "/opt/lib"
