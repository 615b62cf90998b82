"""How the scripted models talk: think texts per style, filled with data from the query and the tool results.

Slots: ``plan`` (first search), ``next`` (a further item), ``again`` (a changed query), ``look`` / ``look1`` (opening
candidates), ``pick`` / ``pick1`` (choice with and without an alternative), ``voucher``, ``done``, ``response``; and for
all styles alike (``SHARED``) ``verify``, ``sums`` (a voucher worked out in the head), ``swap`` (a cheaper candidate).
Placeholders: need, q, n rows, a/b product ids, pa/pb prices, fa/fb facts, shop, ids, sum, budget, after, threshold.
"""

from __future__ import annotations

from random import Random
from typing import Any

Style = dict[str, tuple[str, ...]]

STYLES: dict[str, Style] = {
    "plain": {
        "plan": (
            'The user wants {need}. I search for "{q}".',
            'Request: {need}. First search: "{q}".',
            'I need {need}, so the query is "{q}".',
        ),
        "next": ('Next I need {need}, query "{q}".', 'Now {need}: searching "{q}".'),
        "again": (
            '{n} rows, none clearly fits {need}. I try "{q}".',
            'Only {n} rows and no fit, so I change the query to "{q}".',
        ),
        "look": (
            "{n} rows. {a} at {pa} PHP and {b} at {pb} PHP look possible, I open them.",
            "Of {n} rows I open {a} ({pa} PHP) and {b} ({pb} PHP) to check the details.",
        ),
        "look1": ("{n} rows. {a} at {pa} PHP looks possible, I open it.", "I check the details of {a} ({pa} PHP)."),
        "pick": (
            "{a} costs {pa} PHP and has {fa}; {b} costs {pb} PHP and has {fb}. I take {a} because it meets the request.",
            "{a} ({pa} PHP) shows {fa}, {b} ({pb} PHP) shows {fb}. {a} is the better match because of {fa}.",
        ),
        "pick1": ("{a} costs {pa} PHP and has {fa}, so it fits.", "{a} at {pa} PHP shows {fa}: I take it."),
        "voucher": ("The prices add up to {sum}. I check the voucher against the budget of {budget}.",),
        "done": ("The request is answered.", "Everything is recommended, I finish."),
        "response": ("I recommend {ids}.", "My recommendation: {ids}."),
    },
    "terse": {
        "plan": ("Want {need}. Query: {q}.", "{need} -> {q}"),
        "next": ("Then {need} -> {q}", "Item: {need}. Query: {q}."),
        "again": ("{n} rows, no fit. Query: {q}.", "Not it ({n} rows). Try {q}."),
        "look": ("{n} rows: {a} @ {pa}, {b} @ {pb}. Open both.", "Check {a} @ {pa} and {b} @ {pb} ({n} rows)."),
        "look1": ("{n} rows: {a} @ {pa}. Open.", "Check {a} @ {pa}."),
        "pick": (
            "{a} @ {pa}: {fa}. {b} @ {pb}: {fb}. Take {a} because {fa}.",
            "{a} ({fa}) beats {b} ({fb}): {pa} vs {pb} PHP.",
        ),
        "pick1": ("{a} @ {pa}: {fa}. Take it.", "{a} has {fa}, {pa} PHP. OK."),
        "voucher": ("Sum {sum}, budget {budget}: voucher?",),
        "done": ("End.", "Done."),
        "response": ("{ids}", "Recommended: {ids}."),
    },
    "scan": {
        "plan": ("need: {need} | search: {q}", "goal {need} | words {q}"),
        "next": ("need: {need} | search: {q}", "goal {need} | words {q}"),
        "again": ("rows {n} | fit none | search: {q}", "rows {n} | no match | words {q}"),
        "look": ("rows {n} | {a} {pa} maybe | {b} {pb} maybe | open", "rows {n} | open {a} {pa} | open {b} {pb}"),
        "look1": ("rows {n} | {a} {pa} maybe | open", "rows {n} | open {a} {pa}"),
        "pick": ("{a} {pa} {fa} match | {b} {pb} {fb} differs | choose {a} because {fa}",),
        "pick1": ("{a} {pa} {fa} match | choose {a}",),
        "voucher": ("sum {sum} | budget {budget} | check voucher",),
        "done": ("finished",),
        "response": ("{ids}",),
    },
    "careful": {
        "plan": (
            'Let me list what is asked: {need}. The words that narrow it most are "{q}".',
            'Constraints: {need}. I begin with the query "{q}" and verify afterwards.',
        ),
        "next": ('The next item is {need}; I look for "{q}".', 'Still missing: {need}. Query "{q}".'),
        "again": (
            'The {n} results do not state everything in {need}, so I rephrase to "{q}".',
            'None of the {n} results is convincing. A different query, "{q}", should help.',
        ),
        "look": (
            "Rows do not show options, so I open {a} ({pa} PHP) and {b} ({pb} PHP) out of {n}.",
            "Before choosing I compare {a} at {pa} with {b} at {pb}; the list has {n} rows.",
        ),
        "look1": ("Rows do not show options, so I open {a} ({pa} PHP).", "I verify {a} at {pa} PHP before choosing."),
        "pick": (
            "Comparing: {a} has {fa} for {pa} PHP, whereas {b} has {fb} for {pb} PHP. {a} satisfies the request since {fa} is stated.",
            "{b} ({pb} PHP) fails with {fb}. {a} ({pa} PHP) confirms {fa}, therefore {a}.",
        ),
        "pick1": ("{a} confirms {fa} at {pa} PHP, therefore it is acceptable.",),
        "voucher": ("Total so far {sum} PHP with a budget of {budget}; the voucher has to be verified.",),
        "done": ("All constraints were checked, closing.", "The answer is given, so I close the dialogue."),
        "response": ("After checking the details I recommend {ids}.", "Verified choice: {ids}."),
    },
    "chatty": {
        "plan": (
            'Okay, somebody wants {need}! "{q}" should be a good start.',
            'Right, {need}. Let me try "{q}" first.',
        ),
        "next": ('And now {need}, I will type "{q}".', 'One more thing: {need}. Typing "{q}".'),
        "again": (
            'Hmm, {n} rows and nothing right, maybe "{q}" works.',
            'That gave {n} rows, not what we want; let us try "{q}".',
        ),
        "look": (
            "Nice, {n} rows! {a} for {pa} or {b} for {pb}? I will open both.",
            "{a} ({pa}) and {b} ({pb}) sound good, let me look.",
        ),
        "look1": ("{a} for {pa} sounds good, let me look inside.",),
        "pick": (
            "{a} it is: {fa} and {pa} PHP, while {b} comes with {fb} at {pb}. So {a}, because the request says so.",
            "So {b} says {fb} ({pb}) but {a} says {fa} ({pa}). I prefer {a} because that was asked.",
        ),
        "pick1": ("Great, {a} has {fa} and costs {pa} PHP.",),
        "voucher": ("Together {sum}; let me see if the voucher gets us under {budget}.",),
        "done": ("That was all!", "Happy shopping!"),
        "response": ("Have a look at {ids}!", "You will like {ids}."),
    },
    "numbered": {
        "plan": ('1) goal: {need}. 2) action: search "{q}".',),
        "next": ('1) goal: {need}. 2) action: search "{q}".',),
        "again": ('1) {n} rows read. 2) no match for {need}. 3) action: search "{q}".',),
        "look": ("1) {n} rows. 2) candidates {a} ({pa}) and {b} ({pb}). 3) action: open.",),
        "look1": ("1) {n} rows. 2) candidate {a} ({pa}). 3) action: open.",),
        "pick": ("1) {a}: {fa}, {pa} PHP. 2) {b}: {fb}, {pb} PHP. 3) choice {a} because only it has {fa}.",),
        "pick1": ("1) {a}: {fa}, {pa} PHP. 2) choice {a}.",),
        "voucher": ("1) sum {sum}. 2) budget {budget}. 3) action: voucher.",),
        "done": ("1) finished.",),
        "response": ("Choice: {ids}",),
    },
}

