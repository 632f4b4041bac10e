"""What only `DashScopeSummarizer` does; the rest is in `test_providers.py`."""

import json
import logging
from typing import Any

import pytest

from context_compressor.errors import SummarizerError
from context_compressor.summarizers.dashscope import DashScopeSummarizer
from tests.summarizers.providers import ASKED, GOOD, PROVIDERS
from tests.support.model_server import ModelServer, completion, hang, raw, reset, status


def summarizer(server: ModelServer, **kw: Any) -> DashScopeSummarizer:
    return PROVIDERS[1].make(server, **kw)


async def test_reasoning_is_off_and_answers_come_as_messages(server: ModelServer):
    await summarizer(server).summarize(ASKED)
    parameters = server.requests[0].json["parameters"]
    assert parameters["enable_thinking"] is False
    assert parameters["result_format"] == "message"


async def test_extra_parameters_are_sent_and_a_workspace_goes_where_it_belongs(server: ModelServer):
    extra = {"seed": 7, "enable_thinking": None, "workspace": "ws-1"}
    await summarizer(server, extra_parameters=extra).summarize(ASKED)
    [received] = server.requests
    assert received.json["parameters"]["seed"] == 7
    assert "enable_thinking" not in received.json["parameters"]
    assert received.headers["X-DashScope-WorkSpace"] == "ws-1"


async def test_a_model_that_knows_no_reasoning_is_not_asked_for_none(server: ModelServer):
    refusal = status(400, "enable_thinking is not supported by this model", error_code="InvalidParameter")
    server.script(refusal, completion(GOOD))
    asked = summarizer(server, max_retries=0)
    await asked.summarize(ASKED)
    await asked.summarize(ASKED)
    sent = ["enable_thinking" in received.json["parameters"] for received in server.requests]
    assert sent == [True, False, False]


async def test_the_code_of_a_failure_is_told(server: ModelServer):
    server.script(status(400, "Input may contain ...", error_code="DataInspectionFailed"))
    with pytest.raises(SummarizerError, match="scripted: HTTP 400: DataInspectionFailed: Input may"):
        await summarizer(server).summarize(ASKED)
    assert len(server.requests) == 1


async def test_an_address_of_another_api_is_told(server: ModelServer):
    with pytest.raises(SummarizerError, match=r"HTTP 404: .*check base_url"):
        await summarizer(server, base_url=server.compatible_url).summarize(ASKED)


@pytest.mark.parametrize("code", ["PrepaidBillOverdue", "PostpaidBillOverdue", "CommodityNotPurchased"])
async def test_an_unpaid_bill_is_not_tried_again(server: ModelServer, code: str):
    server.script(status(429, "please pay", error_code=code))
    with pytest.raises(SummarizerError, match="please pay"):
        await summarizer(server).summarize(ASKED)
    assert len(server.requests) == 1


PIECES = {"role": "assistant", "content": [{"text": "## Done\n"}, {"text": "- a"}]}


@pytest.mark.parametrize(
    "output",
    [
        {"text": "## Done\n- a", "finish_reason": "stop"},
        {"choices": [{"finish_reason": "stop", "message": PIECES}]},
    ],
    ids=["text", "content in pieces"],
)
async def test_other_forms_of_answers_are_read(server: ModelServer, output: dict[str, Any]):
    server.script(raw(json.dumps({"output": output, "usage": {"input_tokens": 3, "output_tokens": 2}})))
    summary = await summarizer(server).summarize(ASKED)
    assert (summary.text, summary.input_tokens, summary.output_tokens) == ("## Done\n- a", 3, 2)


async def test_the_sdk_retries_nothing_by_itself(server: ModelServer):
    server.script(reset())
    with pytest.raises(SummarizerError, match="connection failed"):
        await summarizer(server, max_retries=0).summarize(ASKED)
    assert len(server.requests) == 1


async def test_the_sdk_keeps_no_session_of_its_own(server: ModelServer):
    from dashscope.api_entities import aio_session

    await summarizer(server).summarize(ASKED)
    assert not aio_session._aio_sessions


async def test_a_timeout_leaves_no_traceback_in_the_sdks_log(server: ModelServer, caplog):
    await summarizer(server).summarize(ASKED)
    server.script(hang())
    with caplog.at_level(logging.DEBUG, "dashscope"), pytest.raises(SummarizerError):
        await summarizer(server, timeout=0.05, max_retries=0).summarize(ASKED)
    assert not [record for record in caplog.records if record.exc_info]
