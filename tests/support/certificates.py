"""A certificate authority of a test's own, and the certificates it signs. Keys live as long as the test's directory.

authority = Authority(tmp_path, "ca")
bookie = authority.issue("bookie", hosts=["localhost", "127.0.0.1"])
bookie.key, bookie.certificate, authority.certificate        paths of PEM files
authority.intermediate("below")        an authority that this one signed
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

FACTORY = "org.apache.bookkeeper.tls.TLSContextFactory"


@dataclass(frozen=True)
class Issued:
    """The files of one certificate."""

    key: Path
    certificate: Path


class Authority:
    """Signs certificates. Elliptic keys, which are made in no time."""

    def __init__(self, directory: Path, name: str, signer: Authority | None = None, *, ca: bool = True) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory, self._name = directory, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        self._subject = subject
        signed = (signer or self).sign_authority(subject, self._key.public_key(), ca=ca)
        self.certificate = directory / f"{name}.pem"
        self.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def sign_authority(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, ca: bool) -> x509.Certificate:
        """Return a CA certificate for `key`, signed by this authority. ca: False if it may not sign others."""
        builder = _builder(subject, self._subject, key, timedelta(days=1))
        powers = x509.BasicConstraints(ca=ca, path_length=None)
        return builder.add_extension(powers, critical=True).sign(self._key, hashes.SHA256())

    def intermediate(self, name: str, *, ca: bool = True) -> Authority:
        """Return a new authority with a certificate that this one signed. ca: whether it may sign certificates."""
        return Authority(self._directory, name, self, ca=ca)

    def issue(
        self,
        name: str,
        *,
        hosts: Sequence[str] = ("127.0.0.1", "localhost"),
        valid: timedelta = timedelta(days=1),
        password: bytes | None = None,
        purposes: Sequence[x509.ObjectIdentifier] = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),
    ) -> Issued:
        """A certificate for `hosts`, and its key; valid in the past when `valid` is negative."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = []
        for host in hosts:
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
        usage = x509.ExtendedKeyUsage(purposes)
        signed = (
            _builder(_name(name), self._subject, key.public_key(), valid)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(usage, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password)
        issued = Issued(self._directory / f"{name}.key.pem", self._directory / f"{name}.pem")
        issued.key.touch(mode=0o600)
        issued.key.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        )
        issued.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        return issued


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, valid: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    begin = now - timedelta(days=2)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(now + valid)
    )
