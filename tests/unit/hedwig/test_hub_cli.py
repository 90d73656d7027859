"""The `hedwig` program, what a hub's settings become, and what it counts. The process itself: integration."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bookkeeper.config import ConfText
from bookkeeper.errors import ConfigurationError
from hedwig.cli.main import COMMANDS, main
from hedwig.config.hub import HubConfig
from hedwig.config.load import load_hub
from hedwig.errors import StaleVersion, UnexpectedCondition
from hedwig.hub.meters import REFUSED, HubMeters
from hedwig.hub.process import ExitCode, exit_code_of
from hedwig.hub.server import HttpSettings, HubSettings
from hedwig.hub.tuning import addresses, hub_settings
from hedwig.model import Status, Topic
from hedwig.protocol.retention import Retention
from tests.support.machines import MadeMachine

ROOT = Path(__file__).resolve().parents[3]


def config_of(text: str) -> HubConfig:
    return load_hub(ConfText("hw.conf", text), {}, {}).settings


def settings_of(text: str) -> HubSettings:
    return hub_settings(config_of(text))


# --- the program


@pytest.mark.parametrize("words", [[], *([name] for name in COMMANDS)], ids=" ".join)
def test_every_command_has_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--help"]) == 0
    assert "examples:" in capsys.readouterr().out


def test_help_imports_no_command() -> None:
    program = (
        "import sys; from hedwig.cli.main import main; main(['--help']); "
        "sys.exit(any(name in sys.modules for name in ('twisted', 'hedwig.config', 'hedwig.cli.hub', 'asyncio')))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_bad_settings_end_the_hub_with_the_code_for_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hub", "-D", "server_port=http"]) == ExitCode.BAD_CONFIGURATION
    assert "command line: server_port=http: not a whole number" in capsys.readouterr().err
    assert main(["hub", "-D", "nonsense"]) == ExitCode.BAD_CONFIGURATION
    assert "write it as KEY=VALUE" in capsys.readouterr().err


def test_a_conf_file_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hub", "--conf", str(tmp_path / "none.conf")]) == ExitCode.BAD_CONFIGURATION
    assert "none.conf: cannot be read: No such file" in capsys.readouterr().err


def test_config_show_tells_where_each_value_comes_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HW_region", "east")
    conf = tmp_path / "hw.conf"
    conf.write_text("server_port=1\nretention_secs=5\npassword=geheim\n")
    assert main(["config", "show", "--json", "--conf", str(conf), "-D", "consume_interval=7"]) == 0
    shown = capsys.readouterr()
    rows = {row["key"]: (row["value"], row["origin"]) for row in json.loads(shown.out)}
    assert rows["server_port"] == ("1", f"{conf}:1")
    assert rows["region"] == ("east", "environment HW_region")
    assert rows["consume_interval"] == ("7", "command line")
    assert rows["password"][0] == "(hidden)"
    assert "retention_secs" in shown.err


def test_config_check_of_the_shipped_file_finds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    shipped = ["config", "check", "--conf", str(ROOT / "conf" / "hw_server.conf")]
    assert main(shipped) == 0
    noted, verdict = capsys.readouterr().err.splitlines()
    assert noted.startswith("Other machines can reach this port without credentials: hub *:4080 (")
    assert verdict == "No faults."
    assert main([*shipped, "-D", "listeningInterface=127.0.0.1"]) == 0
    assert capsys.readouterr().err == "No faults.\n"


def test_config_check_lists_the_faults_of_a_client(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", "--client", "--json", "-D", "ssl_enabled=true", "-D", "x=1"]) == 1
    faults = json.loads(capsys.readouterr().out)["faults"]
    assert len(faults) == 2


# --- what settings become


def test_settings_reach_the_parts() -> None:
    found = settings_of(
        "zk_host=zk1:2181\nadvertisedAddress=hub1.example.org\nserver_port=1\nbk_ensemble_size=5\nbk_quorum_size=3\n"
        "bk_ack_quorum_size=2\nmax_entries_per_ledger=10\nmax_bytes_per_ledger=20\nmax_ledger_age_secs=30\n"
        "max_pending_bytes_per_topic=1048577\ndefault_message_window_size=4\nconsume_interval=5\nreadahead_count=6\nreadahead_size=66\n"
        "scan_backoff_ms=7\ncache_size=8\nmessages_consumed_thread_run_interval=900\nshutdown_timeout_secs=11\n"
        "passwd=p\nregion=east\nzk_prefix=/h\nmax_message_size=2048\nzk_timeout=3000\naddEntryTimeoutSec=12\n"
        "httpServerEnabled=true\nhttpServerPort=13"
    )
    log, topic = found.topic.log, found.topic
    assert (found.metadata_uri, found.host, found.port) == ("zk+null://zk1:2181/ledgers", "hub1.example.org", 1)
    assert (found.region, found.prefix, found.frame_size_max, found.cache_size) == ("east", "/h", 2048, 8)
    assert (found.trim_period_s, found.stop_timeout_s, found.listen_on) == (0.9, 11.0, "")
    assert (log.ensemble, log.write_quorum, log.ack_quorum, log.password) == (5, 3, 2, b"p")
    assert (log.entries_max, log.bytes_max, log.age_max_s, log.pending_bytes_max) == (10, 20, 30.0, 1048577)
    assert (topic.window_size, topic.consume_interval, topic.retry_delay_s) == (4, 5, 0.007)
    assert (topic.read_ahead, topic.read_size) == (6, 66)
    assert (found.client.zk_session_timeout_s, found.client.add_timeout_s) == (3.0, 12.0)
    assert found.http == HttpSettings("127.0.0.1", 13)
    assert found.tls is None


def test_retention_reaches_the_topics() -> None:
    own = '{"a": {"keep_ms": 9}, "a.b": {"keep_ms": 0, "limit_bytes": 3}}'
    found = settings_of(f"advertisedAddress=h\nkeep_ms=5\nkeep_unsubscribed_ms=0\nretention_by_topic={own}")
    wanted = {b"x": Retention(keep_ms=5), b"a": Retention(keep_ms=9), b"a.bc": Retention(limit_bytes=3)}
    assert {name: found.retention_of(Topic(name)) for name in wanted} == wanted


def test_the_second_port_needs_ssl_enabled() -> None:
    text = "advertisedAddress=h\ncert_path=server.p12\npassword=geheim\nssl_server_port=1\nssl_versions=TLSv1.3"
    assert settings_of(text).tls is None
    tls = settings_of(f"{text}\nssl_enabled=true").tls
    assert tls is not None
    assert (tls.port, tls.certificate, tls.password, tls.versions) == (1, "server.p12", b"geheim", ("TLSv1.3",))
    assert "geheim" not in repr(tls)


def test_an_address_that_others_cannot_reach_is_refused() -> None:
    """Two machines would both be 127.0.0.1:4080, and each end the other's registration."""
    text = "listeningInterface=127.0.0.1\nzk_host=zk1:2181"
    with pytest.raises(ConfigurationError, match=r"the hub would advertise 127\.0\.0\.1"):
        settings_of(text)
    assert settings_of(f"{text}\nallowLoopback=true").host == "127.0.0.1"
    assert settings_of(f"{text}\nadvertisedAddress=hub1").host == "hub1"


