"""The cluster's certificate authority, and the certificates and kubeconfigs of the components."""

from __future__ import annotations

import datetime as dt
import ipaddress
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from devtools.localkube.instance import Instance
from hvdchart.files import write_atomically

VALIDITY = dt.timedelta(days=3650)
# A certificate must be valid on a machine whose clock is a little behind.
BACKDATED = dt.timedelta(hours=1)


@dataclass(frozen=True)
class KeyPair:
    """A private key and its certificate, both PEM."""

    key: bytes
    certificate: bytes


class Authority:
    """A certificate authority with an ECDSA P-256 key."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        self._certificate = (
            self._builder(self._subject, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def certificate(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, user: str, groups: Sequence[str] = (), hosts: Sequence[str] = ()) -> KeyPair:
        """Issue a certificate for a client (Kubernetes takes CN as the user and O as its groups).
        With `hosts`, issue it also for a server of those names and addresses.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = self._builder(subject, key.public_key())
        if hosts:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        pem = serialization.Encoding.PEM
        plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return KeyPair(key.private_bytes(pem, *plain), certificate.public_bytes(pem))

    def _builder(
        self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BACKDATED)
            .not_valid_after(now + VALIDITY)
        )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def kubeconfig(instance: Instance, ca: bytes, user: str, pair: KeyPair) -> str:
    """Return a kubeconfig that includes keys and certificates and needs no other file."""
    name = instance.node_name
    cluster = {"server": instance.api_url, "certificate-authority-data": _base64(ca)}
    credentials = {
        "client-certificate-data": _base64(pair.certificate),
        "client-key-data": _base64(pair.key),
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
    }
    return yaml.safe_dump(config, sort_keys=False)


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def write_all(instance: Instance) -> None:
    """Write new keys, certificates and kubeconfigs, readable by their owner only.

    Include those of the other nodes, because the authority's own key is not kept.
    """
    authority = Authority(f"localkube {instance.name}")
    node_ip = str(instance.node_ip)
    kubernetes = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    api_names = [*kubernetes, "kubernetes.default.svc.cluster.local", "localhost", "127.0.0.1"]
    api_names += [node_ip, str(instance.services[1])]
    pairs = {
        "apiserver": authority.issue("kube-apiserver", hosts=api_names),
        "apiserver-kubelet-client": authority.issue("kube-apiserver", ["system:masters"]),
        "service-account": authority.issue("service-accounts"),
    }
    nodes = (instance, *instance.others)
    group = ["system:nodes"]
    for node in nodes:
        hosts = [node.node_name, str(node.node_ip)]
        pairs[node.kubelet_keys.name] = authority.issue(node.node_name, hosts=hosts)
    clients = {
        instance.kubeconfig: ("admin", ["system:masters"]),
        **{
            node.kubelet_keys.with_suffix(".conf"): (f"system:node:{node.node_name}", group)
            for node in nodes
        },
        instance.pki / "scheduler.conf": ("system:kube-scheduler", []),
        instance.pki / "controller-manager.conf": ("system:kube-controller-manager", []),
        instance.pki / "proxy.conf": ("system:kube-proxy", []),
        instance.pki / "coredns.conf": ("system:coredns", []),
    }
    instance.pki.mkdir()
    _write_private(instance.pki / "ca.crt", authority.certificate)
    for name, pair in pairs.items():
        _write_private(instance.pki / f"{name}.key", pair.key)
        _write_private(instance.pki / f"{name}.crt", pair.certificate)
    for path, (user, groups) in clients.items():
        pair = authority.issue(user, groups)
        _write_private(path, kubeconfig(instance, authority.certificate, user, pair))


def _write_private(path: Path, content: bytes | str) -> None:
    write_atomically(path, content, 0o600)
