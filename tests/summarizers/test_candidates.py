"""Which lines an extractive summary prefers."""

from __future__ import annotations

import re

import pytest

from context_compressor.messages.msg import Msg
from context_compressor.summarizers.cutting import cut, quote
from context_compressor.summarizers.extractive import ExtractiveSummarizer
from context_compressor.summarizers.extracts.candidates import index_items
from context_compressor.summarizers.extracts.digest import CarriedLine
from context_compressor.summarizers.extracts.lines import is_question
from context_compressor.summarizers.extracts.requests import weight_of_wish
from context_compressor.summarizers.identifiers.describing import describe
from context_compressor.summarizers.identifiers.ranking import Source
from context_compressor.summarizers.sections import parse_sections
from tests.summarizers.support import PieceCounter, assistant, call, request, result, segment, user

GOAL = user("Please plan a trip to the mountains for the five of us, in the first week of May.")


async def summarize(*messages: Msg, max_tokens: int = 400) -> str:
    wanted = request(*messages, max_tokens=max_tokens)
    return (await ExtractiveSummarizer(PieceCounter()).summarize(wanted)).text


async def sections(*messages: Msg, max_tokens: int = 400) -> dict[str, list[str]]:
    return parse_sections(await summarize(*messages, max_tokens=max_tokens))


@pytest.mark.parametrize(
    ("wish", "question"),
    [
        (
            "From now on only book hotels that can be cancelled.",
            "And what is there to see on day {} of the trip to the mountains?",
        ),
        (
            "My sister is allergic to nuts, and my brother, who comes later, to cats.",
            "Which of the {} rooms has a balcony, and what does it cost?",
        ),
    ],
    ids=["a command", "a statement"],
)
async def test_what_shall_hold_is_preferred_to_what_was_asked_later(wish: str, question: str):
    asked = [user(question.format(n)) for n in range(40)]
    found = await sections(GOAL, user(wish), *asked, max_tokens=100)
    assert wish in found["instructions"]


@pytest.mark.parametrize(
    "wish",
    [
        "Bitte auf keinen Fall die Zahlung stornieren.",
        "Il ne faut jamais annuler le paiement de la maison.",
        "Por favor, nunca cancele el pago de la casa.",
        "Пожалуйста, никогда не отменяйте оплату дома.",
        "支払いをキャンセルしないでください。住所も同じです。",
        "결제를 절대 취소하지 마세요. 주소도 같습니다.",
        "لا تلغوا الدفع من فضلك، والعنوان هو نفسه.",
        "Lütfen ödemeyi iptal etmeyin, adres de aynı.",
        "Vui lòng không hủy thanh toán, địa chỉ giữ nguyên.",
        "कृपया भुगतान न रोकें, पता भी वही है।",
        "Per favore, il pagamento resta com'era.",
    ],
)
async def test_a_wish_is_one_in_other_languages_too(wish: str):
    told = [user(f"The house by lake {n} has a red roof, and a small garden behind it") for n in range(40)]
    found = await sections(GOAL, user(wish), *told, max_tokens=120)
    assert wish in found["instructions"]


@pytest.mark.parametrize(
    "said",
    [
        "Ja, bitte.",
        "Oui, merci !",
        "Да, спасибо",
        "はい、ありがとうございます。",
        "Evet, tamam.",
        "Sure, proceed.",
    ],
)
async def test_an_assent_is_no_request(said: str):
    assert "instructions" not in await sections(GOAL, assistant("Shall I?"), user(said))


