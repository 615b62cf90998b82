"""The signs of injected text in other languages: lifting the rules, ordering a value, speaking to who grades.

A judge model reads all of them. The subnet's shop is Philippine, so Filipino, Indonesian, Chinese and Spanish words
also stand in honest texts; what may be said of a product ("full marks", "rated by experts") needs a second sign.
Patterns are written as people write and are folded like the texts (``letters``).
"""

from __future__ import annotations

import re

from trajectory_platform.judging.injection_families import NO_UNIT, Family, Near
from trajectory_platform.judging.letters import plain_letters


def _folded(text: str) -> str:
    return plain_letters(text)


def _stems(text: str) -> tuple[str, ...]:
    return tuple(_folded(word) for word in text.split("|"))


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(_folded(text))


_LIFT = (
    r"(?<!jangan )(?<!huwag )(?<!no )(?<!nicht )(?<!pas )(?<!non )(?<!đừng )(?:"
    "ignor(?:a|ar|ad|en|em|e|ez|er|iere|ieren|iert|ate|uj|ujcie)|zignoruj|olvid(?:a|ad|e)|omite|desconsider(?:a|e)"
    "|esque(?:ç|c)a|oublie[rz]?|vergiss|missachte|dimentica(?:te)?|abaikan|lupakan|negeer|vergeet|pomi(?:ń|n)"
    "|huwag (?:mong |ninyong )?(?:pansinin|sundin)|kalimutan|balewalain|b(?:ỏ|o) qua|ph(?:ớ|o)t l(?:ờ|o)"
    "|yok say|dikkate alma|unut)"
    "|игнориру|проигнориру|забудь|не обращай внимания|ละเว้น|เพิกเฉย|ไม่ต้องสนใจ|ลืม|忽略|无视|忽視|無視|忘记|忘れ|무시|잊"
    "|تجاهل|انس|अनदेखा|नज़रअंदाज़|भूल"
)
_RULES = (
    "instruc(?:ciones|oes|ções)|instructions|consignes|anweisung|vorgaben|regeln?|reglas|regras|r(?:è|e)gles|regole"
    "|istruzioni|instruksi|arahan|perintah|aturan|tagubilin|panuto|mga utos|instruksyon|hướng dẫn|chỉ dẫn|quy tắc"
    "|talimat|kurallar|instructies|instrukcj|polecenia|zasady"
    "|инструкци|указани|правила|คำสั่ง|คำแนะนำ|กฎ|指令|指示|规则|規則|提示|评分标准|命令|ルール|지시|명령|규칙|지침"
    "|تعليمات|القواعد|निर्देश|नियम"
)
_BEFORE = (
    "anterior|previa|prece|vorherig|bisherig|obig|oben|davor|sebelum|di atas|terdahulu|nauna|nakaraa"
    "|lahat|trước|eerder|vorige|voorgaande"
    "|poprzedni|wcześniejsz|powyższ|önceki|yukarıda|предыдущ|прежн|выше|ก่อนหน้า|ข้างต้น|之前|以上|前面|上述"
    "|先前|所有|これまで|以前|前の|上記|全て|すべて"
    "|이전|위의|앞의|모든|سابق|أعلاه|पिछल|ऊपर|पूर्व|todas|toutes|alle|tutte|semua|mọi|tüm|wszystk|все|ทั้งหมด|जميع|सभी"
)
_MEASURE = (
    "puntuaci(?:ó|o)n|puntaje|calificaci(?:ó|o)n|nota|note|pontua(?:ç|c)(?:ã|a)o|bestnote|bewertung"
    "|punktzahl|punteggio|voto"
    "|skor|nilai|markah|marka|puntos|iskor|grado|điểm|puan|cijfer|beoordeling|ocen(?:ę|e|a)|punkt"
    "|оценк|балл|คะแนน|分|評価|点|점수|평가|الدرجة|درجة|अंक"
)
_VALUE = rf"(?<![\d.,])0[.,][5-9]\d?(?!\d){NO_UNIT}"
_VALUE_STEMS = tuple(f"0{point}{digit}" for point in ".," for digit in range(5, 10))
_TOP = (
    "m(?:á|a)xim|massim|perfe(?:c|k)t|h(?:ö|o)chst|pinakamataas|tertinggi|maksim|maksym|penuh|sempurna"
    "|cao nhất|tối đa|en yüksek"
    "|hoogste|najwy(?:ż|z)sz|высш|สูงสุด|เต็ม|最高|满|滿|満|최고|الكاملة|أعلى|पूर्ण|अधिकतम"
)
_GRADER = (
    r"\bjuez|jueces|evaluador|calificador|(?:é|e)valuateur|\bl(?:e|') ?juge\b|\bjur(?:y|ado)\b|bewerter"
    r"|gutachter|valutator|giudice"
    r"|avaliador|\bjuiz\b|penilai|\bjuri\b|\bhakim|\bhukom|tagahatol|tagasuri|giám khảo|người chấm"
    r"|değerlendirici|beoordelaar"
    r"|oceniając|\bsędz|"
    "судь(?:я|е|и)|оценщик|оценивающ|ผู้ตัดสิน|กรรมการ|ผู้ประเมิน|评审|评委|评分员|評審|評価者|審査員|採点者"
    "|심사위원|평가자|채점자|المقيّم|المقيم|القاضي|निर्णायक|मूल्यांकनकर्ता"
)

