"""The sample sessions: valid, the same in every process, and like an agent's work."""

import functools
import json
import re
import sys
from pathlib import Path

import pytest

from benchmarks.sessions.catalogue import SAMPLES, Sample
from benchmarks.sessions.recorder import Recorded
from context_compressor import TiktokenCounter, from_openai, to_openai
from context_compressor.lab.measure import is_told, read_probes, readable
from context_compressor.laws.chat_rules import OPENAI_PARTS, problems

pytestmark = pytest.mark.variants(2)

ROOT = Path(__file__).parents[2]
COUNTER = TiktokenCounter()

each_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)


@functools.cache
def recorded(sample: Sample) -> Recorded:
    return sample.record()


@each_sample
def test_a_provider_would_accept_it(sample: Sample) -> None:
    """Every session is valid as a whole, and reads and writes back as the same text."""
    messages = recorded(sample).messages
    assert problems(messages, parts=OPENAI_PARTS) == []
    again = to_openai(from_openai(messages))
    assert json.dumps(again) == json.dumps(messages)


@each_sample
def test_it_is_an_agents_work(sample: Sample) -> None:
    """It has calls at once, failures, goes back to what it had looked at, and ends with an answer."""
    messages = recorded(sample).messages
    assert [message["role"] for message in messages[:2]] == ["system", "user"]
    assert messages[-1]["role"] == "assistant"
    assert not messages[-1].get("tool_calls")
    calls = [message["tool_calls"] for message in messages if message.get("tool_calls")]
    assert any(len(at_once) > 1 for at_once in calls)
    results = [message["content"] for message in messages if message["role"] == "tool"]
    assert any(result.startswith("Error") for result in results)
    named = [
        {value for call in at_once for value in json.loads(call["function"]["arguments"]).values()}
        for at_once in calls
    ]
    assert any(earlier & later for i, earlier in enumerate(named) for later in named[i + 2 :])


@each_sample
def test_its_probes_ask_for_what_it_has_told(sample: Sample) -> None:
    """Its whole history tells each, what it tells stands in the second half's past, and kinds are mixed."""
    messages, values = recorded(sample)
    probes = read_probes(values, sample.id, len(messages))
    assert len(probes) >= (12 if len(messages) > 100 else 8)
    assert len({probe.kind for probe in probes}) >= 5
    assert {"goal", "constraint", "value"} <= {probe.kind for probe in probes}
    assert len({probe.at for probe in probes}) >= 3
    for probe in probes:
        assert len(messages) // 2 <= probe.at < len(messages)
        assert messages[probe.at]["role"] == "assistant"
        assert is_told(readable(messages[: probe.at]), probe.keys), probe


@each_sample
def test_it_names_no_machine(sample: Sample) -> None:
    """Neither this checkout, the library's folder, nor a temporary one stands in it."""
    text = json.dumps(recorded(sample))
    for place in (str(ROOT), sys.prefix, sys.base_prefix + "/lib", str(Path.home()) + "/"):
        assert place not in text
    assert re.search(r"/tmp/tmp|0x[0-9a-f]{10,}", text) is None


def test_sizes() -> None:
    """Twenty sessions from about 5,000 to 300,000 tokens, in six kinds, one of them in Chinese."""
    sizes = sorted(COUNTER.count_messages(from_openai(recorded(sample).messages)) for sample in SAMPLES)
    assert len(sizes) == 20
    assert 4_500 < sizes[0] < 7_000
    assert 280_000 < sizes[-1] < 310_000
    assert {sample.kind for sample in SAMPLES} == {"code", "logs", "sql", "pages", "support", "chinese"}
    for sample in SAMPLES:
        text = "".join(message["content"] or "" for message in recorded(sample).messages)
        share = len(re.findall(r"[\u4e00-\u9fff]", text)) / len(text)
        assert (share > 0.4) == (sample.kind == "chinese")