WISHES = """
The lake must be near. / It is never by car. / It is always by train. / Don't take lifts.
Do not book lifts. / Take the train instead. / It should be near. / Make sure it is near.
We need two rooms. / I want two rooms. / I prefer two rooms. / Two rooms rather. / Stop at noon.
Avoid the toll. / Remember the toll. / Remind me of it. / It is important to us. / No longer by car.
Change the room. / Cancel the room. / 请订两间房。 / 必须订两间房。 / 不要订电梯房。 / 别订电梯房。
务必订两间房。 / 只订两间房。 / 把房间改成两间。 / 房间需要两间。 / 应该订两间房。 / 希望有两间房。
记住订两间房。 / 提醒我订房。 / 不能订电梯房。 / 禁止订电梯房。 / 二部屋ください。 / お待ち下さい。
二部屋お願いします。 / 必ず二部屋。 / 二部屋だけ。 / 반드시 두 방. / 두 방 주세요. / 배 말고 기차.
하지 마세요. / Es muss nah sein. / Wir müssen los. / Es soll nah sein. / Sie sollen nah sein.
Nicht zu weit. / Kein Bus. / Das geht nie. / Es ist niemals weit. / Es ist immer nah.
Es ist nur nah. / Bahn statt Bus. / Reise stornieren. / Das Zimmer ändern. / Veuillez réserver.
Viens, s'il te plaît. / C'est toujours loin. / C'est seulement loin. / Surtout le lac. / Annulez le train.
Ne prenez pas le bus. / Jamás el bus. / Es siempre así. / Es solo así. / Quiero dos camas.
Necesito dos camas. / Debe ser así. / Cambie la cama. / Não o lago. / Всегда поездом.
Только поездом. / Нам нужно два. / Нам надо два.
Нельзя на машине. / Они должны успеть. / Поездом лучше.
Отмените поезд. / Измените поезд. / لا سيارة. / يجب القطار. / يرجى الحجز.
أريد غرفتين. / غرفة فقط. / دائما بالقطار. / أبدا بالسيارة. / Asla otobüs. / Sadece tren. / Yalnızca tren.
Tren gerekiyor. / Treni iptal et. / Odayı değiştir. / Hãy đi tàu. / Đừng đi xe. / Anh phải đi.
Chỉ đi tàu. / Hủy tàu. / Sempre in treno. / Tu devi andare. / Lui deve andare. / Annulla il treno.
Alstublieft twee. / Nooit met de bus. / Altijd met de trein. / Alleen de trein. / Niet te ver.
Graag twee. / Proszę dwa. / Nigdy autem. / Zawsze autem. / Tylko autem. / Mohon dua. / Tolong dua.
Jangan bus. / Hanya kereta. / Harus kereta. / केवल रेल। / रेल चाहिए। / रेल रद्द।
Two rooms please. / Bitte zwei Zimmer. / Deux, s'il vous plaît. / C'est jamais loin. / Por favor dos.
Nunca en bus. / Cancele el tren. / Пожалуйста, два. / Никогда на машине.
Не едем. / Вы не едете. / غرفتين من فضلك. / İki oda lütfen. / Vui lòng hai. / Không đi.
From now on by train. / Ab jetzt Bahn. / Ab sofort Bahn. / Désormais en train. / De ahora en adelante tren.
A partir de ahora tren. / A partir de agora trem. / Впредь поездом. / Отныне поездом. / 从现在起坐火车。
从今以后坐火车。 / 今後は電車で。 / これから電車で。 / 앞으로 기차로.
שניים בבקשה. / תמיד ברכבת. / אף פעם לא אוטובוס. / לעולם לא אוטובוס. / אסור אוטובוס. / חייבים רכבת.
צריך רכבת. / צריכה רכבת. / רק רכבת. / מעכשיו רכבת. / תבטל רכבת. / תשנה חדר. / אל תיסע רחוק.
バスに乗らないで。 / 절대 버스. / Verwende keine Emojis. / Gut so. Fahr nicht zurück.
"""


@pytest.mark.parametrize("wish", re.split("\n| / ", WISHES.strip()))
async def test_a_wish_in_few_words_is_preferred(wish: str):
    told = [user(f"{n} m") for n in range(90)]
    found = await sections(GOAL, user(wish), *told, max_tokens=60)
    assert wish in found["instructions"]


@pytest.mark.parametrize(
    "said",
    [
        *(
            "Tell me more about trains.",
            "Could you please explain trains?",
            "what is a tram then",
        ),
        *(
            "Erzähl mir bitte mehr von Zügen.",
            "Parle-moi des trains, s'il te plaît.",
            "Cuéntame más, por favor.",
        ),
        *(
            "Расскажи, пожалуйста, про поезда.",
            "请给我讲讲火车。",
            "電車について教えてください。",
            "कृपया बताइए।",
        ),
    ],
)
def test_what_asks_to_be_told_something_is_a_question(said: str):
    """It is answered at once, and is no wish that shall hold."""
    assert is_question(said)
    assert weight_of_wish(said) < 0


@pytest.mark.parametrize(
    "said",
    [
        *("Always explain trains in plain words.", "Explain every train in plain words, never in French."),
        *("Tell me the price of each train from now on.", "Explain trains. And never book a bus."),
        *("Erklär mir Züge immer auf Deutsch.", "以后必须给我讲讲火车。", "必ず電車も教えてください。"),
    ],
)
def test_a_rule_for_every_answer_is_no_question(said: str):
    assert not is_question(said)
    assert weight_of_wish(said) > 0


@pytest.mark.parametrize(
    "said",
    [
        *(
            "Actually the train leaves at noon.",
            "Forget the window seat.",
            "Scratch the boat.",
            "Skip the museum.",
        ),
        *("Vergiss den Fensterplatz.", "Finalement le train part le soir.", "Olvida lo del coche."),
        *("Забудьте про люк.", "刚才说错了，是晚上。", "日程を変更します。"),
        *(
            "It leaves at noon, not at dawn.",
            "Noon works better than dawn.",
            "Der Zug geht nicht morgens, sondern mittags.",
        ),
        *("其实火车中午开。", "火车不是早上开，是中午开。"),
    ],
)
def test_what_corrects_or_takes_back_what_was_said_weighs_as_a_wish(said: str):
    """What it corrects stood in the view alone, and was taken for what holds."""
    assert weight_of_wish(said) > weight_of_wish("The train leaves at noon.")


