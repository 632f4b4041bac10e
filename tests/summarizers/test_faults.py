"""What servers and SDKs say where a request is too long, or its answer may not be so long; and what else."""

import json
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from context_compressor import is_overflow, limit_in
from context_compressor.errors import InvalidArgumentError
from context_compressor.summarizers.faults import limit_said, refuses_tools, room_in, says_overflow

TOO_LONG = """
400 8192 This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.
400 128000 This model's maximum context length is 128,000 tokens. However, you requested ...
400 1024 However, the model's context length is only 1024 tokens, resulting in a maximum input length of 1014.
400 4096 The prompt (total length 25938) is too long to fit into the model (context length 4096).
400 200000 prompt is too long: 200534 tokens > 200000 maximum
400 30720 Error code: 400 - <400> InvalidParameter: Range of input length should be [1, 30720]
400 2560 Input prompt (15681 tokens) is too long and exceeds limit of 2560
400 32768 length of prompt_tokens (163280) must be less than max_seq_len (32768).
400 1048576 The input token count (1063200) exceeds the maximum number of tokens allowed (1048576).
422 4096 `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens
500 2048 the request exceeds the available context size (2048 tokens), try increasing it
400 262144 Your request exceeded model token limit: 262144 (requested: 269030)
400 8000 input length and `max_tokens` exceed context limit: 7900 + 706 > 8000, decrease it
400 32768 Refused because the input token count is 91234 but model only supports up to 32768.
400 8192 The decoder prompt (length 10127) is longer than the maximum model length of 8192. Make sure ...
400 4096 Input validation error: `inputs` must have less than 4096 tokens. Given: 6013
400 8192 The number of tokens to keep from the prompt (9800) is greater than the context length (8192).
400 4096 Requested tokens (5000) exceed context window of 4096
400 32768 Prompt contains 65673 tokens, too large for model with 32768 maximum context length
400 32767 The prompt is too long: 32968, model maximum context length: 32767
400 202752 number of input tokens (204703) has exceeded max_prompt_tokens (202752) limit.
400 4096 Input length of input_ids is `4498` and exceed max_sequence_length: `4096`!
400 2048 too many tokens: total number of tokens (prompt and prediction) cannot exceed 2048 - received 6354
400 8192 Please reduce the length of the messages or completion. Current length is 8194 while limit is 8192
400 131040 Input length 131393 exceeds the maximum allowed input length of 131040 tokens.
400 8192 Invalid 'input[0]': maximum input length is 8192 tokens.
400 - invalid params, context window exceeds limit (2013)
400 - prompt too long; exceeded max context length by 1042 tokens
400 - Model context window is 128k tokens, you requested 256k tokens
400 - the max input characters is 20000
400 - The model returned: too many total text bytes: 31000000 > 20000000
400 - Total tokens of image and text exceed max message tokens. Request id: 0217
400 - tokens in request more than max tokens allowed
400 - Please reduce the length of the prompt or the number of requested output tokens.
400 - input is too large to process. increase the physical batch size
400 - Your input exceeds the context window of this model.
400 - Prompt exceeds max length
400 - Prompt 超长
400 - 输入内容过长
400 - 上下文长度超出模型最大限制
400 - token数量超过上限。对话历史+问题的字数太多，需要精简输入
413 - Request Entity Too Large
200 - the answer is no chat completion: {'message': 'context length exceeded'}
"""
SOMETHING_ELSE = """
400 Unsupported parameter: 'max_tokens' is not supported with this model.
400 DataInspectionFailed: Input data may contain inappropriate content.
429 Rate limit reached: the prompt is too long for your 30000 tokens per minute
400 Invalid 'input[5].id': string too long. Expected a string with maximum length 64
400 ThrottlingException: Too many tokens, please wait before trying again.
500 would exceed your organization's maximum usage limit of 30,000 input tokens per minute
400 The request failed because the size of the input image exceeds the limit.
400 max_tokens 超过最大值 4096
400 temperature: Input should be less than or equal to 2
400 Input validation error: `best_of` must be > 0 and <= 2
400 A maximum of 4 blocks with cache_control may be provided. Found 5.
400 The maximum number of output tokens for this model is 4096
401 the request is too long ago: token expired
404 no model with this context length
500 internal error
"""
ROOM = """
8192 InvalidParameter: Range of max_tokens should be [1, 8192]
16384 max_tokens is too large: 50000. This model supports at most 16384 completion tokens
512 `max_tokens` must be less than or equal to `512`, its maximum is less than the `context_window`
8000 max_tokens for `llama-3.1-8b-instant` must be less than or equal to 8000
64000 max_tokens: 70000 > 64000, which is the maximum allowed number of output tokens
131072 max_tokens参数非法：限制数值范围[1,131072]
4096 integer above maximum value for `max_tokens`, expected a value <= 4096, but got 8192 instead.
"""


