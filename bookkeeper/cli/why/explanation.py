"""The shape of an answer to "why", and the words for times, sizes and shares in it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from time import gmtime, strftime

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass(slots=True)
class Explanation:
    """An answer.

    subject: what was asked about. healthy: nothing needs to be done; None: that is unknown, which is never a yes.
    headline: the state, in one sentence.
    holds: who has what. working: who is at work on it, or is not. errors: what went wrong last. next: what happens by
    itself. do: what an operator can do. facts: the same for programs.
    """

    subject: str
    healthy: bool | None = True
    headline: str = ""
    holds: list[str] = field(default_factory=list)
    working: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    next: list[str] = field(default_factory=list)
    do: list[str] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)

    def trouble(self, headline: str) -> None:
        """Something needs to be done; the first such sentence is the headline, the others are beside the facts."""
        if self.healthy is not False:
            if self.headline:
                self.holds.insert(0, self.headline)
            self.headline = headline
        else:
            self.holds.insert(0, headline)
        self.healthy = False

    def doubt(self) -> None:
        """Whether something needs to be done could not be found out; known trouble stays what it is."""
        if self.healthy:
            self.healthy = None

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"{self.subject}: {self.headline}"
        for name, sentences in self._parts().items():
            for number, sentence in enumerate(dict.fromkeys(sentences)):
                yield f"  {name if number == 0 else '':<9}{sentence}"

    def json(self) -> Mapping[str, object]:
        """For programs."""
        return {
            "subject": self.subject,
            "healthy": self.healthy,
            "state": self.headline,
            **{name: list(dict.fromkeys(sentences)) for name, sentences in self._parts().items()},
            "facts": self.facts,
        }

    def _parts(self) -> Mapping[str, list[str]]:
        return {
            "holds": self.holds,
            "working": self.working,
            "error": self.errors,
            "next": self.next,
            "do": self.do,
        }


def clock_time(at_ms: int, now_ms: int) -> str:
    """`2026-11-23 12:03:11 UTC (4 min ago)`."""
    return f"{strftime('%Y-%m-%d %H:%M:%S', gmtime(at_ms / 1000))} UTC ({_distance(now_ms - at_ms)})"


def _distance(passed_ms: int) -> str:
    return f"{duration(passed_ms / 1000)} ago" if passed_ms >= 0 else f"in {duration(-passed_ms / 1000)}"


def duration(seconds: float) -> str:
    """`250 ms`, `12 s`, `4 min`, `3 h 20 min`, `5 d 2 h`."""
    if 0 < seconds < 1:
        return f"{round(seconds * 1000)} ms"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h" + (f" {minutes} min" if minutes else "")
    days, hours = divmod(hours, 24)
    return f"{days} d" + (f" {hours} h" if hours else "")


def percent(share: float) -> str:
    """`96.1 %`; rounded so that what is above a threshold never reads as equal to it."""
    return f"{share * 100:.1f}".removesuffix(".0") + " %"


def size(count: int) -> str:
    """`1.5 GiB`: three digits at most."""
    value, unit = float(count), 0
    while abs(value) >= 1000 and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    return f"{value:.3g} {_UNITS[unit]}"


def runs_text(runs: list[tuple[int, int]], at_most: int = 5) -> str:
    """`0..9, 12, 20..29` of (first, last) pairs, cut after `at_most`."""
    shown = [str(first) if first == last else f"{first}..{last}" for first, last in runs[:at_most]]
    more = len(runs) - at_most
    return ", ".join(shown) + (f", and {more} more" if more > 0 else "")
