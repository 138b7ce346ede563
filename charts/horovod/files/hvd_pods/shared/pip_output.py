"""Summarizes pip's output: its result or the reason for its failure, without secrets."""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path
from typing import Iterable, Mapping
from urllib.parse import quote

from hvd_pods.shared.errors import ConfigurationError, RunError
from hvd_pods.shared.untrusted import read_file

REQUIREMENTS = "requirements.txt"
# pip's name for the versions that the image has.
CONSTRAINT = "The user requested (constraint)"
DEFAULT_INDEX = "https://pypi.org/simple"
UNREACHABLE = re.compile(
    r"connection broken by '(\w+)|\b(ProxyError|ConnectTimeoutError|NewConnectionError)\b"
)
# The parts of requirements.txt and the files that it names that must not be shown: the values of
# variables, which pip expands, and the part of an address before its host.
VARIABLE_REFERENCE = re.compile(r"\$\{([A-Z0-9_]+)\}")
NAMED_FILE = re.compile(r"^[ \t]*(?:-[rc]|--requirement|--constraint)[ \t=]*([^\s#]+)", re.M)
# The part of an address before its host, up to the last @, as a password may have any character.
# And the values of its query, some of which are signatures.
CREDENTIALS = re.compile(r"(?<=://)([^/\s:@]*:)?[^\s'\"<>]*@")
QUERY = re.compile(r"([?&;][^\s=&;#'\"<>]{1,100}=)[^\s&;#'\"<>]+")
ESCAPE = re.compile(r"%[0-9A-F]{2}")
HIDDEN = "****"
MIN_SECRET_CHARACTERS = 6
REASON = re.compile(r"\[Errno -?\d+\] [^'\")]+|timed out|CERTIFICATE_VERIFY_FAILED")
INSTEAD = (
    "put the packages into an image (hvdchart build), name an index that answers in PIP_INDEX_URL "
    "of `worker.env`, or choose `code.requirements: Ignore`"
)


def find_secrets(file: Path, variables: Mapping[str, str]) -> set[str]:
    """Return the values of the variables in a requirements file, and in the files that it names.

    A file that cannot be read has none, and a variable that is not set has an empty value.
    """
    values = set()
    files = [file]
    for path in files:
        try:
            text = read_file(path).decode(errors="replace")
        except OSError:
            continue
        values |= {variables.get(name, "") for name in VARIABLE_REFERENCE.findall(text)}
        named = {Path(os.path.normpath(path.parent / name)) for name in NAMED_FILE.findall(text)}
        files += named.difference(files)
    return values


def redact(text: str, values: Iterable[str]) -> str:
    """Return a text without these values, the credentials in addresses, and the values of queries.

    pip redacts only passwords in addresses that it understands. Values of less than
    MIN_SECRET_CHARACTERS stay: a text contains them by chance.
    """
    spelled = {
        word for value in values if len(value) >= MIN_SECRET_CHARACTERS for word in _spell(value)
    }
    for word in sorted(spelled, key=len, reverse=True):
        text = text.replace(word, HIDDEN)
    return QUERY.sub(rf"\1{HIDDEN}", CREDENTIALS.sub(rf"\1{HIDDEN}@", text))


def _spell(value: str) -> set[str]:
    """Return the spellings of a secret in a text: itself, escaped, and in base64."""
    words = {value, quote(value), quote(value, safe="")}
    words |= {ESCAPE.sub(lambda match: match[0].lower(), word) for word in words}
    # The length of the text before it, such as a user's name and a colon, decides its alignment.
    for before in range(3):
        data = b"\0" * before + value.encode(errors="surrogatepass")
        whole = data[: len(data) // 3 * 3]
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            words.add(encode(whole)[4 if before else 0 :].decode())
    return {word for word in words if len(word) >= MIN_SECRET_CHARACTERS}


def summarize(output: str) -> str:
    """Return pip's result in one line, and its warning for each package that may not work.

    pip prints the warnings at the end, and succeeds.
    """
    lines = output.splitlines()
    begins = "Successfully installed "
    done = next((line[len(begins) :] for line in lines if line.startswith(begins)), "")
    broken = [line for line in lines if line.endswith("which is incompatible.")]
    return "\n".join([done or "nothing: the image has all packages", *broken])


def find_index(output: str, values: Iterable[str]) -> str:
    """Return the package index that pip named, without these values; PyPI if it named none."""
    begins = "Looking in indexes: "
    named = (line for line in output.splitlines() if line.startswith(begins))
    return redact(next(named, begins + DEFAULT_INDEX)[len(begins) :], values)


def explain(output: str, values: Iterable[str] = ()) -> RunError:
    """Explain why pip failed, in one line with the index and the remedy, without these values.

    It is a ConfigurationError, unless the index did not respond: a retry may help then.
    """
    lines = output.splitlines()
    index = find_index(output, values)
    if "No module named pip" in output:
        return ConfigurationError(f"the image's python3 has no pip: {INSTEAD}")
    errors = [line[len("ERROR: ") :].strip() for line in lines if line.startswith("ERROR: ")]
    unreachable = UNREACHABLE.search(output)
    if unreachable:
        reason = REASON.search(output)
        reason_text = redact(reason[0], values) if reason else unreachable[1] or unreachable[2]
        return RunError(f"no answer from the package index {index} ({reason_text}): {INSTEAD}")
    if "The conflict is caused by:" in lines:
        at = lines.index("The conflict is caused by:") + 1
        asked = [line.strip() for line in lines[at:] if line.startswith("    ")]
        problem = redact("; ".join(asked), values)
        if any(line.startswith(CONSTRAINT) for line in asked):
            problem += " (Horovod was compiled for what the image has)"
        return ConfigurationError(f"{problem}: ask for another version, or use another image")
    problem = "no output"
    if errors:
        problem = errors[-1]
    elif lines:
        problem = lines[-1]
    if "DO NOT MATCH THE HASHES" in output:
        name = next((line.strip() for line in lines if line.startswith("    ")), "")
        problem = (
            f"the hashes in {REQUIREMENTS} are not those of the file that the index has: {name}"
        )
    return ConfigurationError(f"{redact(problem, values)} (package index {index}): {INSTEAD}")
