"""The certificates that master and workers show each other.

The release has two authorities. One signs the master's certificate, the other signs those of the
workers. Each end accepts only certificates of the other end's authority, so that a worker's key
cannot be used to send requests to another worker. A certificate's name consists of the role,
`agent.generation`, the release and the namespace. It is checked, too.

The files are read again after a change, so that keys can be replaced while a pod runs.
"""

from __future__ import annotations

import os
import ssl

from hvd_pods.shared.errors import ConfigurationError

CERTIFICATE = "tls.crt"
KEY = "tls.key"
AUTHORITY = "ca.crt"
PEER_AUTHORITY = "peer-ca.crt"
# The remedy of a worker or a master for keys that do not match.
KEYS_REMEDY = (
    "give all pods of the release the same pair of Secrets, with `helm upgrade --reuse-values "
    "--set agent.generation=N`, where N is another number than before, or `agent.masterSecret` "
    "and `agent.workerSecret`"
)
KEYS_DIFFER = f"its certificate is not of this release's authority: {KEYS_REMEDY}"
# Why the certificate of a peer does not count.
NOT_OF_MASTER = "its certificate is not of the authority of this release's master"
OF_OTHER_RELEASE = "its certificate is of another release or generation than "
EXPIRED = "it has expired, or a clock is wrong"
NOT_YET_VALID = "it is not valid yet"
# X509_V_ERR_HOSTNAME_MISMATCH and X509_V_FLAG_NO_CHECK_TIME of openssl/x509_vfy.h.
WRONG_NAME = 62
NO_CHECK_TIME = 0x200000
# Seconds by which a certificate may begin later than this clock's time: Helm's certificates begin
# when they are created, by the clock of the machine where Helm runs.
MAX_CLOCK_DIFFERENCE_SECONDS = 86_400.0
# The beginning of a worker's refusal of the master's certificate. A retry cannot help.
REFUSES_MASTER = "the worker refuses the master's certificate: "


class Keys:
    """The key of this pod, the authority of its peers, and the name that a peer must have.

    Raises ConfigurationError where a file is missing or invalid.
    """

    def __init__(self, folder: str, peer_name: str) -> None:
        self.peer_name = peer_name
        self._folder = folder
        self._known: tuple[object, ssl.SSLContext] | None = None
        self._state()

    def server(self) -> ssl.SSLContext:
        """Return the context of a worker's agent, which accepts only the master."""
        return self._context(ssl.PROTOCOL_TLS_SERVER)

    def client(self) -> ssl.SSLContext:
        """Return the context of a master, which accepts only this release's workers."""
        return self._context(ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, protocol: int) -> ssl.SSLContext:
        state = (protocol, self._state())
        if self._known is None or self._known[0] != state:
            self._known = (state, self._load(protocol))
        return self._known[1]

    def _load(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        # `find_time_problem` checks the times.
        context.verify_flags |= NO_CHECK_TIME
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        if protocol == ssl.PROTOCOL_TLS_SERVER:
            # Without tickets, each connection shows its certificate.
            context.num_tickets = 0
        try:
            context.load_cert_chain(self._path(CERTIFICATE), self._path(KEY), _no_passphrase)
            context.load_verify_locations(self._path(PEER_AUTHORITY))
        except (OSError, ValueError) as problem:
            raise ConfigurationError(
                f"cannot use the agent's keys in {self._folder} ({problem}): the Secrets need "
                f"tls.crt, tls.key (without a passphrase) and ca.crt in PEM form: {KEYS_REMEDY}"
            ) from problem
        return context

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _state(self) -> object:
        """Return a value that changes with the files. Raises ConfigurationError without a file."""
        try:
            stats = [os.stat(self._path(name)) for name in (CERTIFICATE, KEY, PEER_AUTHORITY)]
        except OSError as problem:
            raise ConfigurationError(
                f"the agent's keys are not there: {problem}: {KEYS_REMEDY}"
            ) from problem
        return [(stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats]


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase")


def has_name(certificate: object, name: str) -> bool:
    """Return whether a certificate has exactly this DNS name.

    `certificate` has the form that SSLObject.getpeercert() returns.
    """
    names = certificate.get("subjectAltName", ()) if isinstance(certificate, dict) else ()
    return ("DNS", name) in names


def find_time_problem(certificate: object, now: float) -> str:
    """Return why a certificate, as getpeercert() returns it, is not valid now, or "".

    now: seconds since 1970.
    """
    times = certificate if isinstance(certificate, dict) else {}
    if ssl.cert_time_to_seconds(times["notAfter"]) < now:
        return f"{EXPIRED}: {KEYS_REMEDY}"
    if ssl.cert_time_to_seconds(times["notBefore"]) > now + MAX_CLOCK_DIFFERENCE_SECONDS:
        return f"{NOT_YET_VALID}: compare the clocks of the two nodes"
    return ""


def explain(problem: OSError, name: str) -> str:
    """Explain why a handshake with a worker failed, for the master; `name` is the expected name.

    The result begins with the problem and ends with the remedy.
    """
    code = getattr(problem, "verify_code", None)
    reason = getattr(problem, "reason", None) or ""
    if code == WRONG_NAME:
        return f"{OF_OTHER_RELEASE}{name}: {KEYS_REMEDY}"
    if code is not None:
        return KEYS_DIFFER
    if "ALERT" in reason:
        return f"it refuses the master's certificate ({reason}): {KEYS_REMEDY}"
    return f"the TLS handshake failed: {problem}"


def explain_client(problem: OSError) -> str:
    """Explain why a handshake with the master failed, or its data was invalid, for a worker."""
    code = getattr(problem, "verify_code", None)
    reason = getattr(problem, "reason", None) or ""
    if code is not None:
        return NOT_OF_MASTER
    return reason.lower().replace("_", " ") or str(problem)


def is_about_keys(problem: OSError) -> bool:
    """Return whether a handshake failed because of the certificates, so that no retry helps."""
    reason = getattr(problem, "reason", None) or ""
    return isinstance(problem, ssl.SSLError) and (
        getattr(problem, "verify_code", None) is not None or "ALERT" in reason
    )
