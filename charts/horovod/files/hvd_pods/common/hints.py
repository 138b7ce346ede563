"""What to do about exceptions that say little of their cause."""

from __future__ import annotations

import os
import re

# Errors of scripts for Keras 2 under Keras 3. The script's line shows whether it calls a list.
CALLED = re.compile(r"\.(variables|weights)\(\)")
KERAS_2 = re.compile(
    r"Argument\(s\) not recognized: \{'(lr|decay)'"
    r"|keras\.optimizers\.legacy` is not supported in Keras 3"
    r"|object has no attribute '(lr|_decayed_lr|_get_hyper|get_updates|fit_generator)'"
    r"|module 'keras\._tf_keras[\w.]*' has no attribute"
)
NO_TF_KERAS = re.compile(r"No module named 'tf_keras'|Keras cannot be imported")
LEGACY = "TF_USE_LEGACY_KERAS"


def find(text: str, source: str = "") -> str:
    """What follows the line of an exception, which `source` has raised; empty if nothing does."""
    if NO_TF_KERAS.search(text):
        return " (install tf-keras of TensorFlow's version into the image: docs/runtime.md)"
    is_call = "'list' object is not callable" in text and CALLED.search(source)
    if (is_call or KERAS_2.search(text)) and not os.environ.get(LEGACY):
        return f" (a script for Keras 2 needs {LEGACY}=1 in worker.env: docs/runtime.md)"
    return ""
