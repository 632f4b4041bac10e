"""Find values that consist of several words, of which one who looks for words sees parts, or none."""

from __future__ import annotations

import re

_PHONE = re.compile(r"\+\d{1,3}(?:[ -]\(?\d{1,8}\)?){2,5}(?!\w)", re.ASCII)
_LEAST_DIGITS = 8
_EAST_ASIAN = re.compile(
    r"\d(?<![\d.,].)(?:\d{1,3}[年년] ?\d{1,2}[月월](?: ?\d{1,2}[日号일])?|\d?[月월] ?\d{1,2}[日号일]"
    r"|\d{0,2}(?:,?\d{3}){0,4}(?:\.\d{1,2})?[万億亿만]?[円元원])",
    re.ASCII,
)
"""Dates and sums of money in Chinese, Japanese and Korean. Digits come first: these are found fast."""
_EAST_ASIAN_SIGNS = "月월円元원"
_MONEY = re.compile(
    r"\d(?<![\d.,].)\d{0,2}(?:[ .\u00a0\u202f]\d{3}){1,4}(?:,\d{2})?[ \u00a0\u202f]?(?:[€₽₺₫]|zł)",
    re.ASCII,
)
"""Sums as continental Europe writes them, thousands apart."""
_MONEY_SIGNS = "€₽₺₫ł"
_MONTH = (
    r"\b(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:t(?:ember)?)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\b\.?"
)
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_TIME = r"\d{1,2}:\d\d(?::\d\d)?(?: ?[AaPp][Mm]\b)?"
_ENGLISH_DATE = re.compile(
    rf"(?:\b{_DAY}(?: of)? {_MONTH}|{_MONTH} {{1,2}}{_DAY}(?: {_TIME}(?: [A-Z]{{3,4}})?)?),? (?:19|20)\d\d\b"
    rf"(?:,?(?: at)? {_TIME})?",
    re.ASCII,
)
"""Dates in English words, with their year, which `date` prints behind the time."""
_A_MONTH = re.compile(_MONTH, re.ASCII)
_YEAR = re.compile(r" (?:19|20)\d\d\b", re.ASCII)
_BEFORE_YEAR_CHARS = 40
"""The month and all that may stand between it and its year have fewer."""
_JOINT = "\x00"
"""Stands for a blank that divides nothing; no line of a summary holds it."""
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: [A-Z0-9]{4}){2,7}(?: [A-Z0-9]{1,3}\b)?", re.ASCII)


def take_values(text: str) -> tuple[list[str], str]:
    """Return phone numbers, accounts, sums, dates in English or East Asian writing, and the rest of a text.

    A phone number is known by the plus sign before its country, an account where the text speaks of IBANs.
    """
    found: list[str] = []

    def take(match: re.Match[str]) -> str:
        if match[0][0] == "+" and sum(map(str.isdecimal, match[0])) < _LEAST_DIGITS:
            return match[0]
        found.append(match[0])
        return " "

    if "+" in text:
        text = _PHONE.sub(take, text)
    if "IBAN" in text:
        text = _IBAN.sub(take, text)
    if (" 20" in text or " 19" in text) and _has_dated_year(text):
        text = _ENGLISH_DATE.sub(take, text)
    if not text.isascii():
        if any(map(text.__contains__, _EAST_ASIAN_SIGNS)):
            text = _EAST_ASIAN.sub(take, text)
        if any(map(text.__contains__, _MONEY_SIGNS)):
            text = _MONEY.sub(take, text)
    return found, text


def _has_dated_year(text: str) -> bool:
    """Tell whether a month stands before a year, as in every date in English words."""
    starts = (year.start() for year in _YEAR.finditer(text))
    return any(_A_MONTH.search(text, max(0, start - _BEFORE_YEAR_CHARS), start) for start in starts)


def with_dates_as_words(text: str) -> str:
    """Return a text in which each date in English words is one word: commas and blanks divide others."""
    return _ENGLISH_DATE.sub(lambda date: date[0].replace(" ", _JOINT), text) if _YEAR.search(text) else text


def without_dates_as_words(text: str) -> str:
    """Return a text with the dates that `with_dates_as_words` made words as they were."""
    return text.replace(_JOINT, " ")


def is_english_date(text: str) -> bool:
    """Tell whether a text is a date in English words, and nothing else."""
    return _ENGLISH_DATE.fullmatch(text) is not None
