"""Settings of TLS and authentication: what is refused at start, and what each fault tells to do."""

import pytest

from bookkeeper.config import ConfText, load_client, load_server
from bookkeeper.config.client import ClientSettings
from bookkeeper.config.server import ServerSettings
from bookkeeper.errors import ConfigurationError

TLS = "tlsProviderFactoryClass=org.apache.bookkeeper.tls.TLSContextFactory\n"
FILES = "tlsKeyStore=/k.pem\ntlsCertificatePath=/c.pem\n"


def server(text: str) -> ServerSettings:
    return load_server(ConfText("bk.conf", text), environ={}).settings


def client(text: str) -> ClientSettings:
    return load_client(ConfText("bk.conf", text), environ={}).settings


def test_nothing_of_it_is_on_by_default() -> None:
    assert not server("").tls_enabled
    assert not client("").tls_enabled
    assert server("").auth_provider == client("").auth_provider == ""


def test_a_bookie_with_tls_refuses_clear_text_unless_it_is_told_otherwise() -> None:
    assert server(TLS + FILES).tls_required
    assert not server(TLS + FILES + "tlsRequired=false").tls_required


@pytest.mark.parametrize("word", ["", "null"])
def test_keys_without_a_value_are_not_set(word: str) -> None:
    text = f"tlsProviderFactoryClass={word}\ntlsKeyStore={word}\nbookieAuthProviderFactoryClass={word}\n"
    assert (server(text).tls_enabled, server(text).tls_key_store, server(text).auth_provider) == (False, "", "")


def test_both_versions_of_tls_are_spoken_by_default_and_no_older_one() -> None:
    assert server("").tls_versions == ("TLSv1.2", "TLSv1.3")
    assert server("tlsEnabledProtocols=TLSv1.3").tls_versions == ("TLSv1.3",)
    with pytest.raises(ConfigurationError, match=r"'TLSv1\.1' is not one of TLSv1\.2, TLSv1\.3"):
        server("tlsEnabledProtocols=TLSv1.1,TLSv1.2")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "tlsProviderFactoryClass=org.example.Mine",
            "TLS is turned on by org.apache.bookkeeper.tls.TLSContextFactory; leave it empty to turn TLS off",
        ),
        (
            TLS + "tlsCertificatePath=/c.pem",
            "tlsKeyStore is not set, but TLS is on: name the PEM file with the private",
        ),
        (TLS + "tlsKeyStore=/k.pem", "tlsCertificatePath is not set, but TLS is on"),
        (TLS + FILES + "tlsClientAuthentication=true", "tlsTrustStore is not set, but TLS is on"),
        (TLS + FILES + "tlsKeyStoreType=JKS", "only PEM files are read; convert it: keytool -importkeystore"),
        (TLS + FILES + "tlsKeyStoreType=PKCS12", "openssl pkcs12 -in store.p12 -nodes -nocerts -out key.pem"),
        (
            TLS + FILES + "tlsClientAuthentication=true\ntlsTrustStore=/t\ntlsTrustStoreType=JKS",
            "tlsTrustStoreType=JKS: only PEM files are read",
        ),
        (
            "bookieAuthProviderFactoryClass=org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory",
            "Java classes do not run: write password-file, or package.module:factory",
        ),
        ("bookieAuthProviderFactoryClass=password-file", "needs a file: set bookiePasswordFile"),
        (
            "bookieAuthProviderFactoryClass=password-file\nbookiePasswordFile=/u",
            "without TLS would send passwords in clear text: set tlsProviderFactoryClass=",
        ),
    ],
)
def test_a_bookie_is_told_what_to_set(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        server(text)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TLS, "neither clientTrustStore nor tlsTrustStore is set, but TLS is on"),
        (TLS + "clientTrustStore=/t\nclientTrustStoreType=JKS", "bk.conf:3: clientTrustStoreType=JKS: only PEM files"),
        (TLS + "clientTrustStore=/t\ntlsTrustStoreType=JKS", "bk.conf:3: tlsTrustStoreType=JKS: only PEM files"),
        (TLS + "tlsTrustStore=/t\ntlsTrustStoreType=", "bk.conf:3: tlsTrustStoreType=: only PEM files"),
        (
            TLS + FILES + "clientTrustStore=/t\ntlsClientAuthentication=true\ntlsKeyStoreType=JKS",
            "bk.conf:6: tlsKeyStoreType=JKS: only PEM files",
        ),
        (
            TLS + "clientTrustStore=/t\ntlsClientAuthentication=true\ntlsCertificatePath=/c",
            "set clientKeyStore or tlsKeyStore",
        ),
        (TLS + "clientTrustStore=/t\ntlsClientAuthentication=true\nclientKeyStore=/k", "set tlsCertificatePath"),
        ("clientAuthProviderFactoryClass=password-file\npasswordOverClearText=true", "set clientPasswordFile"),
        ("clientAuthProviderFactoryClass=org.example.Mine", "Java classes do not run"),
    ],
)
def test_a_client_is_told_what_to_set(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        client(text)
    assert words in str(refused.value)


def test_a_password_without_tls_needs_a_word_of_its_own() -> None:
    text = "bookieAuthProviderFactoryClass=password-file\nbookiePasswordFile=/u\npasswordOverClearText=true"
    assert server(text).auth_password_file == "/u"


def test_one_file_may_serve_a_bookie_and_its_clients() -> None:
    text = TLS + FILES + "tlsTrustStore=/ca.pem\nbookiePasswordFile=/u\nbookieAuthProviderFactoryClass=password-file\n"
    assert server(text).tls_enabled
    assert client(text).tls_trust_store == "/ca.pem"


def test_keys_of_tls_are_named_as_without_effect_while_tls_is_off() -> None:
    text = "tlsCertificatePath=/c.pem\ntlsClientAuthentication=true\ntlsKeyStore=\ntlsRequired=true\n"
    for ignored in (
        load_server(ConfText("bk.conf", text), environ={}).ignored,
        load_client(ConfText("bk.conf", text.replace("tlsRequired=true\n", "")), environ={}).ignored,
    ):
        assert [(each.name, each.is_warning) for each in ignored] == [
            ("tlsClientAuthentication", True),
            ("tlsCertificatePath", True),
        ]
        assert all("set tlsProviderFactoryClass=org.apache" in each.reason for each in ignored)
    assert load_server(ConfText("bk.conf", TLS + FILES), environ={}).ignored == ()
    assert load_server(ConfText("bk.conf", "startTLSTimeoutSecs=5"), environ={}).ignored == ()


def test_a_password_file_without_a_provider_is_named_as_without_effect() -> None:
    (ignored,) = load_server(ConfText("bk.conf", "bookiePasswordFile=/users"), environ={}).ignored
    assert ignored.is_warning
    assert ignored.reason.endswith("set bookieAuthProviderFactoryClass=password-file")
    (ignored,) = load_client(ConfText("bk.conf", "clientPasswordFile=/alice"), environ={}).ignored
    assert ignored.reason.endswith("set clientAuthProviderFactoryClass=password-file")
