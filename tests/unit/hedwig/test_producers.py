"""Publishing once: against a twin that remembers everything, in crashes, takeovers and floods of producers."""

from __future__ import annotations

import random

import pytest

from hedwig.errors import MalformedRequest, UnexpectedCondition
from hedwig.model import LocalId
from hedwig.protocol.producers import NAME_SIZE_MAX, Judged, Origin, Producers, Verdict, origin_of, origin_properties

A, B = b"a", b"b"


def stored(*messages: tuple[int, bytes, int], producers_max: int = 10, runs_max: int = 10) -> Producers[str]:
    found: Producers[str] = Producers(producers_max, runs_max)
    for local_id, producer, sequence in messages:
        found.on_stored(LocalId(local_id), Origin(producer, sequence))
    return found


def test_the_header_says_who_and_as_its_how_manieth() -> None:
    assert origin_of({}) is None
    assert origin_of({"hw.pid": b"p-1", "hw.seq": b"42", "other": b""}) == Origin(b"p-1", 42)
    assert origin_of(origin_properties(Origin(A, 2**63 - 1))) == Origin(A, 2**63 - 1)
    assert origin_of({"hw.pid": A, "hw.seq": b"42", "hw.prev": b"41"}) == Origin(A, 42, 41)
    assert origin_of(origin_properties(Origin(A, 42, 7))) == Origin(A, 42, 7)


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"hw.pid": b"p"}, "want both"),
        ({"hw.seq": b"1"}, "want both"),
        ({"hw.pid": b"", "hw.seq": b"1"}, "has 0 bytes"),
        ({"hw.prev": b"1"}, "without hw.pid and hw.seq"),
        *(
            ({"hw.pid": b"p", "hw.seq": b"7", "hw.prev": value}, "hw.prev is .* from 1 to 6")
            for value in (b"7", b"8", b"0", b"-1", b"")
        ),
        ({"hw.pid": b"p" * (NAME_SIZE_MAX + 1), "hw.seq": b"1"}, "has 65 bytes"),
        *(
            ({"hw.pid": b"p", "hw.seq": value}, "a decimal number from 1")
            for value in (b"", b"0", b"-1", b"1.0", b"x", b" 1", b"9223372036854775808", b"1" * 100)
        ),
    ],
)
def test_a_header_that_says_it_wrong_is_refused(properties: dict[str, bytes], text: str) -> None:
    with pytest.raises(MalformedRequest, match=text):
        origin_of(properties)


def test_a_repeat_is_answered_with_its_first_id() -> None:
    known = stored((5, A, 1), (6, A, 2), (7, B, 1), (8, A, 7))
    assert known.judge(Origin(A, 1)) == Judged(Verdict.REPEAT, LocalId(5))
    assert known.judge(Origin(A, 2)) == Judged(Verdict.REPEAT, LocalId(6))
    assert known.judge(Origin(A, 7)) == Judged(Verdict.REPEAT, LocalId(8))
    assert known.judge(Origin(B, 1)) == Judged(Verdict.REPEAT, LocalId(7))
    for new in (Origin(A, 8), Origin(A, 100), Origin(B, 2), Origin(b"c", 1)):
        assert known.judge(new).verdict is Verdict.NEW


def test_gaps_are_allowed_and_not_filled_later() -> None:
    known = stored((5, A, 1), (8, A, 7))
    assert known.judge(Origin(A, 3)).verdict is Verdict.SKIPPED
    error = known.refusal(Origin(A, 3), Verdict.SKIPPED)
    assert "message 3 of producer b'a' was not published before 7" in str(error)


def test_a_chain_is_never_taken_before_the_one_before() -> None:
    known: Producers[str] = Producers()
    assert known.judge(Origin(A, 2, 1)).verdict is Verdict.EARLY, "1 was refused, or is on its way"
    known.on_begun(Origin(A, 1))
    assert known.judge(Origin(A, 3, 2)).verdict is Verdict.EARLY
    known.on_begun(Origin(A, 2, 1))
    known.on_begun(Origin(A, 3, 2))
    assert known.judge(Origin(A, 2, 1)).verdict is Verdict.UNDER_WAY
    for number in (1, 2, 3):
        known.on_durable(Origin(A, number), LocalId(number + 10))
    assert known.judge(Origin(A, 2, 1)) == Judged(Verdict.REPEAT, LocalId(12))
    assert known.judge(Origin(A, 9, 3)).verdict is Verdict.NEW
    assert known.judge(Origin(A, 9, 2)).verdict is known.judge(Origin(A, 9, 8)).verdict is Verdict.EARLY
    assert known.judge(Origin(B, 2, 1)).verdict is Verdict.EARLY
    assert "begin anew" in str(known.refusal(Origin(B, 2, 1), Verdict.EARLY))