def test_with_an_advertised_address_a_hub_looks_no_name_up() -> None:
    machine = MadeMachine(interfaces={"eth0": ["fd00::5"]})
    assert addresses(config_of("advertisedAddress=hub1"), machine) == ("::", "hub1")
    assert not machine.looked_up
    with pytest.raises(ConfigurationError, match=r"'host1' has no address.*set advertisedAddress or listening"):
        addresses(config_of(""), machine)
    with pytest.raises(ConfigurationError, match=r"12345.*0\.0\.48\.57"):
        config_of("advertisedAddress=12345")


def test_a_hub_without_ipv4_is_advertised_by_its_name() -> None:
    """host:port:sslPort cannot contain fd00::5."""
    machine = MadeMachine(known={"host1": ["fd00::5"]}, interfaces={"eth0": ["fd00::5"]})
    assert addresses(config_of(""), machine) == ("::", "host1")
    with pytest.raises(ConfigurationError, match="cannot carry an IPv6 address: set advertisedAddress to a name"):
        addresses(config_of("listeningInterface=eth0"), machine)


@pytest.mark.parametrize("servers", ["localhost:2181", "localhost", "127.0.0.1:2181,[::1]:2182"])
def test_where_zookeeper_is_here_alone_so_may_be_the_hub(servers: str) -> None:
    found = settings_of(f"listeningInterface=127.0.0.1\nzk_host={servers}")
    assert (found.host, found.listen_on) == ("127.0.0.1", "127.0.0.1")


def test_exit_codes_tell_what_to_look_at() -> None:
    assert exit_code_of(ConfigurationError("")) is ExitCode.BAD_CONFIGURATION
    assert exit_code_of(StaleVersion("")) is ExitCode.REGISTRATION_FAILED
    assert exit_code_of(UnexpectedCondition("")) is ExitCode.SERVER_ERROR


# --- what is counted


def test_refusals_are_counted_by_status_and_redirects_apart() -> None:
    meters = HubMeters()
    meters.refused(Status.TOPIC_BUSY, 2)
    meters.refused(Status.TOPIC_BUSY, 1)
    meters.refused(Status.NOT_RESPONSIBLE_FOR_TOPIC, 5)
    assert meters.value("hub_REFUSED_TOPIC_BUSY") == 3
    assert meters.value("hub_REDIRECTS") == 5
    assert b"hub_REFUSED_SERVICE_DOWN" not in meters.text()  # a zero is always a counted zero


def test_every_refusal_has_a_counter() -> None:
    for status in Status:
        if status is not Status.SUCCESS:
            HubMeters().refused(status, 1)
    assert len(REFUSED) == len(Status) - 2
