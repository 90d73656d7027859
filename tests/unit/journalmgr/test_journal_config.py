"""Settings of the journal manager: Hadoop's keys, from a .conf file or a Hadoop configuration, and what is refused."""

import re
from pathlib import Path

import pytest

from bookkeeper.config import ClientSettings, ConfText, Loaded, Source, keys_of
from bookkeeper.errors import ConfigurationError
from journalmgr.config import FOREIGN, SHARED_EDITS, JournalSettings, load_journal, render, variable_of
from journalmgr.hadoop_xml import GROWTH_MAX, parse_hadoop_xml

CONF = Path(__file__).resolve().parents[3] / "conf" / "journalmgr.conf"
LEDGERS = "dfs.namenode.bookkeeperjournal"
URI = "bookkeeper://zk1:2181;zk2:2181/hdfsjournal"

# journalmgr/FORMATS.md 1.3, 7.5; output-buffer-size differs on purpose.
HADOOP_DEFAULTS = {
    f"{LEDGERS}.ensemble-size": "3",
    f"{LEDGERS}.quorum-size": "2",
    f"{LEDGERS}.ack.quorum-size": "",
    f"{LEDGERS}.digestPw": "",
    f"{LEDGERS}.zk.session.timeout": "3000",
    f"{LEDGERS}.zk.availablebookies": "/ledgers/available",
    f"{LEDGERS}.speculativeReadTimeoutMs": "2000",
    f"{LEDGERS}.readEntryTimeoutSec": "5",
    f"{LEDGERS}.addEntryTimeoutSec": "5",
    "dfs.namenode.checkpoint.period": "3600",
    "dfs.namenode.checkpoint.txns": "1000000",
    "dfs.namenode.checkpoint.check.period": "60",
    "dfs.namenode.num.checkpoints.retained": "2",
    "dfs.namenode.num.extra.edits.retained": "1000000",
    "dfs.ha.log-roll.period": "120",
    "dfs.ha.tail-edits.period": "60",
    "ha.zookeeper.session-timeout.ms": "5000",
    "ha.zookeeper.parent-znode": "/hadoop-ha",
}


def loaded(text: str = "", name: str = "jm.conf", **given: dict[str, str]) -> Loaded[JournalSettings]:
    return load_journal(ConfText(name, text), given.get("overrides"), given.get("environ", {}))


def hadoop(*properties: tuple[str, str]) -> str:
    lines = [f"<property><name>{name}</name><value>{value}</value></property>" for name, value in properties]
    return "\n".join(["<configuration>", *lines, "</configuration>"])


