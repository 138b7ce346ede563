"""Makes private keys and certificates in pure Python: ECDSA on the curve P-256, X.509 version 3.

Python's library has TLS, but cannot make a certificate, and images need neither OpenSSL's program
nor a package. This code only makes keys: OpenSSL does the handshakes, through `ssl`.

The arithmetic is not constant-time: its duration depends on the private numbers. An attacker who
can measure many signatures of one key could find the key. Here an authority signs two certificates,
its own and one other, in the process that draws its key, and the key is then discarded. A key that
is kept is multiplied once and signs no certificate here. No other program can trigger these
operations again.

Sources: FIPS 186-4 (ECDSA, and the curve in D.1.2.3), SEC 1 (points), RFC 5280 (certificates),
RFC 5480 and RFC 5758 (how they name the curve and the signature), RFC 5915 (private keys), RFC 7093
(key identifiers), RFC 7468 (PEM).
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from typing import Dict, NamedTuple

from hvd_pods.protocol.keys import AUTHORITY, CERTIFICATE, KEY

# The content of the Secret of a role: tls.crt, tls.key and ca.crt, all PEM.
Files = Dict[str, bytes]

# The curve: y^2 = x^3 - 3x + b modulo P. The multiples of the base point form a group of prime
# order.
P = 2**256 - 2**224 + 2**192 + 2**96 - 1
ORDER = 0xFFFFFFFF_00000000_FFFFFFFF_FFFFFFFF_BCE6FAAD_A7179E84_F3B9CAC2_FC632551
BASE_X = 0x6B17D1F2_E12C4247_F8BCE6E5_63A440F2_77037D81_2DEB33A0_F4A13945_D898C296
BASE_Y = 0x4FE342E2_FE1A7F9B_8EE7EB4A_7C0F9E16_2BCE3357_6B315ECE_CBB64068_37BF51F5

DAY_SECONDS = 24 * 60 * 60
VALIDITY_SECONDS = 3650 * DAY_SECONDS
# A worker's clock may be behind the master's.
BACKDATING_SECONDS = DAY_SECONDS
# 2050-01-01: RFC 5280 writes times from there on with four digits of the year.
YEAR_2050 = 2524608000

# Tags of DER, the encoding of certificates.
BOOLEAN = 0x01
INTEGER = 0x02
BIT_STRING = 0x03
OCTET_STRING = 0x04
OBJECT_IDENTIFIER = 0x06
UTF8_STRING = 0x0C
SEQUENCE = 0x30
SET = 0x31
UTC_TIME = 0x17
GENERALIZED_TIME = 0x18
# Tags [0], [1] and so on: for a plain value, and for a value with its own tag inside.
IMPLICIT = 0x80
EXPLICIT = 0xA0

# The last number of an extension's identifier, 2.5.29.N.
SUBJECT_KEY_IDENTIFIER = 14
KEY_USAGE = 15
SUBJECT_ALTERNATIVE_NAME = 17
BASIC_CONSTRAINTS = 19
AUTHORITY_KEY_IDENTIFIER = 35
EXTENDED_KEY_USAGE = 37


class Role(NamedTuple):
    """A certificate's owner: its common name, and the identifier of the key's extended usage."""

    common_name: str
    usage: str


# serverAuth and clientAuth of RFC 5280, 4.2.1.12: workers listen, the master connects.
WORKER = Role("horovod-worker", "1.3.6.1.5.5.7.3.1")
MASTER = Role("horovod-master", "1.3.6.1.5.5.7.3.2")


class PrivateKey(NamedTuple):
    """A private key: a number, and the base point multiplied by it, encoded as SEC 1 says."""

    number: int
    point: bytes

    @property
    def identifier(self) -> bytes:
        # RFC 7093, 2.1. RFC 5280 has SHA-1 there, which some builds of OpenSSL refuse.
        return hashlib.sha256(self.point).digest()[:20]


class _Owner(NamedTuple):
    """The subject or the issuer of a certificate."""

    common_name: str
    key: PrivateKey


def make_files(role: Role, name: str) -> Files:
    """Make the Secret of a role: an authority, and a key with a certificate that it has signed.

    The certificate has `name` as its only DNS name, and is valid for ten years. The authority's key
    is not kept: no certificate can be added later. Raises UnicodeEncodeError for a name that is not
    ASCII.
    """
    authority = _Owner(f"{role.common_name} authority", _make_key())
    owner = _Owner(role.common_name, _make_key())
    authority_certificate = _certify(authority, authority, _authority_extensions())
    signed = _certify(owner, authority, _leaf_extensions(role.usage, name))
    return {
        CERTIFICATE: _pem("CERTIFICATE", signed),
        KEY: _pem("EC PRIVATE KEY", _private_key(owner.key)),
        AUTHORITY: _pem("CERTIFICATE", authority_certificate),
    }


def _make_key() -> PrivateKey:
    number = _draw()
    x, y = multiply(number)
    return PrivateKey(number, b"\x04" + x.to_bytes(32, "big") + y.to_bytes(32, "big"))


def _draw() -> int:
    """Return a uniformly random private number from 1 to ORDER - 1."""
    return 1 + secrets.randbelow(ORDER - 1)


def multiply(number: int) -> tuple[int, int]:
    """Multiply the base point by a number from 1 to ORDER - 1.

    The point (x, y) is held as (X, Y, Z) with x = X / Z^2 and y = Y / Z^3, so that one division at
    the end is enough. The formulas are those of the Explicit-Formulas Database for such Jacobian
    coordinates. They exclude the sum of a point and itself or its negative, which does not occur:
    a point that the base point is added to is the base point times an even number from 2 to
    ORDER - 2.
    """
    x = BASE_X
    y = BASE_Y
    z = 1
    # The highest bit of the number is the base point itself.
    for bit in f"{number:b}"[1:]:
        # Double: dbl-2001-b.
        delta = z * z % P
        gamma = y * y % P
        beta = x * gamma % P
        alpha = 3 * (x - delta) * (x + delta) % P
        z = 2 * y * z % P
        x = (alpha * alpha - 8 * beta) % P
        y = (alpha * (4 * beta - x) - 8 * gamma * gamma) % P
        if bit == "1":
            # Add the base point: madd.
            square = z * z % P
            run = (BASE_X * square - x) % P
            rise = (BASE_Y * square * z - y) % P
            run_2 = run * run % P
            run_3 = run * run_2 % P
            middle = x * run_2 % P
            z = z * run % P
            x = (rise * rise - run_3 - 2 * middle) % P
            y = (rise * (middle - x) - y * run_3) % P
    inverse = pow(z, -1, P)
    square = inverse * inverse % P
    return x * square % P, y * square * inverse % P


def sign(key: PrivateKey, message: bytes) -> bytes:
    """Sign with ECDSA and SHA-256; the signature is encoded as in a certificate."""
    digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
    while True:
        nonce = _draw()
        r = multiply(nonce)[0] % ORDER
        s = pow(nonce, -1, ORDER) * (digest + r * key.number) % ORDER
        if r and s:
            return _der(SEQUENCE, _integer(r), _integer(s))


def _der(tag: int, *parts: bytes) -> bytes:
    """Encode a value: the tag, the length and the content."""
    content = b"".join(parts)
    length = len(content)
    if length < 0x80:
        return bytes([tag, length]) + content
    octets = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(octets)]) + octets + content


def _integer(number: int) -> bytes:
    # The first bit is the sign, so that a number of 8 bits takes two bytes.
    return _der(INTEGER, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def _bits(content: bytes, unused: int = 0) -> bytes:
    return _der(BIT_STRING, bytes([unused]), content)


def _identifier(dotted: str) -> bytes:
    """Encode an object identifier: the first two numbers are one byte, the others base 128."""
    first, second, *others = map(int, dotted.split("."))
    content = bytes([40 * first + second])
    for number in others:
        digits = [number & 0x7F]
        while number := number >> 7:
            digits.append(number & 0x7F | 0x80)
        content += bytes(reversed(digits))
    return _der(OBJECT_IDENTIFIER, content)


PUBLIC_KEY = _identifier("1.2.840.10045.2.1")
CURVE = _identifier("1.2.840.10045.3.1.7")
ECDSA_WITH_SHA256 = _der(SEQUENCE, _identifier("1.2.840.10045.4.3.2"))
COMMON_NAME = _identifier("2.5.4.3")


def _certify(owner: _Owner, authority: _Owner, extensions: list[bytes]) -> bytes:
    """Make a certificate of the owner that the authority has signed: RFC 5280, 4.1."""
    now = time.time()
    identifiers = [
        _extension(SUBJECT_KEY_IDENTIFIER, _der(OCTET_STRING, owner.key.identifier)),
        _extension(
            AUTHORITY_KEY_IDENTIFIER, _der(SEQUENCE, _der(IMPLICIT, authority.key.identifier))
        ),
    ]
    signed = _der(
        SEQUENCE,
        # Version 3 is written as 2.
        _der(EXPLICIT, _integer(2)),
        # The serial number.
        _integer(1 + secrets.randbits(127)),
        ECDSA_WITH_SHA256,
        _distinguished_name(authority.common_name),
        _der(SEQUENCE, encode_time(now - BACKDATING_SECONDS), encode_time(now + VALIDITY_SECONDS)),
        _distinguished_name(owner.common_name),
        _der(SEQUENCE, _der(SEQUENCE, PUBLIC_KEY, CURVE), _bits(owner.key.point)),
        _der(EXPLICIT | 3, _der(SEQUENCE, *extensions, *identifiers)),
    )
    return _der(SEQUENCE, signed, ECDSA_WITH_SHA256, _bits(sign(authority.key, signed)))


def _authority_extensions() -> list[bytes]:
    # An authority, with no other authority below it.
    constraints = _der(SEQUENCE, _der(BOOLEAN, b"\xff"), _integer(0))
    # Of the nine bits of the usage, keyCertSign is number 5.
    usage = _bits(b"\x04", unused=2)
    return [
        _extension(BASIC_CONSTRAINTS, constraints, is_critical=True),
        _extension(KEY_USAGE, usage, is_critical=True),
    ]


def _leaf_extensions(extended_usage: str, name: str) -> list[bytes]:
    # digitalSignature is bit 0 of the usage. In a list of names, [2] is one of DNS.
    usage = _bits(b"\x80", unused=7)
    dns_name = _der(IMPLICIT | 2, name.encode("ascii"))
    return [
        # By default, a certificate does not belong to an authority.
        _extension(BASIC_CONSTRAINTS, _der(SEQUENCE), is_critical=True),
        _extension(KEY_USAGE, usage, is_critical=True),
        _extension(EXTENDED_KEY_USAGE, _der(SEQUENCE, _identifier(extended_usage))),
        _extension(SUBJECT_ALTERNATIVE_NAME, _der(SEQUENCE, dns_name)),
    ]


def _extension(number: int, value: bytes, is_critical: bool = False) -> bytes:
    # A value that is the default is not written.
    critical = _der(BOOLEAN, b"\xff") if is_critical else b""
    return _der(SEQUENCE, _identifier(f"2.5.29.{number}"), critical, _der(OCTET_STRING, value))


def _distinguished_name(common_name: str) -> bytes:
    attribute = _der(SEQUENCE, COMMON_NAME, _der(UTF8_STRING, common_name.encode()))
    return _der(SEQUENCE, _der(SET, attribute))


def encode_time(seconds: float) -> bytes:
    """Encode a moment in seconds since 1970: RFC 5280, 4.1.2.5."""
    moment = time.gmtime(seconds)
    if seconds < YEAR_2050:
        return _der(UTC_TIME, time.strftime("%y%m%d%H%M%SZ", moment).encode())
    return _der(GENERALIZED_TIME, time.strftime("%Y%m%d%H%M%SZ", moment).encode())


def _private_key(key: PrivateKey) -> bytes:
    """Encode a private key, with its curve and its public point: RFC 5915, 3."""
    number = _der(OCTET_STRING, key.number.to_bytes(32, "big"))
    curve = _der(EXPLICIT, CURVE)
    point = _der(EXPLICIT | 1, _bits(key.point))
    return _der(SEQUENCE, _integer(1), number, curve, point)


def _pem(label: str, content: bytes) -> bytes:
    text = base64.b64encode(content).decode()
    lines = [text[start : start + 64] for start in range(0, len(text), 64)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""]).encode()
