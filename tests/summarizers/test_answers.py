"""Answers of few words, which stand beside the question that they answer."""

import pytest

from context_compressor.messages.msg import Msg
from context_compressor.summarizers.extractive import ExtractiveSummarizer
from context_compressor.summarizers.sections import parse_sections
from tests.summarizers.support import PieceCounter, assistant, call, request, result, segment, user

GOAL = user("Please plan a trip to the mountains for the five of us, in the first week of May.")


async def sections(*messages: Msg, max_tokens: int = 600) -> dict[str, list[str]]:
    wanted = request(*messages, max_tokens=max_tokens)
    return parse_sections((await ExtractiveSummarizer(PieceCounter()).summarize(wanted)).text)


@pytest.mark.parametrize(
    ("asked", "answer", "told"),
    [
        (
            "There are two. Do you want the hut by the lake or the one on the ridge?",
            "the second",
            "the second (asked: “There are two. Do you want the hut by the lake or the one on the ridge?”)",
        ),
        (
            "I would take the train, since parking is dear there.\n\n**Is that all right?**",
            "rather not",
            "rather not (asked: “I would take the train, since parking is dear there. Is that all right?”)",
        ),
        (
            "I would rename `load` to `read`.\nDo you agree?",
            "rather not",
            "rather not (asked: “I would rename `load` to `read`. Do you agree?”)",
        ),
        (
            "Between the town and the ridge it rains on two days of three, and the path is steep there, so "
            "that a hut is dear to many. I would take the one by the lake. Do you agree?",
            "rather not",
            "rather not (asked: “I would take the one by the lake. Do you agree?”)",
        ),
        (
            "It rains. I would take the hut by the lake, the only one that has a free room. Do you agree?",
            "rather not",
            "rather not (asked: “I would take the hut by the lake, the only one that has a free room. "
            "Do you agree?”)",
        ),
        (
            f"It rains. I would take the hut by the lake{', which is far' * 10}. Do you agree?",
            "rather not",
            f"rather not (asked: “I would take the hut by the lake{', which is far' * 7}, which is … "
            "Do you agree?”)",
        ),
        ("| hut | 40 |\nWhich one is it?", "rather not", "rather not (asked: “Which one is it?”)"),
        (
            "Where do we start? And on which day of the week shall we be back home, on Sunday or on Monday?",
            "Sunday",
            "Sunday (asked: “And on which day of the week shall we be back home, on Sunday or on Monday?”)",
        ),
        (
            "**Let us take the train**, all of us. Is that all right?",
            "rather not",
            "rather not (asked: “Let us take the train, all of us. Is that all right?”)",
        ),
        (
            "| hut | price |\nIs that all right?",
            "rather not",
            "rather not (asked: “Is that all right?”)",
        ),
        ("Shall the dog come along?(yes/no)", "No.", "No. (asked: “Shall the dog come along?”)"),
        (
            "Shall we take the dog (or the cat?) along?",
            "the dog",
            "the dog (asked: “Shall we take the dog (or the cat?) along?”)",
        ),
        ("要带狗吗？", "带", "带 (asked: “要带狗吗？”)"),
        ("Shall the dog come along? (yes/no)", "No.", "No. (asked: “Shall the dog come along?”)"),
        (
            "Shall the dog come along? See https://a.io/b?c=1 for the rules.",
            "nein",
            "nein (asked: “Shall the dog come along?”)",
        ),
    ],
)
async def test_an_answer_stands_beside_its_question(asked: str, answer: str, told: str):
    found = await sections(GOAL, assistant(asked), user(answer), assistant("I see."), user("And the food?"))
    assert told in found["instructions"]


OPTIONS = """Three ways lead there.

**Option A: By train** and bus
- B) By car, all the way

1. **The hut** by the lake
2) The one on the ridge
(3) None

Which one?"""


@pytest.mark.parametrize(
    ("answer", "chosen"),
    [
        ("A", "Option A: By train and bus"),
        ("Let's go with b.", "B) By car, all the way"),
        ("option 2", "2) The one on the ridge"),
        ("1 and 3", "1. The hut by the lake (3) None"),
        ("选3", "(3) None"),
        ("7", ""),
        ("the last", ""),
        ("A hut", ""),
    ],
)
async def test_an_option_is_told_that_was_chosen_by_its_letter_or_number(answer: str, chosen: str):
    found = await sections(GOAL, assistant(OPTIONS), user(answer), assistant("I see."), user("And the food?"))
    assert f"{answer} (asked: “{f'{chosen} Which one?'.strip()}”)" in found["instructions"]


async def test_an_option_is_told_where_nothing_is_asked():
    told = assistant("1. The hut by the lake\n2. The one on the ridge\n\nTell me what you want.")
    found = await sections(GOAL, told, user("2"), assistant("I see."), user("And what is the food like?"))
    assert "2 (asked: “2. The one on the ridge”)" in found["instructions"]


