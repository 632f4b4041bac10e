"""What a view shows: its items, and the base memory's own summary among them. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from context_compressor.core.edits import ItemKey
from context_compressor.core.items import ViewItem
from context_compressor.memory.base import summary_message
from context_compressor.messages.msg import Block, Msg, is_instruction, tool_names
from context_compressor.offload.pages import shows_page
from context_compressor.tokens.counter import TokenCounter, measure

Beside = Callable[[Sequence[Any] | None], Sequence[Block]]


class ShownView:
    """The messages that `get_memory` hands out, and what they cost.

    Args:
        counter: measures the summary.

    Attributes:
        items: the view, item by item.
        whole: ids of the messages that are shown as they came.
        tokens: what the messages cost.
        summary_tokens: what of that is the summary's.
        system: what the request carries beside the messages: a text, and blocks.
        system_tokens: what of `tokens` that costs.
        summary_place: how many instructions stand before the summary at most, once that was decided: one that
            comes later does not move it.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self.items: list[ViewItem] = []
        self._messages: list[Msg] | None = []
        self.whole: set[str] = set()
        self.tokens = 0
        self.summary_tokens = 0
        self.summary_place: int | None = None
        self.system: tuple[str, Sequence[Block]] = ("", ())
        self.system_tokens = 0
        self._most_system: tuple[str, Sequence[Block]] | None = None
        self._sent: tuple[Sequence[Any], int] | None = None
        self._counter = counter
        self._summary: Msg | None = None

    def grow(self, grown: Sequence[ViewItem]) -> None:
        """Show further items behind what is shown."""
        if self._summary is not None and self.summary_place is None:
            self.show([*self.items, *grown])  # which finds the summary its place
            return
        self.items += grown
        if self._messages is not None:
            self._messages += [item.msg for item in grown]
        self.whole |= _whole(grown)
        self.tokens += sum([item.tokens for item in grown])

    def show(self, items: Sequence[ViewItem]) -> None:
        """Show these items and no others."""
        self.set_system(*self.most_system)  # what stands beside a view hangs on its beginning
        self._sent = None
        self.items = list(items)
        self._messages = None
        self.whole = _whole(self.items)
        self.tokens = self.system_tokens + sum(item.tokens for item in self.items)
        if self._summary is not None:
            self.tokens += self.summary_tokens

    @property
    def messages(self) -> list[Msg]:
        """The items' messages, the base memory's own summary included; made when they are asked for."""
        if self._messages is None:
            self._messages = [item.msg for item in self.items]
            if self._summary is not None:
                self._messages.insert(self._place_summary(), self._summary)
        return self._messages

    @property
    def is_placed(self) -> bool:
        """Whether it is decided where the summary stands, if there is one."""
        return self._summary is None or self.summary_place == self._place_summary()

    def place_summary(self) -> None:
        """Decide where the summary stands, now that a view is to be handed out."""
        if self._summary is not None:
            self.summary_place = self._place_summary()

    def _place_summary(self) -> int:
        """Return how many messages the summary follows."""
        items, most = self.items, self.summary_place
        # Behind the leading instructions: those stay what the model reads first.
        place = next((i for i, item in enumerate(items) if not is_instruction(item.source)), len(items))
        return place if most is None else min(place, most)

    def set_summary(self, summary: str) -> bool:
        """Show the base memory's own summary, or none when it is empty; tell whether it is another one."""
        if summary == self.summary:
            return False
        if self._summary is not None:
            self.summary_place = None
        self._summary, self.summary_tokens = None, 0
        if summary:
            self._summary = summary_message(summary)
            self.summary_tokens = measure(self._counter, self._summary).total
        self.show(self.items)
        return True

    @property
    def most_system(self) -> tuple[str, Sequence[Block]]:
        """What the request may carry beside the messages, whatever leaves the view."""
        return self._most_system or self.system

    @property
    def most_system_tokens(self) -> int:
        """What that costs."""
        most = self.most_system
        return self.system_tokens if most == self.system else self._cost_of(*most)

    def expect_system(self, text: str, beside: Beside, said: Sequence[Any], *, has_left: bool) -> None:
        """Reckon with what the request may carry beside the messages: with all of it once the view does more
        than grow, until then with what comes with the view that was sent last and what is new.

        Args:
            text: the system text.
            beside: returns the blocks that come with a view, and for None the most that may.
            said: the list that the view is of.
            has_left: whether something has left the view.
        """
        sent, size = self._sent or ((), 0)
        is_known = self._sent is not None or not has_left
        most = beside(None)
        self.set_system(text, beside([*sent, *said[size:]]) if is_known else most)
        self._most_system = (text, most)

    def note_sent(self, text: str, beside: Beside, said: Sequence[Any], sent: Sequence[Any]) -> None:
        """Note what was sent for a list, and what the request carries beside it."""
        self._sent = (tuple(sent), len(said))  # what is handed out is the caller's
        self.set_system(text, beside(sent))

    def set_system(self, text: str, beside: Sequence[Block] = ()) -> None:
        """Count what the request carries beside the messages: a text, blocks, both or neither."""
        if (text, beside) != self.system:
            tokens = self._cost_of(text, beside)
            self.tokens += tokens - self.system_tokens
            self.system, self.system_tokens = (text, beside), tokens

    def _cost_of(self, text: str, beside: Sequence[Block]) -> int:
        content = [{"type": "text", "text": text}, *beside]
        msg = Msg("system", content, "system", timestamp="", id="")
        return measure(self._counter, msg).total if text or beside else 0

    @property
    def summary(self) -> str:
        """The base memory's own summary, "" where there is none."""
        return "" if self._summary is None else str(self._summary.content)

    @property
    def summary_id(self) -> str | None:
        """The id of the summary's message; None where there is none."""
        return None if self._summary is None else self._summary.id

    def pick(self, left_out: Collection[str], *, with_summaries: bool) -> tuple[list[Msg], int]:
        """Return the messages but for some, and what they cost together.

        Args:
            left_out: ids; exchanges and segments all of whose messages are among them are not returned.
            with_summaries: whether segments and the base memory's own summary are.
        """
        if with_summaries and not left_out:
            return self.messages.copy(), self.tokens
        gone = self._covered_by(left_out) if left_out else set()
        if not with_summaries:
            gone |= {id(item.msg) for item in self.items if item.kind == "segment"}
        tokens = {id(item.msg): item.tokens for item in self.items if id(item.msg) not in gone}
        if self._summary is not None and with_summaries:
            tokens[id(self._summary)] = self.summary_tokens
        shown = [msg for msg in self.messages if id(msg) in tokens]
        return shown, self.system_tokens + sum(tokens.values())

    def _covered_by(self, ids: Collection[str]) -> set[int]:
        """Return which messages belong to exchanges and segments all of whose messages are among `ids`."""
        by_exchange: dict[ItemKey, list[ViewItem]] = {}
        for item in self.items:
            by_exchange.setdefault(item.exchange, []).append(item)
        return {
            id(item.msg)
            for items in by_exchange.values()
            if all(msg_id in ids for item in items for msg_id in item.covered)
            for item in items
        }

    def page_tokens(self, coming: Iterable[tuple[Msg, int]]) -> int:
        """Return the tokens of the pages of stored texts that are shown, or coming: messages with theirs."""
        shown = [
            (item.source, item.tokens) for item in self.items if item.kind == "message" and not item.stubs
        ]
        shown += coming
        names = tool_names(msg for msg, _ in shown)
        return sum(tokens for msg, tokens in shown if shows_page(msg, names))


def _whole(items: Iterable[ViewItem]) -> set[str]:
    return {
        item.source.id
        for item in items
        if item.kind == "message" and item.repair is None and not item.stubs and not item.key.part
    }
