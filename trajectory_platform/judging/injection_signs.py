"""Signs of text that speaks to the judge or steers the model, by intent (domain 6: 28, 29; 8.9).

Patterns see the comparison form of ``injection.comparison_form``: lower case, look-alikes folded, one blank. They
describe what a text *does* (addresses a grader, orders a score, forges a log section, lifts the rules), not the
sentences of known samples.
"""

from __future__ import annotations

import re

from trajectory_platform.judging.injection_families import NO_UNIT, Either, Family, Near, any_of, over_lines, words
from trajectory_platform.judging.injection_tongues import STRONG_TONGUES, WEAK_TONGUES

_ROLE = (
    r"(?:judges?|evaluators?|graders?|scorers?|raters?|examiners?|adjudicators?|reviewers?|auditors?|validators?"
    r"|(?:evaluation|evaluating|grading|scoring|judging|reward|judge|review|validator)[ -]?"
    r"(?:model|llm|ai|system|agent|bot|script|process)"
    r"|llm[ -]?(?:judge|grader|evaluator))"
)
_ROLE_STEMS = words("judg|evaluat|grad|scor|rater|examiner|adjudicator|review|auditor|validator|reward|llm")
_ARTICLE = r"(?:the |all |any |our |every )?"
_CALLS = r"(?:to|for|dear|hey|hello|hi|attention|attn)[ :,]+"
_NOTE = r"(?:note|notice|message|memo|important|instructions?|reminder|attention|hint|warning|info)"

_GIVE = (
    r"(?:give|assign|award|grant|output|return|print|emit|answer|reply|respond|report|produce|write|set|use|rate"
    r"|grade|mark|score|choose|select|put|record)"
)
_GIVE_STEMS = words(
    "give|assign|award|grant|output|return|print|emit|answer|reply|respond|report|produce|write|set|use|rate|grade"
    "|mark|score|choose|select|put|record|rating|say|treat|count|label|value|largest|highest|greatest"
)
_ORDER_STEMS = (*_GIVE_STEMS, *words("quality|verdict|appropriate|correct|expected|right"))
_MEASURE = r"(?:reasoning[ _-]*(?:quality|score)|score|rating|grade|mark|verdict|quality)"
_LINK = r"(?:here|must|should|has to|is|was|be|to|now|final)"
_MARK = r"(?:score|rating|grade|mark|verdict|value|quality)"
_TOP_VALUE = r"(?:0?[.,][5-9]\d?|1[.,]0+|100 ?%|10 ?/ ?10|5 ?/ ?5)"
_VALUE = (
    rf"(?<![\d.,])(?:0?[.,][5-9]\d?(?![\w%]){NO_UNIT}"
    r"|(?:zero )?point (?:seven|eight|nine)\b|nine tenths|ninety per ?cent)"
)
_TOP = r"(?:highest|maximum|max|perfect|full|top|best)"

_LIFT = (
    r"(?<!not )(?<!n't )(?<!never )(?:ignor(?:e|ing)|disregard(?:ing)?|forget|overrid(?:e|ing)|bypass|do not follow"
    r"|don't follow|stop following)"
)
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
_MODEL = r"(?:ai|llms?|(?:chat)?bots?|assistants?|agents?|models?)"
_MODEL_STEMS = words(" ai|ai |llm|bot|assistant|agent|model")
_PICK = r"(?:recommend|choose|select|pick|buy)"

