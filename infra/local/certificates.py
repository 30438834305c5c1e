"""Certificates for services on loopback, made on the spot by an authority that is thrown away at once.

authority.key ──signs──> server.pem (key and certificate, for 127.0.0.1, ::1, localhost)
     └── never written: nobody can make a second certificate that clients of this folder would trust
ca.pem        what clients trust
"""

from __future__ import annotations

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_DAYS = 365
_EARLIER = datetime.timedelta(hours=1)
"""Clocks of one machine may be set back."""


def make() -> tuple[bytes, bytes]:
    """The certificate of a new authority, and the key and certificate of a server on loopback, both as PEM.

    >>> authority, server = make()
    >>> authority.count(b"BEGIN CERTIFICATE"), server.count(b"BEGIN PRIVATE KEY"), server.count(b"BEGIN CERTIFICATE")
    (1, 1, 2)
    """
    root_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root_name, server_name = _name("hilcast throw-away authority"), _name("localhost")
    # without identifiers some verifiers take the two for one
    root_id = x509.SubjectKeyIdentifier.from_public_key(root_key.public_key())
    root = (
        _begun(root_name, root_name, root_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(root_id, critical=False)
        .sign(root_key, hashes.SHA256())
    )
    addresses = [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")]
    names = [x509.DNSName("localhost"), *(x509.IPAddress(address) for address in addresses)]
    server = (
        _begun(server_name, root_name, server_key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(root_id), critical=False)
        .sign(root_key, hashes.SHA256())
    )
    key = server_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    root_pem, server_pem = (each.public_bytes(serialization.Encoding.PEM) for each in (root, server))
    return root_pem, key + server_pem + root_pem


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _begun(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
