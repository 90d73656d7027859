"""`bookkeeper config check`: what the files hold that settings name is checked as well, where it counts."""

import json
from pathlib import Path

import pytest

from bookkeeper.auth.passwords import hash_password
from bookkeeper.cli.main import main
from bookkeeper.console.output import EXIT_FAILURE, EXIT_OK
from tests.support.certificates import FACTORY, Authority

LINE = f"alice:{hash_password(b'secret', n=2)}\n"


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """One file for a bookie and its clients, as the README has it."""
    authority = Authority(tmp_path, "ca")
    bookie = authority.issue("bookie")
    bookie.key.chmod(0o600)
    for name, text in (("users", LINE), ("alice", "alice:secret\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    path = tmp_path / "secure.conf"
    path.write_text(
        f"tlsProviderFactoryClass={FACTORY}\n"
        f"tlsKeyStore={bookie.key}\n"
        f"tlsCertificatePath={bookie.certificate}\n"
        f"tlsTrustStore={authority.certificate}\n"
        "bookieAuthProviderFactoryClass=password-file\n"
        f"bookiePasswordFile={tmp_path}/users\n"
        "clientAuthProviderFactoryClass=password-file\n"
        f"clientPasswordFile={tmp_path}/alice\n"
    )
    return path


def check(conf: Path, capsys: pytest.CaptureFixture[str], *words: str, code: int) -> list[str]:
    assert main(["config", "check", "--conf", str(conf), *words]) == code
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("words", [[], ["--client"]])
def test_files_that_will_do_are_no_fault(conf: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert check(conf, capsys, *words, code=EXIT_OK) == ["No faults."]


def test_files_that_are_not_there_are_told_all_at_once_with_their_keys(
    conf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (conf.parent / "alice").unlink()
    told = check(conf, capsys, "-D", "tlsTrustStore=nope.pem", "-D", "bookiePasswordFile=gone", code=EXIT_FAILURE)
    assert told == [
        "bookkeeper: 3 faults in the files that the configuration names:",
        "  command line: bookiePasswordFile=gone cannot be read: No such file or directory",
        "  command line: tlsTrustStore=nope.pem cannot be read: No such file or directory",
        f"  {conf}:8: clientPasswordFile={conf.parent}/alice cannot be read: No such file or directory",
    ]


def test_a_directory_is_no_file(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = check(conf, capsys, "-D", f"tlsKeyStore={conf.parent}", code=EXIT_FAILURE)
    assert told[1:] == [f"  command line: tlsKeyStore={conf.parent} cannot be read: Is a directory"]


@pytest.mark.parametrize("key", ["tlsKeyStore", "tlsCertificatePath", "tlsTrustStore", "clientPasswordFile"])
def test_files_that_hold_something_else_are_told(conf: Path, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    (_, fault) = check(conf, capsys, "-D", f"{key}={conf}", code=EXIT_FAILURE)
    assert fault.startswith(f"  {key}={conf}: ")


def test_what_has_no_effect_may_name_anything(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A client that shows no certificate reads none, and without TLS or a provider nobody reads any."""
    words = [
        word for key in ("tlsKeyStore", "tlsCertificatePath", "bookiePasswordFile") for word in ("-D", f"{key}=no")
    ]
    assert check(conf, capsys, "--client", *words, code=EXIT_OK) == ["No faults."]
    off = [word for text in ("tlsProviderFactoryClass=", "bookieAuthProviderFactoryClass=") for word in ("-D", text)]
    assert check(conf, capsys, *words, *off, "-D", "httpServerTokenFile=no", code=EXIT_OK)[-1] == "No faults."


def test_a_bookie_s_own_file_need_not_do_for_a_client(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-D", "tlsTrustStore=", "-D", "clientPasswordFile=nope"]
    assert check(conf, capsys, *words, code=EXIT_OK) == ["No faults."]


def test_racks_are_read_by_a_client_that_uses_them(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--client", "-D", "networkTopologyFile=nope"]
    assert "networkTopologyFile=nope cannot be read" in check(conf, capsys, *words, code=EXIT_FAILURE)[1]
    words += ["-D", "ensemblePlacementPolicy=random"]
    assert check(conf, capsys, *words, code=EXIT_OK) == ["No faults."]


def test_what_a_start_would_warn_of_is_noted(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    users = conf.parent / "users"
    users.chmod(0o644)
    warning, verdict = check(conf, capsys, code=EXIT_OK)
    assert warning.startswith(f"bookiePasswordFile={users} has mode 0644, so other users of this machine may read it")
    assert verdict == "No faults."


@pytest.mark.parametrize("words", [[], ["--client"]])
def test_a_clients_password_that_others_may_read_is_noted(
    conf: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    alice = conf.parent / "alice"
    alice.chmod(0o644)
    warning, verdict = check(conf, capsys, *words, code=EXIT_OK)
    assert warning.startswith(f"clientPasswordFile={alice} has mode 0644, so other users of this machine may read it")
    assert verdict == "No faults."


def test_a_conf_file_with_secrets_that_others_may_read_is_noted(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with conf.open("a") as file:
        file.write("zkDigestAuth=bookie:secret\n")
    conf.chmod(0o644)
    warning, verdict = check(conf, capsys, code=EXIT_OK)
    assert warning.startswith(f"{conf} (which contains zkDigestAuth) has mode 0644")
    assert verdict == "No faults."


def test_tls_that_is_not_on_is_noted_with_the_key_that_turns_it_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bk.conf"
    path.write_text("tlsCertificatePath=/c.pem\nlisteningInterface=lo\n")
    noted, verdict = check(path, capsys, code=EXIT_OK)
    assert noted.startswith(
        f"tlsCertificatePath ({path}:1) is known but has no effect here: TLS is off; to turn it on, set"
    )
    assert verdict == "No faults."


def test_ports_that_ask_for_no_credentials_are_noted(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-D", "httpServerEnabled=true", "-D", "httpServerHost=0.0.0.0"]
    noted, verdict = check(conf, capsys, *words, code=EXIT_OK)
    assert noted.startswith("Other machines can reach this port without credentials: HTTP 0.0.0.0:8080 (")
    assert verdict == "No faults."
    tokens = conf.parent / "tokens"
    tokens.write_text(f"read {'r' * 20}")
    tokens.chmod(0o600)
    words += ["-D", f"httpServerTokenFile={tokens}"]
    assert check(conf, capsys, *words, code=EXIT_OK) == ["No faults."]
    tokens.chmod(0o644)
    assert f"chmod o-r {tokens}" in check(conf, capsys, *words, code=EXIT_FAILURE)[1]


def test_faults_come_as_one_document_too(conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", "--conf", str(conf), "--json"]) == EXIT_OK
    assert json.loads(capsys.readouterr().out) == {"faults": [], "ignored": [], "openPorts": []}
    wrong = ("-D", "tlsTrustStore=nope.pem", "-D", "bookiePasswordFile=gone")
    assert main(["config", "check", "--conf", str(conf), "--json", *wrong]) == EXIT_FAILURE
    assert json.loads(capsys.readouterr().out)["faults"] == [
        "command line: bookiePasswordFile=gone cannot be read: No such file or directory",
        "command line: tlsTrustStore=nope.pem cannot be read: No such file or directory",
    ]
