"""A small market of the miniature that the tests of this folder share."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from trajectory_platform.arena.problems import ArenaProblem
from trajectory_platform.evaluation.eval_problems import EvalProblem
from trajectory_platform.judging.matching import find_rules
from trajectory_platform.judging.outcome import Scorer
from trajectory_platform.miniature.world import ProblemMaker, make_products
from trajectory_platform.sandbox.problems import parse_problem
from trajectory_platform.sandbox.products import load_products
from trajectory_platform.sandbox.search import SearchIndex
from trajectory_platform.sandbox.tools import World


class Market(NamedTuple):
    world: World
    scorer: Scorer
    problems: list[ArenaProblem]

    def evaluated(self) -> list[EvalProblem]:
        """The problems as an evaluation has them."""
        return [
            EvalProblem(parse_problem(one.suite_item(1, "Product 1"), suite_id="1"), one.leak_cluster, "dev")
            for one in self.problems
        ]


@lru_cache(maxsize=1)
def market() -> Market:
    products = make_products(5)
    catalogue = load_products(products)
    problems = ProblemMaker(products, 5, variant_share=0.1).problems(600)
    return Market(World(catalogue, SearchIndex(catalogue)), Scorer(catalogue, find_rules()), problems)
