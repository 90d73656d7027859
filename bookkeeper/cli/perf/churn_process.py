"""The process of a churning load, and what its parent sees of it.

Protocol, one JSON document a line: the parent asks {"do": "phase"}, the process answers; one question at a time.
{"error": "..."} in the place of an answer says in words what went wrong, and is the last line. The end of standard
input ends the process: it does not outlive its parent.

Thread of the parent's side: main. The load runs in a process of its own so that what the parent does meanwhile, looking
at disks and counters, is in nobody's latency.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
import traceback
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from bookkeeper.cli.perf.churn_plan import ChurnPlan
from bookkeeper.console.output import CommandFailed, expected_text
from bookkeeper.console.supervision import run_coroutine
from bookkeeper.embedded.process import dying_with_parent, ending, next_line, on_lasting_thread

if TYPE_CHECKING:
    from bookkeeper.cli.perf.churn import Churn

OVERHEAD_SIZE = 1024
"""Bytes an entry in flight takes besides its payload, at most."""


class ChurnProcess:
    """A load in a process of its own; a context manager that ends it, whatever it does."""

    def __init__(self, plan: ChurnPlan) -> None:
        self.plan = plan
        command = dying_with_parent([sys.executable, "-m", "bookkeeper.cli.perf.churn_process", plan.to_json()])
        # A session of its own, so that Ctrl-C reaches the parent, which ends it.
        self._process = on_lasting_thread(
            lambda: subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
            )
        )

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def start(self) -> dict[str, Any]:
        """Begin; returns once it writes."""
        return self._ask("start")

    def phase(self) -> dict[str, Any]:
        """What was counted since the last call."""
        return self._ask("phase")

    def totals(self) -> dict[str, Any]:
        """What there is now, and was since the start; counting goes on."""
        return self._ask("totals")

    def delete(self, share: float) -> dict[str, Any]:
        """Delete a share of what is closed; returns when that is done."""
        return self._ask("delete", share=share)

    def stop(self, *, verify: bool) -> dict[str, Any]:
        """End the load; with `verify`, read back whatever must be there."""
        return self._ask("stop", verify=verify)

    def _ask(self, what: str, **words: object) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the end of its output says why
            stdin.write(json.dumps({"do": what, **words}) + "\n")
            stdin.flush()
        line = next_line(stdout)
        if not line:
            raise CommandFailed(f"the load's process {ending(self._process.wait())}; see above")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise CommandFailed(answer["error"])
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        with contextlib.suppress(BrokenPipeError), self._process:  # closes its pipes, and waits
            pass


# --- in the process ---------------------------------------------------------------------------------------------------


async def _answer(churn: Churn, question: dict[str, Any]) -> dict[str, Any]:
    match question["do"]:
        case "start":
            return await churn.start()
        case "phase":
            return churn.phase()
        case "totals":
            return churn.totals()
        case "delete":
            return await churn.delete(question["share"])
        case "stop":
            return await churn.stop(verify=question["verify"])
        case other:
            raise AssertionError(f"nobody asks {other}")


async def _serve(reactor: Any, plan: ChurnPlan) -> None:
    from twisted.internet.threads import deferToThread

    from bookkeeper.cli.perf.churn import Churn
    from bookkeeper.client.client import connect
    from bookkeeper.config import ClientSettings

    usual = ClientSettings(metadata_service_uri=plan.uri, use_v2=plan.use_v2)
    settings = dataclasses.replace(
        usual,
        window_entries_max=max(usual.window_entries_max, plan.outstanding),
        connection_entries_max=max(usual.connection_entries_max, plan.outstanding),
        window_bytes_max=max(256 << 20, plan.outstanding * (plan.entry_size + OVERHEAD_SIZE)),
    )
    client = await connect(plan.uri, reactor, settings)
    churn = Churn(client, reactor, plan)
    while line := await deferToThread(sys.stdin.readline):
        print(json.dumps(await _answer(churn, json.loads(line))), flush=True)


async def _run(reactor: Any, plan: ChurnPlan) -> None:
    try:
        await _serve(reactor, plan)
    except Exception as error:  # noqa: BLE001 - the edge of this process: the parent says it in one line
        if plan.verbose:
            traceback.print_exc()
        print(json.dumps({"error": expected_text(error) or f"{type(error).__name__}: {error}"}), flush=True)


def main() -> NoReturn:
    """Run the load that the first argument describes."""
    plan = ChurnPlan.from_json(sys.argv[1])
    run_coroutine(lambda reactor: _run(reactor, plan))


if __name__ == "__main__":
    main()
