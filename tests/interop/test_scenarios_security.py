"""TLS with certificates on both sides, and passwords: each client on bookies of both kinds, and what refusals say."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bookkeeper.auth.passwords import hash_password
from bookkeeper.client.faces.blocking import connect
from bookkeeper.config import ClientSettings
from bookkeeper.errors import BookKeeperError
from tests.conftest import ZooKeeperServer
from tests.interop.ground import KINDS, OURS, PASSWORD, THEIRS, Ground, ground_of
from tests.support.apache import Apache, ApacheClient, ApacheError
from tests.support.apache.content import fingerprints, payloads
from tests.support.certificates import FACTORY, Authority, Issued

BOOKIES = 3
COUNT, SIZE_MAX = 40, 300_000
VERSIONS = (2, 3)
PASSWORD_LINE = "alice:secret"
CODES_REFUSED = (-6, -102)
"""Not enough bookies, unauthorized access: what the genuine client makes of it when no bookie lets it in."""


@dataclass(frozen=True, slots=True)
class Secured:
    """Bookies that ask for certificates, and who signs those that they take."""

    ground: Ground
    authority: Authority
    client: Issued

    def settings(self, version: int, trusted: Authority | None = None) -> ClientSettings:
        """Of our client. trusted: another authority that it believes."""
        return replace(
            self.ground.settings(version),
            tls_factory=FACTORY,
            client_trust_store=str((trusted or self.authority).certificate),
            tls_client_authentication=True,
            client_key_store=str(self.client.key),
            tls_certificate=str(self.client.certificate),
        )

    def words(self, trusted: Authority | None = None) -> list[str]:
        """Of the genuine one."""
        return [
            f"tlsProviderFactoryClass={FACTORY}",
            "clientTrustStoreType=PEM",
            f"clientTrustStore={(trusted or self.authority).certificate}",
            "tlsClientAuthentication=true",
            "clientKeyStoreType=PEM",
            f"clientKeyStore={self.client.key}",
            f"tlsCertificatePath={self.client.certificate}",
        ]


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.replace(" ", "-").replace("'", ""))
def secured(
    request: pytest.FixtureRequest,
    apache: Apache,
    apache_client: ApacheClient,
    zookeeper: ZooKeeperServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    authority = Authority(directory / "authority", "ca")
    bookie = authority.issue("bookie")
    settings = {
        "tlsProviderFactoryClass": FACTORY,
        "tlsClientAuthentication": "true",
        "tlsKeyStoreType": "PEM",
        "tlsKeyStore": str(bookie.key),
        "tlsCertificatePath": str(bookie.certificate),
        "tlsTrustStoreType": "PEM",
        "tlsTrustStore": str(authority.certificate),
    }
    with ExitStack() as running:
        ground = ground_of(
            request.param,
            apache,
            zookeeper.address,
            directory / f"{directory.name}-bookies",
            running,
            count=BOOKIES,
            settings=settings,
        )
        secured = Secured(ground, authority, authority.issue("client"))
        for version in VERSIONS:
            apache_client.run("configure", ground.uri, version, *secured.words())
        yield secured


def exchange(secured: Secured, apache_client: ApacheClient, version: int) -> None:
    """Each client writes what the other reads."""
    ground, written = secured.ground, payloads(0, COUNT, SIZE_MAX)
    with connect(ground.uri, secured.settings(version)) as client:
        (theirs,) = apache_client.run("begin", *ground.where(version), 3, 2, 2, 0)
        apache_client.run("fill", theirs, COUNT, 0, SIZE_MAX)
        with client.open(int(theirs)) as reader:
            assert [entry.payload for entry in reader.entries()] == written
        with client.create() as ours:
            ours.append_many(written)
    assert apache_client.run("hashes", *ground.where(version, ours.id)) == fingerprints(written)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_client_is_served_over_tls(secured: Secured, apache_client: ApacheClient, version: int) -> None:
    exchange(secured, apache_client, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wrong_authority_is_refused_and_others_stay_served(
    secured: Secured, apache_client: ApacheClient, version: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ground = secured.ground
    strange = Authority(tmp_path_factory.mktemp("strange"), "strange")
    apache_client.run("configure", ground.apart, version, *secured.words(strange))
    with pytest.raises(ApacheError):
        apache_client.run("write", ground.apart, version, "CRC32C", PASSWORD, 3, 3, 3, 1)
    apache_client.run("forget", ground.apart, version)
    with connect(ground.uri, secured.settings(version, strange)) as client:
        with pytest.raises(BookKeeperError, match="its certificate comes from an unknown authority"):
            client.create(write_quorum=3, ack_quorum=3)
    exchange(secured, apache_client, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_with_a_strange_certificate_is_refused(
    secured: Secured, apache_client: ApacheClient, version: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ground = secured.ground
    stranger = Authority(tmp_path_factory.mktemp("stranger"), "strange").issue("stranger")
    posing = replace(secured, client=stranger)
    apache_client.run("configure", ground.apart, version, *posing.words())
    with pytest.raises(ApacheError):
        apache_client.run("write", ground.apart, version, "CRC32C", PASSWORD, 3, 3, 3, 1)
    apache_client.run("forget", ground.apart, version)
    with connect(ground.uri, posing.settings(version)) as client:
        with pytest.raises(BookKeeperError, match="certificate"):
            client.create(write_quorum=3, ack_quorum=3)
    exchange(secured, apache_client, version)


# --- passwords ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.replace(" ", "-").replace("'", ""))
def guarded(
    request: pytest.FixtureRequest,
    apache: Apache,
    zookeeper: ZooKeeperServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Ground]:
    """Bookies that ask for the password of PASSWORD_LINE, in clear text: ours by a file, theirs by our Java class."""
    directory = tmp_path_factory.mktemp("guarded")
    users = directory / "users"
    users.write_text(f"alice:{hash_password(b'secret')}\n")
    settings = {
        OURS: {
            "bookieAuthProviderFactoryClass": "password-file",
            "bookiePasswordFile": str(users),
            "passwordOverClearText": "true",
        },
        THEIRS: {"bookieAuthProviderFactoryClass": "PasswordAuth$Bookie", "interopPassword": PASSWORD_LINE},
    }[request.param]
    with ExitStack() as running:
        place = directory / f"{directory.name}-bookies"
        yield ground_of(request.param, apache, zookeeper.address, place, running, count=2, settings=settings)


def with_password(settings: ClientSettings, directory: Path, line: str) -> ClientSettings:
    path = directory / "password"
    path.write_text(line)
    return replace(settings, auth_provider="password-file", auth_password_file=str(path), auth_over_clear_text=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_right_password_opens_bookies_of_either_kind_to_either_client(
    guarded: Ground, apache_client: ApacheClient, version: int, tmp_path: Path
) -> None:
    java = "clientAuthProviderFactoryClass=PasswordAuth$Client"
    apache_client.run("configure", guarded.uri, version, java, f"interopPassword={PASSWORD_LINE}")
    apache_client.run("configure", guarded.apart, version, java, "interopPassword=alice:guess")
    with pytest.raises(ApacheError) as refused:
        apache_client.run("write", guarded.apart, version, "CRC32C", PASSWORD, 2, 2, 2, 1)
    assert refused.value.code in CODES_REFUSED
    apache_client.run("forget", guarded.apart, version)
    for settings in (
        guarded.settings(version),
        with_password(guarded.settings(version), tmp_path, "alice:guess"),
    ):
        with connect(guarded.uri, settings) as client:
            with pytest.raises(BookKeeperError, match=r"(?i)authori[sz]ed|authenticat"):
                client.create(ensemble=2)
    with connect(guarded.uri, with_password(guarded.settings(version), tmp_path, PASSWORD_LINE)) as client:
        with client.create(ensemble=2) as ours:
            ours.append_many(payloads(0, COUNT, SIZE_MAX))
        found = apache_client.run("hashes", *guarded.where(version, ours.id))
        assert found == fingerprints(payloads(0, COUNT, SIZE_MAX))
        (theirs,) = apache_client.run("write", *guarded.where(version), 2, 2, 2, 5)
        with client.open(int(theirs)) as reader:
            assert len(list(reader.entries())) == 5


@pytest.mark.parametrize("version", VERSIONS)
def test_bookies_without_authentication_tell_a_client_that_has_some(
    ground: Ground, apache_client: ApacheClient, version: int, tmp_path: Path
) -> None:
    """They answer as AuthDisabledPlugin, and the client goes on."""
    words = ("clientAuthProviderFactoryClass=PasswordAuth$Client", f"interopPassword={PASSWORD_LINE}")
    apache_client.run("configure", ground.apart, version, *words)
    apache_client.run("forget", ground.apart, version)
    (theirs,) = apache_client.run("write", ground.apart, version, "CRC32C", PASSWORD, 3, 2, 2, 5)
    apache_client.run("configure", ground.apart, version)
    apache_client.run("forget", ground.apart, version)
    with connect(ground.uri, with_password(ground.settings(version), tmp_path, PASSWORD_LINE)) as client:
        with client.open(int(theirs)) as reader:
            assert len(list(reader.entries())) == 5
