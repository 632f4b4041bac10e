"""Google ADK's events compaction, as its flow runs it before each model call: by a threshold of tokens.

`token_threshold` is the budget and the last five events are kept (neither has a default); the summariser is
its `LlmEventSummarizer`, with a model that asks the run. Each model event says how many tokens its request
had, by the run's counter, as a provider's usage would. What is sent are the contents that its flow makes of
the events.
"""

from __future__ import annotations

import asyncio
import json
import logging
import warnings
from collections.abc import AsyncIterator, Sequence
from typing import Any

from adapter import Chat, Parent, Storeless, serve, split_instructions, text_of
from google.adk.agents import LlmAgent
from google.adk.apps.app import EventsCompactionConfig
from google.adk.apps.compaction import _run_compaction_for_token_threshold_config
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.events import Event
from google.adk.flows.llm_flows.context._contents import _get_contents
from google.adk.models import BaseLlm, LlmResponse
from google.adk.sessions import InMemorySessionService
from google.genai import types

KEPT_EVENTS = 5
NAME = "agent"


class RunModel(BaseLlm):
    parent: Any = None

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[Any]:  # noqa: ARG002
        asked = [part.text or "" for content in llm_request.contents for part in content.parts]
        said = self.parent.summarize(asked, [])
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=said)]))


class Compaction(Storeless):
    def __init__(self, budget: int, parent: Parent) -> None:
        logging.disable(logging.WARNING)
        warnings.simplefilter("ignore")
        self._parent = parent
        self._loop = asyncio.new_event_loop()
        self._service = InMemorySessionService()
        self._session: Any = None
        self._system: list[Chat] = []
        self._agent = LlmAgent(name=NAME, model=RunModel(model="run", parent=parent))
        self._config = EventsCompactionConfig(
            token_threshold=budget,
            event_retention_size=KEPT_EVENTS,
            summarizer=LlmEventSummarizer(llm=self._agent.model),
        )
        self._names: dict[str, str] = {}
        self._turns = self._time = self._asked_tokens = 0

    def send(self, new: Sequence[Chat]) -> list[Chat]:
        return self._loop.run_until_complete(self._send(new))

    async def _send(self, new: Sequence[Chat]) -> list[Chat]:
        if self._session is None:
            self._session = await self._service.create_session(app_name="run", user_id="user")
            split = split_instructions(new)
            self._system, new = list(new[:split]), new[split:]
        for author, parts in self._events(new):
            await self._append(author, parts)
        await _run_compaction_for_token_threshold_config(
            config=self._config,
            session=self._session,
            session_service=self._service,
            agent=self._agent,
            agent_name=NAME,
        )
        contents = _get_contents(None, self._session.events, NAME, preserve_function_call_ids=True)
        view = self._system + [chat for content in contents for chat in from_content(content)]
        self._asked_tokens = self._parent.count(view, str, lambda chat: chat)
        return view

    def _events(self, chats: Sequence[Chat]) -> list[tuple[str, list[Any]]]:
        """Return events; the results of one message's calls are one event, as its flow merges them."""
        events: list[tuple[str, list[Any]]] = []
        for chat in chats:
            if chat["role"] == "user":
                self._turns += 1
                events.append(("user", [types.Part(text=text_of(chat))]))
            elif chat["role"] == "tool":
                call_id = chat["tool_call_id"]
                result = types.FunctionResponse(
                    id=call_id, name=self._names[call_id], response={"result": text_of(chat)}
                )
                part = types.Part(function_response=result)
                if events and events[-1][0] == "tool":
                    events[-1][1].append(part)
                else:
                    events.append(("tool", [part]))
            else:
                parts = [types.Part(text=text_of(chat))] if text_of(chat) else []
                for call in chat.get("tool_calls") or ():
                    self._names[call["id"]] = call["function"]["name"]
                    arguments = json.loads(call["function"]["arguments"])
                    named = types.FunctionCall(id=call["id"], name=call["function"]["name"], args=arguments)
                    parts.append(types.Part(function_call=named))
                events.append(("model", parts))
        return events

    async def _append(self, author: str, parts: list[Any]) -> None:
        self._time += 1
        used = None
        if author == "model":
            used = types.GenerateContentResponseUsageMetadata(prompt_token_count=self._asked_tokens)
        event = Event(
            author="user" if author == "user" else NAME,
            invocation_id=f"turn-{self._turns}",
            timestamp=float(self._time),
            content=types.Content(role="model" if author == "model" else "user", parts=parts),
            usage_metadata=used,
        )
        await self._service.append_event(self._session, event)

    def convert(self, messages: Sequence[Chat]) -> list[Chat]:
        return list(messages)


def from_content(content: Any) -> list[Chat]:
    """Return a content as chat dicts."""
    texts = [part.text for part in content.parts if part.text]
    calls = [part.function_call for part in content.parts if part.function_call]
    results = [part.function_response for part in content.parts if part.function_response]
    chats: list[Chat] = [
        {"role": "tool", "tool_call_id": result.id, "content": str((result.response or {}).get("result", ""))}
        for result in results
    ]
    if content.role == "model":
        message: Chat = {"role": "assistant", "content": "\n".join(texts) or None}
        if calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.args)},
                }
                for call in calls
            ]
        chats.append(message)
    elif texts:
        chats.append({"role": "user", "content": "\n".join(texts)})
    return chats


if __name__ == "__main__":
    serve(Compaction)