def test_should_i_is_no_wish():
    assert weight_of_wish("Should I be worried?") == weight_of_wish("Is it far?")


@pytest.mark.parametrize(
    "said",
    [
        *(
            "Ann sits at table three.",
            "Ann is sixty-two.",
            "Ann has half a loaf.",
            "Ann brings a dozen eggs.",
        ),
        *("Anna ist dreißig.", "Anna wiegt achtzig Kilo.", "Ana tiene cincuenta.", "Anne a quarante ans."),
        *("安有两个孩子。", "安要三百块。", "Анне сорок лет."),
    ],
)
def test_a_number_in_words_weighs_as_one_in_digits(said: str):
    assert weight_of_wish(said) == pytest.approx(weight_of_wish("Ann sits at table 3."))


@pytest.mark.parametrize(
    "said", ["Ann sits by the door.", "One sits by the door.", "安坐在门边。", "她一直坐着。"]
)
def test_what_tells_no_number_does_not(said: str):
    assert weight_of_wish(said) < weight_of_wish("Ann sits at table 3.")


def test_what_is_told_beside_a_question_outweighs_the_question():
    told = "Ann sits by the door."
    assert weight_of_wish(told) > weight_of_wish(f"{told} Is that far?") > weight_of_wish("Is that far?")
    assert weight_of_wish("Ann sits at table 3.") > weight_of_wish(told)


async def test_of_a_long_request_a_wish_far_behind_its_head_is_told():
    """A rule that was set at the end of a letter was in no summary."""
    told = " ".join(f"On day {n} we walked by lake {n} until it rained again." for n in range(12))
    wish = "And never book a room on the ground floor again."
    found = await sections(
        GOAL, assistant("Done."), user(f"{told} {wish} {told[:120]}"), user("Go by train.")
    )
    [line] = [line for line in found["instructions"] if wish in line]
    assert line.startswith("On day 0 we walked by lake 0")
    assert len(line) <= 280


async def test_of_several_wishes_in_a_long_request_the_last_is_told():
    told = " ".join(f"On day {n} we walked by lake {n} until it rained again." for n in range(12))
    wishes = "Never book a room without a view. And never book a room on the ground floor again."
    said = f"{told} {wishes} The weather was good on the other days."
    found = await sections(GOAL, assistant("Done."), user(said), user("Go by train."))
    [line] = [line for line in found["instructions"] if "ground floor" in line]
    assert line.startswith("On day 0 we walked by lake 0")
    assert line.endswith("And never book a room on the ground floor again.")


async def test_the_newest_next_steps_are_preferred():
    said = [assistant(f"Hut {n} is nice. The next step is to call the owner of hut {n}.") for n in range(20)]
    found = await sections(GOAL, *said, user("And what is the food like?"), max_tokens=150)
    assert any("hut 19" in line for line in found["next"])
    assert not any("hut 0" in line for line in found["next"])


async def test_what_is_said_beside_calls_is_not_what_was_done():
    said = assistant("The night train leaves at nine from the main station.")
    work = (call("click", "1", bid="402"), result("1", "closed"))
    found = await sections(GOAL, said, *work, assistant("It is closed."), user("And the food?"))
    assert said.content not in found["done"]


TOLD = """
The lake is near. / I don't know it. / They do not know. / Es ist nicht weit. / Heute war kein Bus da.
Il ne tient pas. / O lago não veio. / Het is niet ver. / Лучше, чем вчера. / Дом, не знаю. / Tôi không biết.
هو لا يعرف. / मैं नहीं गया।
"""
"""What has a negation, and wishes for nothing."""


@pytest.mark.parametrize("said", TOLD.strip().replace("\n", " / ").split(" / "))
async def test_what_is_no_wish_is_not_preferred(said: str):
    told = [user(f"{n} m") for n in range(90)]
    found = await sections(GOAL, user(said), *told, max_tokens=60)
    assert said not in found["instructions"]


