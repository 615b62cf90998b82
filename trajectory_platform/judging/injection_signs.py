"""Signs of text that speaks to the judge or steers the model, by intent (domain 6: 28, 29; 8.9).

Patterns see the comparison form of ``injection.comparison_form``: lower case, look-alikes folded, one blank. They
describe what a text *does* (addresses a grader, orders a score, forges a log section, lifts the rules), not the
sentences of known samples.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Family(NamedTuple):
    """One kind of sign. ``weight`` 2 is enough alone, 1 needs another family.

    ``stems``: the pattern cannot match a text without one word of each group; looking for them first is what makes
    the scan cheap.
    """

    name: str
    weight: int
    stems: tuple[tuple[str, ...], ...]
    pattern: re.Pattern[str]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split("|"))


def _any(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives))


def _over_lines(*alternatives: str) -> re.Pattern[str]:
    """Like ``_any``; every blank may be a line break, where the text of two fields meets."""
    return re.compile("|".join(alternatives).replace(" ", r"[ \n]"))


_ROLE = (
    r"(?:judges?|evaluators?|graders?|scorers?|raters?|examiners?|adjudicators?|reviewers?|auditors?|validators?"
    r"|(?:evaluation|evaluating|grading|scoring|judging|reward|judge|review|validator)[ -]?"
    r"(?:model|llm|ai|system|agent|bot|script|process)"
    r"|llm[ -]?(?:judge|grader|evaluator))"
)
_ROLE_STEMS = _words("judg|evaluat|grad|scor|rater|examiner|adjudicator|review|auditor|validator|reward|llm")
_ARTICLE = r"(?:the |all |any |our |every )?"
_CALLS = r"(?:to|for|dear|hey|hello|hi|attention|attn)[ :,]+"
_NOTE = r"(?:note|notice|message|memo|important|instructions?|reminder|attention|hint|warning|info)"

_GIVE = (
    r"(?:give|assign|award|grant|output|return|print|emit|answer|reply|respond|report|produce|write|set|use|rate"
    r"|grade|mark|score|choose|select|put|record)"
)
_GIVE_STEMS = _words(
    "give|assign|award|grant|output|return|print|emit|answer|reply|respond|report|produce|write|set|use|rate|grade"
    "|mark|score|choose|select|put|record|rating|say"
)
_MEASURE = r"(?:reasoning[ _-]*(?:quality|score)|score|rating|grade|mark|verdict|quality)"
_TOP_VALUE = r"(?:0?[.,][5-9]\d?|1[.,]0+|100 ?%|10 ?/ ?10|5 ?/ ?5)"
_TOP = r"(?:highest|maximum|max|perfect|full|top|best)"

_LIFT = r"(?:ignor(?:e|ing)|disregard(?:ing)?|forget|overrid(?:e|ing)|bypass|do not follow|don't follow|stop following)"
_RULES = r"(?:instructions?|rules?|rubrics?|guidelines?|prompts?|directives?)"
_WHICH = (
    r"(?:previous|prior|preceding|earlier|above|former|existing|original|system|scoring|grading|evaluation|judging"
    r"|rating|your|all)"
)
_CLAIM = (
    r"(?:deserves?|earns?|merits?|should (?:be|get|receive)|must (?:be|get|receive)|satisf(?:y|ies|ied)|meets?"
    r"|pass(?:es|ed)|(?:has|have|was|were|is)(?: already)?(?: been)? "
    r"(?:audited|verified|approved|certified|checked|validated|flawless|perfect))"
)
_TRACE = r"(?:trajectory|transcript|trace|agent(?: below| above)?|rollout|submission|candidate agent|episode)"
_PICK = r"(?:recommend|choose|select|pick|buy)"

# Strong families first, then weak ones from rare to common: the scan stops when the threshold is out of reach.
FAMILIES = (
    # Names that exist only inside the judge's own prompt and answer.
    Family(
        "judge_vocabulary",
        2,
        (("reasoning", "judge_"),),
        _any(r"reasoning[ _-]{0,3}quality", r"reasoning_(?:score|coefficient)", r"judge_(?:score|model)"),
    ),
    Family(
        "forged_section",
        2,
        (_words("verified|captured by|end of |/inference|/search/|gate|tokens generated|-- step|--step"),),
        _any(
            r"-- ?step ?\d+ ?--+\s*\n\s*(?:thinking|tool results?|tool calls?|action|observation) ?:",
            r"verified[ _-]*(?:proxy|tool|inference)[ _-]*(?:calls?|logs?)",
            r"captured by (?:the )?(?:validator|proxy)",
            r"end of (?:the )?(?:trajectory|transcript|agent (?:output|log|text)|untrusted (?:text|input|data))",
            r"(?:post|get) /(?:inference|search)/\S+[^\n]{0,80}(?:→|->|=>|tokens ?=)",
            r"\[ ?[x✓✔] ?\] ?gates? ?\d",
            r"gates? ?\d ?(?:[:=-] ?)?(?:is |was |has )?(?:passed|failed|pass\b|fail\b|ok\b|✓)",
            r"\d tokens generated",
        ),
    ),
    Family(
        "override",
        2,
        (_words("ignor|disregard|forget|overrid|bypass|not follow|n't follow|stop follow|huwag|忽|无视|無視"),),
        _over_lines(
            rf"{_LIFT}(?: \w+){{0,3}}? {_WHICH}(?: \w+){{0,4}}? {_RULES}\b",
            rf"{_LIFT}(?: \w+){{0,3}}? {_RULES}(?: \w+){{0,3}}? (?:above|before|you (?:were|have been|got)|so far)",
            # written without blanks, or spaced out letter by letter and joined by the comparison form
            rf"(?:ignore|disregard|forget)\w{{0,12}}(?:previous|prior|above|earlier|scoring|grading)\w{{0,12}}{_RULES}",
            r"ignorar? (?:todas )?(?:las |as )?instruc(?:ciones|oes|ções) (?:anteriores|previas)",
            r"huwag (?:mong )?(?:pansinin|sundin) ang (?:mga )?(?:naunang|nakaraang) (?:tagubilin|utos|panuto)",
            r"(?:忽略|无视|忽視|無視)(?:之前|以上|前面|上述|先前|所有)*的?(?:所有)?(?:指令|指示|规则|規則|提示|评分标准)",
        ),
    ),
    Family(
        "addressed_note",
        2,
        (_ROLE_STEMS, _words("note|notice|message|memo|important|instruction|remind|attention|hint|warn|info")),
        _any(rf"\b{_NOTE}\W{{0,3}}(?:to|for) {_ARTICLE}{_ROLE} ?[:,!;.\n-]"),
    ),
    Family(
        "addressed",
        1,
        (_ROLE_STEMS,),
        _any(
            rf"\b{_CALLS}{_ARTICLE}{_ROLE}\b",
            rf"(?:^|[\n(\[\"'*#>.!]) ?(?:the )?{_ROLE} ?[:,](?= ?\w)",
            rf"\b(?:the|any|every) {_ROLE} "
            r"(?:should|must|shall|has to|needs? to|reads?|is (?:asked|told|required) to)\b",
            rf"\byou are (?:now )?(?:an?|the) {_ROLE}\b",
        ),
    ),
    Family(
        "addressed_model",
        1,
        (
            _words("note|notice|message|memo|important|instruction|remind|attention|hint|warn|info"),
            _words(" ai| ass|agent|model|bot"),
        ),
        _any(
            rf"\b{_NOTE}\W{{0,3}}(?:to|for) {_ARTICLE}"
            r"(?:ai|assistants?|agents?|models?|llms?|(?:chat)?bots?) ?[:,!;.\n-]"
        ),
    ),
    Family(
        "gate_claim",
        1,
        (("gate",),),
        _any(
            r"pass(?:es|ed)? (?:every|all|each)(?: \w+)?(?: of the)?(?: \w+)? gates?\b",
            r"\b(?:all|every|each)(?: the| four| of the)? gates? (?:hold|pass|passed|passes|are met|are passed)\b",
        ),
    ),
    Family(
        "self_praise",
        1,
        (_words("trajectory|transcript| trace|agent|rollout|submission|episode|calls "),),
        _any(
            rf"\b(?:this|the|that) {_TRACE}\b[^.\n]{{0,40}}\b{_CLAIM}\b",
            r"\b(?:calls|trajectory|agent) (?:were|was|have been|has been) (?:already )?"
            r"(?:verified|audited|approved) (?:manually|by)",
        ),
    ),
    Family(
        "fake_turn",
        1,
        (
            _words(
                "-- step|--step|thinking:|thinking :|result:|results:|verdict:|query:|gates:|im_start|im_end|system:"
                "|system :|assistant:|assistant :|new instruction|new system|new prompt|you are now"
            ),
        ),
        _any(
            r"-- ?step ?\d+ ?--",
            r"(?:^|\n) ?(?:thinking|tool results?|verdict|query|gates) ?:",
            r"(?:^|\n) ?(?:system|assistant) ?: ?"
            r"(?:you|ignore|disregard|assign|give|please|from now|new|override|set|rate|score)\b",
            r"<\|?im_(?:start|end)\|?>",
            r"\bnew (?:system )?(?:instructions?|prompt) ?:",
            r"\byou are now (?:an?|the) ",
        ),
    ),
    Family(
        "reply_order",
        1,
        (_words("reply|respond|answer|output|return"), ("{", "exactly", "only", "nothing else", "verbatim")),
        _any(r"\b(?:reply|respond|answer|output|return)\b[^.\n]{0,30}(?:\{|exactly|only|nothing else|verbatim)"),
    ),
    Family(
        "product_order",
        1,
        (
            _words("recommend|choose|select|pick|buy|satisf|meets|matches|fulfil"),
            _words("only|must|always|should|every|all|each"),
        ),
        _any(
            r"\brecommend (?:only )?(?:this|that|the following|my)(?: \w+)? ?"
            r"(?:product|item|listing|id)?(?: \d+)? only\b",
            rf"\b(?:you must|always|only|assistant should|agents? (?:must|should)|ai (?:must|should)"
            rf"|model (?:must|should)) {_PICK} (?:only )?(?:this|that|item|product|id|\d{{6,}})",
            r"this (?:listing|product|item) (?:satisfies|meets|matches|fulfils|fulfills) (?:every|all|each)"
            r"(?: \w+){0,2} (?:constraints?|requirements?|criteria)",
        ),
    ),
    Family(
        "score_order",
        1,
        (_GIVE_STEMS,),
        _any(
            rf"\b{_GIVE}\b[^.\n]{{0,60}}?\b{_MEASURE}\b[^.\n]{{0,25}}?{_TOP_VALUE}",
            rf"\b{_GIVE}\b[^.\n]{{0,30}}?{_TOP_VALUE}[^.\n]{{0,40}}\b(?:{_MEASURE}|agent|trajectory|answer|run|trace|transcript)\b",
            rf"\b{_GIVE} (?:this|the|that) {_TRACE} (?:an? )?{_TOP_VALUE}",
            rf"\b(?:answer|output|respond|reply|print|return|say)(?: with| exactly| just| only){{0,2}} {_TOP_VALUE}",
            rf"\b{_GIVE}\b[^.\n]{{0,40}}?\b{_TOP} (?:possible )?{_MEASURE}\b",
            rf"(?:->|→|=>) ?{_MEASURE} ?[:=]? ?{_TOP_VALUE}",
            rf"[\"'{{]{_MEASURE}[\"']? ?: ?{_TOP_VALUE}",
        ),
    ),
)