def refused(text: str = "", name: str = "jm.conf", **given: dict[str, str]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        loaded(text, name, **given)
    return str(caught.value)


# --- the table


def test_names_and_defaults_are_hadoops() -> None:
    table = keys_of(JournalSettings)
    assert {name: table[name].default for name in HADOOP_DEFAULTS} == HADOOP_DEFAULTS
    assert table[f"{LEDGERS}.output-buffer-size"].default == "131072"
    assert table[f"{LEDGERS}.output-buffer-size"].differs.startswith("1024 there")
    others = table.keys() - HADOOP_DEFAULTS.keys() - {SHARED_EDITS, f"{LEDGERS}.output-buffer-size"}
    assert all(table[name].ours and name.startswith("journalmgr.") for name in others)


def test_the_shipped_file_is_what_the_table_renders() -> None:
    assert CONF.read_text() == render(), "conf/journalmgr.conf is not current: run `make conf`"


def test_the_shipped_file_with_every_key_uncommented_changes_nothing() -> None:
    text, count = re.subn(r"^#([\w.-]+=)", r"\1", render(), flags=re.MULTILINE)
    assert count == len(keys_of(JournalSettings))
    assert loaded(text).settings == JournalSettings()


def test_every_key_has_a_variable_of_its_own() -> None:
    variables = [variable_of(name) for name in keys_of(JournalSettings)]
    assert len(set(variables)) == len(variables)
    assert all(re.fullmatch(r"JM_\w+", variable, re.ASCII) for variable in variables)


# --- reading


def test_precedence_is_command_line_environment_file_default() -> None:
    text = f"{LEDGERS}.ensemble-size=7\n{LEDGERS}.quorum-size=4\n{SHARED_EDITS}=file:///a\n"
    environ = {variable_of(f"{LEDGERS}.quorum-size"): "5", variable_of(SHARED_EDITS): "file:///b", "JM_OTHER": "x"}
    found = loaded(text, environ=environ, overrides={SHARED_EDITS: URI})
    settings = found.settings
    assert (settings.ensemble_size, settings.quorum_size, settings.shared_edits_dir) == (7, 5, URI)
    assert settings.checkpoint_txns == 1_000_000
    assert found.origin(f"{LEDGERS}.quorum-size").place == "environment JM_dfs_namenode_bookkeeperjournal_quorum_size"
    assert found.origin(f"{LEDGERS}.ensemble-size").place == "jm.conf:1"
    assert found.origin("dfs.namenode.checkpoint.txns").source is Source.DEFAULT


def test_a_variable_may_have_the_keys_own_spelling() -> None:
    assert loaded(environ={f"JM_{LEDGERS}.ensemble-size": "4"}).settings.ensemble_size == 4
    both = {f"JM_{LEDGERS}.ensemble-size": "4", variable_of(f"{LEDGERS}.ensemble-size"): "5"}
    assert "is set again" in refused(environ=both)


@pytest.mark.parametrize(
    ("text", "attribute", "value"),
    [
        ("dfs.ha.tail-edits.period=5", "tail_edits_period_s", 5.0),
        ("dfs.ha.tail-edits.period=500ms", "tail_edits_period_s", 0.5),
        ("dfs.namenode.checkpoint.period=2h", "checkpoint_period_s", 7200.0),
        ("dfs.ha.log-roll.period=-1", "log_roll_period_s", 0.0),
        (f"{LEDGERS}.zk.session.timeout=1500", "zk_session_timeout_s", 1.5),
        (f"{LEDGERS}.zk.availablebookies=/bk/available", "ledgers_root", "/bk"),
        (f"{LEDGERS}.ack.quorum-size=1", "ack_quorum_size", 1),
    ],
)
def test_values_have_the_units_of_their_names(text: str, attribute: str, value: object) -> None:
    assert getattr(loaded(text).settings, attribute) == value


def test_all_faults_are_told_at_once_with_their_places() -> None:
    message = refused(
        f"{LEDGERS}.ensemble-sise=3\ndfs.ha.tail-edits.period=soon\n{LEDGERS}.zk.availablebookies=/available\n",
        environ={"JM_dfs_namenode_shared_edit_dir": "x"},
        overrides={SHARED_EDITS: "hdfsjournal"},
    )
    assert message.startswith("5 faults in the configuration:")
    assert f"jm.conf:1: unknown key '{LEDGERS}.ensemble-sise'; did you mean {LEDGERS}.ensemble-size?" in message
    assert "jm.conf:2: dfs.ha.tail-edits.period=soon: not a duration" in message
    assert "jm.conf:3" in message
    assert "did you mean dfs_namenode_shared_edits_dir?" in message
    assert "command line: dfs.namenode.shared.edits.dir=hdfsjournal: 'hdfsjournal' is no URI of a journal" in message


def test_quorums_must_fit() -> None:
    message = refused(f"{LEDGERS}.quorum-size=4\n")
    assert "ensemble-size 3, quorum-size 4, ack.quorum-size 4: need ensemble-size >= quorum-size" in message


def test_several_journals_are_refused() -> None:
    assert "names several journals" in refused(f"{SHARED_EDITS}=file:///a,file:///b")


# --- a Hadoop configuration


def test_a_whole_hadoop_configuration_is_read_and_keys_of_others_are_told() -> None:
    text = hadoop(
        ("dfs.nameservices", "ns1"),
        ("journal.root", "/hdfsjournal"),
        (SHARED_EDITS, "bookkeeper://zk1:2181;zk2:2181${journal.root}"),
        (f"{LEDGERS}.ensemble-size", " 5 "),
        ("dfs.ha.tail-edits.period", "1"),
    )
    found = loaded(text, "hdfs-site.xml")
    assert (found.settings.shared_edits_dir, found.settings.ensemble_size) == (URI, 5)
    assert found.settings.tail_edits_period_s == 1
    assert [(row.name, row.reason) for row in found.ignored] == [
        ("dfs.nameservices", FOREIGN),
        ("journal.root", FOREIGN),
    ]
    assert found.origin(SHARED_EDITS).place == "hdfs-site.xml:4"


def test_in_a_hadoop_configuration_a_misspelled_key_of_ours_is_refused_all_the_same() -> None:
    message = refused(hadoop((f"{LEDGERS}.ensemblesize", "5"), ("dfs.replicatoin", "3")), "hdfs-site.xml")
    assert f"hdfs-site.xml:2: unknown key '{LEDGERS}.ensemblesize'; did you mean {LEDGERS}.ensemble-size?" in message
    assert "1 fault" in message


def test_a_reference_to_what_is_not_there_is_refused_where_it_matters() -> None:
    text = hadoop((SHARED_EDITS, "file://${hadoop.tmp.dir}/e"), ("dfs.datanode.data.dir", "${hadoop.tmp.dir}/d"))
    assert "hdfs-site.xml:2: dfs.namenode.shared.edits.dir: this file does not set ${hadoop.tmp.dir}" in refused(
        text, "hdfs-site.xml"
    )


def test_the_uri_may_stand_behind_a_name_services_name() -> None:
    one = hadoop((f"{SHARED_EDITS}.ns1", URI), (f"{SHARED_EDITS}.ns1.nn1", URI))
    assert loaded(one, "hdfs-site.xml").settings.shared_edits_dir == URI
    two = hadoop((f"{SHARED_EDITS}.ns1", URI), (f"{SHARED_EDITS}.ns2", "file:///b"))
    assert f"say which: -D {SHARED_EDITS}=URI" in refused(two, "hdfs-site.xml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<configuration><property>", "no XML: "),
        ("nothing", "no XML: "),
        ("<property/>", "<property> where <configuration> should be"),
        ("<configuration><xi:include/></configuration>", "<xi:include> is not followed"),
        ("<configuration><property><value>1</value></property></configuration>", "a property without a name"),
        ("<configuration><property><name>a</name><val>1</val></property></configuration>", "<val> has no place"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><configuration/>', "a document type"),
    ],
)
def test_a_file_that_is_no_hadoop_configuration_is_refused(text: str, says: str) -> None:
    assert says in refused(text, "hdfs-site.xml")


