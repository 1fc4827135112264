"""``bench paper``: times of layers added up, layouts as targets, goals beside the published ratios, parts by name."""

from __future__ import annotations

import dataclasses

import pytest

from ptpathways import bench, core
from ptpathways.bench import _paper as paper
from ptpathways.bench._paper_models import DECODER, FIGURE_12, STAGED_LAYERS, TABLE_1, TABLE_2, Layout
from ptpathways.platforms import CHIPS

ONE = {"compute": 1.0, "model": 0.25, "data": 0.125}
TIMES = {"forward": ONE, "backward": ONE, "head": ONE, "update": ONE}


def test_layers_add_up() -> None:
    found = paper.layer_times(DECODER, TIMES)
    assert (found.forward, found.backward, found.sums) == (62 * 1.25, 62 * 1.25, 62 * 0.25)
    assert (found.head, found.update) == (1.375, 62 * 1.375)
    assert found.step == pytest.approx(62 * (1.25 + 1.25 + 0.25 + 1.375) + 1.375)
    t5 = TABLE_1[0].model
    encoder = {name: dict.fromkeys(ONE, 0.5) for name in ("forward_encoder", "backward_encoder")}
    assert paper.layer_times(t5, TIMES | encoder).forward == 12 * 1.25 + 12 * 1.0


def test_a_stages_layers_have_no_logits_of_their_own() -> None:
    found = paper.layer_times(DECODER, TIMES, layers=STAGED_LAYERS // 4)
    assert (found.forward, found.head) == (16 * 1.25, 0.0)


def test_layouts_are_whole_tori_of_the_papers_chips() -> None:
    layouts = [row.layout for row in (*TABLE_1, *TABLE_2)]
    layouts += [dataclasses.replace(row.layout, data=row.layout.data * 2) for row in FIGURE_12]
    assert Layout(4, 8).target == "v3:4x4" and Layout(64, 8).target == "v3:16x16"
    for layout in layouts:
        rows, columns = map(int, layout.target.removeprefix("v3:").split("x"))
        assert rows * columns * CHIPS["v3"].devices == max(layout.cores, 8)


def test_models_have_the_sizes_they_are_called_by() -> None:
    sizes = [row.model.block_parameters * row.model.layers / 1e9 for row in FIGURE_12]
    assert sizes == pytest.approx([64, 136], rel=0.02)
    assert DECODER.block_parameters * STAGED_LAYERS / 1e9 == pytest.approx(3, rel=0.1)


def test_every_row_divides_its_batch() -> None:
    for row in TABLE_2:
        assert row.batch % row.microbatches == 0 and row.batch // row.microbatches % row.layout.data == 0
        assert STAGED_LAYERS % row.stages == 0


def test_goals_are_of_what_is_measured() -> None:
    goals = bench.WORKLOADS["paper"].goals
    assert goals["Table 2, S=16, M=64: times S=4, M=16"].value == pytest.approx(0.95 * 131.4 / 133.7, abs=1e-3)
    assert goals["Figure 12, 64B on 1024 cores: two islands, times one"].value == pytest.approx(0.9215, abs=1e-3)


@pytest.mark.parametrize(
    ("workload", "part", "said"),
    [
        ("paper", "table 3", "paper has table 1, table 2, figure 10, figure 12, got table 3"),
        ("dispatch", "table 1", "must be one of workload paper, got table 1 of dispatch"),
    ],
)
def test_parts_that_there_are_not(workload: str, part: str, said: str) -> None:
    with pytest.raises(core.InvalidOption, match=said):
        bench.run(workload, bench.BenchOptions(parts=(part,)))
