"""The keywords that adapters share, said once, and the conversations that they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Generic, TypeVar

from context_compressor.core.config import ConfigFields, as_config
from context_compressor.events import EventHook
from context_compressor.integrations.asked import as_summarizer, check_tools
from context_compressor.integrations.conversations import Conversations, KeyOf, States
from context_compressor.messages.forms import Form, FormName
from context_compressor.offload.store import OffloadStore
from context_compressor.summarizers.protocol import Summarizer
from context_compressor.summarizers.provider import ProviderSummarizer
from context_compressor.tokens.counter import TokenCounter

ModelT = TypeVar("ModelT")
"""What a framework's models are, and how else it takes one, by its name say."""


class Options(ConfigFields, Generic[ModelT], total=False):
    """The keywords of an adapter: these, and any field of `CompressionConfig`."""

    store: OffloadStore | None
    """Where texts go that leave a view; None: in memory, for each conversation."""
    summarizer: Summarizer | ModelT | None
    """Who writes the notes: "own" or None, the agent's own model; "rules", no model; a model of the
    framework's, or the name of one where it finds models by name; or a `Summarizer`."""
    on_event: EventHook | None
    """Receives every `CompressionEvent`; each is logged as well."""
    counter: TokenCounter | str | None
    """Measures messages, or the name of a model whose tokens are counted; None: offline tiktoken."""
    tools: bool
    """Whether agents get the tools to read back what left; requests offer them once something has."""
    observe: bool | str | PathLike[str]
    """True, or the path of a log: nothing is changed, and a line for each request says how large its messages
    are, for `context-compressor replay`. True writes `observed.jsonl` in the working directory."""


class KeptOptions(Options[ModelT], Generic[ModelT], total=False):
    """The keywords of an adapter that may keep states beyond this process."""

    states: States | None
    """Where states are kept beyond this process: anything with `async get(key)` and `set(key, state)`."""


class KeyedOptions(KeptOptions[ModelT], Generic[ModelT], total=False):
    """The keywords of an adapter that may be told which conversation a request is of."""

    key: KeyOf | None
    """Returns the key of a request's conversation, given what the framework says of the request. None: the
    framework's own name for it where there is one, else what its messages begin with."""


def has_tools(options: Mapping[str, Any], default: bool = True) -> bool:
    """Tell whether an adapter with these keywords has tools for agents: one that only looks on has none.

    Raises:
        InvalidArgumentError: `tools` is no bool.
    """
    return check_tools(options.get("tools", default)) and not options.get("observe")


def make_conversations(
    kind: Callable[..., Any],
    options: Mapping[str, Any],
    form: FormName | Form = "chat",
    *,
    models: type[Any] | tuple[type[Any], ...],
    asked: Callable[[Any], ProviderSummarizer],
    **more: Any,
) -> Conversations:
    """Return the conversations of an adapter whose requests each bring the agent's own model.

    Args:
        kind: the keywords that the adapter takes: `Options`, or what extends it.
        options: those that it was given.
        form: the shape of its messages.
        models: what the framework's models are; with `str` among them, names of models too.
        asked: makes a summariser of one.
        more: arguments of `Conversations` that the adapter decides.

    Raises:
        InvalidArgumentError: an option that there is not, or something of the wrong kind.
        ValueError: thresholds that cannot be, or cannot work together.
    """
    taken = kind.__annotations__.keys() - ConfigFields.__annotations__.keys()
    given = {name: value for name, value in options.items() if name in taken and name != "key"}
    fields: Any = {name: value for name, value in options.items() if name not in taken}
    as_config(None, fields, kind)  # names what is no option, before it could be one of `Conversations`
    with_tools = has_tools(given)
    given.pop("tools", None)
    summarizer = as_summarizer(given.pop("summarizer", None), models, asked, has_own=True)
    return Conversations(form, **{"with_tools": with_tools, **more}, summarizer=summarizer, **given, **fields)
