"""Mask secrets in texts that leave for other people. Pure.

No program can know each secret. Values with a secret's name are masked, and values that look like
one. A value that was masked in one text is masked in all others.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

MASK = "(masked)"
# The word token, but not that of a language model: tokenizer, token_type_ids, tokens_per_step.
_ACCESS_WORD = r"token(?!iz|s?[-_.]?(?:type|embed|class|level|length|per|ids?\b|counts?\b))"
# Words of names whose values are secrets: WANDB_API_KEY, dbPassword, hf-token.
_WORDS = re.compile(
    rf"secret|{_ACCESS_WORD}|passw|passphrase|pwd|credential|apikey|accesskey|privatekey|cookie|bearer|"
    r"signature|(?:^|[-_.])(?:key|pass|auth|pat|sas|dsn|pin|salt)(?:$|[-_.])",
    re.IGNORECASE,
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Keys that refer to a secret without containing it, and keys whose values are no secrets.
_NAMING = re.compile(
    r"(?:secretName|secretRef|secretKeyRef|imagePullSecrets|name|optional|secretNamespace|"
    r"automountServiceAccountToken|masterSecret|workerSecret|topologyKey)$",
    re.IGNORECASE,
)
# Beside these keys, `key` is that of a label, a taint or a file.
_BESIDE_KEY = {"operator", "effect", "path"}
# Secrets that are recognized by their form, anywhere in a text.
_FORMS = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)"
    # Tokens of GitHub, GitLab, Hugging Face, OpenAI, Slack, AWS, Google, NVIDIA, Stripe, Docker,
    # npm and PyPI, and JSON Web Tokens.
    r"|\b(?:gh[pousr]_|github_pat_|glpat-|[rs]k_live_|xox[abprs]-|xapp-|AKIA|ASIA|AIza|ya29\.|nvapi-"
    r"|dckr_pat_|pypi-AgE)[A-Za-z0-9_-]{12,}"
    # Functions and packages have such names, too: hf_hub_download, sk-learn.
    r"|\bhf_[A-Za-z0-9]{12,}|\bsk-(?=[A-Za-z_-]{0,99}\d)[A-Za-z0-9_-]{12,}"
    r"|\bnpm_[A-Za-z0-9]{36}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+)?",
    re.DOTALL,
)
# The text after such words in a line of a log or a command line, and the login in an address. What
# is repeated has a limit: otherwise, a line of a million letters would take hours.
_STATED = re.compile(
    r"((?:authorization\W{1,3}(?:(?:apikey|basic|bearer|digest|token)\b)?|bearer[:=]?|"
    rf"(?:(?:secret|{_ACCESS_WORD}|passphrase|passw(?:or)?d|passwd|credentials?|cookie|"
    r"(?:access|account|api|encryption|private|signing)[-_]?key)[-\w]{0,99}|"
    # Short words may not be parts of others: path, patience, passed.
    r"(?<![a-z0-9])(?:pass|pwd|pat|dsn)(?![-\w]))[\"']?\]?\s{0,9}[:=]|"
    # The signature of an address.
    r"[?&;](?:[-\w]{0,99}-)?sig(?:nature)?=|"
    r"--[-\w]{0,99}(?:(?:secret|password)[-\w]{0,99}|tokens?|passphrase|key|auth|pass|pat)(?=[=\s])=?)"
    r"\s{0,9}[\"']?)"
    # A text in quotes may have spaces.
    r"((?<=\")[^\"\n]{3,}|(?<=')[^'\n]{3,}|[^\s\"',;}]{3,})",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"(\b[a-z][a-z0-9+.-]{0,30}://)[^\s/@:]*:[^\s/@]+@", re.IGNORECASE)
# A hexadecimal token may begin with digits: only these letters may follow those of a number.
_NUMBER = re.compile(
    r"[-+.,_0-9]{1,15}(?:e[-+]?\d{1,3})?(?:%|[kmbt]?(?:(?:tok)?/s)?)", re.IGNORECASE
)
# The minimum length of a value that is masked everywhere: shorter ones are ordinary words.
_MIN_MASKED_CHARACTERS = 6
# A longer value, such as an archive, is replaced by its size and digest.
_MAX_VALUE_CHARACTERS = 4000


class Masker:
    """Masks the secrets of a run in texts and documents."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def document(self, document: Any, name: str = "") -> Any:
        """Return a copy of plain data, such as the values of a release, without secrets.

        After that, `text` masks the same values.
        """
        if isinstance(document, dict):
            return self._map(document, name)
        if isinstance(document, list):
            # The value of an option is the next word.
            before = ["", *map(str, document)]
            options = [word if word.startswith("--") and "=" not in word else "" for word in before]
            inherited = name if is_secret_name(name) else ""
            return [
                self.document(element, inherited or options[at] or name)
                for at, element in enumerate(document)
            ]
        is_secret = is_secret_name(name) and not _is_token_count(name, str(document))
        if is_secret and document not in (None, "", True, False):
            self._note(document)
            return MASK
        if isinstance(document, str):
            if len(document) > _MAX_VALUE_CHARACTERS:
                digest = hashlib.sha256(document.encode(errors="replace")).hexdigest()[:12]
                return f"({len(document)} characters, sha256 {digest})"
            return self.text(document)
        return document

    def text(self, text: str) -> str:
        """Mask known secrets in a text, and parts that look like secrets."""
        for secret in sorted(self._known, key=len, reverse=True):
            text = text.replace(secret, MASK)
        text = _LOGIN.sub(rf"\g<1>{MASK}@", text)
        return _STATED.sub(_mask_stated, _FORMS.sub(MASK, text))

    def lines(self, lines: Iterable[str]) -> list[str]:
        """Mask secrets in lines; join the lines first, because a key may have several lines."""
        return self.text("\n".join(lines)).split("\n")

    def _map(self, document: dict[str, Any], name: str) -> dict[str, Any]:
        if _is_reference(document):
            return document
        secret_keys = _secret_keys(document)
        masked = {}
        for key, value in document.items():
            if key in secret_keys:
                self._note(value)
                masked[key] = MASK
            elif _is_shown(str(key), document):
                masked[key] = value
            elif _names_secret(str(key), value):
                masked[key] = self.document(value)
            else:
                # All values of a map with a secret's name are secrets.
                masked[key] = self.document(value, name if is_secret_name(name) else str(key))
        return masked

    def _note(self, value: Any) -> None:
        """Remember a secret; for a map or list, each secret in it."""
        if isinstance(value, dict | list):
            for inner_value in value.values() if isinstance(value, dict) else value:
                self._note(inner_value)
        elif len(str(value)) >= _MIN_MASKED_CHARACTERS:
            self._known.update({str(value), *str(value).split("\n")} - {""})
            self._known = {
                secret for secret in self._known if len(secret) >= _MIN_MASKED_CHARACTERS
            }


