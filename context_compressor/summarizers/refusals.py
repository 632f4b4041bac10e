"""Recognise what is answered in place of a summary: errors, refusals, calls, and introductions to nothing."""

from __future__ import annotations

import json
import re
from functools import cache

_MAX_APOLOGY_CHARS = 600
"""Error texts and refusals are short; a long text that begins with such words is about them."""
_APOLOGY = r"""\W*(?:
    # "Error: ...", "APIError(429): ...", "Error code: 500", and what HTTP libraries and gateways say
    [\w.]*(?:error|exception)(?:\ code)?[^\n:：a-z]{0,12}[:：] | traceback\ \(most\ recent
    | (?:an\ )?(?:unknown\ |unexpected\ |internal\ |connection\ )?error(?:\ has)?
      (?:\ occurred|\ encountered|\W*$)
    | (?:http[/ ]?)?[45]\d\d\b[\s:,-]*
      (?:error|too|internal|bad|service|gateway|unauthori|forbidden|not\ found|client|server|payload|$)
    | (?:internal\ server\ error | bad\ gateway | gateway\ time-?out)\b
    | (?:the\ )?(?:request|connection|operation)\ (?:was\ |has\ )?(?:timed\ out|failed|aborted|reset|refused)
    | (?:the\ |this\ |that\ |our\ )?(?:model|engine|service|servers?)\ (?:is\ |are\ )?
      (?:currently\ |temporarily\ )?(?:overloaded|unavailable|busy)\b
    | upstream\ (?:connect\ error|request\ time-?out) | no\ healthy\ upstream\b
    # limits
    | [\w./-]{1,60}\ is\ currently\ over\ capacity | too\ many\ requests\b
    | (?:claude\ ai\ usage|rate)\ limit(?:ed)?\b(?:[^\n]{0,20}\b(?:reached|exceeded)|\W*$)
    | you(?:'ve|\ have)?\ (?:exceeded|reached|hit)\ [^\n]{0,40}\b(?:limit|quota)
    | quota\ exceeded\b | resource\ has\ been\ exhausted | insufficient\ balance
    | your\ credit\ balance\ is\ too\ low
    # refusals
    | (?:(?:i|we)\b[\w' ]{0,16}\ )?sorry\b | (?:my\ )?apologies\b | i\ apologi[sz]e\b | as\ an\ ai\b
    | please\ provide\b
    | (?:unfortunately,\ )?i(?:'m|\ am)?\ (?:can(?:'t|not|\ not)|won't|will\ not|unable|not\ (?:able|going))\b
    | i\b[\w' ]{0,30}\ decline\ (?:to|this)\b
    | (?:invalid\ prompt:\ )?your\ (?:request|prompt|input|message)\ (?:was|is|has\ been)
      \ (?:flagged|blocked|filtered|rejected)\b
    | the\ (?:response\ was\ filtered|generated\ text\ has\ been\ blocked
      | request\ was\ rejected\ because\ it\ was\ considered)
    | (?:there(?:'s|\ is)\ )?(?:nothing\ to\ summari[sz]e
      | no\b[^\n]{0,20}\b(?:conversation|messages?|text|content|history)\b[^\n]{0,20}\b
      (?:provided|given|available|to\ summari[sz]e))
    | i\ (?:don't|do\ not)\ (?:see|have)\b[^\n]{0,40}\b(?:provided|to\ summari[sz]e|access)
    | (?:failed\ to|could(?:n't|\ not)|can(?:'t|not)|unable\ to)\ (?:summari[sz]e
      | (?:generate|create|produce)\b[^\n]{0,30}\b(?:summary|response)\b)
    | previous\ conversation\ was\ too\ long
    # offers and questions
    | (?:(?:sure|certainly|of\ course)\W+)?i(?:'d|'m|\ would|\ am)\b[\w ]{0,16}\ (?:happy|glad)\ to\b
      (?:[^\n]*$ | [^\n]{0,80}\s+(?:(?:could|can)\ you|please)\b)
    | (?:could|can|would)\ you\ (?:please\ )?(?:share|provide|paste|send)\b
    # in other languages
    | lo\ (?:siento|lamento)\b | je\ suis\ (?:vraiment\ )?désolée?\b | désolée?\b | es\ tut\ mir\ leid\b
    | leider\ kann\ ich\b | desculpe\b | (?:eu\ )?sinto\ muito\b | mi\ dispiace\b
    | извините | к\ сожалению,\ я | 申し訳 | すみません | 죄송
    | (?:尊敬的用户\W*)?(?:[您你]好\W*)?(?:很遗憾\W*)?(?:[非常很]{0,2}(?:抱歉|对不起)
      | (?:[这该此您][个类的]?(?:问题|话题|内容|请求)\W*)?我[^们\n，,]{0,2}(?:无法|不能|没法)
      | [这该此您][个类的]?(?:问题|话题|内容|请求)[^\n，,]{0,2}(?:无法|不能|没法)(?:回答|讨论)
      | 我还?没有?学[会习]
      | 作为[^\n，,]{0,8}(?:人工智能|AI|语言模型)[^\n，,]{0,8}\W*我?(?:还没|没有|无法|不能|没法)
      | (?:让我们|请)换个话题 | (?:请问)?有什么(?:可以|能)帮
      | 请您?提供 | [您你]还?(?:没有|未)(?:提供|发送))
    | 根据相关(?:法律|政策)[^\n]{0,30}(?:无法|不能|不予) | 系统检测到[^\n]{0,20}(?:敏感|不安全)
    | 无法(?:生成|总结|处理)[^\n]{0,8}(?:摘要|总结|回复|对话|内容|请求) | 错误[:：] | 发生了?错误 | 触发限流
    | 请求(?:失败|过于频繁) | (?:模型|服务器?|系统|网络)(?:当前|暂时)?(?:繁忙|过载|不可用)
    | (?:内部|系统|网络|服务器?|请求|参数|连接){1,3}(?:错误|异常|超时)\W*(?:请(?:稍后|重试|联系)|$)
    | 当前[^\n]{0,6}(?:过多|过于频繁)\W*(?:请(?:稍后|重试|联系)|$)
    | [您你](?:的账户已(?:达到|欠费)|当前使用该)
    )"""
