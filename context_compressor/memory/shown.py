"""What a view shows: its items, and the base memory's own summary among them. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from context_compressor.core.decide import Loan
from context_compressor.core.edits import ItemKey
from context_compressor.core.items import ViewItem
from context_compressor.memory.base import summary_message
from context_compressor.memory.listing import Said
from context_compressor.messages.anthropic import Lent
from context_compressor.messages.msg import Block, Msg, is_instruction, tool_names
from context_compressor.offload.pages import shows_page
from context_compressor.tokens.counter import TokenCounter, measure


class ShownView:
    """The messages that `get_memory` hands out, and what they cost.

    Args:
        counter: measures the summary.

    Attributes:
        items: the view, item by item.
        whole: ids of the messages that are shown as they came.
        tokens: what the messages cost.
        summary_tokens: what of that is the summary's.
        system: the text that the request carries beside the messages.
        system_tokens: what of `tokens` all costs that it carries there.
        cut_system_tokens: what that costs beside a view that does more than grow, what is lent apart.
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
        self.system = ""
        self.system_tokens = self.cut_system_tokens = 0
        self._sent: tuple[Sequence[Any], int, Sequence[Block]] | None = None
        self._said: Said | None = None
        self._lent: list[Lent] = []
        self._ids: Sequence[Sequence[str]] = ()
        self._lent_tokens: dict[str, int] = {}
        self._counted: list[tuple[str, Sequence[Block], int]] = []
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
        if self._said is not None or self._sent is None:
            self._reckon_system()

    def show(self, items: Sequence[ViewItem]) -> None:
        """Show these items and no others."""
        self._sent = None
        self.items = list(items)
        self._messages = None
        self.whole = _whole(self.items)
        self.tokens = self.system_tokens + sum(item.tokens for item in self.items)
        if self._summary is not None:
            self.tokens += self.summary_tokens
        self._reckon_system()

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

    def expect_system(self, text: str, said: Said, ids: Sequence[Sequence[str]], *, has_left: bool) -> None:
        """Reckon, until a view is sent, with what the request carries beside it: with what comes with the
        view that was sent last and what is new, or where that is not known, with the most that may come.

        Args:
            text: the system text.
            said: the list that the view is of.
            ids: of the messages that each of its items gives, as far as it is known.
            has_left: whether something has left the view.
        """
        self.system, self._said, self._ids = text, said, ids
        self._lent = said.form.lends(said.items[: len(ids)])
        self.cut_system_tokens = self._cost_of(text, said.form.beside(said.items, None))
        if self._sent is None and not has_left:
            self._sent = (), 0, ()
        self._reckon_system()

    def note_sent(self, said: Said, sent: Sequence[Any]) -> None:
        """Note what was sent for a list, and what the request carries beside it."""
        beside = said.form.beside(said.items, sent)
        self._said, self._sent = said, (tuple(sent), len(self.items), beside)  # what is sent is the caller's
        self._reckon_system()
        shown, self._said = self._exchanges() if self._lent else {}, None
        self._lent = [one for one in self._lent if self._ids[one.place][0] in shown]

    def go_on_from(self, other: ShownView) -> None:
        """Reckon with what the request carries beside another view."""
        self.system, self.cut_system_tokens = other.system, other.cut_system_tokens
        self._lent, self._ids, self._lent_tokens = other._lent, other._ids, other._lent_tokens

    def loans(self) -> list[Loan]:
        """Return what exchanges that are shown borrow once something before them has left."""
        if not self._lent:
            return []
        shown, found = self._exchanges(), list[Loan]()
        left = {id for item in self.items if item.kind == "segment" for id in item.covered}
        for one in self._lent:
            lender, by = self._ids[one.lender][0], self._ids[one.place][0]
            before = {id for ids in self._ids[one.start : one.place] for id in ids}
            if by in shown:
                if lender not in self._lent_tokens:
                    self._lent_tokens[lender] = self._measure(one.blocks)
                others = frozenset(shown[id] for id in before & shown.keys())
                found.append(Loan(shown[by], others, self._lent_tokens[lender], not left.isdisjoint(before)))
        return found

    def _exchanges(self) -> dict[str, ItemKey]:
        shown = (item for item in self.items if item.kind != "segment")
        return {id: item.exchange for item in shown for id in item.covered}

    def _reckon_system(self) -> None:
        if self._said is not None and self._sent is not None:
            (sent, size, beside), said = self._sent, self._said
            if new := {id for item in self.items[size:] for id in item.covered}:
                items = zip(said.items, self._ids, strict=False)
                grown = (one for one, own in items if not new.isdisjoint(own))
                beside = said.form.beside(said.items, [*sent, *grown])
            tokens = self._cost_of(self.system, beside)
        else:
            taken = (loan.tokens for loan in self.loans() if loan.is_taken(frozenset()))
            tokens = self.cut_system_tokens + max(taken, default=0)
        self.tokens += tokens - self.system_tokens
        self.system_tokens = tokens

    def _cost_of(self, text: str, beside: Sequence[Block]) -> int:
        for known, blocks, tokens in self._counted:
            if (known, blocks) == (text, beside):
                return tokens
        tokens = self._measure([{"type": "text", "text": text}, *beside]) if text or beside else 0
        self._counted = [(text, beside, tokens), *self._counted[:1]]
        return tokens

    def _measure(self, content: Sequence[Block]) -> int:
        return measure(self._counter, Msg("system", list(content), "system", timestamp="", id="")).total

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