def _is_reference(document: dict[str, Any]) -> bool:
    """Return whether a map names a key of a Secret."""
    return {"name", "key"} <= document.keys() <= {"name", "key", "optional"}


def _secret_keys(document: dict[str, Any]) -> set[str]:
    """Return the keys of a Secret of a release, or of an entry of a list of variables."""
    if document.get("kind") == "Secret":
        return {"data", "stringData"}
    name = document.get("name")
    if not isinstance(name, str) or _is_token_count(name, str(document.get("value"))):
        return set()
    return {"value"} if is_secret_name(name) else set()


def _is_shown(key: str, document: dict[str, Any]) -> bool:
    """Return whether the value of a key is no secret, whatever is around the map."""
    if key == "key" and _BESIDE_KEY & document.keys():
        return True
    return bool(_NAMING.search(key)) and not isinstance(document[key], dict | list)


def _names_secret(key: str, value: Any) -> bool:
    """Return whether a map or list names a Secret instead of containing one."""
    return bool(_NAMING.search(key)) or (isinstance(value, dict) and "secretName" in value)


def _mask_stated(stated: re.Match[str]) -> str:
    """Mask the value after a secret's name; a number of tokens is no secret."""
    return stated[0] if _is_token_count(*stated.groups()) else f"{stated[1]}{MASK}"


def _is_token_count(name: str, value: str) -> bool:
    """Return whether a value is a number of tokens of a language model."""
    return "tokens" in name.lower() and bool(_NUMBER.fullmatch(value))


def is_secret_name(name: str) -> bool:
    """Return whether a value of this name is a secret."""
    return bool(_WORDS.search(_CAMEL.sub("_", name)))
