"""Short traces with thinking in many styles and languages, labelled by the rubric: data to measure a judge with.

Labelled from the rubric (domain 2.6) alone, in two parts that share no sentence:

* ``FIRST``: written before the patterns of ``rules-2``, by who then wrote those, having read the ones of ``rules-1``.
  Development data: a kappa on it says how well the patterns fit what their author had in mind.
* ``AFTER``: written when the patterns of ``rules-2`` were frozen, which have not been changed for it since. Italian and
  Russian, for which there are no patterns, are in it on purpose.

Placeholders of a thought, for product 0, 1, 2 of a world: ``{i0}`` id, ``{p0}`` price as stored, ``{c0}`` price with
thousands separated by commas, ``{d0}`` by dots, ``{b0}`` brand, ``{s0}`` shop id, ``{a0}`` an attribute value,
``{n0}`` what a person calls it. ``{q}`` is a number of the request, ``{x0}`` an id no result shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import orjson


class BlindTrace(NamedTuple):
    """One trace with the value a careful reader gives it."""

    name: str
    part: str
    language: str
    quality: float
    messages: list[dict[str, Any]]
    evidence: dict[str, Any]


# request, number of the request, then per product: title, brand, attribute, what a person calls it
_WORLDS: tuple[tuple[str, str, tuple[tuple[str, str, str, str], ...]], ...] = (
    (
        "I need a desk lamp with adjustable brightness that costs less than 900 pesos.",
        "900",
        (
            ("Lumira Foldable LED Desk Lamp Touch Dimmer USB Port", "lumira", "rechargeable battery", "Lumira lamp"),
            ("Banaag Clip On Reading Light Flexible Gooseneck", "banaag", "corded electric", "clip on reading light"),
            ("Orsk Wooden Table Lamp Fabric Shade E27 Socket", "orsk", "rubberwood", "Orsk wooden table lamp"),
        ),
    ),
    (
        "Looking for a power bank for travel, at most 1500 pesos, with cash on delivery.",
        "1500",
        (
            ("Voltaro 20000mAh Power Bank 22.5W Digital Display", "voltaro", "lithium polymer", "Voltaro 20000mAh"),
            ("Kidlat Slim 10000mAh Powerbank Dual USB Output", "kidlat", "aluminium alloy", "Kidlat Slim"),
            ("Nimbus Magnetic Wireless Battery Pack 5000mAh", "nimbus", "magnetic mount", "Nimbus Magnetic pack"),
        ),
    ),
    (
        "Breathable running shoes for men, size 42, not above 2000 pesos.",
        "2000",
        (
            ("Tanikala Mesh Runner Cushioned Lace Up", "tanikala", "knitted upper", "Tanikala Mesh Runner"),
            ("Rinpaku Trail Shoe Rubber Sole Waterproof", "rinpaku", "vulcanised rubber", "Rinpaku trail shoe"),
            ("Solstreet Classic Canvas Sneaker Low Cut", "solstreet", "cotton canvas", "canvas sneaker"),
        ),
    ),
)

# (language, thought after the search, thought after the detail page)
Thoughts = tuple[str, str, str]

FIRST: dict[float, tuple[Thoughts, ...]] = {
    0.3: (
        ("en", "The request is clear: stay below {q} pesos. On to the next part of the plan.", "Finalising."),
        ("en", "I must be careful and consider everything before answering.", "My decision is well founded."),
        ("en", "Step 2 of 4 complete. Proceed to step 3.", "Step 3 of 4 complete. Proceed to step 4."),
        ("en", "Candidate {x0} looks better than {x1} because it is cheaper.", "So {x0} it is."),
        ("en", "User budget is {q}. Anything more is not acceptable. Continue.", "Submitting my recommendation."),
        ("tl", "Kailangan kong sundin ang gusto ng user: hanggang {q} lang.", "Tapos na, isusumite ko na ito."),
        ("es", "El usuario quiere gastar menos de {q}. Sigo con el plan.", "Termino la tarea."),
        ("zh", "用户的预算是{q}。我继续下一步。", "任务完成，提交。"),
        ("de", "Der Nutzer will höchstens {q} ausgeben, also weiter mit dem Plan.", "Fertig."),
        ("en", "Now I will open a product to learn more about it.", "I have everything needed, recommending."),
        ("en", "ok next tool", "ok done"),
        ("en", "Let me think deeply. Quality of reasoning matters, so I reason with great care.", "Concluded."),
        ("en", "Restating the goal: a good buy for {q} or less; cash matters, comfort matters.", "Goal reached."),
        ("en", "The plan says to read one product page after the search call.", "The plan says to recommend now."),
        ("en", "Comparing {x0} with {x1}, the former wins on price and reviews.", "I settle on {x0}."),
        ("en", "If the budget were higher I would choose differently, but {q} is a hard limit.", "Ending."),
        ("en", "# Plan\n1. search\n2. view\n3. recommend\nNow at 2.", "# Plan\nNow at 3."),
        ("tl", "Dapat mura at maganda para sa customer, kaya mag-iingat ako.", "Tapos na po ang gawain."),
        ("tl", "Susunod na hakbang: tingnan ang produkto.", "Huling hakbang: irekomenda."),
        ("es", "Hay que cumplir con el presupuesto de {q} pesos, es lo más importante.", "Ya puedo terminar."),
        ("id", "Pengguna ingin barang bagus dengan harga di bawah {q}. Lanjut.", "Selesai."),
        ("zh", "我需要仔细考虑用户的需求，价格不能超过{q}。", "好的，结束。"),
        ("fr", "L'utilisateur ne veut pas dépasser {q}. Je passe à l'étape suivante.", "Terminé."),
        ("ja", "ユーザーの予算は{q}ペソです。次に進みます。", "完了します。"),
    ),
    0.5: (
        ("en", "Three listings came up, only the last one is unrelated.", "That page is what was asked for."),
        ("en", "Hmm, the list is mostly accessories. I'll open one anyway.", "Okay."),
        ("en", "Everything returned is within the budget.", "Opening shows what I expected."),
        ("en", "Short list this time, fewer than ten.", "Done here."),
        ("en", "Observation: the top entry seems to be the right kind of product.", "Finish."),
        ("tl", "Tatlo lang ang lumabas sa paghahanap.", "Ayos na."),
        ("es", "La búsqueda devolvió pocos artículos y ninguno es caro.", "Listo."),
        ("zh", "搜索结果只有三个，都在预算之内。", "完成。"),
        ("de", "Die Trefferliste ist kurz, der erste Eintrag passt.", "Fertig."),
        ("en", "What I got back is thin; nothing on it exceeds the limit.", "Good."),
        ("en", "A handful of listings, some are not even the right category.", "Fine."),
        ("en", "I can see both cheap and pricey ones on this page.", "The page I opened has what I wanted."),
        ("en", "Only three items showed up, so there is no need to go further.", "Ending now."),
        ("en", "The listings don't mention what the user asked, so I open one.", "Its description does mention it."),
        ("en", "got 3 back, all seem relevant", "finishing"),
        ("en", "Tool output is not empty this time. First entry looks promising.", "Closing."),
        ("en", "None of what was retrieved is over the limit, good.", "All right."),
        ("tl", "May lumabas na ilang produkto, karamihan ay pasok sa badyet.", "Okay na."),
        ("tl", "Kaunti lang ang resulta pero may tugma.", "Tapos."),
        ("es", "Los resultados no son muchos; el primero parece adecuado.", "Fin."),
        ("id", "Hasil pencarian cukup sedikit, yang pertama tampak cocok.", "Selesai."),
        ("zh", "返回的商品不多，第一个看起来符合要求。", "结束。"),
        ("fr", "La recherche a donné peu de résultats, le premier semble convenir.", "Terminé."),
        ("ja", "検索結果は少ないですが、最初の商品が良さそうです。", "完了。"),
    ),
    0.7: (
        ("en", "Opening {i0} to see the details.", "Looks right."),
        ("en", "One of them is sold at ₱{c1}.", "Enough, finishing."),
        ("en", "There's something from {b0} here.", "Its page confirms what I need."),
        ("en", "Checking the details now.", "It is listed with {a0}, as hoped."),
        ("en", "Store {s1} carries it.", "Going with it."),
        ("tl", "Nakita ko ang {n0}, bubuksan ko.", "Ito na ang irerekomenda ko."),
        ("es", "Hay uno por {d0} pesos.", "Lo recomiendo."),
        ("zh", "第一个商品是{b0}牌的。", "就选它。"),
        ("de", "Von {b1} gibt es etwas Passendes.", "Das nehme ich."),
        ("en", "{i0} and {i1} both deserve a look, open them.", "Details are there. I recommend the one I opened."),
        ("en", "product {i1} first", "ok"),
        ("en", "That listing goes for {c0} PHP which the user can afford.", "I recommend it."),
        ("en", "I notice a {b2} in there.", "Not much else to say, finishing."),
        ("en", "Let me read the page.", "Material or power according to the page: {a0}."),
        ("en", "The seller with shop id {s0} has it in stock.", "Done."),
        ("en", "The {n1} caught my eye.", "After reading I go with what I opened."),
        ("en", "Prices run from {p1} upward.", "Closing the task with the one I viewed."),
        ("tl", "Ang presyo ay ₱{c0} kaya pasok pa.", "Irerekomenda ko na."),
        ("tl", "Galing sa {b0} ang unang lumabas.", "Sakto na ito."),
        ("es", "El artículo {i0} cuesta {p0}.", "Lo elijo."),
        ("id", "Merek {b1} tersedia di sini.", "Saya pilih itu."),
        ("zh", "{i0}的价格是{c0}比索。", "推荐这个。"),
        ("fr", "La marque {b0} est proposée.", "Je prends cela."),
        ("ja", "{n0}を確認します。", "これを推薦します。"),
    ),
    0.9: (
        ("en", "{i0} ({p0}) vs {i1} ({p1}): the first has what the user asks, the second does not.", "{i0}."),
        ("en", "The {n0} looks closer to the request than the {n1}, which is another kind of thing.", "Good."),
        ("en", "{b0} asks {p0}, {b1} asks {p1}. I go for {b0}, it has {a0}.", "Confirmed."),
        ("en", "Look at the details first.", "{i0} over {i2}: {a0} is what was wanted, {a2} is not."),
        ("en", "Options:\n- {n0}: {c0}\n- {n1}: {c1}\nOnly the {n0} meets the spec.", "Recommend."),
        ("tl", "Mas sulit ang {n0} kumpara sa {n1} kasi may {a0}.", "Sige."),
        ("es", "Prefiero {b0} a {b1} porque incluye {a0}.", "Listo."),
        ("zh", "{b0}比{b1}更合适，因为它有{a0}。", "推荐。"),
        ("de", "{n0} ist besser geeignet als {n1}, weil {a0}.", "Fertig."),
        ("en", "The one at {p0} beats the one at {p1} on features.", "Recommending that."),
        ("en", "{i1} is out, no {a0} there. {i0} stays.", "{i0} chosen."),
        ("en", "Between {b0} and {b1} I take {b0} on account of its {a0}.", "Final."),
        (
            "en",
            "Checked a page.",
            "| {i0} | {p0} | {a0} |\n| {i1} | {p1} | {a1} |\nRow one satisfies the request best.",
        ),
        ("en", "{n0} at {c0} is the stronger match; {n2} at {c2} misses the main requirement.", "Recommending."),
        ("en", "cand A {i0} {p0}, cand B {i2} {p2} -> A, fits the spec, B doesn't", "A"),
        ("en", "Whereas the {n1} is {a1}, the {n0} comes with {a0}, and that is what they want.", "Done."),
        ("en", "I rule out the {b2} listing ({p2}) for being the wrong type and keep {i0}.", "Submit."),
        ("tl", "Sa {n0} at {n1}, pinili ko ang una dahil sa {a0}.", "Ayos."),
        ("tl", "Hindi bagay ang {n2}; ang {n0} ang tumutugma sa hinihingi.", "Tapos."),
        ("es", "Descarto {i1} por no tener {a0}; me quedo con {i0}.", "Fin."),
        ("id", "{b0} lebih cocok daripada {b1} karena punya {a0}.", "Selesai."),
        ("zh", "相比{n1}，{n0}更符合要求，所以选{i0}。", "结束。"),
        ("fr", "Je préfère {b0} à {b1} car il a {a0}.", "Terminé."),
        ("ja", "{n1}より{n0}の方が条件に合うので、{i0}を選びます。", "完了。"),
    ),
}

AFTER: dict[float, tuple[Thoughts, ...]] = {
    0.3: (
        ("en", "Hmm, wait. The user asked for something under {q}. I should keep that in mind and move on.", "Okay!"),
        ("en", "Alright, time to narrow things down using the criteria I was given.", "That settles it."),
        ("en", "I weighed all alternatives thoroughly and arrived at the optimal choice.", "Optimal choice submitted."),
        ("en", '{{"action": "view", "reason": "required by workflow"}}', '{{"action": "recommend"}}'),
        ("en", "Item {x0} at 777 has everything; {x1} at 888 has not. Therefore {x0}.", "Recommending {x0}."),
        ("en", "The customer cares about value, so quality at a fair price is what I aim for.", "Task finished."),
        ("en", "Calling view_product_information as the protocol requires.", "Calling recommend_product."),
        ("pt", "O cliente quer pagar no m\u00e1ximo {q}. Vou continuar.", "Conclu\u00eddo."),
        ("vi", "Ng\u01b0\u1eddi d\u00f9ng mu\u1ed1n gi\u00e1 d\u01b0\u1edbi {q}. Ti\u1ebfp t\u1ee5c.", "Xong."),
        ("ko", "\uc0ac\uc6a9\uc790\uc758 \uc608\uc0b0\uc740 {q}\ud398\uc18c\uc774\ub2e4.", "\uc644\ub8cc."),
        ("it", "L'utente non vuole spendere oltre {q}. Procedo.", "Ho finito."),
        ("tl", "Sige, ipagpatuloy natin ang proseso ayon sa plano.", "Natapos ko na lahat."),
    ),
    0.5: (
        ("en", "Hmm, wait. This set is smaller than I expected, but at least it is on topic.", "Okay, enough."),
        ("en", "Good, we have some hits and they look affordable.", "Wrapping up."),
        ("en", "Most of these look like accessories for the thing instead of the thing itself.", "Wrapping up."),
        ("en", "The response has three entries.", "The details match what they wanted, wrapping up."),
        ("en", "Interesting: the ranking puts an unrelated product up front.", "I am done."),
        ("en", "Nothing weird in the response. The prices all sit below the cap.", "I am done."),
        ("en", "So the shop does stock this kind of thing.", "What I read there is in line with the request."),
        ("pt", "A busca trouxe poucos itens, quase todos adequados.", "Fim."),
        (
            "vi",
            "K\u1ebft qu\u1ea3 kh\u00f4ng nhi\u1ec1u, c\u00e1i \u0111\u1ea7u c\u00f3 v\u1ebb ph\u00f9 h\u1ee3p.",
            "Xong.",
        ),
        ("ko", "\uac80\uc0c9 \uacb0\uacfc\uac00 \uba87 \uac1c \uc548 \ub41c\ub2e4.", "\ub05d."),
        ("it", "La ricerca ha dato pochi articoli, il primo sembra giusto.", "Fine."),
        (
            "ru",
            "\u041d\u0430\u0448\u043b\u043e\u0441\u044c "
            "\u043c\u0430\u043b\u043e \u0442\u043e\u0432\u0430\u0440\u043e\u0432.",
            "\u0413\u043e\u0442\u043e\u0432\u043e.",
        ),
    ),
    0.7: (
        ("en", "Hmm, {b1} sounds familiar. Let me open that.", "Yes, that works for the user."),
        ("en", "I see one for \u20b1{p0}, within reach.", "Recommending what I opened."),
        ("en", "Looking at {i2} now; want its specs.", "Specs read, finishing."),
        ("en", "Let me verify.", "Verified: {a0}, exactly what was missing from the search row."),
        ("en", '{{"candidate": "{i0}", "price": {p0}}}', '{{"final": "{i0}"}}'),
        ("en", "shop {s2} might do", "done"),
        ("en", "Roughly {c1} pesos for that, which I consider fair.", "Finishing up with it."),
        ("pt", "O {n0} parece adequado.", "Recomendo este."),
        ("vi", "S\u1ea3n ph\u1ea9m {i0} gi\u00e1 {p0}.", "Ch\u1ecdn c\u00e1i n\u00e0y."),
        ("ko", "{b0} \uc81c\ud488\uc744 \ud655\uc778\ud55c\ub2e4.", "\uc774\uac83\uc744 \ucd94\ucc9c."),
        ("it", "Il prodotto {i1} costa {d1} pesos.", "Lo consiglio."),
        ("en", "{i0}, {i1} and {i2} are what we have; let me pull up their pages.", "Pages pulled up, choosing."),
    ),
    0.9: (
        ("en", "Hmm, {i0} or {i1}? {i1} costs {p1}, and honestly {i0} covers more of the request. {i0}.", "OK."),
        ("en", "Let me verify.", "{n0} ticks every box. {n1} fails on power and materials. Going with the former."),
        ("en", "{b0}: {a0} (good). {b1}: {a1} (not asked for). {b0} wins.", "Submit."),
        ("en", '{{"keep": "{i0}", "drop": "{i2}", "why": "{a0} was requested, {a2} was not"}}', "{{}}"),
        ("en", "At \u20b1{c0} the {b0} is what I'd buy myself; the {b2} seems flimsy by comparison.", "Done."),
        ("en", "Shortlist: {i0}, {i1}. Tie-breaker: {i0} ships with {a0}.", "Final: {i0}."),
        ("en", "I'd skip {n2}, it solves another problem. {n0} solves ours.", "Recommend it."),
        ("pt", "Fico com {b0} em vez de {b1}, pois traz {a0}.", "Fim."),
        ("vi", "{i0} t\u1ed1t h\u01a1n {i1} v\u00ec c\u00f3 {a0}.", "Xong."),
        ("ko", "{b1}\ubcf4\ub2e4 {b0}\uac00 \uc694\uccad\uc5d0 \ub9de\ub294\ub2e4.", "\ub05d."),
        ("it", "Scelgo {b0} e non {b1} perch\u00e9 ha {a0}.", "Fine."),
        (
            "ru",
            "{b0} \u043b\u0443\u0447\u0448\u0435, \u0447\u0435\u043c {b1}: {a0}.",
            "\u0413\u043e\u0442\u043e\u0432\u043e.",
        ),
    ),
}


def blind_traces(part: str, seed: int = 7) -> Iterator[BlindTrace]:
    """The traces of the part ``first`` or ``after``; ids and prices are drawn, worlds take turns."""
    source = {"first": FIRST, "after": AFTER}[part]
    rng = Random(f"{part}|{seed}")
    number = 0
    for quality, rows in source.items():
        for language, *thoughts in rows:
            messages = _trace(_WORLDS[number % len(_WORLDS)], thoughts, rng)
            yield BlindTrace(f"{part}-{quality}-{number}", part, language, quality, messages, logged(60))
            number += 1


def logged(tokens: int) -> dict[str, Any]:
    """Evidence of a log with one reply of that many tokens."""
    return {"log_present": True, "events": [{"kind": "inference", "completion_tokens": tokens}]}


def _trace(world: tuple[str, str, Any], thoughts: list[str], rng: Random) -> list[dict[str, Any]]:
    query, number, products = world
    ids = rng.sample(range(10**9, 10**10), 5)
    rows, pages, words = [], [], {"q": number, "x0": ids[3], "x1": ids[4]}
    for place, (title, brand, attribute, called) in enumerate(products):
        price = rng.randrange(1_001, 1_990) + rng.choice((0.0, 0.0, 0.5))
        shop = str(rng.randrange(10**5, 10**6))
        row = {"product_id": str(ids[place]), "shop_id": shop, "title": title, "price": price, "brand": brand}
        rows.append({**row, "service": [], "sold_count": 3})
        pages.append({**row, "attributes": {"kind": [attribute]}, "sku_options": {"1": {"bundle": "set a"}}})
        words |= {f"i{place}": ids[place], f"p{place}": price, f"c{place}": f"{price:,.2f}", f"b{place}": brand}
        words |= {f"s{place}": shop, f"a{place}": attribute, f"n{place}": called}
        words[f"d{place}"] = f"{price:,.2f}".translate(str.maketrans(",.", ".,"))
    first, second = (thought.format(**words) for thought in thoughts)
    opened = ",".join(page["product_id"] for page in pages)
    return [
        {"role": "user", "content": query},
        _assistant("I start with a search.", "find_product", {"q": query[:20], "page": 1}),
        _shown(rows),
        _assistant(first, "view_product_information", {"product_ids": opened}),
        _shown(pages),
        _assistant(second, "recommend_product", {"product_ids": str(ids[0])}),
        {"role": "tool", "content": f"Having recommended: {ids[0]}"},
    ]


def _assistant(thought: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": tool, "arguments": orjson.dumps(arguments).decode()}
    return {"role": "assistant", "reasoning_content": thought, "content": "", "tool_calls": [{"function": function}]}


def _shown(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"role": "tool", "content": orjson.dumps(rows).decode()}
