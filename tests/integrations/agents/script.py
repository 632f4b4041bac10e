"""The long task: a scripted model that reads log after log, then looks up again what it no longer sees."""

from __future__ import annotations

import re
from typing import Any

from tests.integrations.agents.depot import log_name, log_text
from tests.support.model_server import Reply, answer
from tests.support.rendering import text_of

TURNS = 32
WINDOW = 32_000
BUDGET = 16_000
TARGET = 6
"""The depot whose log the model reads in turn 8 and asks for again at the end."""
TARGET_LINE = log_text(TARGET).splitlines()[0]
ANSWER = "Every log was read; Ilse carried the most."
SUMMARY = "## Goal\n- Find the courier who carried the most.\n## Done\n- Logs were read one by one."
_PLACE = re.compile(r"\[(ctx://\w{16}) .*\n(\d+)\|")
_PAGE = re.compile(r"\[(ctx://\w{16}) lines (\d+)-(\d+) of (\d+)\]\n(.*)\n\[[^\n]*\]", re.DOTALL)


class LongTask:
    """A log in each reply, some with a search or a query beside them, then a text read back."""

    def __init__(self) -> None:
        self.turn = 0
        self.found = ""
        """What the search of offloaded texts answered."""
        self.read_back: list[str] = []
        """The lines of the pages that were read back."""

    def __call__(self, messages: list[dict[str, Any]]) -> Reply:
        if "You write the notes of an AI agent" in text_of(messages[0]):
            return answer(SUMMARY)
        self.turn += 1
        last = text_of(messages[-1])
        if self.turn == 1:
            return answer("I begin with the list.", [("list_files", {})])
        if self.turn <= TURNS - 4:
            return self._read_on()
        if self.turn == TURNS - 3:
            return answer(tool_calls=[("grep_offloaded", {"pattern": re.escape(TARGET_LINE)})])
        if self.turn == TURNS - 2:
            self.found = last
            place = _PLACE.search(last)
            assert place is not None, last
            return answer(tool_calls=[("read_offloaded", {"ref": place[1], "offset": int(place[2])})])
        page = _PAGE.fullmatch(last)
        assert page is not None, last
        self.read_back += page[5].split("\n")
        if self.turn == TURNS - 1:
            return answer(tool_calls=[("read_offloaded", {"ref": page[1], "offset": int(page[3]) + 1})])
        return answer(ANSWER)

    def _read_on(self) -> Reply:
        depot = self.turn - 2
        calls: list[tuple[str, dict[str, str]]] = [("read_file", {"name": log_name(depot)})]
        if self.turn % 5 == 0:
            calls.append(("grep_files", {"pattern": f"PX-{depot:02}.*Ilse"}))
        if self.turn % 7 == 0:
            sums = (
                f"select courier, count(*), sum(grams) from parcels where depot <= {depot} group by courier"
            )
            calls.append(("query_parcels", {"sql": sums}))
        return answer(f"Step {self.turn}: {log_name(depot)} comes next.", calls)
