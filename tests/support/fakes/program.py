"""A program on PATH that records how it is called and gives prepared answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

# The answer depends on the first two arguments that are no options, or on the first one alone;
# without one prepared: success.
# It starts no process but `cat`, since tests call it hundreds of times.
SCRIPT = """#!/bin/sh
call="$0.d/$$"
: >"$call.arguments"
for word; do
  printf '%s\\0' "$word" >>"$call.arguments"
  case "$word" in
    -*) ;;
    *) if test -z "$command"; then command=$word; else second=${second:-$word}; fi ;;
  esac
done
cat >"$call.input"
if test -n "$command"; then echo "$call.input" >"$0.d/last-$command"; fi
# Last, so that another process that reads the calls sees complete ones only.
echo $$ >>"$0.d/calls"
while test -e "$0.d/hold-$command"; do sleep 0.01; done
case "$command $second" in
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
        self._home.mkdir()
        (self._home / "calls").touch()
        self._answers: dict[str, str] = {}
        self._write()

    def answer(self, command: str, output: str = "", errors: str = "", code: int = 0) -> None:
        """Answer calls with this command, of one word or two, from now on."""
        said = f"printf %s {quote(output)}; printf %s {quote(errors)} >&2; exit {code}"
        self._answers[command] = said
        self._write()

    def repeat(self, command: str, of: str) -> None:
        """Answer calls with this command with another one's last input; as before, until then."""
        last = f'"$0.d/last-{of}"'
        before = self._answers[command]
        said = f"if test -e {last}; then read -r file <{last}; cat $file; else {before}; fi"
        self._answers[command] = said
        self._write()

    @contextmanager
    def hold(self, command: str) -> Iterator[None]:
        """Let calls with this command last until the block has ended."""
        held = self._home / f"hold-{command}"
        held.touch()
        try:
            yield
        finally:
            held.unlink()

    def _write(self) -> None:
        # A shell reads its script while it runs: a call keeps the file it began with.
        script = self._home / "script"
        # What is answered for two words goes before what is for the first one alone.
        commands = sorted(self._answers, key=lambda command: " " not in command)
        cases = [f"{_pattern(command)}) {self._answers[command]} ;;\n" for command in commands]
        script.write_text("".join([SCRIPT, *cases, "esac\n"]))
        script.chmod(0o755)
        script.rename(self.path)

    @property
    def calls(self) -> list[Call]:
        """All calls so far, in order."""
        return [self._read(pid) for pid in (self._home / "calls").read_text().split()]

    def _read(self, pid: str) -> Call:
        arguments, standard_input = (
            self._home / f"{pid}.{kind}" for kind in ("arguments", "input")
        )
        return Call(arguments.read_text().split("\0")[:-1], standard_input.read_text())

    def commands(self) -> list[str]:
        """The command of each call: its first argument that is not an option."""
        return [
            next(word for word in call.arguments if not word.startswith("-")) for call in self.calls
        ]


def _pattern(command: str) -> str:
    """The shell's pattern for the first two words of a call."""
    return quote(command) if " " in command else f"{quote(f'{command} ')}*"
