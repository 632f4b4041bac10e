"""Our own memory, as the laws see it."""

from __future__ import annotations

import json

from context_compressor.errors import ContextOverflowError, OffloadError
from context_compressor.laws.forms import FormName, History
from context_compressor.laws.subject import Subject
from context_compressor.memory.compressed import CompressedMemory
from context_compressor.offload.store import REF_PATTERN, InMemoryOffloadStore


class Views:
    """The views of one memory."""

    def __init__(self, form: FormName, budget: int) -> None:
        self.events = 0
        self._form: FormName = form
        self._memory = CompressedMemory(
            max_total_tokens=budget, store=InMemoryOffloadStore(), on_event=lambda _: self._count()
        )

    def _count(self) -> None:
        self.events += 1

    async def __call__(self, messages: History) -> History:
        """Return the view of a list."""
        return await self._memory.view(messages, form=self._form)

    async def read(self, view: History) -> list[str]:
        """Return every text that refs lead to, from a view on."""
        texts: dict[str, str] = {}
        waiting = REF_PATTERN.findall(json.dumps(view))
        while waiting:
            ref = waiting.pop()
            if ref not in texts:
                try:
                    texts[ref] = await self._memory.read_ref(ref)
                except OffloadError:  # a user may say what looks like a ref
                    texts[ref] = ""
                waiting += REF_PATTERN.findall(texts[ref])
        return list(texts.values())

    async def close(self) -> None:
        """Close the memory."""
        await self._memory.aclose()


def memory(form: FormName = "chat", budget: int = 2_000) -> Subject:
    """Return what checks `CompressedMemory.view` in a form, with all laws claimed."""
    return Subject(
        make=lambda: Views(form, budget),
        name="context_compressor",
        form=form,
        budget=budget,
        refuses=(ContextOverflowError,),
    )