def test_all_producers_together_keep_so_many_runs() -> None:
    known: Producers[str] = Producers(runs_total_max=100)
    for number in range(1, 200):
        for name in (A, B, b"c"):
            known.on_stored(LocalId(known.through + 1), Origin(name, number))
    whole = known.encode()
    assert len(whole) < 100 * 4 + 30
    for again in (known, Producers[str].decode(whole)):
        assert again.judge(Origin(b"c", 199)) == Judged(Verdict.REPEAT, LocalId(199 * 3))
        assert again.judge(Origin(A, 199)) == Judged(Verdict.REPEAT, LocalId(199 * 3 - 2))
        assert again.judge(Origin(A, 1)).verdict is Verdict.FORGOTTEN


def test_what_is_older_than_the_window_is_forgotten() -> None:
    known = stored(*((2 * number, A, number) for number in range(1, 6)), runs_max=3)
    assert [known.judge(Origin(A, number)).verdict.name for number in range(1, 7)] == [
        *("FORGOTTEN", "FORGOTTEN", "REPEAT", "REPEAT", "REPEAT", "NEW")
    ]
    error = known.refusal(Origin(A, 2), Verdict.FORGOTTEN)
    assert "older than what is remembered of this producer, 3 to 5" in str(error)


def test_a_producer_alone_is_remembered_whole() -> None:
    known = stored(*((number + 3, A, number) for number in range(1, 1001)), runs_max=1)
    assert known.judge(Origin(A, 1)) == Judged(Verdict.REPEAT, LocalId(4))
    assert len(known.encode()) < 16


def test_a_repeat_waits_while_the_first_is_under_way() -> None:
    known = stored()
    for sequence in (1, 2, 5):
        known.on_begun(Origin(A, sequence))
    assert known.judge(Origin(A, 2)).verdict is Verdict.UNDER_WAY
    assert known.judge(Origin(A, 3)).verdict is Verdict.SKIPPED
    assert "not published before 5" in str(known.refusal(Origin(A, 3), Verdict.SKIPPED))
    known.wait(Origin(A, 2), "second")
    known.wait(Origin(A, 2), "third")
    assert known.on_durable(Origin(A, 1), LocalId(1)) == []
    assert known.judge(Origin(A, 1)) == Judged(Verdict.REPEAT, LocalId(1))
    assert known.judge(Origin(A, 2)).verdict is Verdict.UNDER_WAY
    assert known.on_durable(Origin(A, 2), LocalId(2)) == ["second", "third"]
    known.wait(Origin(A, 5), "fifth")
    assert known.on_failed(Origin(A, 5)) == ["fifth"]


def test_who_published_longest_ago_is_forgotten_but_not_what_is_under_way() -> None:
    known = stored((1, A, 5), (2, B, 5), (3, A, 6), producers_max=2)
    known.on_begun(Origin(b"c", 1))
    assert len(known) == 2
    assert known.judge(Origin(B, 5)).verdict is Verdict.NEW, "a, which published later, is remembered"
    assert known.judge(Origin(A, 6)).verdict is Verdict.REPEAT
    known.on_begun(Origin(A, 7))
    known.on_begun(Origin(b"d", 1))
    assert len(known) == 3, "all of them have something under way"
    known.on_durable(Origin(b"c", 1), LocalId(4))
    known.on_durable(Origin(A, 7), LocalId(5))
    known.on_durable(Origin(b"d", 1), LocalId(6))
    assert len(known) == 2
    assert known.judge(Origin(b"d", 1)).verdict is Verdict.REPEAT


def test_a_hub_that_stored_a_repeat_changes_nothing() -> None:
    known = stored((1, A, 1), (2, A, 2), (3, A, 1), (4, A, 3))
    assert known.judge(Origin(A, 1)) == Judged(Verdict.REPEAT, LocalId(1))
    assert known.judge(Origin(A, 3)) == Judged(Verdict.REPEAT, LocalId(4))


