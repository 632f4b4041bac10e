"""Recognise what is answered in place of a summary: errors and refusals, and introductions to nothing."""

from __future__ import annotations

import json
import re
from functools import cache

_MAX_APOLOGY_CHARS = 600
"""Error texts and refusals are short; a long text that begins with such words is about them."""
_APOLOGY = r"""\W*(?:
    # "Error: ...", "APIError(429): ...", "Error code: 500", and what HTTP libraries and gateways say
    [\w.]*(?:error|exception)(?:\ code)?[^\n:：a-z]{0,12}[:：] | traceback\ \(most\ recent
    | (?:an\ |unknown\ |unexpected\ )?error(?:\ has)?(?:\ occurred|\s*$)
    | (?:http[/ ]?)?[45]\d\d\b[\s:,-]*
      (?:error|too|internal|bad|service|gateway|unauthori|forbidden|not\ found|client|server|$)
    | (?:internal\ server\ error | bad\ gateway | gateway\ time-?out)\b
    | (?:the\ )?(?:request|connection|operation)\ (?:was\ |has\ )?(?:timed\ out|failed|aborted|reset|refused)
    | (?:the\ |this\ |that\ )?(?:model|engine|service)\ (?:is\ )?(?:currently\ |temporarily\ )?
      (?:overloaded|unavailable|at\ capacity)\b
    | (?:the\ |our\ )?servers?\ (?:is\ |are\ )?(?:currently\ |temporarily\ )?(?:overloaded|busy)\b
    | upstream\ (?:connect\ error|request\ time-?out) | no\ healthy\ upstream\b
    # limits
    | too\ many\ requests\b | rate\ limit(?:ed)?\b[^\n]{0,20}(?:reached|exceeded|hit|error|[:.]|$)
    | (?:you|we)(?:'ve|\ have)?\ (?:exceeded|reached|hit)\ [^\n]{0,40}\b(?:limit|quota)
    # refusals
    | (?:i'm\ |i\ am\ |we\ are\ |we're\ )?(?:very\ |so\ |really\ )?sorry\b
    | (?:my\ )?apolog(?:y|ies)\b | i\ apologi[sz]e\b | as\ an\ ai\b | please\ provide\b
    | (?:unfortunately,\ )?i(?:\ (?:can't|cannot|can\ not|won't|will\ not)|(?:\ am|'m)\ (?:un|not\ )able)\b
    | i(?:'ll|\ (?:will|would|must|have\ to|need\ to))?\ (?:politely\ |respectfully\ )?decline\b
    | (?:invalid\ prompt:\ )?your\ (?:request|prompt|input|message)\ (?:was|is|has\ been)
      \ (?:flagged|blocked|filtered|rejected|refused)\b
    | (?:there(?:'s|\ is)\ (?:no|nothing) | i\ (?:don't|do\ not)\ (?:see|have) | no)\b[^\n]{0,40}
      \b(?:provided|given|to\ summari[sz]e|available|access)
    | (?:failed\ to|couldn't|could\ not|can't|cannot|unable\ to)\ (?:generate|create|produce|summari[sz]e)
    | previous\ conversation\ was\ too\ long
    # offers and questions
    | (?:(?:sure|certainly|of\ course)\W+)?(?:i'd|i\ would|i'm|i\ am)\ (?:be\ )?(?:more\ than\ )?
      (?:happy|glad)\ to\b
      (?:[^\n]*$ | [^\n]{0,80}\s+(?:(?:could|can|would)\ you|please\ (?:share|provide|paste|send))\b)
    | (?:could|can|would)\ you\ (?:please\ )?(?:share|provide|paste|send)\b
    # in other languages
    | lo\ (?:siento|lamento)\b | je\ suis\ (?:vraiment\ )?désolée?\b | désolée?\b | es\ tut\ mir\ leid\b
    | leider\ kann\ ich\b | desculpe\b | (?:eu\ )?sinto\ muito\b | mi\ dispiace\b
    | извините | к\ сожалению,\ я | 申し訳 | すみません | 죄송
    | (?:尊敬的用户\W*)?(?:[您你]好\W*)?(?:很遗憾\W*)?(?:(?:非常|很)?(?:抱歉|对不起)
      | (?:(?:这个|该|此类|您的)(?:问题|话题|内容|请求)\W*)?我(?:暂时|目前)?(?:无法|不能|没法)
      | (?:这个|该|此类|您的)(?:问题|话题|内容|请求)\W*(?:暂时|目前)?(?:无法|不能|没法)(?:回答|讨论)
      | 我还?没有?学[会习]
      | 作为(?:一个|一名)?[^\n，,]{0,6}(?:人工智能|AI|语言模型)[^\n，,]{0,8}\W*我?(?:还没|没有|无法|不能|没法)
      | (?:让我们|请)换个话题 | (?:请问)?有什么(?:可以|能)帮
      | 请您?提供 | [您你](?:还)?(?:没有|未)(?:提供|发送))
    | 根据相关(?:法律|政策)[^\n]{0,30}(?:无法|不能|不予) | 系统检测到[^\n]{0,20}(?:敏感|不安全)
    | 无法(?:生成|总结|处理) | 错误[:：] | 发生(?:了)?错误 | 触发限流
    | 请求(?:失败|超时|过于频繁) | (?:模型|服务器?|系统|网络)(?:当前|暂时)?(?:繁忙|过载|不可用)
    | (?:内部|系统|网络|服务器?|请求|参数|连接){1,3}(?:错误|异常|超时)\W*(?:请(?:稍后|重试|联系)|$)
    | 当前[^\n]{0,6}(?:过多|过于频繁)\W*(?:请(?:稍后|重试|联系)|$)
    )"""
_INTRODUCTION = re.compile(
    r"""\W*(?:(?:ok(?:ay)?|sure|certainly|of\ course|好的?)\W+)?(?:
    (?:here(?:'s|\ is)|below\ is)\b[^\n:]{0,60}\bsummary\b[^\n:]{0,80}
    | (?:以下|下面|这)是[^\n:：]{0,30}(?:摘要|总结|概要)[^\n:：]{0,10}
    )[:：.。]?\W*""",
    re.IGNORECASE | re.VERBOSE,
)
_HTML = re.compile(r"\s*<(?:!doctype html|html|head|body)\b", re.IGNORECASE)
_ERROR_KEYS = ("error", "errors", "detail", "error_message")


@cache
def _apology() -> re.Pattern[str]:
    """Return what matches an apology; compiled at first use, since that takes 10 ms."""
    return re.compile(_APOLOGY, re.IGNORECASE | re.VERBOSE)


def is_error_text(text: str) -> bool:
    """Tell whether a text is an error or a refusal, or asks for what was to be summarised."""
    if _HTML.match(text):
        return True
    if text.startswith("{"):
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            data = None
        if isinstance(data, dict):
            return any(data.get(key) for key in _ERROR_KEYS)
    return len(text) <= _MAX_APOLOGY_CHARS and _apology().match(text.replace("’", "'")) is not None


def is_introduction(line: str) -> bool:
    """Tell whether a line only says that a summary follows."""
    return len(line) <= _MAX_APOLOGY_CHARS and _INTRODUCTION.fullmatch(line.replace("’", "'")) is not None
