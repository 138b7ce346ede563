"""A program on PATH that records how it is called and gives prepared answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# The answer depends on the first argument that is not an option; without one prepared: success.
SCRIPT = """#!/bin/sh
home="$0.d"
call="$home/call-$$"
mkdir "$call"
for word; do
  printf '%s\\0' "$word" >>"$call/arguments"
  case "$word" in -*) ;; *) command=${command:-$word} ;; esac
done
cat >"$call/input"
# Another process that reads the calls sees complete ones only.
mv "$call" "$home/calls/$(ls "$home/calls" | wc -l)"
answer="$home/$command"
test -d "$answer" || exit 0
cat "$answer/output"
cat "$answer/errors" >&2
exit "$(cat "$answer/code")"
"""


@dataclass(frozen=True)
class Call:
    """One call: its arguments and its standard input."""

    arguments: list[str]
    input: str


class StubProgram:
    """A program `name` in `folder`, which a test puts on PATH."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / name
        self._home = folder / f"{name}.d"
        (self._home / "calls").mkdir(parents=True)
        self.path.write_text(SCRIPT)
        self.path.chmod(0o755)

    def answer(self, command: str, output: str = "", errors: str = "", code: int = 0) -> None:
        """Answer calls with this command from now on."""
        folder = self._home / command
        folder.mkdir(exist_ok=True)
        (folder / "output").write_text(output)
        (folder / "errors").write_text(errors)
        (folder / "code").write_text(str(code))

    @property
    def calls(self) -> list[Call]:
        """All calls so far, in order."""
        folders = sorted((self._home / "calls").iterdir(), key=lambda folder: int(folder.name))
        return [
            Call(
                (folder / "arguments").read_text().split("\0")[:-1], (folder / "input").read_text()
            )
            for folder in folders
        ]

    def commands(self) -> list[str]:
        """The command of each call: its first argument that is not an option."""
        return [
            next(word for word in call.arguments if not word.startswith("-")) for call in self.calls
        ]