ASSENTS = """
Yes, thank you! / No thanks. / OK, great / okay / Sure, perfect. / Thanks. / Thank you. / Do it. / Go ahead.
Continue. / Please / Proceed. / 好的，谢谢。 / 是的，继续。 / ありがとう / 네, 감사합니다. / Nein danke.
Weiter. / Non, merci. / Sí, gracias. / Sim, obrigada. / obrigado / Нет, спасибо. / نعم، شكرا / Sì, grazie.
Va bene. / evet / teşekkürler / tamam / Vâng, cảm ơn. / được / हाँ, धन्यवाद / ठीक है
Tak, dziękuję. / Terima kasih. / Yeah, go for it! / Yep, sounds good. / Yup. / Nope. / Fine, go on.
Cool, good. / Nice. / Right. / Correct. / Exactly! / Agreed. / 对 / 对的，没问题。 / 嗯嗯，可以。
可以的 / 行 / 没错 / うん / ええ、了解です。 / 了解しました / 了解 / 分かりました。 / わかりました
응, 좋아요. / 예, 좋습니다. / 그래 / 그래요 / Genau, gern. / Klar, gerne. / Gut. / D'accord, parfait.
Bien sûr ! / Vale, claro. / De acuerdo, perfecto. / Adelante. / Beleza! / Ага, хорошо. / Ладно, конечно.
Thanks, that helps! / This helps. / It helps / Got it, next please. / I see, makes sense. / Understood.
Alright. / all right / uh huh / mhm okay / Mm-hmm. / hmm / Verstanden. / Alles klar, danke! / Compris, merci.
Ça marche ! / Entendido. / Понятно, спасибо. / Ясно. / 明白了 / 知道了，谢谢。 / 收到
なるほど / 알겠습니다. / Capito. / Entendi.
Thank you very much! / Thanks so much. / Thanks a lot. / Very good. / Sounds great! / Looks good. / LGTM
That works. / Works for me. / Keep going, please. / Yes, that's right. / I confirm. / Confirmed.
Sí, por favor. / Oui, s'il vous plaît. / Merci beaucoup. / Да, пожалуйста. / Спасибо большое / Evet lütfen.
نعم من فضلك / نعم، تفضل / شكرا جزيلا / כן, בבקשה / לא, תודה / תודה רבה! / טוב / בסדר, מעולה / אוקיי
はい、お願いします。 / よろしくお願いいたします / 承知しました / 承知です
大丈夫です / いいですね / そうですね
네, 부탁드려요 / 네 부탁해요 / 부탁드립니다 / 부탁합니다 / 알겠어요 / 고마워요 / 괜찮아요 / 네, 진행해 주세요
好的，请继续 / 可以，继续吧 / 好的，麻烦你了 / 麻烦了 / 好，谢谢你 / 没事
حسنا، تمام. / لا / Certo, perfetto. / D’accordo. / Nee, dank je. / Hayır. / Dobrze. / जी हाँ
"""


@pytest.mark.parametrize("said", ASSENTS.strip().replace("\n", " / ").split(" / "))
async def test_an_assent_in_any_words_is_no_request(said: str):
    assert "instructions" not in await sections(GOAL, assistant("So I will."), user(said))


@pytest.mark.parametrize(
    "said",
    [
        "Not good.",
        "Next to the lake.",
        "I see two of them.",
        "Right click on the row.",
        "没问题就继续发布",
        "Go on with the hut.",
        "That works for two of us.",
        "二部屋お願いします",
        "请继续订火车票",
    ],
)
async def test_more_than_an_assent_is_a_request(said: str):
    assert said in (await sections(GOAL, assistant("So I will."), user(said)))["instructions"]


async def test_a_request_that_is_said_again_is_told_once():
    again = "Please proceed to the last step of the plan."
    assert (await summarize(user(again), assistant("I will."), user(again))).count(again) == 1


async def test_the_last_failure_is_preferred_to_what_succeeded_before_and_after():
    ran = [
        msg for i in range(30) for msg in (call("sh", f"{i}", command=f"job {i} of it"), result(f"{i}", "7"))
    ]
    failure = (call("sh", "f", command="deploy it"), result("f", "Error: forbidden"))
    found = await sections(*ran[:30], *failure, *ran[30:], max_tokens=60)
    assert "sh: deploy it → Error: forbidden" in found["done"]


async def test_what_fits_is_told_rather_than_a_few_words_of_what_does_not():
    ran = (call("sh", "0", command="make lint"), result("0", "3 files checked"))
    long = (call("update", "1", text="cabin economy " * 9), result("1", "cabin business " * 9))
    found = await sections(*ran, *long, max_tokens=20)
    assert found["done"] == ["sh: make lint → 3 files checked"]


async def test_of_a_call_that_is_cut_the_outcome_stays_apart_from_the_arguments():
    long = " ".join(f"word{n}" for n in range(30))
    messages = (call("update", "1", text=f"cabin economy {long}"), result("1", f"cabin business {long}"))
    for max_tokens in range(40, 120, 10):
        [line] = (await sections(*messages, max_tokens=max_tokens)).get("done", ["→"])
        assert "→" in line


