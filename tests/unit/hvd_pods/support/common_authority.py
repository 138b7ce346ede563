"""Certificates of one authority for all releases, as a team may provide them, with any names."""

from __future__ import annotations

import datetime as dt

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hvd_pods.cluster.certificates import Files
from tests.support.release_keys import ReleaseKeys


class CommonAuthority:
    """Signs certificates that may be used for everything."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "team")])
        self._own = self._sign(self._name, self._key, x509.BasicConstraints(True, None))

    def files(self, *names: str) -> Files:
        """Return the content of a Secret with a certificate of these DNS names."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        alternative = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return {
            "tls.crt": self._sign(subject, key, alternative),
            "tls.key": private,
            "ca.crt": self._own,
        }

    def release(self, master_name: str, worker_name: str) -> ReleaseKeys:
        """Return the keys of a release whose two Secrets are from this authority."""
        keys = ReleaseKeys(master_name, worker_name)
        keys.master = self.files(master_name)
        keys.worker = self.files(worker_name)
        return keys

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
    ) -> bytes:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(extension, critical=False)
        )
        signed = builder.sign(self._key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)
