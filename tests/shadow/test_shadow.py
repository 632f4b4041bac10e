"""What the memory shows, keeps and refuses is what it was, over random histories and recorded sessions.

    python -m tests.shadow.test_shadow OPERATIONS [SEED]    at least so many random operations

Left out, by name: pages of read-back tools are no longer recognised as such, and a message that is exchanged
in the middle of a list is a departure.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from functools import cache
from typing import Any

import pytest
from hypothesis import Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    InMemoryOffloadStore,
    TiktokenCounter,
    compress_messages,
    from_openai,
)
from context_compressor.errors import ContextOverflowError
from tests.memory.test_laws import Failing, Laws, Refusing, Remote, Terse, configs
from tests.shadow.before import before
from tests.shadow.both import Both, assert_same, assert_same_texts, shadow_store, shadow_summarizer
from tests.support.recordings import requires_recordings, sessions
from tests.support.strategies import chat_histories

Dict = dict[str, Any]
STEPS = 12
"""Operations of one random history."""
TRACES = 40
MINE = TiktokenCounter()
KINDS = st.sampled_from((None, Terse, Failing, Remote))


class Pair:
    """A memory and its shadow over stores of their own, and what both reported.

    Args:
        config: of both.
        kind: makes a summariser for each; None: rules.
        store: of the memory; its shadow's does as this one does.
    """

    def __init__(self, config: CompressionConfig, kind: Any, store: InMemoryOffloadStore) -> None:
        self.stores = store, shadow_store(store)
        self.config, self.kind = config, kind
        self.events: tuple[list[Any], list[Any]] = ([], [])
        self.memory = self.new()

    def new(self) -> Both:
        """Return a new memory and its shadow over the same stores."""
        was = before()
        values = {name: getattr(self.config, name) for name in self.config.model_fields_set}
        mine, theirs = (self.kind() if self.kind else None for _ in range(2))
        return Both(
            CompressedMemory(
                config=self.config,
                store=self.stores[0],
                summarizer=mine,
                counter=MINE,
                on_event=self.events[0].append,
            ),
            was.CompressedMemory(
                config=was.CompressionConfig(**values),
                store=self.stores[1],
                summarizer=theirs and shadow_summarizer(theirs),
                counter=was.TiktokenCounter(),
                on_event=self.events[1].append,
            ),
        )

    def check(self) -> None:
        """Compare what both store, tell of themselves and reported."""
        assert_same_texts(*self.stores)
        assert_same("stats", self.memory.mine.stats(), self.memory.shadow.stats())
        assert_same("events", *self.events)


class ShadowedLaws(Laws):
    """The operations of the laws. Nothing happens at once: whose turn it is may differ."""

    do_much_at_once = None  # type: ignore[assignment]
    give_up_waiting = None  # type: ignore[assignment]
    delete_some = None  # type: ignore[assignment]

    @initialize(config=configs(), kind=KINDS)
    def start(self, config: CompressionConfig, kind: Any) -> None:
        values = {name: getattr(config, name) for name in config.model_fields_set}
        self.kind = kind
        self.begin(CompressionConfig(**values | {"background_ratio": None}), None)

    def new_memory(self) -> Any:
        if not hasattr(self, "pair") or self.pair.stores[0] is not self.store:
            self.pair = Pair(self.config, self.kind, self.store)
            return self.pair.memory
        self.pair.memory = self.pair.new()
        return self.pair.memory

    @rule(number=st.integers(0, 999), count=st.integers(1, 3))
    def delete_a_few(self, number: int, count: int) -> None:
        ids = [msg.id for msg in self.added]
        if ids:
            self.run(self.memory.delete([ids[(number + step) % len(ids)] for step in range(count)]))

    def forget(self, gone: set[str]) -> None:
        """What is gone is looked at by the laws themselves."""

    @rule(new_store=st.booleans(), was=st.booleans())
    def save_and_load(self, new_store: bool, was: bool) -> None:
        state = json.loads(json.dumps(self.memory.state_dict()))
        self.run(self.memory.mine.aclose())
        self.run(self.memory.shadow.aclose())
        if new_store and not self.store.refusing:
            self.store = Refusing()
        self.memory = self.new_memory()
        self.memory.load_state_dict({**state, "mine": state["shadow"]} if was else state)

    def history_is_whole(self) -> None:
        if hasattr(self, "memory"):
            self.run(self.memory.get_history())

    def check_view(self, *, within_a_step: bool = False) -> None:
        with suppress(ContextOverflowError):
            self.run(self.memory.get_memory())
        self.pair.check()


class ShadowedLists(RuleBasedStateMachine):
    """A list that goes on, goes back, branches, and is sent again; and the same without a memory."""

    @initialize(config=configs(), kind=KINDS)
    def start(self, config: CompressionConfig, kind: Any) -> None:
        values = {name: getattr(config, name) for name in config.model_fields_set}
        self.loop = asyncio.new_event_loop()
        self.pair = Pair(
            CompressionConfig(**values | {"background_ratio": None}), kind, InMemoryOffloadStore()
        )
        self.memory = self.pair.memory
        self.said: list[Dict] = []
        self.left: list[list[Dict]] = []
        self.states: tuple[Any, Any] = (None, None)

    def show(self) -> None:
        with suppress(Exception):  # both raised the same
            self.loop.run_until_complete(self.memory.view(self.said))
        self.pair.check()

    @rule(history=chat_histories(valid=True, max_turns=6))
    def go_on(self, history: list[Dict]) -> None:
        self.said = [*self.said, *history]
        self.show()

    @rule(history=chat_histories(valid=True, max_turns=6))
    def go_on_step_by_step(self, history: list[Dict]) -> None:
        for message in history:
            self.said = [*self.said, message]
            self.show()

    @precondition(lambda self: self.said)
    @rule(number=st.integers(0, 999))
    def go_back(self, number: int) -> None:
        self.left.append(self.said)
        self.said = self.said[: number % len(self.said) + 1]
        self.show()

    @precondition(lambda self: self.left)
    @rule(number=st.integers(0, 999))
    def take_up_again(self, number: int) -> None:
        self.left.append(self.said)
        self.said = self.left.pop(number % len(self.left))
        self.show()

    @rule()
    def send_again(self) -> None:
        self.said = json.loads(json.dumps(self.said))
        self.show()

    @rule(through_json=st.booleans())
    def compress_messages(self, through_json: bool) -> None:
        found: list[Any] = []
        states = list(self.states)
        configs = self.pair.config, self.pair.memory.shadow.config
        for place, compress in enumerate((compress_messages, before().compress_messages)):
            try:
                result = compress(self.said, config=configs[place], state=states[place])
            except Exception as error:
                found.append(error)
                continue
            found.append(result.messages)
            states[place] = json.loads(json.dumps(result.state)) if through_json else result.state
        assert_same("compress_messages", *found)
        self.states = states[0], states[1]

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.run_until_complete(self.memory.mine.aclose())
            self.loop.run_until_complete(self.memory.shadow.aclose())
            self.loop.close()


MACHINES = (ShadowedLaws, ShadowedLists)
FEW = settings(
    Laws.TestCase.settings,
    max_examples=20,
    stateful_step_count=STEPS,
    phases=(Phase.explicit, Phase.generate),  # to shrink takes long; the operations are printed
)
for machine in MACHINES:
    machine.TestCase.settings = FEW
TestShadowedLaws = ShadowedLaws.TestCase
TestShadowedLists = ShadowedLists.TestCase


@cache
def traces() -> list[list[Dict]]:
    """Return the messages of recorded sessions, from all files."""
    whole = [session["messages"] for session in sessions() if 20 <= len(session["messages"]) <= 400]
    return whole[:: max(1, len(whole) // TRACES)][:TRACES]


async def follow(number: int, messages: list[Dict]) -> None:
    """Drive a memory and its shadow through a session: added, or as lists, in turn."""
    config = CompressionConfig(max_total_tokens=(4_000, 8_000, 16_000)[number % 3], background_ratio=None)
    pair = Pair(config, (None, Remote)[number // 2 % 2], InMemoryOffloadStore())
    for count, message in enumerate(messages, 1):
        with suppress(ContextOverflowError):
            if number % 2:
                await pair.memory.add(from_openai([message]))
                await pair.memory.get_memory()
            elif message["role"] != "assistant":
                await pair.memory.view(messages[:count])
    pair.check()
    await pair.memory.aclose()


@requires_recordings
@pytest.mark.parametrize("number", range(0, TRACES, 10))
async def test_recorded_sessions_show_what_they_showed(number: int) -> None:
    await follow(number, traces()[number])


def main(operations: int, first: int) -> None:
    """Run random histories until so many operations were made, then all traces."""
    done = 0
    while done < operations:
        for machine in MACHINES:
            many = settings(FEW, max_examples=200, database=None)
            run_state_machine_as_test(seed(first)(machine), settings=many)
            done += 200 * STEPS
        first += 1
        print(f"{done} operations, 0 differences (next seed {first})", flush=True)
    for number, messages in enumerate(traces()):
        asyncio.run(follow(number, messages))
    print(f"{len(traces())} recorded sessions, 0 differences")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
