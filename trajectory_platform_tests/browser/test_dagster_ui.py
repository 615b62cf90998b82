"""What a user does in Dagster's pages: look at the graph, run a day, backfill days, follow lineage, read a figure, see
a failed check. Set UI_SCREENSHOTS to a folder to keep what was seen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from trajectory_platform.stages.context import StageContext
from trajectory_platform_tests.browser.dagster_ui import Ui, served
from trajectory_platform_tests.reports.browsing import CHROMIUM, running_browser

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]
browser = pytest.fixture(scope="module")(running_browser)
GROUPS = ("sources", "sandbox", "traces", "judging", "curation", "splits", "training", "evaluation", "lineage")


@pytest.fixture(scope="module")
def ui(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    with served(tmp_path_factory.mktemp("ui"), browser) as started:
        yield started


def launch(ui: Ui, days: str) -> None:
    """The job of a day, from its page: "Materialize all", the days, "Launch"."""
    page = ui.open("/locations/trajectory_platform/jobs/ingest_and_curate")
    page.get_by_role("button", name="Materialize all").click()
    dialog = page.get_by_text("Partition selection", exact=True)
    sure = page.get_by_role("button", name="Confirm")
    dialog.or_(sure).first.wait_for()
    if sure.is_visible():  # an asset upstream of the job was never materialised
        ui.shot("materialise_warning")
        sure.click()
    dialog.wait_for()
    if days == "latest":
        page.get_by_role("button", name="Latest", exact=True).click()
    else:
        page.get_by_text(re.compile("Showing .* partitions")).wait_for()  # before, no day is known to the box
        box = page.get_by_placeholder(re.compile("partitions", re.I)).or_(page.get_by_role("textbox")).last
        box.fill(days)
        box.press("Enter")
        page.get_by_text("2 partitions", exact=True).first.wait_for()
    ui.shot(f"launch_{'latest' if days == 'latest' else 'range'}")
    page.get_by_role("button", name=re.compile("^Launch (run|backfill|1 run)")).click()


def test_the_graph_shows_every_group_of_the_flow(ui: Ui) -> None:
    page = ui.open("/asset-groups")
    for group in GROUPS:
        page.get_by_text(group, exact=True).first.wait_for()
    ui.shot("graph")
    page = ui.open("/assets/axis_a_corpus?view=overview")
    page.get_by_text("the model itself emitted the calls").wait_for()


def test_lineage_leads_from_the_corpus_to_the_checkpoint_and_its_traces(ui: Ui) -> None:
    page = ui.open("/assets/sft_checkpoint?view=lineage&lineageScope=upstream&lineageDepth=5")
    for asset in ("raw_traces", "trajectories", "judged_traces", "axis_a_corpus", "leak_clusters", "sft_checkpoint"):
        page.get_by_text(asset, exact=True).first.wait_for()
    ui.shot("lineage_upstream_of_sft_checkpoint")
    page = ui.open("/assets/axis_a_corpus?view=lineage&lineageScope=downstream&lineageDepth=5")
    page.get_by_text("sft_checkpoint", exact=True).first.wait_for()
    ui.shot("lineage_downstream_of_axis_a_corpus")
    page = ui.open(f"/assets/sft_checkpoint?view=partitions&partition={ui.days[0]}")
    page.get_by_text(re.compile(rf"^sft-{ui.days[0]}-[0-9a-f]{{12}}$")).first.wait_for()
    ui.shot("checkpoint_of_the_day")
    page = ui.open("/assets/checkpoint_lineage?view=overview")
    page.get_by_role("link", name="sft_checkpoint").first.wait_for()
    page.get_by_text("content_digest").first.wait_for()
    ui.shot("checkpoint_lineage")


def test_a_figure_of_the_day_is_drawn_in_the_metadata(ui: Ui) -> None:
    page = ui.open("/assets/axis_a_corpus?view=overview")
    row = page.get_by_role("row").filter(has_text="funnel").first
    row.get_by_text("Show Markdown").click()
    picture = page.locator("img[src^='data:image/svg+xml']")
    picture.wait_for()
    size = picture.evaluate("image => image.decode().then(() => [image.naturalWidth, image.naturalHeight])")
    assert size[0] > 300 and size[1] > 100
    page.get_by_text("pairs judged that day", exact=True).first.wait_for()
    ui.shot("figure_funnel")
    page = ui.open("/assets/axis_a_corpus?view=overview")
    page.get_by_role("row").filter(has_text="strategies by rank").first.get_by_text("Show Markdown").click()
    page.get_by_text(re.compile("accepted traces use [0-9]+ strateg")).wait_for()
    ui.shot("figure_strategies")


def test_a_day_is_materialised_from_its_job(ui: Ui) -> None:
    before = {run["runId"] for run in ui.runs()}
    launch(ui, "latest")
    ended = ui.new_runs(before, lambda runs: True)
    assert {run["status"] for run in ended} == {"SUCCESS"}, ui.home.log()[-3000:]
    assert StageContext(ui.settings).lake.days("axis_a_corpus") == [ui.days[0], ui.days[3]]
    page = ui.open(f"/runs/{ended[0]['runId']}")
    page.get_by_text("Success", exact=True).first.wait_for()
    ui.shot("run")


def test_a_range_of_days_is_backfilled(ui: Ui) -> None:
    before = {run["runId"] for run in ui.runs()}
    launch(ui, f"[{ui.days[1]}...{ui.days[2]}]")
    lake = StageContext(ui.settings).lake
    ended = ui.new_runs(before, lambda runs: set(ui.days) <= set(lake.days("rejected_traces")))
    assert {run["status"] for run in ended} == {"SUCCESS"}, ui.home.log()[-3000:]
    assert all("dagster/backfill" in {tag["key"] for tag in run["tags"]} for run in ended)
    page = ui.open("/assets/axis_a_corpus?view=partitions")
    page.get_by_text(ui.days[2]).first.wait_for()
    ui.shot("partitions_after_backfill")


def test_a_damaged_day_fails_its_check_and_says_where(ui: Ui) -> None:
    """The bytes of a published file rot; the check that re-reads it is run by hand and fails."""
    lake = StageContext(ui.settings).lake
    newest = lake.days("trajectories")[-1]
    manifest = lake.manifest("trajectories", newest)
    assert manifest is not None
    path = lake.root / "trajectories" / next(iter(manifest.files))
    sound = path.read_bytes()
    middle = len(sound) // 2
    path.write_bytes(sound[:middle] + bytes(byte ^ 0xFF for byte in sound[middle : middle + 64]) + sound[middle + 64 :])
    try:
        before = {run["runId"] for run in ui.runs()}
        page = ui.open("/assets/trajectories?view=checks&checkDetail=content_digest")
        page.get_by_text("Execute", exact=True).first.click()
        ui.new_runs(before, lambda runs: True)
        page = ui.open("/assets/trajectories?view=checks&checkDetail=content_digest")
        page.get_by_text("Failed", exact=True).first.wait_for()
        page.get_by_text(f"failed on {newest}").first.wait_for()
        ui.shot("check_failed")
        page.get_by_text("Show JSON").first.click()
        page.get_by_text(re.compile("damaged|cannot be read|differ")).first.wait_for()
        ui.shot("check_failed_detail")
    finally:
        path.write_bytes(sound)
