"""Keys and certificates in pure Python: what other programs say about them."""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets
import ssl
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hvd_pods.cluster import certificates
from hvd_pods.cluster import key_secrets as keys
from hvd_pods.cluster.certificates import MASTER, ORDER, WORKER, Files

MASTER_NAME = "master-1.hvd.team.horovod.internal"
WORKER_NAME = "worker-1.hvd.team.horovod.internal"


# What versions of OpenSSL say.
WRONG_USE = r"unsuitable certificate purpose|unsupported certificate purpose"
One = TypeVar("One", bound=x509.ExtensionType)


# In the order of a Release.
OWNERS = ("master", "worker")


class Release(NamedTuple):
    """What the two Secrets of a release have."""

    master: Files
    worker: Files


@pytest.fixture(scope="module")
def release() -> Release:
    return Release(
        certificates.make_files(MASTER, MASTER_NAME), certificates.make_files(WORKER, WORKER_NAME)
    )


def parse(certificate: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(certificate)


def extension(certificate: x509.Certificate, kind: type[One]) -> One:
    return certificate.extensions.get_extension_for_class(kind).value


def is_critical(certificate: x509.Certificate, kind: type[One]) -> bool:
    return certificate.extensions.get_extension_for_class(kind).critical


def common_name(name: x509.Name) -> str | bytes:
    (attribute,) = name
    assert attribute.oid == NameOID.COMMON_NAME
    return attribute.value


@pytest.fixture(params=[0, 1], ids=OWNERS)
def files(release: Release, request: pytest.FixtureRequest) -> Files:
    """What one of the two Secrets has."""
    found: Files = release[request.param]
    return found


def allowed_uses(certificate: x509.Certificate) -> set[str]:
    usage = extension(certificate, x509.KeyUsage)
    names = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment")
    more = ("key_agreement", "key_cert_sign", "crl_sign")
    return {name for name in (*names, *more) if getattr(usage, name)}


def texts(release: Release) -> list[bytes]:
    """All certificates of a release."""
    return [files[name] for files in release for name in ("tls.crt", "ca.crt")]


def identify(certificate: x509.Certificate) -> bytes:
    point = certificate.public_key().public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
    )
    return hashlib.sha256(point).digest()[:20]


def with_authority(files: Files, authority: Files) -> Files:
    """These keys, where the other side trusts another authority."""
    return {**files, "ca.crt": authority["ca.crt"]}


@pytest.mark.parametrize(
    "number", [1, 2, 3, 5, 2**128, 2**255, 2**255 + 1, ORDER - 2, ORDER - 1, ORDER // 2]
)
def test_multiples_of_the_base_point_are_those_of_another_library(number: int) -> None:
    public = ec.derive_private_key(number, ec.SECP256R1()).public_key().public_numbers()
    assert certificates.multiply(number) == (public.x, public.y)


def test_a_signature_is_the_published_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # RFC 6979, A.2.5: SHA-256 and the message "sample".
    number = 0xC9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721
    nonce = 0xA6E3C57DD01ABE90086538398355DD4C3B17AA873382B0F24D6129493D8AAD60
    # It is drawn from 0 on, and 0 is no nonce.
    monkeypatch.setattr(secrets, "randbelow", lambda limit: nonce - 1)
    signature = certificates.sign(certificates.PrivateKey(number, b""), b"sample")
    assert signature.hex() == (
        "3046"
        "022100efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716"
        "022100f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8"
    )


@pytest.mark.parametrize(
    ("moment", "encoded"),
    [
        (dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC), b"\x17\x0d260102030405Z"),
        (dt.datetime(2049, 12, 31, 23, 59, 59, tzinfo=dt.UTC), b"\x17\x0d491231235959Z"),
        (dt.datetime(2050, 1, 1, tzinfo=dt.UTC), b"\x18\x0f20500101000000Z"),
    ],
)
def test_a_year_has_four_digits_from_2050_on(moment: dt.datetime, encoded: bytes) -> None:
    assert certificates.encode_time(moment.timestamp()) == encoded


@pytest.mark.parametrize(
    ("number", "role", "name", "usage"),
    [
        (0, MASTER, MASTER_NAME, ExtendedKeyUsageOID.CLIENT_AUTH),
        (1, WORKER, WORKER_NAME, ExtendedKeyUsageOID.SERVER_AUTH),
    ],
    ids=OWNERS,
)
def test_a_certificate_is_for_one_name_and_one_use(
    release: Release, number: int, role: certificates.Role, name: str, usage: x509.ObjectIdentifier
) -> None:
    certificate = parse(release[number]["tls.crt"])
    assert certificate.version == x509.Version.v3
    assert common_name(certificate.subject) == role.common_name
    assert [*extension(certificate, x509.SubjectAlternativeName)] == [x509.DNSName(name)]
    assert [*extension(certificate, x509.ExtendedKeyUsage)] == [usage]