def test_the_last_of_several_properties_counts_and_one_without_a_value_does_not() -> None:
    text = (
        "<configuration>\n<property><name>a</name><value>1</value></property>\n"
        "<property><name>a</name><value>2</value><final>true</final></property>\n"
        "<property><name>b</name></property></configuration>"
    )
    found, bad = parse_hadoop_xml(text)
    assert [(each.name, each.value, each.line) for each in found] == [("a", "2", 3)]
    assert bad == []


@pytest.mark.parametrize(
    "properties",
    [
        ((SHARED_EDITS, f"${{{SHARED_EDITS}}}"),),
        ((SHARED_EDITS, "${a}"), ("a", f"${{{SHARED_EDITS}}}")),
        ((SHARED_EDITS, "${a}"), ("a", "${a}${a}${a}")),
    ],
)
def test_references_in_a_cycle_are_refused_with_file_key_and_remedy(properties: tuple[tuple[str, str], ...]) -> None:
    message = refused(hadoop(*properties), "hdfs-site.xml")
    assert f"hdfs-site.xml:2: {SHARED_EDITS}: its references are not resolved after 20 replacements" in message
    assert "write the value without them" in message


def test_cycles_of_references_do_not_matter_in_keys_of_others() -> None:
    found = loaded(hadoop(("a", "${a}${a}${a}"), (f"{LEDGERS}.ensemble-size", "5")), "hdfs-site.xml")
    assert found.settings.ensemble_size == 5


def test_20_references_in_a_value_are_resolved_and_21_are_not() -> None:
    found, _ = parse_hadoop_xml(hadoop(("a", "1"), ("b", "${a}" * 20), ("c", "${a}" * 21)))
    assert [(each.value, bool(each.fault)) for each in found] == [
        ("1", False),
        ("1" * 20, False),
        ("${a}" * 21, True),
    ]


def test_growth_by_references_is_bounded_for_the_whole_file() -> None:
    long = "x" * 100_000
    found, _ = parse_hadoop_xml(hadoop(("a", long), *((f"b{number}", "${a}${a}") for number in range(1000))))
    assert sum(len(each.value) for each in found) < 2 * GROWTH_MAX
    assert [each.fault for each in found[:5]] == [""] * 5
    assert "by more than 1048576 characters; write a shorter value" in found[-1].fault


def test_an_encoding_that_a_hadoop_configuration_declares_does_not_matter() -> None:
    found, bad = parse_hadoop_xml('<?xml version="1.0" encoding="WTF-8"?>\n' + hadoop(("a", "1")))
    assert ([each.value for each in found], bad) == (["1"], [])


# --- what parts of the program take


def test_journals_and_their_client_get_what_was_set(tmp_path: Path) -> None:
    client_conf = tmp_path / "client.conf"
    client_conf.write_text("numChannelsPerBookie=1\nclientConnectTimeoutMillis=1234\nreadTimeout=77\n")
    settings = loaded(
        f"{LEDGERS}.output-buffer-size=1024\n{LEDGERS}.ack.quorum-size=1\n{LEDGERS}.digestPw=s3cret\n"
        f"{LEDGERS}.addEntryTimeoutSec=7\n{LEDGERS}.speculativeReadTimeoutMs=300\n"
        f"journalmgr.ledgers.client-conf={client_conf}\njournalmgr.files.preallocation-size=0\n"
    ).settings
    journal = settings.ledger_journal()
    assert (journal.output_buffer_size, journal.acknowledgements, journal.password) == (1024, 1, b"s3cret")
    client = settings.ledger_client({})
    assert (client.add_timeout_s, client.read_timeout_s, client.speculative_read_delay_s) == (7, 5, 0.3)
    assert (client.connect_timeout_s, client.zk_session_timeout_s) == (1.234, 3)
    assert list(client.faults()) == []
    assert settings.file_journal().preallocation_size == 0
    assert "s3cret" not in repr(settings)


def test_without_a_file_of_its_own_the_client_has_the_clients_defaults() -> None:
    client = JournalSettings().ledger_client({})
    assert client.frame_size_max == ClientSettings().frame_size_max