_DECLINED = re.compile(
    r"\W*i(?:'m|\ am)?\ (?:can(?:'t|not)|won't|unable\ to|not\ (?:able|going)\ to)"
    r"\ (?:produce|write|provide|create|generate|complete|summari[sz]e)"
    r"\ (?:this|that|the|an?)\b[^\n.]{0,30}\b(?:summary|conversation|transcript|memory)\b",
    re.IGNORECASE,
)
"""Begins a refusal of any length: some say at length why."""
_INTRODUCTION = re.compile(
    r"""\W*(?:(?:ok(?:ay)?|sure|certainly|of\ course|好的?)\W+)?(?:
    (?:here(?:'s|\ is)|below\ is)\b[^\n:]{0,60}\bsummary\b[^\n:]{0,80}
    | (?:以下|下面|这)是[^\n:：]{0,30}(?:摘要|总结|概要)[^\n:：]{0,10}
    )[:：.。]?\W*""",
    re.IGNORECASE | re.VERBOSE,
)
_HTML = re.compile(r"\s*(?:[45]\d\d\s+)?<(?:!doctype html|html)\b", re.IGNORECASE)
_CALL = re.compile(
    r"\s*[<\[][ |｜]{0,2}(?:tool_calls?>|function_calls?>|function=[\w.-]{1,64}>|tool_use>|TOOL_CALLS\]"
    r"|python_tag\|>|tool[_▁]calls?[_▁](?:section[_▁])?begin[|｜]>)"
)
"""How a call of a tool begins where a server left it in the text."""
_ERROR_KEYS = ("error", "errors", "detail", "error_message")


@cache
def _apology() -> re.Pattern[str]:
    """Return what matches an apology; compiled at first use, since that takes 10 ms."""
    return re.compile(_APOLOGY, re.IGNORECASE | re.VERBOSE)


def is_error_text(text: str) -> bool:
    """Tell whether a text is an error, a refusal or a call, or asks for what was to be summarised."""
    if _HTML.match(text) or _CALL.match(text):
        return True
    if text.startswith(("{", "[")):
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            data = None
        if isinstance(data, list) and len(data) == 1:
            data = data[0]  # as Gemini answers
        if isinstance(data, dict):
            is_call = isinstance(data.get("name"), str) and not {"arguments", "parameters"}.isdisjoint(data)
            return is_call or any(data.get(key) for key in _ERROR_KEYS)
    head = text[:_MAX_APOLOGY_CHARS].replace("’", "'")
    if _DECLINED.match(head):
        return True
    return len(text) <= _MAX_APOLOGY_CHARS and _apology().match(head) is not None


def is_introduction(line: str) -> bool:
    """Tell whether a line only says that a summary follows."""
    return len(line) <= _MAX_APOLOGY_CHARS and _INTRODUCTION.fullmatch(line.replace("’", "'")) is not None