async def test_what_was_done_in_steps_is_nothing_to_choose_from():
    told = assistant("I did this:\n1. Found a hut\n2. Asked for the price\n\nIt is dear.\nShall I book it?")
    found = await sections(GOAL, told, user("rather not"), assistant("I see."), user("And the food?"))
    assert "rather not (asked: “It is dear. Shall I book it?”)" in found["instructions"]


async def test_a_yes_is_a_decision():
    asked = assistant("We could sleep in the hut on the ridge, which has no shower. Do you agree?")
    found = await sections(GOAL, asked, user("Yes!"), assistant("Fine."), user("And what is the food like?"))
    told = "user: Yes! (asked: “We could sleep in the hut on the ridge, which has no shower. Do you agree?”)"
    assert told in found["decisions"]
    assert not [line for line in found["instructions"] if "Yes" in line]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("Here is the plan.", "Nice, go on with the hut"),
        ("Do you want the hut by the lake?", "Why is it so dear there?"),
        ("Do you want the hut by the lake?", "Both, but the one by the lake first, and then the one above."),
        ("Which one is it?", "The one in huts/lake_side.txt"),
        ("Is there anything else that I can do?", "Show the map"),
        (f"Shall we go? {'It rains on the ridge. ' * 30}", "the second"),
        ('I wrote them an ad: "Tired of the town?" stands on it.', "Write another one"),
    ],
    ids=["no question", "asks itself", "says enough", "names something", "an offer", "long before", "quoted"],
)
async def test_what_says_enough_stands_alone(asked: str, said: str):
    found = await sections(GOAL, assistant(asked), user(said), assistant("I see."), user("And the food?"))
    assert said in found["instructions"]


@pytest.mark.parametrize("said", ["Yes!", "No, thanks."])
async def test_an_assent_to_nothing_says_nothing(said: str):
    asked = assistant("Is there anything else that I can do?")
    found = await sections(GOAL, asked, user(said), assistant("I see."), user("And what is the food like?"))
    assert said.strip("!.") not in str(found)


async def test_what_comes_behind_a_result_answers_no_question():
    asked = assistant("Shall I look for a hut?")
    messages = [GOAL, asked, call("search", "c", q="huts"), result("c", "found 3"), user("the second")]
    found = await sections(*messages, user("And what is the food like?"))
    assert "the second" in found["instructions"]


async def test_answers_outlast_a_merge():
    told = "the second (asked: “Do you want the hut by src/lake.py, or the one on the ridge?”)"
    earlier = segment(f"## Goal\n- Plan a trip\n\n## Index\n- user: {told}")
    found = await sections(earlier, user("And what is the food like?"), assistant("It is good."))
    assert told in found["instructions"]


async def test_a_question_that_left_before_its_answer_is_told_with_what_led_to_it():
    """What the user said last stays longer than what it answers."""
    plan = "We could sleep in the hut on the ridge. " + "It has no shower, but a fine view of the lake. " * 8
    found = await sections(GOAL, user("And the nights?"), assistant(f"{plan}Is that all right?"))
    [state] = found["progress"]
    assert state.startswith("We could sleep in the hut")
    assert state.endswith("Is that all right?")
    earlier = segment("## Goal\n- A trip\n\n## In progress\n- Take the train, or the car? Which one?")
    found = await sections(earlier, user("rather the train"), assistant("I book it."), user("And the food?"))
    assert "rather the train (asked: “Take the train, or the car? Which one?”)" in found["instructions"]


async def test_where_the_sentence_before_a_vague_question_says_little_more_is_told():
    """Of 'Here is X. Breakfast is included. Shall I?' the yes stood beside the breakfast alone."""
    asked = assistant("We could sleep at Ridge House for 118 euros. Breakfast is included. Do you agree?")
    found = await sections(GOAL, asked, user("Yes!"), assistant("Fine."), user("And what is the food like?"))
    told = "We could sleep at Ridge House for 118 euros. Breakfast is included. Do you agree?"
    assert f"user: Yes! (asked: “{told}”)" in found["decisions"]


@pytest.mark.parametrize("said", ["Sounds good", "ok do that", "Perfect, let us do so."])
async def test_what_was_proposed_without_a_question_stands_beside_the_agreement(said: str):
    """A yes to a proposal was left out, and 'ok do that' told nothing."""
    proposed = assistant("There are two. I'd recommend the hut on the ridge. It has a terrace.")
    found = await sections(GOAL, proposed, user(said), assistant("Fine."), user("And what is the food like?"))
    told = [*found.get("decisions", []), *found["instructions"]]
    assert any(f"{said} (asked: “I'd recommend the hut on the ridge.”)" in line for line in told)


@pytest.mark.parametrize("said", ["Thanks!", "I see, thank you.", "Merci"])
async def test_thanks_agree_to_nothing(said: str):
    proposed = assistant("There are two. I'd recommend the hut on the ridge.")
    found = await sections(GOAL, proposed, user(said), assistant("Fine."), user("And what is the food like?"))
    assert not any("asked" in line for lines in found.values() for line in lines)
