"""English stems by Porter's algorithm."""

from __future__ import annotations

import re

_VOWEL = re.compile(r"[aeiou]|(?<=[^aeiou])y")
_MEASURE = re.compile(r"(?:[aeiou]|(?<=[^aeiou])y)(?:[^aeiou])")
_DOUBLE = re.compile(r"([^aeiouylsz])\1$")
_SHORT = re.compile(r"(?:^|.*[^aeiou])[aeiouy][^aeiouywx]$")

_STEP_2 = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"),
    ("bli", "ble"), ("logi", "log"), ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"),
    ("ization", "ize"), ("ation", "ate"), ("ator", "ate"), ("alism", "al"), ("iveness", "ive"),
    ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"), ("iviti", "ive"), ("biliti", "ble"),
)  # fmt: skip
_STEP_3 = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""),
    ("ness", ""),
)  # fmt: skip
_STEP_4 = (
    "ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ate", "iti", "ous", "ive", "ize",
    "ion", "al", "er", "ic", "ou",
)  # fmt: skip


def stem(word: str) -> str:
    """Return the stem of a lower-case English word; other words of ASCII letters are cut by the same rules.

    M. F. Porter, "An algorithm for suffix stripping", Program 14 (1980).
    """
    if len(word) <= 2:
        return word
    word = _without_ending(_without_plural(word))
    if word.endswith("y") and _VOWEL.search(word[:-1]):
        word = word[:-1] + "i"
    for rules in (_STEP_2, _STEP_3):
        for ending, replaced in rules:
            if word.endswith(ending):
                rest = word[: -len(ending)]
                word = rest + replaced if _measure(rest) > 0 else word
                break
    word = _without_long_ending(word)
    if word.endswith("e"):
        rest = word[:-1]
        measure = _measure(rest)
        if measure > 1 or (measure == 1 and not _SHORT.match(rest)):
            word = rest
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word


def _measure(word: str) -> int:
    """Count Porter's m: how often consonants follow vowels."""
    return len(_MEASURE.findall(word))


def _without_plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _without_ending(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        rest = word[: -len(ending)]
        if word.endswith(ending) and _VOWEL.search(rest):
            if rest.endswith(("at", "bl", "iz")):
                return rest + "e"
            if _DOUBLE.search(rest):
                return rest[:-1]
            return rest + "e" if _measure(rest) == 1 and _SHORT.match(rest) else rest
    return word


def _without_long_ending(word: str) -> str:
    for ending in _STEP_4:
        if word.endswith(ending):
            rest = word[: -len(ending)]
            if _measure(rest) > 1 and (ending != "ion" or rest.endswith(("s", "t"))):
                return rest
            break
    return word