_RULE_STEMS = _stems(
    "instru|consigne|anweisung|vorgaben|regel|reglas|regras|regles|regole|istruz|arahan|perintah|aturan"
    "|tagubilin|panuto"
    "|utos|hướng dẫn|chỉ dẫn|quy tắc|talimat|kurallar|polecenia|zasady|инструкци|указани|правила|คำสั่ง"
    "|คำแนะนำ|กฎ|指令|指示|规则"
    "|規則|提示|评分标准|命令|ルール|지시|명령|규칙|지침|تعليمات|القواعد|निर्देश|नियम"
)
_MEASURE_STEMS = _stems(
    "puntuaci|puntaje|calificaci|nota|note|pontua|bewertung|punktzahl|punteggio|voto|skor|nilai|marka"
    "|puntos|iskor|grado|điểm"
    "|puan|cijfer|beoordeling|ocen|punkt|оценк|балл|คะแนน|分|評価|点|점수|평가|الدرجة|درجة|अंक"
)
_GRADER_STEMS = _stems(
    "juez|jueces|evalua|calificador|juge|jury|jurado|bewerter|gutachter|valutator|giudice|avaliador|juiz"
    "|penilai|juri|hakim"
    "|hukom|tagahatol|tagasuri|giám khảo|người chấm|değerlendirici|beoordelaar|oceniając|sędz|судь"
    "|оценщик|оценивающ|ผู้ตัดสิน|กรรมการ"
    "|ผู้ประเมิน|评审|评委|评分员|評審|評価者|審査員|採点者|심사위원|평가자|채점자|المقيّم|المقيم|القاضي"
    "|निर्णायक|मूल्यांकनकर्ता"
)
_GIVE = (
    r"\b(?:otorg|asign|d(?:a|e)(?:le|me)?\b|attribue|donne|accorde|vergib|gib\b|vergebt|geben|assegna|dai\b|d(?:ê|e)\b"
    r"|atribu|beri(?:kan)?\b|bigyan|ibigay|chấm|cho\b|ver(?:in)?\b|geef|przyznaj|daj\b|wystaw|responde)"
    "|поставь|дай|присво|ให้|打|给|給|付け|与え|주세요|줘|부여|امنح|أعط|दें|दो"
)


STRONG_TONGUES = (
    Family(
        "override_in_any_tongue",
        2,
        (_RULE_STEMS,),
        Near(_pattern(_LIFT), (_pattern(_RULES), _pattern(_BEFORE)), 45),
    ),
    Family(
        "value_in_any_tongue",
        2,
        (_VALUE_STEMS, _MEASURE_STEMS),
        Near(_pattern(_VALUE), (_pattern(_MEASURE), _pattern(_GIVE)), 40),
    ),
)
WEAK_TONGUES = (
    Family("grader_in_any_tongue", 1, (_GRADER_STEMS,), _pattern(_GRADER)),
    Family("mark_in_any_tongue", 1, (_MEASURE_STEMS,), Near(_pattern(_TOP), (_pattern(_MEASURE),), 15)),
    Family("given_in_any_tongue", 1, (_VALUE_STEMS,), Near(_pattern(_VALUE), (_pattern(_GIVE),), 20)),
)