async def test_a_failure_that_was_overcome_does_not_outweigh_the_success():
    tried = (
        call("submit", "1", contract="HT-033", amount=820_800, by="Wang"),
        result("1", "Error: Wang has left the company, ask another to approve of it"),
        call("submit", "2", contract="HT-033", amount=820_800, by="Chen"),
        result("2", "submitted as SP-0091"),
    )
    later = [msg for i in range(9) for msg in (call("list", f"l{i}", page=i), result(f"l{i}", "7"))]
    found = await sections(*tried, *later, max_tokens=100)
    assert "submit: contract=HT-033 amount=820800 by=Chen → submitted as SP-0091" in found["done"]
    assert not any("Error" in line for line in found["done"])


async def test_what_an_index_quoted_of_the_user_stays_when_segments_merge():
    """Between what calls came to, each of which names much, a wish that names nothing was lost."""
    wish = "Skip it on the last day of the year, and tell the night shift instead of the others."
    calls = "".join(f"\n- sh: part {n} log_{n} → load orders_{n}8a rows_{n}77 (40 lines)" for n in range(20))
    first = segment(f"## Done\n- sh: make → built\n\n## Index\n- user: {wish}{calls}")
    merged = await summarize(first, segment("## Done\n- sh: make lint → 3 files checked"), max_tokens=120)
    assert wish in parse_sections(merged)["instructions"]
    again = await summarize(segment(merged), segment(f"## Index{calls}"), max_tokens=120)
    assert wish in parse_sections(again)["instructions"]


async def test_of_one_tool_for_all_the_newest_run_of_each_program_is_told():
    ran = [
        message
        for n, command in enumerate(
            ["make deploy", *(f"git show rev_{n}" for n in range(9)), "cat a.txt", *["ls"] * 3]
        )
        for message in (call("sh", f"{n}", command=command), result(f"{n}", f"said {n} things"))
    ]
    found = await sections(GOAL, *ran, max_tokens=150)
    assert "sh: make deploy → said 0 things" in found["done"]


async def test_that_tests_passed_in_the_end_outweighs_what_was_run_later():
    """Where only an older run was told, what it told stood as the last word."""
    passed = (call("sh", "1", command="make test"), result("1", "== 7 passed in 3s =="))
    later = [
        message
        for n in range(9)
        for message in (
            call("sh", f"v{n}", command=f"tool_{n} src/part_{n}.py"),
            result(f"v{n}", f"part_{n} has class_{n}x"),
        )
    ]
    found = await sections(GOAL, *passed, *later, max_tokens=250)
    assert "sh: make test → 7 passed in 3s" in found["done"]


async def test_pages_in_turn_do_not_crowd_out_the_rest():
    checked = [
        message
        for hut, rule in (("Falk", "no dogs after ten"), ("Rabe", "free from May on"))
        for message in (call("check", hut, hut=hut), result(hut, rule))
    ]
    pages = [
        message
        for n in range(9)
        for message in (call("list_huts", f"p{n}", page=n), result(f"p{n}", f"hut_{n} on page {n}"))
    ]
    found = await sections(GOAL, *checked, *pages, max_tokens=200)
    assert "check: hut=Falk → no dogs after ten" in found["done"]
    assert "list_huts: page=8 → hut_8 on page 8" in found["done"]


async def test_what_was_said_before_other_work_is_not_in_progress():
    said = assistant("A popup covers the button, and I close it.")
    work = (call("click", "1", bid="402"), result("1", "closed"))
    found = await sections(GOAL, said, *work)
    assert said.content in found["done"]
    assert "progress" not in found
    assert (await sections(GOAL, *work, said))["progress"] == [said.content]


async def test_a_call_whose_outcome_the_facts_tell_is_not_told_again():
    ran = (call("sh", "1", command="make"), result("1", "built in 7 s"))
    wanted = request(GOAL, *ran, facts=("sh: make → built …",))
    assert "sh: make" not in (await ExtractiveSummarizer(PieceCounter()).summarize(wanted)).text


def test_a_label_with_a_colon_is_one():
    line = CarriedLine("facts", r"sh type C:\a\b …: order_1, order_2", 0.0, 0.0)
    assert index_items(line) == (r"sh type C:\a\b …", "order_1, order_2")


def test_a_call_with_its_outcome_is_no_list():
    assert index_items(CarriedLine("facts", "read: src/app.py → def main", 0.0, 0.0)) is None


@pytest.mark.parametrize(
    "items",
    [
        "leaves on March 3, 2026, order W12345",
        "order W12345, now on Friday 15 May 2026 at 09:00",
        "order W12345, Thursday 14 May 2026, 15:40",
    ],
)
def test_a_list_with_a_date_in_words_is_a_list(items: str):
    """Else what it told of a time stayed as a sentence, merge after merge, whatever was agreed later."""
    assert index_items(CarriedLine("facts", f"assistant: {items}", 0.0, 0.0)) == ("assistant", items)