def test_a_certificate_signs_no_other_one(files: Files) -> None:
    certificate = parse(files["tls.crt"])
    assert extension(certificate, x509.BasicConstraints).ca is False
    assert is_critical(certificate, x509.BasicConstraints)
    assert allowed_uses(certificate) == {"digital_signature"}
    assert is_critical(certificate, x509.KeyUsage)


def test_an_authority_signs_and_has_none_below_it(files: Files) -> None:
    authority = parse(files["ca.crt"])
    authority.verify_directly_issued_by(authority)
    parse(files["tls.crt"]).verify_directly_issued_by(authority)
    assert extension(authority, x509.BasicConstraints) == x509.BasicConstraints(True, 0)
    assert is_critical(authority, x509.BasicConstraints)
    assert allowed_uses(authority) == {"key_cert_sign"}
    assert is_critical(authority, x509.KeyUsage)


def test_authorities_and_certificates_have_names_of_their_own(release: Release) -> None:
    owners = [common_name(parse(text).subject) for text in texts(release)]
    assert len(set(owners)) == 4, "OpenSSL finds an authority by its name first"


@pytest.mark.parametrize("name", ["tls.crt", "ca.crt"])
def test_certificates_name_keys_as_rfc_7093_says(files: Files, name: str) -> None:
    certificate = parse(files[name])
    assert extension(certificate, x509.SubjectKeyIdentifier).digest == identify(certificate)
    signer = extension(certificate, x509.AuthorityKeyIdentifier).key_identifier
    assert signer == identify(parse(files["ca.crt"]))


@pytest.mark.parametrize("name", ["tls.crt", "ca.crt"])
def test_certificates_are_valid_for_ten_years_and_on_clocks_that_are_behind(
    files: Files, name: str
) -> None:
    now = dt.datetime.now(dt.UTC)
    certificate = parse(files[name])
    assert now - dt.timedelta(days=2) < certificate.not_valid_before_utc
    assert certificate.not_valid_before_utc < now - dt.timedelta(hours=23)
    left = certificate.not_valid_after_utc - now
    assert dt.timedelta(days=3649) < left <= dt.timedelta(days=3650)


def test_no_two_keys_and_serial_numbers_are_the_same(release: Release) -> None:
    found = [parse(text) for text in texts(release)]
    assert len({identify(certificate) for certificate in found}) == 4
    assert len({certificate.serial_number for certificate in found}) == 4
    assert all(certificate.serial_number > 0 for certificate in found)


def test_a_name_that_is_no_dns_name_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        certificates.make_files(MASTER, "m\u00fcnchen")


def test_master_and_worker_accept_each_other_strictly(release: Release, tmp_path: Path) -> None:
    keys.check_handshake(release.master, release.worker, MASTER_NAME, WORKER_NAME, tmp_path)
    assert not [*tmp_path.iterdir()], "no key is left behind"


def test_a_worker_s_key_is_refused_where_the_master_s_is_asked(
    release: Release, tmp_path: Path
) -> None:
    # Another authority has signed it.
    asking = with_authority(release.worker, release.master)
    with pytest.raises(ssl.SSLError, match="certificate verify failed"):
        keys.check_handshake(asking, release.worker, MASTER_NAME, WORKER_NAME, tmp_path)
    # Even if that were trusted, the use is another one, and so is the name.
    with pytest.raises(ssl.SSLError, match=WRONG_USE):
        keys.check_handshake(release.worker, release.worker, WORKER_NAME, WORKER_NAME, tmp_path)


def test_the_master_s_key_does_not_make_a_worker(release: Release, tmp_path: Path) -> None:
    listening = with_authority(release.master, release.worker)
    with pytest.raises(ssl.SSLError, match="certificate verify failed"):
        keys.check_handshake(release.master, listening, MASTER_NAME, MASTER_NAME, tmp_path)
    with pytest.raises(ssl.SSLError, match=WRONG_USE):
        keys.check_handshake(release.master, release.master, MASTER_NAME, MASTER_NAME, tmp_path)


def test_the_names_of_another_release_are_refused(release: Release, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLError, match=r"worker-1\.hvd\.other"):
        keys.check_handshake(
            release.master,
            release.worker,
            MASTER_NAME,
            WORKER_NAME.replace("team", "other"),
            tmp_path,
        )
    with pytest.raises(ssl.SSLError, match=r"master-1\.hvd\.team"):
        keys.check_handshake(
            release.master,
            release.worker,
            MASTER_NAME.replace("team", "other"),
            WORKER_NAME,
            tmp_path,
        )
