"""Reads Python's tracebacks: what was raised where in the user's own code, and the remedy."""

from __future__ import annotations

import os
import re

# Characters of an exception's line, so that a notice of it fits its limit.
LONGEST = 500
FRAME = re.compile(r'^ +File "([^"]+)", line (\d+)')
EXCEPTION = re.compile(r"^([A-Za-z_][\w.<>]*)(: .*)?$")
# What TensorFlow and Keras put before the message of an exception; frames may follow.
WRAPPED = re.compile(r": in user code:$|Exception encountered when calling ")
# Files that are not the user's own: of Python and its packages, and what TensorFlow generates.
FOREIGN = re.compile(r"/lib/python3|/(site|dist)-packages/|^<frozen |__autograph_generated_file")
COLOR = re.compile(r"\x1b\[\d*m")
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


class TracebackReader:
    """Takes the lines of a log one by one, without their ends."""

    def __init__(self) -> None:
        self._is_open = False
        self._begin()

    def _begin(self) -> None:
        # The exception's class, while its message is still to come.
        self._wrapped = ""
        # The frame to show: the last one of the user's own code, or the last one.
        self._place = ""
        self._source = ""
        self._is_own = False
        # The next line is the source of the last frame, and whether that frame is the one to show.
        self._is_source = self._is_shown = False

    def take(self, line: str) -> str | None:
        """The exception, its place and a remedy in one line, when `line` completes them, else None.

        Of an exception with a cause, each is returned when complete: the last one ended the rank.
        """
        frame = FRAME.match(line)
        if line.startswith("Traceback (most recent call last)"):
            self._is_open = True
            self._begin()
        elif frame and (self._is_open or line.startswith("  File")):
            # A SyntaxError has a frame without a traceback before it.
            self._is_open = True
            self._take_frame(frame[1], frame[2])
        elif self._is_open:
            return self._take_other(line)
        return None

    def _take_frame(self, file: str, number: str) -> None:
        is_own = not FOREIGN.search(file)
        self._is_source = True
        self._is_shown = is_own or not self._is_own
        if self._is_shown:
            self._place = f", {os.path.basename(file)[:LONGEST]}:{number[:9]}"
            self._source = ""
            self._is_own = is_own

    def _take_other(self, line: str) -> str | None:
        exception = EXCEPTION.match(line)
        if self._is_source and (self._wrapped or not exception):
            self._is_source = False
            self._source = line[:LONGEST] if self._is_shown else self._source
            return None
        if self._wrapped:
            # Of the same class, unless the message names another one.
            line = COLOR.sub("", line.strip())
            if not line:
                return None
            exception = EXCEPTION.match(line)
            line = line if exception else f"{self._wrapped}: {line}"
        elif not exception:
            return None
        if exception and WRAPPED.search(line):
            self._wrapped = exception[1]
            self._is_source = False
            return None
        self._is_open = False
        text = line[:LONGEST]
        return text + self._place + find_hint(text, self._source)


def find_hint(text: str, source: str = "") -> str:
    """What follows the line of an exception, which `source` has raised; empty if nothing does."""
    if NO_TF_KERAS.search(text):
        return " (add tf-keras of TensorFlow's version to requirements.txt, or to the image)"
    is_call = "'list' object is not callable" in text and CALLED.search(source)
    if (is_call or KERAS_2.search(text)) and not os.environ.get(LEGACY):
        return f" (a script for Keras 2 needs {LEGACY}=1 in `worker.env`)"
    return ""