def test_the_word_that_dates_in_a_row_share_is_not_the_year_of_the_first():
    line = CarriedLine("facts", "user: on March 3, 2026; March 5, 2026; W12345", 0.0, 0.0)
    assert index_items(line) == ("user", "on March 3, 2026, on March 5, 2026, on W12345")


async def test_a_question_that_was_answered_is_nothing_that_was_done():
    found = await sections(GOAL, assistant("Sure! How can I help you with that?"), user("Find a hut."))
    assert "done" not in found


@pytest.mark.parametrize(
    ("said", "is_next"),
    [
        ("What I am trying to do there is the scenario.", False),
        ("What to do after you purchase the policy: keep the receipt.", False),
        ("To do: book the hut for the second night.", True),
        ("The hut for the second night is still to do.", True),
    ],
)
async def test_what_is_left_to_do_is_next_and_not_every_to_do(said: str, is_next: bool):
    found = await sections(GOAL, assistant(said), user("Go on then, with the train first."))
    assert (said in found.get("next", [])) is is_next


def test_what_was_cut_twice_has_one_ellipsis():
    line = "聂卫平是中国围棋史上的人物，他的一生可以从几个方面评价，" * 8 + " …"
    assert quote(line, 160).count("…") == 1
    assert cut("one two … three", 12) == "one two …"


@pytest.mark.parametrize(
    "aside", ["Let me check.", "Looking at the pattern.", "让我再确认一下。", "Mal sehen."]
)
async def test_words_that_only_announce_a_call_are_nothing_done_and_no_state(aside: str):
    asked = call("bash", "1", command="make test")
    asked.content = [{"type": "text", "text": aside}, *asked.content]
    later = [call("bash", "2", command="ls src"), result("2", "app.py")]
    for messages in ([GOAL, asked, result("1", "3 passed")], [GOAL, asked, result("1", "3 passed"), *later]):
        found = await sections(*messages)
        assert aside not in found["done"] + found.get("progress", [])


@pytest.mark.parametrize(
    ("said", "done"),
    [
        ("Now I'll move the parser of dates to `dates.py`:", None),
        ("现在更新 dates.py 的解析器，并处理空的输入和时区后缀，然后再运行一次全部的测试：", None),
        ("The 3 failures are gone. Now I mend the parser:", "The 3 failures are gone."),
        ("3 个失败都没有了。现在更新 dates.py：", "3 个失败都没有了。"),
        (
            "The 3 failures are gone. Now let me see that test_dates.py still holds.",
            "The 3 failures are gone.",
        ),
        ("Good. First, let's see that nothing else in test_dates.py is broken by it.", "Good."),
        ("3 个失败都没有了。让我再看一下 dates.py 的其他部分。", "3 个失败都没有了。"),
        ("They let me run test_dates.py, and it holds.", "They let me run test_dates.py, and it holds."),
        ("The 3 failures are gone, see:\ntest_dates", "The 3 failures are gone, see: test_dates"),
    ],
)
async def test_what_announces_a_call_is_nothing_done(said: str, done: str | None):
    asked = call("bash", "1", command="make test")
    asked.content = [{"type": "text", "text": said}, *asked.content]
    later = [call("bash", "2", command="ls src"), result("2", "app.py")]
    found = await sections(GOAL, asked, result("1", "3 passed"), *later)
    assert [line for line in found["done"] if "→" not in line] == ([done] if done else [])


async def test_what_is_told_beside_a_call_is_kept():
    asked = call("bash", "1", command="make test")
    asked.content = [{"type": "text", "text": "The 3 failures are gone."}, *asked.content]
    assert (await sections(GOAL, asked, result("1", "ok")))["progress"] == ["The 3 failures are gone."]


def test_a_bare_list_of_names_is_one_as_well() -> None:
    """Else it is carried as a sentence, and each merge adds another with half of the same names."""
    names = "SO-25-611398, SO-25-831303, sku P867-071; P867-072"
    assert index_items(CarriedLine("facts", names, 0.0, 0.0)) == ("", names.replace("; ", ", sku "))
    for said in (
        "SO-25-611398, line 1 was wrong",
        "order_1 sent, order_2 lost",
        "P867-071, as is",
        "order_1",
    ):
        assert index_items(CarriedLine("facts", said, 0.0, 0.0)) is None


@pytest.mark.parametrize(
    "wish",
    [
        "送货只能在周六上午，别打电话，发短信到 13805710000。",
        "配達は土曜の午前、注文 DD20250315-2207 です。",
        "Upgrade orders-prod to 15.2.4 first.",
    ],
)
async def test_what_an_index_quoted_of_the_user_in_few_words_is_no_list_of_names(wish: str):
    """In writing without blanks a sentence is one word, and was taken apart at the first merge."""
    merged = await sections(segment(f"## Index\n- user: {wish}"), segment("## Done\n- wrote b.py"))
    assert merged["instructions"] == [wish]
    assert index_items(CarriedLine("facts", "user: 帐篷改成三人的 SKU-771300, DD20250315-2207", 0.0, 0.0))


