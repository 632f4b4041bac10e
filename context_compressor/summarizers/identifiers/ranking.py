"""Rank the identifiers of a conversation by how likely the agent is to need them again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from context_compressor.summarizers.identifiers.finding import count_identifiers, is_number
from context_compressor.summarizers.identifiers.uses import Names, Use, Uses, tally


class Source(NamedTuple):
    """A text of the conversation, with where it came from."""

    kind: Literal["user", "assistant", "call", "result", "carried"]
    label: str
    """What to name beside an identifier found here: the call that brought it, or who said it."""
    text: str
    position: float
    """Where in the material it stands: 0 oldest, 1 newest."""
    is_carried: bool = False
    """Whether it is a line of an earlier summary."""

    @property
    def is_agents(self) -> bool:
        """Whether the agent wrote it: that tells less of what a name is than what the agent has it from."""
        return self.kind in ("call", "assistant")


@dataclass(slots=True)
class Identifier:
    """A token that names one thing, with what is known of its use."""

    text: str
    source: int
    """Index of the newest source that holds it; not one of the agent's own, where there is another."""
    position: float
    """Of the last source that holds it."""
    occurrences: int
    crowd: int
    """How many identifiers stand in the sparsest source with it; one of two says more than one of 300."""
    said_by_user: bool = False
    in_call: bool = False
    times: int = 0
    """How often the agent has named it, in all that left."""
    value: float = 0.0
    """Estimated chance, 0 to 1, that the agent uses it again."""


def rank_identifiers(sources: Sequence[Source], before: Uses | None = None) -> tuple[list[Identifier], Names]:
    """Return the identifiers of `sources` with their value, most value per character first.

    Args:
        sources: the texts, oldest first.
        before: what the agent named in what left earlier.

    Returns:
        The identifiers, and who named them in sources that are no lines of earlier summaries.
    """
    found: dict[str, Identifier] = {}
    counted = [count_identifiers(source.text) for source in sources]
    for index, (source, counts) in enumerate(zip(sources, counted, strict=True)):
        crowd = len(counts)
        kind, is_agents = source.kind, source.is_agents
        for token, count in counts.items():
            known = found.get(token)
            if known is None:
                known = found[token] = Identifier(token, index, source.position, count, crowd)
            else:
                if not is_agents or sources[known.source].is_agents:
                    known.source = index
                known.position = source.position
                known.occurrences += count
                if crowd < known.crowd:
                    known.crowd = crowd
            if kind == "user":
                known.said_by_user = True
            elif kind == "call":
                known.in_call = True
    names = tally(
        (source.is_agents, counts)
        for source, counts in zip(sources, counted, strict=True)
        if not source.is_carried
    )
    uses = before or Uses()
    ranked = list(found.values())
    for identifier in ranked:
        use = uses.of(identifier.text, names)
        identifier.times, identifier.value = use.times, _value(identifier, use)
    ranked.sort(key=lambda identifier: -identifier.value / (8 + len(identifier.text)))
    return ranked, names


def name_uses(sources: Iterable[Source]) -> Names:
    """Return who named which identifiers, as `rank_identifiers` does."""
    return tally((source.is_agents, count_identifiers(source.text)) for source in sources)


def _value(identifier: Identifier, use: Use) -> float:
    """Estimate how likely an identifier is to be used again, from its use so far.

    A logistic model. Its weights were fitted once, then rounded, over 1,556 events of 84 recorded sessions
    (coding, customer service, browsing, chat), each kind judged by weights that were fitted to the others, to
    whether the next to name an identifier was the agent. What the agent has named it names again, the more
    often the sooner: that alone tells more than all the rest. What it coined, and nobody else ever named, it
    can coin again. What a user named is weighed above the fit: users notice when it is lost.

    The odds that a thing is needed fall as a power of the time since it was named last (Anderson and
    Schooler, 1991): halved after 30 groups, some 200,000 tokens. That is from sessions joined to 1.6 million
    tokens; those of the fit were too short to tell.
    """
    score = -3.9 + 0.5 * identifier.position
    score -= 0.5 if use.age is None else math.log(1 + use.age / 30)
    if use.times:
        score += 1.8 + 0.42 * math.log2(1 + use.times) - (0 if use.is_given else 1)
    elif identifier.in_call:  # told of by an earlier summary alone
        score += 2.2
    if identifier.said_by_user:
        score += 0.6
    score += 0.25 * math.log2(identifier.occurrences)
    score -= 0.2 * math.log(1 + min(identifier.crowd, 400))
    if is_number(identifier.text):
        score -= 0.8
    return 1 / (1 + math.exp(-score))
