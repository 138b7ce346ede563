"""`devtools.trials.horovod_tests`: reading pytest's reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.common.errors import ImageError
from devtools.images.catalogue import load_catalogue
from devtools.trials.horovod_tests import main, merge_ranks, read_outcomes, refuse_tf_keras

REPORT = """<testsuites><testsuite>
<testcase classname="test_x.A" name="test_sum"/>
<testcase classname="test_x.A" name="test_sum"><skipped message="eager"/></testcase>
<testcase classname="test_x.B" name="test_sum"><skipped message="one rank"/></testcase>
<testcase classname="test_x.B" name="test_mean">
<failure message="ValueError: no&#10;more"/></testcase>
<testcase classname="test_x.B" name="test_mean"/>
<testcase classname="" name="test_y"><error message="ImportError: z"/></testcase>
</testsuite></testsuites>
"""


def test_report_is_read_by_class_and_test(tmp_path: Path) -> None:
    file = tmp_path / "report.xml"
    file.write_text(REPORT)
    assert read_outcomes(file) == {
        "A.test_sum": ("passed", ""),
        "B.test_sum": ("skipped", ""),
        "B.test_mean": ("failed", "ValueError: no"),
        ".test_y": ("failed", "ImportError: z"),
    }


def test_failure_on_one_rank_is_a_failure() -> None:
    passed, failed = ("passed", ""), ("failed", "why")
    first, second = {"a": passed, "b": failed, "c": passed}, {"a": passed, "b": passed, "c": failed}
    assert merge_ranks([first, second]) == {"a": passed, "b": failed, "c": failed}


def test_folder_without_the_tests_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no test/parallel/test_torch\.py"):
        main(tmp_path, "pytorch", ["test_torch.py"])


def test_tf_keras_needs_the_image_with_its_tensorflow() -> None:
    images = load_catalogue()
    refuse_tf_keras(images["cpu"])
    with pytest.raises(ImageError, match=r"cpu-2\.15 is 2\.15\.1, tf_keras here is for 2"):
        refuse_tf_keras(images["cpu-2.15"])
    with pytest.raises(ImageError, match="pytorch is none"):
        refuse_tf_keras(images["pytorch"])