# Strong families first, then weak ones from rare to common: the scan stops when the threshold is out of reach.
FAMILIES = (
    # Names that exist only inside the judge's own prompt and answer.
    Family(
        "judge_vocabulary",
        2,
        (("reasoning", "judge_"),),
        any_of(r"reasoning[ _-]{0,3}quality", r"reasoning_(?:score|coefficient)", r"judge_(?:score|model)"),
    ),
    Family(
        "forged_section",
        2,
        (words("verified|captured by|end of |/inference|/search/|gate|tokens generated|-- step|--step"),),
        any_of(
            r"-- ?step ?\d+ ?--+\s*\n\s*(?:thinking|tool results?|tool calls?|action|observation) ?:",
            r"verified[ _-]*(?:proxy|tool|inference)[ _-]*(?:calls?|logs?)",
            r"captured by (?:the )?(?:validator|proxy)",
            r"end of (?:the )?(?:trajectory|transcript|agent (?:output|log|text)|untrusted (?:text|input|data))",
            r"(?:post|get) /(?:inference|search)/\S+[^\n]{0,80}(?:→|->|=>|tokens ?=)",
            r"\[ ?[x✓✔] ?\] ?gates? ?\d",
            r"gates? ?\d ?(?:[:=-] ?)?(?:is |was |has )?(?:passed|failed|pass\b|fail\b|ok\b|✓)",
            r"\d tokens generated",
            r"gates? \d(?: ?(?:,|to|through|thru|and|&|-|or) ?(?:gates? )?\d){1,3}[^.\n]{0,30}"
            r"\b(?:pass|passed|hold|satisfied|met|ok|fulfilled|true|cleared)\b",
            r"\b(?:pass|passed|hold|satisfied|met|fulfilled|cleared) gates? \d(?: ?(?:,|to|and|&|-)| gate)",
            r"gates?[\"'] ?: ?[\[{]",
        ),
    ),
    Family(
        "override",
        2,
        (
            words(
                "ignor|disregard|forget|overrid|bypass|not follow|n't follow|stop follow|rubric|gates|skip|guidelines"
                "|instructions|rules|prompt"
            ),
        ),
        over_lines(
            rf"{_LIFT}(?: \w+){{0,3}}? {_WHICH}(?: \w+){{0,4}}? {_RULES}\b",
            rf"{_LIFT}(?: \w+){{0,3}}? {_RULES}(?: \w+){{0,3}}? (?:above|before|you (?:were|have been|got)|so far)",
            # written without blanks, or spaced out letter by letter and joined by the comparison form
            rf"(?:ignore|disregard|forget)\w{{0,12}}(?:previous|prior|above|earlier|scoring|grading)\w{{0,12}}{_RULES}",
            r"(?:do not|don't|never|no need to) (?:apply|use|follow|obey|test|check) (?:the|any|its|these) "
            r"(?:rubric|gates|grading|scoring)",
            r"(?:skip|bypass) (?:all |the |any )+(?:rubric|gates|grading|scoring)\b",
            r"(?:(?:previous|prior|earlier|above|grading|scoring|judging)(?: \w+)? (?:guidelines"
            r"|instructions|rules|prompt)"
            r"|rubric|gates)(?: above)? (?:have|has|are|is|were|was) (?:been |now |no longer )*"
            r"(?:superseded|replaced|voided?|cancelled|canceled|revoked|obsolete|suspended|lifted"
            r"|overridden|valid|in force)",
            rf"{_LIFT} the (?:user|customer|buyer|shopper)s?(?:'s?)? \w+(?: \w+)? ?(?:and|,|;) (?:just "
            rf"|only |always )?{_PICK}",
        ),
    ),
    Family(
        "trace_order",
        2,
        (words("trajectory|transcript|rollout|trace|episode"), _GIVE_STEMS),
        over_lines(
            rf"\b{_GIVE} [^.]{{0,40}}?(?:{_TOP} (?:possible |allowed )?{_MARK}|{_VALUE})[^.]{{0,30}}?"
            r"\b(?:trajectory|transcript|rollout|this trace|episode)\b",
            rf"\b{_GIVE} (?:this|the) (?:trajectory|transcript|rollout|trace|episode)\b[^.]{{0,40}}?"
            rf"(?:{_TOP} (?:possible |allowed )?{_MARK}|{_VALUE})",
        ),
    ),
    *STRONG_TONGUES,
    Family(
        "addressed_note",
        2,
        (_ROLE_STEMS, words("note|notice|message|memo|important|instruction|remind|attention|hint|warn|info")),
        any_of(rf"\b{_NOTE}\W{{0,3}}(?:to|for) {_ARTICLE}{_ROLE} ?[:,!;.\n-]"),
    ),
    Family(
        "addressed",
        1,
        (_ROLE_STEMS,),
        any_of(
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
        (words(" ai|ai |assist|agent|model|bot|llm"),),
        any_of(
            rf"\b{_NOTE}\W{{0,3}}(?:to|for) {_ARTICLE}"
            r"(?:ai|assistants?|agents?|models?|llms?|(?:chat)?bots?) ?[:,!;.\n-]",
            r"\b(?:attention|attn|dear|hey|hello)[ ,:]{1,2}(?:ai|llms?|chatbots?|bots?|(?:language"
            r" )?models?|assistants?"
            r"|(?:ai |shopping )agents?)\b",
            r"(?:^|[\n.!\])>]) ?(?:ai agents?|llms?|chatbots?|assistants?|ai assistants?|language models?) ?[:,] ?\w",
            r"\bif you(?:'re| are) an? (?:ai|llm|(?:large )?language model|chatbot|bot|assistant|(?:ai"
            r"|shopping|autonomous) agent)\b",
            rf"\b{_NOTE}\W{{1,3}}(?:all |any |every )?(?:ai|llms?|chatbots?|(?:ai |shopping"
            rf" )+(?:assistants?|agents?))\b",
        ),
    ),
    Family(
        "grading_talk",
        1,
        (
            words(
                "grad|evaluat|judg|scor|rating|tipp|tip |calibration|ground truth|annotat|benchmark|reading this|rater"
            ),
        ),
        any_of(
            r"\bif you(?:'re| are)(?: an? [\w ]{2,20}?)? (?:grading|evaluating|judging|scoring|rating"
            r"|assessing) (?:this|the)\b",
            r"\bfor (?:the )?(?:grading|evaluation|scoring|judging) purposes?\b",
            r"\b(?:whoever|anyone who|any model that|the model that) (?:grades|scores|judges|evaluates|rates)\b",
            r"\b(?:ai|llm|models?) (?:that (?:is|are) )?(?:reading|grading|evaluating|judging|scoring) this\b",
            r"\bact as an? (?:\w+ )?(?:grader|judge|evaluator|scorer)\b",
            r"\byou (?:will|shall) be tipped\b",
            r"\b(?:calibration (?:sample|example|trace)|ground[ -]truth (?:label|score|value|verdict))\b",
            r"\bhuman (?:annotators?|raters?|graders?|labell?ers?)\b",
            r"\bdevelopers? of (?:this|the) (?:benchmark|evaluation|test|judge|grader)\b",
        ),
    ),
    Family(
        "gate_claim",
        1,
        (("gate",),),
        any_of(
            r"pass(?:es|ed|ing)? (?:every|all|each)(?: \w+)?(?: of the)?(?: \w+)? gates?\b",
            r"[\"']gates?[\"'] ?: ?[\"']?(?:pass|ok|true|met|held|hold)",
            r"\b(?:all|every|each)(?: the| four| of the)? gates? (?:hold|pass|passed|passes|are met|are passed)\b",
        ),
    ),
    Family(
        "self_praise",
        1,
        (words("trajectory|transcript| trace|agent|rollout|submission|episode|calls "),),
        any_of(
            rf"\b(?:this|the|that) {_TRACE}\b[^.\n]{{0,40}}\b{_CLAIM}\b",
            r"\b(?:calls|trajectory|agent) (?:were|was|have been|has been) (?:already )?"
            r"(?:verified|audited|approved) (?:manually|by)",
        ),
    ),
    Family(
        "fake_turn",
        1,
        (
            words(
                "-- step|--step|thinking:|thinking :|result:|results:|verdict:|query:|gates:|im_start|im_end|system:"
                "|system :|assistant:|assistant :|new instruction|new system|new prompt|you are now|<|[|###|human|role"
                "|from now on|override|trace "
            ),
        ),
        any_of(
            r"-- ?step ?\d+ ?--",
            r"(?:^|\n) ?(?:thinking|tool results?|verdict|query|gates) ?:",
            r"(?:^|\n) ?(?:system|assistant) ?: ?"
            r"(?:you|ignore|disregard|assign|give|please|from now|new|override|set|rate|score)\b",
            r"<\|?im_(?:start|end)\|?>",
            r"\bnew (?:system )?(?:instructions?|prompt) ?:",
            r"\byou are now (?:an?|the) ",
            r"<\|?(?:start_header_id|eot_id|system|user|assistant|endoftext|end_of_turn)\|?>"
            r"|<start_of_turn>|\[/?inst\]",
            r"<</?sys>>|</?(?:system|tool_response|tool_result|function_results?|untrusted|data|input)>",
            r"###? ?(?:instructions?|system|response|human|assistant) ?:",
            r"(?:^|[\n>.!]) ?human ?: ?\w",
            r"\[ ?(?:admin|developer|evaluation|evaluator|judge|grader)(?:[ _-]\w{1,15}){0,2} ?\]",
            r"\[ ?system (?:override|message|note|prompt|notice) ?\]|\bsystem override\b",
            r"[\"']role[\"'] ?: ?[\"'](?:system|developer|assistant)[\"']",
            r"[\"}\]] ?[,}\]] ?[\"'](?:steps|log|calls|query_from|verdict)[\"'] ?:",
            r"\bfrom now on,? (?:act|you|behave|answer|respond|grade|judge)\b",
            r"\btrace (?:[0-9a-f]{8,} )?(?:end|begin)s?\b(?! (?:of|with|to|in|on|at))",
        ),
    ),
    Family(
        "reply_order",
        1,
        (words("reply|respond|answer|output|return"), ("{", "exactly", "only", "nothing else", "verbatim")),
        any_of(r"\b(?:reply|respond|answer|output|return)\b[^.\n]{0,30}(?:\{|exactly|only|nothing else|verbatim)"),
    ),
    *WEAK_TONGUES,
    Family(
        "product_order",
        1,
        (words("recommend|choose|select|pick|buy|satisf|meets|matches|fulfil|answer|search|looking|terminate"),),
        Either(
            (
                (words("only|must|always|should|every|all|each"),),
                any_of(
                    r"\brecommend (?:only )?(?:this|that|the following|my)(?: \w+)? ?"
                    r"(?:product|item|listing|id)?(?: \d+)? only\b",
                    rf"\b(?:you must|always|only|assistant should|agents? (?:must|should)|ai (?:must|should)"
                    rf"|model (?:must|should)) {_PICK} (?:only )?(?:this|that|item|product|id|\d{{6,}})",
                    r"this (?:listing|product|item) (?:satisfies|meets|matches|fulfils|fulfills) (?:every|all|each)"
                    r"(?: \w+){0,2} (?:constraints?|requirements?|criteria)",
                ),
            ),
            (
                (_MODEL_STEMS, words("must|should|shall|has to|have to|need")),
                any_of(rf"\b{_MODEL} (?:must|should|shall|ha(?:s|ve) to|needs? to) (?:always |only )?{_PICK}\b"),
            ),
            (
                (_MODEL_STEMS, words("recommend|choose|select|pick|buy")),
                Near(
                    re.compile(rf"\b{_PICK} (?:this|that|the following|product|item|only|me|id)\b"),
                    (re.compile(rf"\b{_MODEL}\b[^.\n]*\b{_PICK}"),),
                    40,
                ),
            ),
            (
                (
                    words("answer|choice"),
                    words("product is|item is|listing is"),
                ),
                any_of(
                    r"\b(?:this|the) (?:product|item|listing) is (?:always |certainly )?the (?:correct"
                    r"|right|expected|only) "
                    r"(?:answer|choice)"
                ),
            ),
            (
                (words("terminate|recommend_product|stop searching|stop looking|recommend me"),),
                any_of(
                    r"\b(?:call|invoke|run) (?:terminate|recommend_product)\b|\brecommend_product\W{1,3}\d",
                    r"\bstop (?:searching|looking)\b|\brecommend me (?:first|only|always)\b",
                ),
            ),
        ),
    ),
    Family(
        "score_order",
        1,
        (_ORDER_STEMS,),
        any_of(
            rf"\b{_GIVE}\b[^.\n]{{0,60}}?\b{_MEASURE}\b[^.\n]{{0,25}}?{_TOP_VALUE}",
            rf"\b{_GIVE}\b[^.\n]{{0,30}}?{_TOP_VALUE}[^.\n]{{0,40}}\b(?:{_MEASURE}|agent|trajectory"
            rf"|answer|run|trace|transcript)\b",
            rf"\b{_GIVE} (?:this|the|that) {_TRACE} (?:an? )?{_TOP_VALUE}",
            rf"\b(?:answer|output|respond|reply|print|return|say)(?: with| exactly| just| only){{0,2}} {_TOP_VALUE}",
            rf"\b{_GIVE}\b[^.\n]{{0,40}}?\b{_TOP} (?:possible )?{_MEASURE}\b",
            rf"(?:->|→|=>) ?{_MEASURE} ?[:=]? ?{_TOP_VALUE}",
            rf"\b(?:{_MEASURE}|value|label|answer|output)(?: {_LINK})* ?[:=] ?{_VALUE}",
            rf"\b(?:{_MEASURE}|value|label|answer|output)(?: {_LINK})+ {_VALUE}",
            rf"{_VALUE} (?:is (?:the )?(?:appropriate|correct|expected|right)|{_MEASURE})\b",
            rf"\b(?:labell?ed|rated|graded|scored|marked)(?: (?:this|it|the trace))? (?:as |with )?{_VALUE}",
            rf"\b(?:assign|award|grant|give|rate|grade|score) (?:it |this |that )?(?:an? )?{_VALUE}",
            r"\b(?:mark|rate|grade|label|treat|count) (?:this|it|the (?:reasoning|thinking|trace)(?: above)?) as "
            r"(?:passing|passed|excellent|perfect|flawless|correct|outstanding)\b",
            r"\b(?:largest|highest|greatest) (?:allowed|possible|permitted) (?:value|number)\b",
            rf"[\"'{{]{_MEASURE}[\"']? ?: ?{_TOP_VALUE}",
        ),
    ),
)
