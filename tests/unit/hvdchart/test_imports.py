"""What a command imports: a person waits for everything that it does not use, too."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import hvdchart

# Each takes 0.1 s or more.
SLOW = {
    "jsonschema_rs",
    "kubernetes",
    "pathspec",
    "pyhelm3",
    "rich",
    "ruamel",
    "watchfiles",
    "yaml",
}


def imported(code: str) -> set[str]:
    """Return the modules that a new Python has imported after running this code."""
    program = f"import json, sys\n{code}\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return set(json.loads(done.stdout))


def test_help_and_version_import_nothing_slow() -> None:
    tops = {name.partition(".")[0] for name in imported("import hvdchart.cli.app")}
    assert tops & SLOW == set()


def test_reading_a_cluster_imports_no_models_of_the_kubernetes_client() -> None:
    modules = imported("import hvdchart.run.cluster")
    assert "kubernetes.client.api_client" in modules
    generated = ("kubernetes.client.api.", "kubernetes.client.models.")
    assert [name for name in modules if name.startswith(generated)] == []


@pytest.mark.parametrize("name", hvdchart.__all__)
def test_public_name_is_imported_when_it_is_used(name: str) -> None:
    assert getattr(hvdchart, name) is not None


def test_public_names_are_those_that_can_be_imported() -> None:
    assert set(hvdchart.__all__) == {*hvdchart._MODULES, "__version__"}
    with pytest.raises(AttributeError, match="module 'hvdchart' has no attribute 'none'"):
        hvdchart.none  # noqa: B018
