"""AgentScope 1.x: `ReActAgent(memory=AgentScopeCompressedMemory(...))`, and what goes with it."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial, wraps
from os import PathLike
from typing import TYPE_CHECKING, Any, Concatenate, Literal, NoReturn, ParamSpec, Self, TypeVar, Unpack

from context_compressor.errors import InvalidArgumentError, InvalidStateError, naming_extras

with naming_extras(
    "agentscope", "; for AgentScope 2 import context_compressor.integrations.agentscope2, extra agentscope2"
):
    from agentscope.memory import MemoryBase as AgentScopeMemoryBase
    from agentscope.message import Msg as AgentScopeMsg
    from agentscope.model import ChatModelBase
    from agentscope.tool import Toolkit

from context_compressor.core.config import CompressionConfig, OwnFields, as_config
from context_compressor.events import EventHook
from context_compressor.integrations.agentscope.history import ForeignMemory, to_its_end
from context_compressor.integrations.agentscope.messages import from_agentscope, to_agentscope
from context_compressor.integrations.agentscope.model import (
    AgentScopeSummarizer,
    AModel,
    claim,
    counted,
    has_room,
    register_offload_tools,
)
from context_compressor.integrations.asked import as_summarizer, check_tools
from context_compressor.integrations.observed import as_observer
from context_compressor.memory.base import MemoryBase
from context_compressor.memory.compressed import CompressedMemory, no_attribute
from context_compressor.memory.handover import Receiver
from context_compressor.memory.in_memory import InMemoryMemory
from context_compressor.messages.chat import from_openai, to_openai
from context_compressor.messages.forms import as_form
from context_compressor.messages.msg import Msg, new_id, tool_results
from context_compressor.offload.files import FileOffloadStore
from context_compressor.offload.store import OffloadStore
from context_compressor.summarizers.protocol import OWN, Summarizer
from context_compressor.tokens.counter import TokenCounter

logger = logging.getLogger(__name__)

__all__ = ["AgentScopeCompressedMemory", "AgentScopeSummarizer", "register_offload_tools"]

NAMESPACE_KEY = "offload_namespace"
"""Where a saved state says in which subdirectory of `store_dir` its texts are."""

T = TypeVar("T")
P = ParamSpec("P")


def _of_compressed(
    method: Callable[Concatenate[CompressedMemory, P], T],
) -> Callable[Concatenate[AgentScopeCompressedMemory, P], T]:
    """Return a method that asks the `CompressedMemory` behind, with its signature and docstring."""

    @wraps(method)
    def call(memory: AgentScopeCompressedMemory, /, *args: P.args, **kwargs: P.kwargs) -> T:
        asked: Callable[P, T] = getattr(memory.compressed, method.__name__)
        return asked(*args, **kwargs)

    return call


class AgentScopeCompressedMemory(AgentScopeMemoryBase):
    """Keep an AgentScope agent's memory within a token budget.

    Takes the place of AgentScope's own memories, and of `ReMeShortTermMemory`, whose arguments it accepts.
    `get_memory` returns a view that never exceeds the budget and that each of AgentScope's formatters takes;
    the history stays whole in `base`. Messages are AgentScope's `Msg`, in and out, and come back field for
    field where nothing was changed; `add` also takes what `from_openai` returns. What stands in for others
    says so in `metadata["compression"]`; the id of the notes stands for all the messages that they cover, in
    `delete` and `update_messages_mark`.

    Works without `async with`, which an agent does not use. `compressed` is the `CompressedMemory` behind it,
    another one after a state with texts in another directory was loaded. `stats`, `compress_now`, `undo`,
    `forget` and `search_history` are its methods.

    Args:
        model: an AgentScope chat model, the agent's own say, which then writes the notes.
        reme_config_path: here for its place among the arguments; there is no such file any more.
        working_summary_mode: "compact", "compress" or "auto"; see `CompressionConfig.mode`.
        compact_ratio_threshold: see `CompressionConfig`, as for those that follow.
        max_total_tokens: tokens that the whole view may cost.
        max_tool_message_tokens: tokens above which an older tool result is moved out.
        group_token_threshold: tokens of messages that one request for notes holds at most; None or 0: no
            bound.
        keep_recent_count: messages at the end that stay as they are; None: 10, or fewer large ones.
        store_dir: a directory for texts that leave the view, which several memories may share.
        base: where the history lives: AgentScope's `InMemoryMemory`, `AsyncSQLAlchemyMemory`, `RedisMemory`,
            or a `MemoryBase` of this library; its `InMemoryMemory` when None.
        config: all thresholds at once, instead of single ones.
        store: an offload store, instead of `store_dir`; an `InMemoryOffloadStore` when both are None.
        summarizer: who writes notes: "own": `model`; "rules": no model; a chat model or a summariser,
            instead of `model`; None: `model`, or no model.
        counter: measures messages; a `TiktokenCounter` (offline) when None.
        on_event: receives every `CompressionEvent`.
        hand_over: a long-term memory that takes what left the view; see `CompressedMemory`.
        toolkit: an agent's toolkit, which gets the read-back tools once something has left the view.
        tools: False: it does not get them.
        observe: True, or the path of a log: `get_memory` gives the history, and a line for each call says how
            large its messages are, for `context-compressor replay`. True writes `observed.jsonl` in the
            working directory.
        fields: any other field of `CompressionConfig`; None is a value there.

    Raises:
        InvalidArgumentError: arguments that exclude each other, or one of the wrong type.
        ValueError: thresholds that cannot be, or cannot work together.
    """

    def __init__(
        self,
        model: ChatModelBase | None = None,
        reme_config_path: str | None = None,
        working_summary_mode: Literal["compact", "compress", "auto"] | None = None,
        compact_ratio_threshold: float | None = None,
        max_total_tokens: int | None = None,
        max_tool_message_tokens: int | None = None,
        group_token_threshold: int | None = None,
        keep_recent_count: int | None = None,
        store_dir: str | None = None,
        *,
        base: MemoryBase | ForeignMemory | None = None,
        config: CompressionConfig | None = None,
        store: OffloadStore | None = None,
        summarizer: Summarizer | ChatModelBase | Literal["own", "rules"] | None = None,
        counter: TokenCounter | str | None = None,
        on_event: EventHook | None = None,
        hand_over: Receiver | None = None,
        toolkit: Toolkit | None = None,
        tools: bool = True,
        observe: bool | str | PathLike[str] = False,
        **fields: Unpack[OwnFields],
    ) -> None:
        super().__init__()
        if reme_config_path is not None:
            raise InvalidArgumentError(
                f"reme_config_path ({reme_config_path!r}): there is no ReMe here to configure; leave it out"
            )
        is_object = summarizer is not None and not isinstance(summarizer, str)
        _check_apart(model=model, summarizer=summarizer if is_object else None)
        if summarizer is None and model is None:
            logger.info("no model is given, so rules write the notes; model= names the one to ask")
        _check_apart(store_dir=store_dir, store=store)
        thresholds = {
            "working_summary_mode": working_summary_mode,
            "compact_ratio_threshold": compact_ratio_threshold,
            "max_total_tokens": max_total_tokens,
            "max_tool_message_tokens": max_tool_message_tokens,
            "group_token_threshold": group_token_threshold,
            "keep_recent_count": keep_recent_count,
        }
        given = {name: value for name, value in thresholds.items() if value is not None} | fields
        if isinstance(base, AgentScopeCompressedMemory | CompressedMemory):
            raise InvalidArgumentError(f"base: a {type(base).__name__} is compressed already; give its base")
        self._make_compressed = partial(
            CompressedMemory,
            base=InMemoryMemory() if base is None else base,
            config=as_config(config, given, AgentScopeCompressedMemory),
            summarizer=_writer(summarizer, model),
            counter=counter,
            on_event=on_event,
            hand_over=hand_over,
        )
        self._store_dir = store_dir
        self._namespace = _namespace_of(base)
        if store_dir is not None:
            store = FileOffloadStore(store_dir, self._namespace)
        self.compressed = self._make_compressed(store=store)
        self._replaced: list[CompressedMemory] = []
        self._shown: dict[int, tuple[Msg, AgentScopeMsg]] = {}
        self._names_tools: bool | None = None
        self._observer = as_observer(observe, self.compressed.counter, as_form("chat"))
        self._toolkit = toolkit if check_tools(tools) and self._observer is None else None
        if self._toolkit is not None:
            claim(self._toolkit)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise no_attribute(self, name, "compressed.config")

    # AgentScope's contract

    async def add(
        self,
        memories: AgentScopeMsg | Msg | list[AgentScopeMsg] | list[Msg] | None,
        marks: str | list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add messages to the history, with marks; a message whose id is known gets the marks it comes with.

        They are added even if the caller is cancelled meanwhile, as by AgentScope's own memory, which nothing
        interrupts: an agent that is interrupted was told all the same, and its tool has run.

        Raises:
            InvalidArgumentError: not messages, or not marks; nothing was added.
            InvalidMessageError: a message holds what no provider takes; nothing was added.
        """
        if memories is None:
            return
        given = memories if isinstance(memories, list) else [memories]
        messages = [from_agentscope(msg, f"memories[{index}]") for index, msg in enumerate(given)]
        await to_its_end(self.compressed.add(messages, marks=marks, **kwargs))

    async def delete(self, msg_ids: list[str], **kwargs: Any) -> int:
        """Delete messages and return how many were there; the notes' id stands for all that they cover."""
        return await self.compressed.delete(msg_ids, **kwargs)

    delete_by_mark = _of_compressed(CompressedMemory.delete_by_mark)
    size = _of_compressed(CompressedMemory.size)
    clear = _of_compressed(CompressedMemory.clear)
    update_messages_mark = _of_compressed(CompressedMemory.update_messages_mark)
    update_compressed_summary = _of_compressed(CompressedMemory.update_compressed_summary)

    async def get_memory(
        self,
        mark: str | None = None,
        exclude_mark: str | None = None,
        prepend_summary: bool = True,
        **kwargs: Any,
    ) -> list[AgentScopeMsg]:
        """Return the view, or with `mark` the messages of the history that bear it.

        Raises:
            ContextOverflowError: what may not leave exceeds the budget.
        """
        if (observer := self._observer) is not None:
            history = await self.compressed.base.get_memory(mark, exclude_mark, prepend_summary, **kwargs)
            if mark is None:
                observer.note(lambda: to_openai(history))
            return [to_agentscope(msg, AgentScopeMsg) for msg in history]
        if self._toolkit is not None:
            self._names_tools = has_room(self._toolkit)
        if self._names_tools is not None:
            self.compressed.offer_tools(self._names_tools)
        view = await self.compressed.get_memory(mark, exclude_mark, prepend_summary, **kwargs)
        self._register_tools()
        if mark is not None:
            return [_as_sent(msg) for msg in view]
        # The view keeps its messages as long as it shows them, so each becomes AgentScope's once.
        shown = {id(msg): self._shown.get(id(msg)) or (msg, _as_sent(msg)) for msg in view}
        self._shown = shown
        return [shown[id(msg)][1] for msg in view]

    def _register_tools(self) -> None:
        """Give the agent its tools once something has left the view; it asks for tools after its memory."""
        stats = self.compressed.stats()
        if self._toolkit is not None and (stats.offloaded or stats.noted) and has_room(self._toolkit):
            register_offload_tools(self._toolkit, self)
            self._toolkit = None

    # State

    @property
    def _compressed_summary(self) -> str:
        """The summary that an agent's own compression wrote, "" when there is none."""
        compressed = getattr(self, "compressed", None)
        return "" if compressed is None else compressed.base._compressed_summary

    @_compressed_summary.setter
    def _compressed_summary(self, summary: str) -> None:
        # AgentScope's constructor sets it, and nothing else has to.
        if summary:
            raise AttributeError(
                "_compressed_summary: set it by `await memory.update_compressed_summary(...)`"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the base memory's state and, under `compression`, the ledger; JSON-like data."""
        state = self.compressed.state_dict()
        return state if self._store_dir is None else {**state, NAMESPACE_KEY: self._namespace}

    def __reduce__(self) -> NoReturn:
        self.compressed.__reduce__()

    def load_state_dict(self, state_dict: dict[str, Any], strict: bool = True) -> None:
        """Load what `state_dict` returned, or a state that AgentScope's own memory saved.

        Raises:
            InvalidStateError: the state is malformed; nothing was changed.
        """
        if not isinstance(state_dict, Mapping):
            raise InvalidStateError(f"state_dict: expected a dict, got {type(state_dict).__name__}")
        state = {key: value for key, value in state_dict.items() if key != NAMESPACE_KEY}
        compressed, namespace = self.compressed, state_dict.get(NAMESPACE_KEY, self._namespace)
        if self._store_dir is not None and namespace != self._namespace:
            try:
                store = FileOffloadStore(self._store_dir, namespace)
            except (InvalidArgumentError, ValueError) as error:
                raise InvalidStateError(f"{NAMESPACE_KEY}: {error}") from error
            compressed = self._make_compressed(store=store)
        compressed.load_state_dict(state, strict=strict)
        if compressed is not self.compressed:
            compressed._runner.take_over(self.compressed._runner)
            self._replaced.append(self.compressed)
        self.compressed, self._namespace = compressed, namespace

    # Beyond the contract

    @property
    def config(self) -> CompressionConfig:
        """The thresholds."""
        return self.compressed.config

    def counted(self, model: AModel) -> AModel:
        """Return the model for this memory's agent: it notes here what the provider counts and refuses.

        `ReActAgent(model=memory.counted(model), memory=memory, ...)`. A view then fits the budget by the
        provider's count, tools and system prompt included; after a refusal as too long the next view is
        smaller. It is the given model otherwise, and for one agent: each call is taken to be of the view that
        this memory handed out last.

        Raises:
            InvalidArgumentError: `model` is no AgentScope chat model.
        """
        return counted(model, lambda: self.compressed)

    @staticmethod
    def list_to_msg(messages: list[dict[str, Any]]) -> list[AgentScopeMsg]:
        """Return chat dicts as messages to add, as ReMe's method of this name does, and with all they say.

        Raises:
            InvalidMessageError: a dict is malformed; the text names index, field and what was expected.
        """
        read = from_openai({key: one[key] for key in one if key != "metadata"} for one in messages)
        for msg, said in zip(read, messages, strict=True):
            if isinstance(said.get("metadata"), dict):
                msg.metadata = {**said["metadata"], **(msg.metadata or {})}
        return [to_agentscope(msg, AgentScopeMsg) for msg in read]

    stats = _of_compressed(CompressedMemory.stats)
    compress_now = _of_compressed(CompressedMemory.compress_now)
    undo = _of_compressed(CompressedMemory.undo)
    forget = _of_compressed(CompressedMemory.forget)

    async def view_at(self, n: int) -> list[AgentScopeMsg]:
        """Return the view as it stood after an event, as `CompressedMemory.view_at`."""
        return [to_agentscope(msg, AgentScopeMsg) for msg in await self.compressed.view_at(n)]

    async def get_history(self) -> list[AgentScopeMsg]:
        """Return every message, as added."""
        return [to_agentscope(msg, AgentScopeMsg) for msg in await self.compressed.get_history()]

    async def close(self) -> None:
        """End background work and close the clients that summarisers made; can be used again afterwards."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.compressed.aclose)
            while self._replaced:
                stack.push_async_callback(self._replaced.pop().aclose)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    # What the read-back tools need

    def offer_tools(self) -> None:
        """Note that the agent has the read-back tools: stand-ins that are made from now on name them."""
        self._names_tools = True
        self.compressed.offer_tools()

    @property
    def counter(self) -> TokenCounter:
        """What messages are counted by."""
        return self.compressed.counter

    @property
    def budget_tokens(self) -> int:
        """Tokens that a view may cost."""
        return self.compressed.budget_tokens

    reachable_refs = _of_compressed(CompressedMemory.reachable_refs)
    read_ref = _of_compressed(CompressedMemory.read_ref)
    search_history = _of_compressed(CompressedMemory.search_history)
    standing_page_tokens = _of_compressed(CompressedMemory.standing_page_tokens)
    ages_of_refs = _of_compressed(CompressedMemory.ages_of_refs)
    own_words_in = _of_compressed(CompressedMemory.own_words_in)
    find_media = _of_compressed(CompressedMemory.find_media)


def _as_sent(msg: Msg) -> AgentScopeMsg:
    """Return a message of a view as AgentScope's, an empty result as an empty list.

    A tool that was interrupted has such a result. Of "", AgentScope's formatter for Anthropic makes an empty
    text block, which the provider refuses; the other formatters write both alike.
    """
    made: AgentScopeMsg = to_agentscope(msg, AgentScopeMsg)
    if any(result["output"] == "" for result in tool_results(msg)):
        blocks: Any = msg.get_content_blocks()
        made.content = [{**block, "output": []} if block.get("output") == "" else block for block in blocks]
    return made


def _writer(summarizer: Any, model: ChatModelBase | None) -> Summarizer | None:
    if model is not None and summarizer in (None, OWN):
        return AgentScopeSummarizer(model)
    if summarizer == OWN:
        raise InvalidArgumentError(
            "summarizer: 'own' is the model that `model=` gives, and there is none; give model=, or "
            "summarizer='rules' to ask none"
        )
    return as_summarizer(summarizer, ChatModelBase, AgentScopeSummarizer)


def _check_apart(**arguments: Any) -> None:
    given = [name for name, value in arguments.items() if value is not None]
    if len(given) > 1:
        raise InvalidArgumentError(f"{' and '.join(given)} exclude each other; give one of them")


def _namespace_of(base: object) -> str:
    """Return a subdirectory for a memory's texts: the session's where the base names one, else a new one."""
    session = [getattr(base, name, None) for name in ("user_id", "session_id")]
    if all(isinstance(name, str) for name in session):
        return "session-" + hashlib.sha256(json.dumps(session).encode()).hexdigest()[:22]
    return "memory-" + new_id()
