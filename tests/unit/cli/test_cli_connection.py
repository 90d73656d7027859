"""Which settings a command gets out of its options and its conf file."""

import argparse
from pathlib import Path

import pytest

from bookkeeper.cli.shell.base import shell_settings
from bookkeeper.console.connection import DEFAULT_URI, client_settings, store_settings
from bookkeeper.errors import ConfigurationError

FACTORY = "org.apache.bookkeeper.tls.TLSContextFactory"
CLIENT = f"""\
metadataServiceUri=zk://127.0.0.1:2999/one
zkTimeout=4000
bookiePort=3999
tlsProviderFactoryClass={FACTORY}
tlsTrustStore=authority.pem
clientAuthProviderFactoryClass=password-file
clientPasswordFile=alice
readTimeout=7
"""
BOOKIE = f"""\
metadataServiceUri=zk://127.0.0.1:2999/one
tlsProviderFactoryClass={FACTORY}
tlsKeyStore=bookie.key
tlsCertificatePath=bookie.pem
"""


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BK_metadataServiceUri", raising=False)


def arguments(tmp_path: Path, text: str | None, *defines: str, uri: str | None = None) -> argparse.Namespace:
    conf = None
    if text is not None:
        conf = tmp_path / "some.conf"
        conf.write_text(text)
    return argparse.Namespace(conf=conf, uri=uri, defines=list(defines), action="some")


def test_the_shell_reads_the_client_s_keys_of_the_file_as_other_commands_do(tmp_path: Path) -> None:
    args = arguments(tmp_path, CLIENT)
    settings = shell_settings(args)
    assert settings == client_settings(args)
    assert (settings.tls_enabled, settings.tls_trust_store) == (True, "authority.pem")
    assert (settings.auth_provider, settings.auth_password_file) == ("password-file", "alice")
    assert (settings.read_timeout_s, settings.zk_session_timeout_s) == (7.0, 4.0)
    assert settings.metadata_service_uri == "zk://127.0.0.1:2999/one"


def test_what_a_shell_command_sets_itself_precedes_everything(tmp_path: Path) -> None:
    args = arguments(tmp_path, CLIENT, "readTimeout=8", "maxNumEnsembleChanges=5")
    settings = shell_settings(args, {"maxNumEnsembleChanges": "0"})
    assert (settings.read_timeout_s, settings.ensemble_changes_max) == (8.0, 0)
    assert args.defines == ["readTimeout=8", "maxNumEnsembleChanges=5"]


def test_a_password_that_other_users_may_read_is_noted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alice = tmp_path / "alice"
    alice.write_text("alice:secret")
    alice.chmod(0o644)
    args = arguments(tmp_path, CLIENT, f"clientPasswordFile={alice}")
    client_settings(args)
    client_settings(args)
    assert capsys.readouterr().err.count(f"clientPasswordFile={alice} has mode 0644, so other users") == 1


def test_a_file_that_makes_no_client_is_told_before_bookies_are_talked_to(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="neither clientTrustStore nor tlsTrustStore is set, but TLS is on"):
        shell_settings(arguments(tmp_path, BOOKIE))


@pytest.mark.parametrize("text", [BOOKIE, CLIENT])
def test_the_metadata_store_is_talked_to_with_the_file_of_either(tmp_path: Path, text: str) -> None:
    settings = store_settings(arguments(tmp_path, text, "zkTimeout=3000"))
    assert (settings.metadata_service_uri, settings.zk_session_timeout_s) == ("zk://127.0.0.1:2999/one", 3.0)
    assert not settings.tls_enabled


def test_an_unknown_key_is_told_there_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="unknown key 'zkTimeuot'; did you mean zkTimeout"):
        store_settings(arguments(tmp_path, None, "zkTimeuot=3000"))


def test_a_uri_of_the_command_line_precedes_the_file_s(tmp_path: Path) -> None:
    uri = "zk://127.0.0.1:2998/two"
    assert store_settings(arguments(tmp_path, CLIENT, uri=uri)).metadata_service_uri == uri
    assert shell_settings(arguments(tmp_path, CLIENT, uri=uri)).metadata_service_uri == uri
    assert store_settings(arguments(tmp_path, None)).metadata_service_uri == DEFAULT_URI