POOR: Style = {
    "plan": ("Search now.", "Let me start."),
    "next": ("Next search.", "Continue."),
    "again": ("Another search.", "Try again."),
    "look": ("Check details.", "Open them."),
    "look1": ("Check details.", "Open it."),
    "pick": ("Good enough.", "This seems fine."),
    "pick1": ("Good enough.", "This seems fine."),
    "voucher": ("Check voucher.",),
    "done": ("Done.",),
    "response": ("Here you go.",),
}

CODE: Style = {
    "plan": ("Searching products.",),
    "next": ("Searching further products.",),
    "again": ("Searching with fewer words.",),
    "look": ("Fetching product details.",),
    "look1": ("Fetching product details.",),
    "pick": ("Selecting the best match.",),
    "pick1": ("Selecting the best match.",),
    "voucher": ("Computing the voucher.",),
    "done": ("Finished.",),
    "response": ("Result: {ids}",),
}


SCRIPTED: Style = {  # what a harness lets its model repeat
    **CODE,
    "plan": ("Next search: {q}.",),
    "next": ("Next search: {q}.",),
    "again": ("Other words: {q}.",),
    "look": ("Open {a} and {b} to check the options, {pa} and {pb} PHP.",),
    "look1": ("Open {a} to check the options and the price of {pa}.",),
    "pick": ("{a} fits the request, price {pa} PHP.",),
    "pick1": ("{a} fits the request, price {pa} PHP.",),
}

SHARED: Style = {
    "verify": (
        "Before I recommend {ids} I read the details once more.",
        "Last check of {ids}: do the options still say what was asked?",
    ),
    "sums": (
        "Sum {sum}, threshold {threshold}: {after} PHP after the voucher, budget {budget}.",
        "The prices add up to {sum} PHP against a threshold of {threshold}; with the voucher {after}, budget {budget}.",
    ),
    "swap": (
        "{a} at {pa} PHP is over the budget; {b} at {pb} PHP shows the same, so I take {b}.",
        "The budget does not allow {a} ({pa} PHP). {b} ({pb} PHP) meets the request too, I change to it.",
    ),
}


def say(style: Style, slot: str, rng: Random, **data: Any) -> str:
    """One sentence of a style with its data filled in."""
    return rng.choice(style.get(slot) or SHARED[slot]).format(**data)
