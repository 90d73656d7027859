"""Who asks, and what a path means, in the words of `journalmgr fs`: as Hadoop's clients have it."""

import os
import pwd
from argparse import Namespace

import pytest

from bookkeeper.console.output import EXIT_USAGE, CommandFailed
from journalmgr.cli.fs import REFUSED, absolute, arrange, decode_words, server_text, user_of
from journalmgr.cli.main import main


def test_the_login_asks_unless_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    monkeypatch.setenv("USER", "somebody-else")  # what a shell says is not what the process runs as
    assert user_of(Namespace(user=None)) == pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.setenv("HADOOP_USER_NAME", "ann")
    assert user_of(Namespace(user=None)) == "ann"
    assert user_of(Namespace(user="jo")) == "jo"


def test_a_login_without_a_name_has_to_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> object:
        raise KeyError(uid)

    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(CommandFailed, match="say --user NAME, or set HADOOP_USER_NAME") as caught:
        user_of(Namespace(user=None))
    assert caught.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("/a", "/a"), ("a", "/user/jo/a"), (".", "/user/jo"), ("./a//b/", "/user/jo/a/b"), ("/", "/")],
)
def test_a_path_is_below_the_directory_of_the_user_unless_it_begins_with_a_slash(typed: str, meant: str) -> None:
    assert absolute(typed, "jo") == meant


def test_a_path_that_is_no_text_is_refused() -> None:
    with pytest.raises(CommandFailed, match="is not UTF-8") as caught:
        server_text("/x\udcff")
    assert caught.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("-ls -R /", "ls -R /"),
        ("--json -du -h /", "--json du -h /"),
        ("--user ls -copyToLocal a b", "--user ls copyToLocal a b"),
        ("--user -ls ls -d", "--user -ls ls -d"),
        ("test -e -stat", "test -e -stat"),
        ("-J -nonsense /x", "-J nonsense /x"),
        ("--wait 1 -v --json", "--wait 1 -v --json"),
        ("-h", "-h"),
    ],
)
def test_an_action_may_have_a_hyphen_before_it(words: str, meant: str) -> None:
    assert arrange(words.split()) == meant.split()


@pytest.mark.parametrize("hyphen", ["", "-"])
@pytest.mark.parametrize("action", REFUSED)
def test_a_missing_action_of_hadoop_is_refused_with_an_alternative(action: str, hyphen: str) -> None:
    with pytest.raises(CommandFailed, match=rf"^fs {action}: .*name node.*; .*`journalmgr fs ") as caught:
        arrange(["--server", "h:1", f"{hyphen}{action}", "/logs", "s1"])
    assert caught.value.exit_code == EXIT_USAGE
    assert arrange(["ls", action]) == ["ls", action], "a path may have any name"


@pytest.mark.parametrize("word", ["-createSnapshots", "-nonsense", "nonsense"])
def test_the_error_of_an_unknown_action_names_the_action(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The error once named the path after an action with a hyphen."""
    assert main(["fs", word, "/logs"]) == EXIT_USAGE
    assert f"argument ACTION: invalid choice: '{word.removeprefix('-')}'" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_words_for_a_server_are_utf_8_in_every_locale(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = "/é名".encode()
    monkeypatch.setattr(os, "fsencode", lambda word: word.encode(encoding, "surrogateescape"))
    word = typed.decode(encoding, "surrogateescape")
    args = Namespace(paths=[word], path=word, sources=[word], local=word, recursive=True, wait=30.0, user=word)
    decode_words(args)
    assert (args.paths, args.path, args.user) == (["/é名"], "/é名", "/é名")
    assert (args.sources, args.local) == ([word], word), "names of this machine's files are used as they were typed"
