import json
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from context_compressor import is_overflow, limit_in
from context_compressor.errors import InvalidArgumentError
from context_compressor.summarizers.faults import limit_said, refuses_tools, room_in, says_overflow


@pytest.mark.parametrize(
    ("status", "text", "limit"),
    [
        (
            400,
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 "
            "tokens. Please reduce the length of the messages.",
            8_192,
        ),
        (400, "This model's maximum context length is 128,000 tokens. However, you requested ...", 128_000),
        (
            400,
            "You passed 1015 input tokens and requested 10 output tokens. However, the model's context "
            "length is only 1024 tokens, resulting in a maximum input length of 1014 tokens.",
            1_024,
        ),
        (
            400,
            "The prompt (total length 25938) is too long to fit into the model (context length 4096).",
            4_096,
        ),
        (400, "prompt is too long: 200534 tokens > 200000 maximum", 200_000),
        (400, "InvalidParameter: Range of input length should be [1, 30720]", 30_720),
        (400, "Error code: 400 - <400> InvalidParameter: Range of input length should be [1, 30720]", 30_720),
        (400, "Input prompt (15681 tokens) is too long and exceeds limit of 2560", 2_560),
        (400, "length of prompt_tokens (163280) must be less than max_seq_len (32768).", 32_768),
        (
            400,
            "The input token count (1063200) exceeds the maximum number of tokens allowed (1048576).",
            1_048_576,
        ),
        (422, "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens", 4_096),
        (500, "the request exceeds the available context size (2048 tokens), try increasing it", 2_048),
        (400, "Your input exceeds the context window of this model.", None),
        (413, "Request Entity Too Large", None),
        (200, "the answer is no chat completion: {'message': 'context length exceeded'}", None),
        (400, "输入内容过长", None),
        (400, "Your request exceeded model token limit: 262144 (requested: 269030)", 262_144),
        (
            400,
            "This model's maximum prompt length is 131072 but the request contains 136973 tokens.",
            131_072,
        ),
        (400, "input length and `max_tokens` exceed context limit: 7900 + 706 > 8000, decrease it", 8_000),
        (400, "prompt token count of 70034 exceeds the limit of 64000", 64_000),
        (
            400,
            "Refused because the input token count is 91234 but model only supports up to 32768.",
            32_768,
        ),
        (400, "The model returned: too many total text bytes: 31000000 > 20000000", None),
        (400, "Prompt exceeds max length", None),
        (400, "Prompt 超长", None),
        (400, "tokens in request more than max tokens allowed", None),
        (400, "Total tokens of image and text exceed max message tokens. Request id: 0217", None),
        (400, "invalid params, context window exceeds limit (2013)", None),  # the number of the error
    ],
)
def test_what_says_that_a_prompt_is_too_long(status: int, text: str, limit: int | None):
    assert says_overflow(status, None, text)
    assert limit_said(text) == limit


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        # vLLM, SGLang, TGI, LM Studio, Ollama, llama.cpp
        (
            "The decoder prompt (length 10127) is longer than the maximum model length of 8192. Make sure "
            "that `max_model_len` is no smaller than the number of text tokens plus multimodal tokens.",
            8_192,
        ),
        (
            "Requested token count exceeds the model's maximum context length of 131072 tokens. You ...",
            131_072,
        ),
        ("Input validation error: `inputs` must have less than 4096 tokens. Given: 6013", 4_096),
        (
            "The number of tokens to keep from the initial prompt (9800) "
            "is greater than the context length (8192).",
            8_192,
        ),
        ("prompt too long; exceeded max context length by 1042 tokens", None),
        ("input is too large to process. increase the physical batch size", None),
        ("Requested tokens (5000) exceed context window of 4096", 4_096),
        # Mistral, Fireworks, SiliconFlow, Ark, Cohere, Cerebras, Bedrock, Kimi, Gemini, Poolside, xAI
        (
            "Prompt contains 65673 tokens and 0 draft tokens, "
            "too large for model with 32768 maximum context length",
            32_768,
        ),
        ("The prompt is too long: 32968, model maximum context length: 32767", 32_767),
        ("number of input tokens (204703) has exceeded max_prompt_tokens (202752) limit.", 202_752),
        ("Input length of input_ids is `4498` and exceed max_sequence_length: `4096`!", 4_096),
        (
            "too many tokens: total number of tokens (prompt and prediction) "
            "cannot exceed 2048 - received 6354",
            2_048,
        ),
        (
            "Please reduce the length of the messages or completion. "
            "Current length is 8194 while limit is 8192",
            8_192,
        ),
        ("Input is too long for requested model.", None),
        ("Input token length too long", None),
        ("Your input context is too long. Reduce your input context or switch to another model.", None),
        ("Input length is too long", None),
        (
            "The length of tokens in the request is too long. Do not exceed the model's maximum token limit.",
            None,
        ),
        ("Request contains 35000 tokens, which exceeds the limit of 32768.", 32_768),
        ("Input length 131393 exceeds the maximum allowed input length of 131040 tokens.", 131_040),
        ("The input exceeds the model's maximum context limit of 8192 tokens.", 8_192),
        ("Invalid 'input[0]': maximum input length is 8192 tokens.", 8_192),
        ("Please reduce the length of the prompt or the number of requested output tokens.", None),
        # What is said in thousands or in characters is no limit in tokens.
        ("Model context window is 128k tokens, you requested 256k tokens", None),
        ("the max input characters is 20000", None),
        ("上下文长度超出模型最大限制", None),
        ("输入长度超过限制", None),
        ("超出最大上下文长度", None),
        ("token数量超过上限。对话历史+问题的字数太多，需要精简输入", None),
    ],
)
def test_what_servers_say_in_words_of_their_own(text: str, limit: int | None):
    assert says_overflow(400, None, text)
    assert limit_said(text) == limit