@pytest.mark.parametrize("line", TOO_LONG.strip().splitlines())
def test_what_says_that_a_prompt_is_too_long(line: str):
    status, limit, text = line.split(" ", 2)
    assert says_overflow(int(status), None, text)
    assert str(limit_said(text) or "-") == limit
    assert room_in(text) is None


@pytest.mark.parametrize("line", SOMETHING_ELSE.strip().splitlines())
def test_what_says_something_else(line: str):
    status, text = line.split(" ", 1)
    assert not says_overflow(int(status), None, text)


@pytest.mark.parametrize("line", ROOM.strip().splitlines())
def test_what_says_how_long_an_answer_may_be(line: str):
    room, text = line.split(" ", 1)
    assert room_in(text) == int(room)
    assert not says_overflow(400, None, text)


def test_numbers_beyond_what_python_reads_are_no_limits() -> None:
    assert limit_said(f"maximum context length is {'9' * 5000} tokens") is None
    assert room_in(f"max_tokens must be at most {'9' * 5000}") == 10**12 - 1


def _refusal(status: int, body: dict[str, object]) -> openai.BadRequestError:
    request = httpx2.Request("POST", "http://127.0.0.1/v1/chat/completions")
    return openai.BadRequestError(
        f"Error code: {status} - {body}", response=httpx2.Response(status, request=request), body=body
    )


def test_an_sdks_exception_says_what_its_text_says() -> None:
    error = _refusal(400, {"message": "maximum context length is 8192 tokens", "code": None})
    wrapped = RuntimeError("the run failed")
    wrapped.__cause__ = error
    for one in (error, wrapped, str(error.body)):
        assert is_overflow(one)
        assert limit_in(one) == 8192


@pytest.mark.parametrize("make", [openai.OpenAI, anthropic.Anthropic])
@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "{}"}},
        {"error": {"detail": "{}"}},
        {"error": "{}", "error_type": "validation"},
        {"detail": "{}"},
        {"detail": [{"loc": ["body", "messages"], "msg": "{}"}]},
        {"object": "error", "message": "{}"},
        "{}",
    ],
    ids=str,
)
def test_what_a_server_says_is_read_wherever_it_stands(make: Any, body: Any) -> None:
    """As the SDKs raise it, some of which put only a `message` into the text."""

    def said(text: str) -> Exception:
        answered = body if isinstance(body, str) else json.dumps(body)
        request = httpx2.Request("POST", "http://127.0.0.1/v1/chat/completions")
        response = httpx2.Response(422, request=request, text=answered.replace("{}", text))
        response.read()
        error = make(api_key="k")._make_status_error_from_response(response)
        assert isinstance(error, Exception)
        return error

    assert limit_in(said("maximum context length is 8192 tokens")) == 8192
    assert is_overflow(said("maximum context length is 8192 tokens"))
    assert refuses_tools(said("tools are not permitted"))
    assert not refuses_tools(said("no such field"))


def test_a_code_alone_says_it() -> None:
    assert is_overflow(_refusal(400, {"message": "no", "code": "context_length_exceeded"}))


def test_what_is_no_refusal_says_nothing() -> None:
    assert not is_overflow(ValueError("a number is missing"))
    assert limit_in(ValueError("a number is missing")) is None
    with pytest.raises(InvalidArgumentError, match="expected an exception or its text"):
        is_overflow(400)  # type: ignore[arg-type]