async def test_what_a_user_named_stands_in_an_index_without_the_commas_before_it():
    """Its items were divided there, too, and what was then no name made the line a wish of the user's."""
    source = Source("user", "user", "It has a rounding bug, so use 2.14.5 instead.", 0.0)
    assert str(describe("2.14.5", source)) == "so use 2.14.5"


@pytest.mark.parametrize(
    "said",
    [
        "We decided on the night train.",
        "I take the bus instead of the train.",
        "The root cause lies in the time zone.",
        *(f"The {what} {verb} a closed pass." for what, verb in [("issue", "is"), ("problem", "was")]),
        *(f"The {what} is a newer key." for what in ("bug", "fix", "solution", "cause")),
        "It turns out that the hut is closed.",
        *(f"{who} use the night train." for who in ("I'll", "I will", "We should", "Let's")),
        "The team chose the night train.",
        "From this I conclude that it is full.",
        "I found that the hut is closed.",
        "It is therefore a closed pass.",
        "Wir haben uns für den Nachtzug entschieden.",
        "Beschlossen ist der Nachtzug.",
        "Die Ursache ist die Zeitzone.",
        "Nous avons décidé de prendre le train.",
        "Он решил ехать ночным поездом.",
        "Такова причина этой ошибки.",
        "我们决定乘坐夜间的火车出发去那里。",
        "这个错误的原因是时区没有被正确设置。",
        "第二个晚上我们改用另外的一间小屋了。",
        "我们最后选择了夜间的火车而不是大巴。",
        "这次检查的结论已经写在了报告的里面。",
        "夜行列車で行くことに決定いたしました。",
        "この誤りの原因は時間帯の設定でした。",
        "오류의 원인은 시간대 설정이었습니다.",
        "우리는 야간 열차로 결정했습니다.",
    ],
)
async def test_what_was_decided_or_found_out_is_a_decision(said: str):
    found = await sections(GOAL, assistant(said), user("Go on then, with the train first."))
    assert found["decisions"] == [said]


@pytest.mark.parametrize(
    "said",
    [
        "The hut is full because of the race.",
        "Die Hütte ist voll, weil Ferien sind.",
        "Le refuge est complet parce que c'est août.",
        "El refugio está lleno porque es agosto.",
        "Приют полон, потому что август.",
        "小屋已经住满了，因为现在正是假期里。",
        "휴가철이기 때문에 산장이 가득 찼습니다.",
    ],
)
async def test_a_reason_is_a_finding_beside_calls_and_an_explanation_in_a_talk(said: str):
    then = user("Go on then, with the train first.")
    found = await sections(GOAL, call("look", "1", at="hut"), result("1", "no beds"), assistant(said), then)
    assert found["decisions"] == [said]
    assert "decisions" not in await sections(GOAL, assistant(said), then)


async def test_of_each_answer_in_a_talk_a_sentence_is_told_and_no_heading():
    """Of the last, the first words stood in full, with its greetings, headings and bullets on one line."""
    first, last = (
        "The night train leaves at nine from the main station.",
        "The hut has room for all of us on both nights.",
    )
    more = "The path is an easy one for all who have good shoes on."
    opened = "Of course, here is what I found out about the second day:"
    found = await sections(
        *(GOAL, assistant(first), user("And the second night, with all of us, what about that one?")),
        assistant(f"{opened}\n\n**All that was found about the hut**\n\n- {last}\n- {more}"),
        user("Go on then, with the train first."),
    )
    assert found["done"] == [first, last]


@pytest.mark.parametrize("short", ["Ms.", "Dr.", "Prof.", "e.g.", "Frau Dr.", "vs.", "H."])
async def test_an_abbreviation_ends_no_sentence(short: str):
    said = f"The second night goes to {short} Lindqvist and to nobody else."
    found = await sections(
        *(GOAL, assistant(said), user("And the second night, with all of us, what about that one?")),
        user("Go on then, with the train first."),
    )
    assert found["done"] == [said]


@pytest.mark.parametrize(
    "said", ["Now I need to decide about the train.", "The trains are on time.", "Undecided is the hut."]
)
async def test_what_is_yet_to_decide_is_no_decision(said: str):
    found = await sections(GOAL, assistant(said), user("Go on then, with the train first."))
    assert "decisions" not in found