def test_a_code_says_it_without_words():
    assert says_overflow(400, "context_length_exceeded", "no")


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "Unsupported parameter: 'max_tokens' is not supported with this model."),
        (400, "max_tokens is too large: 50000. This model supports at most 16384 completion tokens"),
        (400, "InvalidParameter: Range of max_tokens should be [1, 8192]"),
        (
            400,
            "`max_tokens` must be less than or equal to `512`, the maximum value for `max_tokens` is "
            "less than the `context_window` for this model",
        ),
        (400, "DataInspectionFailed: Input data may contain inappropriate content."),
        (429, "Rate limit reached: the prompt is too long for your 30000 tokens per minute"),
        (429, "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 50000"),
        (400, "Invalid 'input[5].id': string too long. Expected a string with maximum length 64"),
        (400, "ThrottlingException: Too many tokens, please wait before trying again."),
        (500, "would exceed your organization's maximum usage limit of 30,000 input tokens per minute"),
        (400, "The request failed because the size of the input image exceeds the limit."),
        (400, "max_tokens 超过最大值 4096"),
        (400, "temperature: Input should be less than or equal to 2"),
        (400, "Input validation error: `best_of` must be > 0 and <= 2"),
        (400, "A maximum of 4 blocks with cache_control may be provided. Found 5."),
        (400, "image exceeds 5 MB maximum: 6000000 bytes > 5242880 bytes"),
        (400, "The maximum number of output tokens for this model is 4096"),
        (401, "the request is too long ago: token expired"),
        (404, "no model with this context length"),
        (500, "internal error"),
    ],
)
def test_what_says_something_else(status: int, text: str):
    assert not says_overflow(status, None, text)


@pytest.mark.parametrize(
    ("text", "room"),
    [
        ("InvalidParameter: Range of max_tokens should be [1, 8192]", 8_192),
        ("max_tokens is too large: 50000. This model supports at most 16384 completion tokens", 16_384),
        ("`max_tokens` must be less than or equal to `512`, the maximum value for `max_tokens`", 512),
        ("max_tokens for `llama-3.1-8b-instant` must be less than or equal to 8000", 8_000),
        ("max_tokens must be <= 4096", 4_096),
        ("max_tokens: 70000 > 64000, which is the maximum allowed number of output tokens", 64_000),
        ("max_tokens参数非法：限制数值范围[1,131072]", 131_072),
        (
            "The parameter `max_tokens` specified in the request are not valid: integer above maximum value, "
            "expected a value <= 4096, but got 8192 instead.",
            4_096,
        ),
        ("input length and `max_tokens` exceed context limit: 7900 + 706 > 8000", None),
        ("Range of input length should be [1, 30720]", None),
    ],
)
def test_what_says_how_long_an_answer_may_be(text: str, room: int | None):
    assert room_in(text) == room


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
