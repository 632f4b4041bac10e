"""What wishes, decisions, plans and assents sound like, in the languages that are spoken most."""

from __future__ import annotations

import re

IMPERATIVE = re.compile(
    r"\b(?:must|never|always|only|instead|should(?! (?:I|we)\b)|make sure|please|need|want|prefer|rather|stop"
    r"|(?<!\bI )(?<!\bwe )(?<!\bthey )(?:don't|do not)|from now on|avoid|remember|remind"
    r"|important|no longer|change|cancel)\b"
    r"|请|必须|不要|别|务必|只|改|需要|应该|希望|记住|提醒|不能|禁止"
    r"|ください|下さい|ないで|お願い|必ず|だけ|절대|반드시|주세요|말고|마세요"
    r"|\b(?:bitte|muss|müssen|soll|sollen|nie|niemals|immer|nur|statt|ab (?:jetzt|sofort))\b"
    r"|\b(?:stornier|änder)"
    r"|\b(?:veuillez|s'il (?:vous|te) pla[iî]t|jamais|toujours|seulement|surtout|annul\w+|désormais)\b"
    r"|\b(?:por favor|nunca|jamás|siempre|s[oó]lo|quiero|necesito|debe|cancel[ae]\w*|cambi[ae]\w*)\b"
    r"|\b(?:a partir de (?:ahora|agora)|de ahora en adelante)\b"
    r"|\b(?:пожалуйста|никогда|всегда|только|нужно|надо|нельзя|должн\w+|лучше(?!,? чем)|отмени\w*)\b"
    r"|\b(?:измени\w*|впредь|отныне|не \w+те)\b"
    r"|\b(?:يجب|من فضلك|يرجى|أريد|فقط|دائما|أبدا)\b"
    r"|\b(?:lütfen|asla|sadece|yalnızca|gerekiyor|iptal|değiştir\w*|vui lòng|hãy|đừng|phải|chỉ|hủy)\b"
    r"|\b(?:per favore|sempre|devi|deve|alstublieft|nooit|altijd|alleen|graag)\b"
    r"|\b(?:proszę|nigdy|zawsze|tylko|mohon|tolong|jangan|hanya|harus)\b|कृपया|केवल|चाहिए|रद्द"
    r"|\b(?:בבקשה|תמיד|אף פעם|לעולם|אסור|חייב\w*|צרי(?:ך|כה|כים)|רק|מעכשיו|תבטל|תשנה)\b|\bאל ת\w+"
    r"|从现在起|从今以后|今後|これから|앞으로"
    # What takes back or corrects what was said before.
    r"|\b(?:actually|correction|I meant|(?:changed|change) my mind|forget|scratch|drop|skip|ignore)\b"
    r"|, not (?!only|sure|to mention)|\b(?:better than|turns out|sondern|sino|plutôt que)\b"
    r"|[,，]不是|(?<!是)不是[^?？]*是|而是|其实"
    r"|\b(?:doch lieber|vergiss|vergessen Sie|Korrektur|verschieb\w*|finalement|en fait|oubli(?:e|ez))\b"
    r"|\b(?:olvid[ae]\w*|en realidad|забудь\w*|на самом деле|ошиб\w+|dimentica\w*|esque(?:ce|ça)\w*)\b"
    r"|算了|更正|说错|変更|訂正|やめ(?:ます|て)|取り消|변경|취소|아니라|\b(?:انس|بدلا|تغير|تصحيح)\b|भूल जा|बदल"
    r"|(?:\A|[.!?]\s)\w+ (?:nicht|kein\w{0,2})\b"
    r"|(?<![\w,;] )\b(?:nicht|kein\w{0,2}|ne \w+ pas|não|не|لا|không|niet)\b",
    re.IGNORECASE,
)
"""What a wish or a rule sounds like, in the languages that are spoken most.

A negation is one where it begins a clause, or, in German, follows the verb that begins a sentence; within, as
in "not as bad as yesterday", it only tells.
"""
NUMBER = re.compile(
    r"\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|hundred|thousand|million|half"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty(?:-\w+)?|dozens?"
    r"|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|elf|zwölf|\w+zehn|\w+[zß]ig|\w*(?:hundert|tausend)\w*"
    r"|deux|trois|quatre|cinq|sept|huit|neuf|dix|onze|douze|quinze|vingt|\w+ante|cent|mille"
    r"|dos|tres|cuatro|cinco|seis|siete|ocho|nueve|diez|doce|\w+[cs]ientos|cien|mil|\w+enta"
    r"|две?|три|четыре|пять|шесть|семь|восемь|девять|десять|\w+(?:надцать|десят)|сорок|сто|тысяч\w*)\b"
    r"|[一二三四五六七八九十百千万两半]{2,}|[二三四五六七八九十百千万两半](?=[^\W一二三四五六七八九十])",
    re.IGNORECASE,
)
"""A number, in digits or in words; "one" is seldom told for its own sake."""
INQUIRY = re.compile(
    r"(?:[^\W\d_][\w .-]{0,38}: )?"  # who of several says it
    r"(?!.*\b(?:always|never|every|each|immer|nie|toujours|jamais|siempre|nunca|всегда|никогда|from now on)\b"
    r"|.*(?:一直|总是|以后|必ず|いつも|常に|항상|دائما|हमेशा))"
    r"(?:(?:(?:and|so|now|then|well|ok(?:ay)?|hm+|please|bitte|пожалуйста|(?:can|could|would|will) you"
    r"|I(?:'d| would) like you to)\b[ ,]*)*"
    r"(?:(?:tell me|explain|describe|elaborate|recommend|suggest|summari[sz]e|compare|show me|walk me through"
    r"|help me understand"
    r"|give me (?:\w+ ){1,4}?(?:overview|summary|examples?|ideas?|tips|details|information|advice))\b"
    r"|(?:what|how|why|who|which|when|where)(?:'s| \w+)? (?:is|are|was|were|do|does|did|can|could|should"
    r"|would|will|has|have)\b"
    r"|(?:erzähl|erklär|beschreib|zeig|vergleich)\w*\b|sag(?:en Sie)? mir\b"
    r"|(?:parle|explique|raconte|décri|montre|compare)\w*\b|dites?-moi\b"
    r"|(?:cu[eé]nta|expl[ií]ca|háblame|d[ií]me|muéstra|compara|spiega|dimmi|raccontami)\w*\b"
    r"|(?:расскажи|объясни|опиши|покажи|сравни)\w*\b|(?:حدثني|اشرح|أخبرني)\b"
    r"|[请再帮给跟我能你您]*(?:讲讲|说说|谈谈|介绍|解释|讲解|告诉))"
    r"[^.!?。！？।]*[.!?。！？।]*\Z"
    r"|[^.!?。！？।]*(?:教えて|説明して|聞かせて|알려 ?주|설명해 ?주|बताइए|बताओ|समझाइए)\w*[.。।]?\Z)",
    re.IGNORECASE,
)
"""What asks to be told something, with no question mark at its end: as a question, it is answered at once.

One sentence; a word by which it holds for every answer makes it a rule.
"""
DECISION = re.compile(
    r"\b(?:(?<!to )decid\w+|instead of|root cause"
    r"|the (?:issue|problem|bug|fix|solution|cause) (?:is|was)|turns out|chose|conclu\w+"
    r"|(?:I'll|I will|we should|let's) use|found that|therefore)\b"
    r"|\b(?:entschieden|beschlossen|Ursache|décidé|решил\w*|причина)\b"
    r"|决定|原因是|改用|选择了|结论|決定|原因は|원인은|결정",
    re.IGNORECASE,
)
REASON = re.compile(r"\b(?:because|weil|parce que|porque|потому что)\b|因为|때문", re.IGNORECASE)
"""What a finding gives beside calls; in a talk, whatever is explained."""
FINDING = re.compile(
    r"\d (?:out )?of (?:the )?\d|\b(?:root )?(?:causes?|caused by|culprit|due to|so far|new best)\b"
    r"|\b(?:can ?not|can't|(?:does|do|did)(?: not|n't) (?:work|fit|try|retry|use|support)|never (?:use|try)"
    r"|works? only|only works?|must (?:not )?be|no longer|impossible|hopeless|refused|rejected|blocked by"
    r"|locked|is (?:disabled|broken|missing|gone)|diverges|fail(?:s|ed))\b"
    r"|\b(?:geht nicht|funktioniert nicht|nur mit|impossible de|ne marche pas|no funciona|no se puede)\b"
    r"|\b(?:нельзя|невозможно|не работает|не удалось)\b"
    r"|根因|失败|不能|无法|目前最|できません|失敗|안 됩니다|실패|لا يمكن|لم ينجح|ไม่ได้",
    re.IGNORECASE,
)
"""What a finding sounds like on which later work rests: how far it got, what is at fault, what fails."""
PROMISE = re.compile(
    r"\bI(?:'ll| will| shall)\b(?=[^?]*\b(?:(?:when|once|as soon as|after|until|before) (?!you\b)|at the end"
    r"|later|tomorrow|remind you|tell you|let you know|come back|call (?:you )?back"
    r"|by (?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|noon|tonight)\b))"
    r"|\bwill (?:call|get back to) you\b"
    r"|\bich (?:melde mich|sage \w+ Bescheid)\b|\bje (?:vous|te) (?:rappelle|préviens|tiens)\b"
    r"|\b(?:le|te) aviso\b"
    r"|\bкак только\b.*\bя\b|(?:完成|之后|到时|届时|明天).{0,8}我会|我会.{0,20}(?:之后|到时|提醒|通知)"
    r"|お知らせします|ご連絡します|연락드리|알려드리겠",
    re.IGNORECASE,
)
"""What an agent said that it would do later."""
PENDING = re.compile(
    r"\b(?:next step|next(?=,)|remaining|still need|todo|to do(?= ?:| next| is\b|$)"
    r"|(?:left|still|remains|have) to do|not yet|will now)\b"
    r"|\b(?:als Nächstes|nächste\w* Schritt|noch offen|prochaine étape|il reste|siguiente paso)\b"
    r"|\b(?:следующ\w+ шаг\w*|осталось)\b|接下来|下一步|剩下|还需要|尚未|次に|残り|다음으로|남은",
    re.IGNORECASE,
)
ANNOUNCEMENT = re.compile(
    r"(?:(?:now|next|first|then|ok(?:ay)?|so|good|great)\b[,.!:]? *){0,3}(?:let me|let's|lass(?:en Sie)? mich"
    r"|laissez-moi|d[eé]j[ae]me|vou|давайте|позвольте)\b|(?:现在|接下来|首先)?[,，]?(?:让我|我来)",
    re.IGNORECASE,
)
"""How a sentence begins that announces what is called beside it."""
ASSENT = re.compile(
    r"\W*(?:(?:yes|yeah|yep|yup|no|nope|ok(?:ay)?|sure|thanks?|thank you|go ahead|go for it|go on|continue"
    r"|proceed|do it|please|great|perfect|good|fine|cool|nice|right|correct|exactly|agreed"
    r"|对的?|嗯|行|可以的?|没问题|没错|うん|ええ|了解(?:です|しました)?|[分わ]かりました|응|예|좋아요|좋습니다|그래요?"
    r"|genau|klar|gut|gerne?|d['’]accord|parfait|bien sûr|vale|claro|de acuerdo|perfecto|adelante|beleza"
    r"|ага|хорошо|ладно|конечно|حسنا|تمام|لا|certo|perfetto|d['’]accordo|nee|dank je|hayır|dobrze|जी"
    r"|好的?|是的?|谢谢|はい|ありがとう(?:ございます)?|네|감사합니다|ja|nein|danke|bitte|weiter|oui|non|merci"
    r"|sí|gracias|sim|obrigad[oa]|да|нет|спасибо|نعم|شكرا|sì|grazie|va bene|evet|tamam|teşekkürler|vâng|được"
    r"|got it|i see|makes sense|(?:that|this|it) helps|understood|al(?:l )?right|next|uh[- ]huh"
    r"|\b(?:mm?-?)?hmm?\b|verstanden|alles klar|compris|ça marche|entendi(?:do)?|понятно|ясно|明白了?|知道了"
    r"|(?:very|so) much|a lot|very|(?:sounds|looks) (?:good|great)|lgtm|(?:that|this|it) works|works for me"
    r"|keep going|that's (?:right|correct|fine)|I confirm|confirmed"
    r"|por favor|s'il (?:vous|te) pla[iî]t|beaucoup|пожалуйста|большое|lütfen|من فضلك|تفضل|جزيلا"
    r"|כן|לא|טוב|תודה(?: רבה)?|בבקשה|בסדר|אוקיי|מעולה"
    r"|(?:よろしく)?お願い(?:します|いたします)?|承知(?:しました|です)?|大丈夫(?:です)?|いいですね|そうですね"
    r"|부탁(?:해요|드려요|드립니다|합니다)|알겠어요|고마워요|괜찮아요|진행해 ?주세요"
    r"|请?继续吧?|麻烦你?了|谢谢你|没事"
    r"|收到|なるほど|알겠습니다|capito"
    r"|cảm ơn|हाँ|ठीक है|धन्यवाद|tak|dziękuję|terima kasih)\W*)*",
    re.IGNORECASE,
)
DECLINE = re.compile(
    r"\W*(?:(?:no|nope|nein|non|não|нет|لا|לא|nee|hayır|nie|không)\b|不(?:用|要|是|行|对)?|いいえ|아니)",
    re.IGNORECASE,
)
"""How a no begins."""
OFFER = re.compile(
    r"\b(?:any|some)thing (?:else|more)\b|\bany other (?:questions?|requests?|concerns?)\b"
    r"|还有(?:什么|其他|别的)|他に(?:何か|ご)|sonst noch|noch etwas|autre chose|algo más"
    r"|mais alguma|что-нибудь ещ[её]|더 (?:필요|도와)",
    re.IGNORECASE,
)
"""What an agent asks when all is done."""
PROPOSAL = re.compile(
    r"\b(?:I(?:'d| would)(?: rather)? (?:suggest|recommend|propose|go (?:with|for)|take|choose|pick|use|put)"
    r"|I (?:suggest|recommend|propose)|my (?:suggestion|recommendation|proposal)"
    r"|ich (?:würde|schlage|empfehle)|mein Vorschlag|je (?:propose|recommande|suggère|conseille|prendrais)"
    r"|(?:te |le |os )?(?:recomiendo|sugiero|propongo|aconsejo)|предлагаю|советую|рекомендую|я бы)\b"
    r"|建议|推荐|おすすめ|お勧め|提案|추천|제안|أقترح|أنصح|सुझाव|मेरी राय",
    re.IGNORECASE,
)
"""How an agent proposes something without asking whether it may."""
THANKS = re.compile(
    r"thank|\b(?:i see|got it|helps|helpful|danke|merci|gracias|obrigad|grazie|спасибо|شكرا|teşekkür|धन्यवाद)"
    r"|谢|ありがと|감사|고마",
    re.IGNORECASE,
)
"""What is said to any answer, and agrees to nothing."""
ASSENT_CHARS = 80
"""Of a message, looked at for whether it is but an assent."""
QUESTION_MARKS = ("?", "？", "؟")
STEP_MARK = re.compile(
    r"\[(?:[x ~-]|todo|done|pending|completed|in[ _]progress)\]|[☐☑✅⬜✔]\N{VARIATION SELECTOR-16}?",
    re.IGNORECASE,
)
"""How far a step of a plan is."""