@pytest.mark.parametrize(
    "said",
    [
        "The next step is the hut.",
        "Next, the hut has its turn.",
        "Remaining: the second night.",
        "I still need a second night.",
        "TODO: the second night.",
        "What to do next: the hut.",
        *(f"The hut is {what} to do." for what in ("left", "still")),
        "The hut remains to do after that.",
        "The hut I have to do tomorrow.",
        "The hut is not yet booked.",
        "I will now book the hut.",
        "Als Nächstes kommt die Hütte.",
        "Der nächste Schritt ist die Hütte.",
        "Die Hütte ist noch offen.",
        "La prochaine étape est le refuge.",
        "Après cela, il reste le refuge.",
        "El siguiente paso es el refugio.",
        "Это следующий шаг для нас всех.",
        "После этого осталось найти приют.",
        "接下来要预订第二个晚上的那间小屋。",
        "下一步就是预订第二个晚上的小屋了。",
        "现在剩下的是第二个晚上的那间小屋。",
        "我们还需要预订第二个晚上的小屋呢。",
        "第二个晚上的那间小屋尚未预订成功。",
        "次に二日目の山小屋を予約しましょう。",
        "残りは二日目の山小屋の予約だけです。",
        "다음으로 둘째 날 산장을 예약합니다.",
        "이제 남은 것은 둘째 날의 산장입니다.",
    ],
)
async def test_what_remains_to_be_done_is_a_next_step(said: str):
    found = await sections(GOAL, assistant(said), user("Go on then, with the train first."))
    assert found["next"] == [said]


def poll(number: int, line: str) -> list[Msg]:
    lines = [f"2025-05-11T10:{number:02d}:{second:02d}Z INFO all is well" for second in range(20)]
    shown = "\n".join([*lines[:9], line.format(number), *lines[9:]])
    return [
        call("bash", f"c{number}", command="kubectl logs deploy/a --since=60s"),
        result(f"c{number}", shown),
    ]


async def test_an_error_that_a_log_told_of_is_not_outdated_by_the_next_look_at_the_log():
    fine, bad = "2025-05-11T10:{:02d}:30Z INFO fine", "2025-05-11T10:{:02d}:30Z ERROR gateway pgw-3 timed out"
    polls = [poll(number, bad if number == 3 else fine) for number in range(8)]
    told = "2025-05-11T10:03:30Z ERROR gateway pgw-3 timed out (21 lines)"
    summary = await summarize(GOAL, *(msg for pair in polls for msg in pair))
    assert summary.count(told) == 1
    assert summary.count("--since=60s → ") == 2
    again = await summarize(segment(summary), *poll(9, fine), *poll(10, fine))
    assert again.count(told) == 1


LOOKED = (call("look", "1", at="hut"), result("1", "no beds"))


@pytest.mark.parametrize(
    "said",
    [
        "Done so far are 7 of 11 nights, all others wait.",
        "The new best is hut 3 with its two stoves.",
        "The path is shut due to rockfall at km 4.",
        "We cannot pay at hut 3 with a card.",
        "Hut 3 works only with the key from the valley.",
        "The booking of hut 3 failed at the last page.",
        "Hut 3 ist voll und das geht nicht mehr.",
        "До приюта 3 нельзя дойти пешком.",
        "三号小屋 H3 的预订失败了，需要换一间。",
        "H3 の小屋は満室なので予約できませんでした。",
    ],
)
async def test_what_later_work_rests_on_is_told_beside_calls(said: str):
    """Of what agents said between calls only decisions and their reasons stood in a summary."""
    found = await sections(GOAL, *LOOKED, assistant(said), assistant("I go on."), user("Go on then, please."))
    assert [line for line in found["decisions"] if line.startswith(said[:30])]


@pytest.mark.parametrize(
    "said", ["That failed, so I look again here.", "Did the hut H3 refuse, so that it failed?"]
)
async def test_a_finding_names_something_and_asks_nothing(said: str):
    found = await sections(GOAL, *LOOKED, assistant(said), assistant("I go on."), user("Go on then, please."))
    assert "decisions" not in found


@pytest.mark.parametrize(
    "said",
    [
        "I will ask for a room below and tell you when they answer.",
        "I'll come back to the second hut at the end.",
        "I will send the plan by Thursday to all.",
        "Ms Lindqvist will call you back on Tuesday.",
        "Ich melde mich, sobald die Hütte antwortet.",
        "Как только приют ответит, я вам позвоню.",
        "预订完成之后，我会把票发到您的邮箱里。",
        "空きが出ましたら、すぐにお知らせします。",
    ],
)
async def test_what_an_agent_promised_for_later_is_a_next_step(said: str):
    found = await sections(GOAL, *LOOKED, assistant(said), user("Go on then, with the train first."))
    assert found["next"] == [said]


async def test_what_it_would_do_at_once_is_no_promise():
    said = "I will book it when you say so, and not before."
    found = await sections(GOAL, *LOOKED, assistant(said), user("Go on then, with the train first."))
    assert "next" not in found