def test_a_topic_says_what_a_twin_that_remembers_everything_says(rng: random.Random) -> None:
    """Publishes, repeats, losses of the topic; rebuilt from a snapshot and a tail that overlaps it, or from it all."""
    verdicts = set()
    for _ in range(60):
        known: Producers[int] = Producers(producers_max=4, runs_max=1000)
        log: list[Origin | None] = []  # message i + 1
        pending: list[tuple[Origin | None, LocalId]] = []
        waiting: dict[Origin, list[int]] = {}
        snapshot = known.encode()
        for step in range(200):
            action = rng.random()
            if action < 0.55:
                origin = Origin(rng.choice([A, B, b"c"]), rng.randint(1, 1 + step // 2))
                first = next((index + 1 for index, each in enumerate(log) if each == origin), None)
                under_way = origin in [each for each, _ in pending]
                taken = [
                    each.sequence for each in [*log, *(each for each, _ in pending)] if each and each[0] == origin[0]
                ]
                highest = max(taken, default=0)
                previous = rng.choice([None, None, highest or None, rng.randrange(1, origin.sequence + 1)])
                verdict = known.judge(origin._replace(previous=previous))
                verdicts.add(verdict.verdict)
                if under_way:
                    assert verdict.verdict is Verdict.UNDER_WAY
                    known.wait(origin, step)
                    waiting.setdefault(origin, []).append(step)
                elif first is not None:
                    assert verdict == Judged(Verdict.REPEAT, LocalId(first))
                elif origin.sequence > highest and previous not in (None, highest):
                    assert verdict.verdict is Verdict.EARLY
                    assert f"is to come behind {previous}" in str(
                        known.refusal(origin._replace(previous=previous), verdict.verdict)
                    )
                elif origin.sequence > highest:
                    assert verdict.verdict is Verdict.NEW
                    known.on_begun(origin)
                    pending.append((origin, LocalId(len(log) + len(pending) + 1)))
                else:
                    assert verdict.verdict in (Verdict.SKIPPED, Verdict.FORGOTTEN)
                    assert f"message {origin.sequence} of" in str(known.refusal(origin, verdict.verdict))
            elif action < 0.65:
                pending.append((None, LocalId(len(log) + len(pending) + 1)))
            elif action < 0.92 and pending:
                origin_or_none, local_id = pending.pop(0)
                log.append(origin_or_none)
                if origin_or_none is None:
                    known.on_stored(local_id, None)
                else:
                    assert known.on_durable(origin_or_none, local_id) == waiting.pop(origin_or_none, [])
                if rng.random() < 0.1:
                    snapshot = known.encode()
            elif action > 0.97:
                # The topic is lost: some of what was under way is stored, the rest is not.
                log += [each for each, _ in pending[: rng.randint(0, len(pending))]]
                pending, waiting = [], {}
                known = Producers.decode(snapshot if rng.random() < 0.7 else Producers[int]().encode(), 4, 1000)
                start = rng.randint(0, known.through)
                for index, each in enumerate(log[start:], start + 1):
                    known.on_stored(LocalId(index), each)
    assert verdicts == set(Verdict)


def test_a_snapshot_says_the_same_and_is_cut_to_present_bounds(rng: random.Random) -> None:
    for _ in range(50):
        known = stored()
        sequences = dict.fromkeys((A, B, b"c" * 60), 0)
        for local_id in range(1, 200):
            name = rng.choice(list(sequences))
            sequences[name] += rng.choice([1, 1, 1, 5])
            known.on_stored(LocalId(local_id), Origin(name, sequences[name]))
        again: Producers[str] = Producers.decode(known.encode(), 10, 10)
        asked = [Origin(name, number) for name in sequences for number in range(1, sequences[name] + 2)]
        assert [again.judge(each) for each in asked] == [known.judge(each) for each in asked]
        assert again.through == known.through == 199
        assert again.encode() == known.encode()
        short: Producers[str] = Producers.decode(known.encode(runs_max=1), 10, 10)
        for name, highest in sequences.items():
            assert short.judge(Origin(name, highest)) == known.judge(Origin(name, highest))
        assert len(Producers.decode(known.encode(), 2, 10)) == 2


def test_a_snapshot_that_is_damaged_is_refused_or_means_something(rng: random.Random) -> None:
    whole = stored((5, A, 1), (6, A, 2), (7, B, 300), (8, A, 9)).encode()
    for size in range(len(whole)):
        with pytest.raises(UnexpectedCondition, match="znode /x of producers cannot be read"):
            Producers.decode(whole[:size], where="znode /x")
    with pytest.raises(UnexpectedCondition):
        Producers.decode(whole + b"\x00")
    with pytest.raises(UnexpectedCondition, match="begins with 485002"):
        Producers.decode(b"HP\x02" + whole[3:])
    refused = 0
    for _ in range(2000):
        data = bytearray(whole)
        data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            found: Producers[str] = Producers.decode(bytes(data))
            found.judge(Origin(A, 2))
        except UnexpectedCondition:
            refused += 1
    assert refused
