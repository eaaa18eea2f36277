"""Pictures are drawn from the table alone, say what is withheld, and are the same every time."""

from dataclasses import replace
from itertools import product

import pytest

from harness.attribute import Effect
from harness.report.attribution_plots import draw_all, layers, panels_of, shares, waterfall

EMPTY = dict.fromkeys(("share", "share_lo", "share_hi", "p_adjusted", "verdict", "below_noise", "weights"))
SIZES = {"loss_per_gweight": None, "bytes_saved": None, "loss_per_gib_saved": None, "n_items": 80}


def effect(kind, player, loss, subset="general", task="prose", **changes):
    made = Effect(subset, task, "nll", player, kind, loss, loss - 0.02, loss + 0.02, **EMPTY, **SIZES,
                  n_documents=80, reason="")  # fmt: skip
    return replace(made, **changes)


def blocks(**where):
    share = {"share_lo": 0.3, "share_hi": 0.7}
    return [
        effect("total", "all", 0.33, **where),
        effect("alone", "ffn", 0.2, share=0.6, **share, **where),
        effect("alone", "attention", 0.1, share=0.3, **share, **where),
        effect("restored", "ffn", 0.23, share=0.7, **share, **where),
        effect("restored", "attention", 0.13, share=0.4, **share, **where),
        effect("interaction", "ffn+attention", 0.03, share=0.1, **share, **where),
        effect("shapley", "ffn", 0.215, share=0.65, **share, **where),
        effect("shapley", "attention", 0.115, share=0.35, **share, **where),
    ]


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in (*axes.texts, axes.title, axes.xaxis.label)]


def test_files_come_in_pairs_and_do_not_change(tmp_path):
    first = draw_all(blocks() + blocks(subset="knowledge"), tmp_path / "a")
    assert sorted(p.name for p in first) == [
        "shares_nll.png",
        "shares_nll.svg",
        "waterfall_nll.png",
        "waterfall_nll.svg",
    ]
    again = draw_all(blocks() + blocks(subset="knowledge"), tmp_path / "b")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in again]


def test_waterfall_steps_stand_on_each_other():
    axes = waterfall(panels_of(blocks())).axes[0]
    assert [bar.get_y() for bar in axes.patches] == pytest.approx([0, 0.2, 0.3, 0])
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([0.2, 0.1, 0.03, 0.33])
    assert {"+0.20", "+0.10", "+0.03", "+0.33"} <= set(texts(axes.figure))


def test_whiskers_are_the_tables_intervals():
    axes = waterfall(panels_of(blocks())).axes[0]
    segments = axes.containers[1].lines[2][0].get_segments()
    assert [tuple(s[:, 1]) for s in segments] == [
        pytest.approx((top - 0.02, top + 0.02)) for top in (0.2, 0.3, 0.33, 0.33)
    ]


def test_withheld_shares_are_said_not_drawn():
    rows = [replace(e, share=None, share_lo=None, share_hi=None, reason="no share: total not told from zero")
            for e in blocks()]  # fmt: skip
    figure = shares(panels_of(rows))
    assert "no share: total not told\nfrom zero" in texts(figure)
    assert not figure.axes[0].patches


def test_a_long_reason_leaves_the_panel_its_size():
    each = [f"task_{n}: arm both (acc 0.3) passed half the way" for n in range(12)]
    reason = f"b: without band c: near chance; no share: {'; '.join(each)}"
    figure = shares(panels_of([replace(e, share=None, share_lo=None, share_hi=None, reason=reason) for e in blocks()]))
    (said,) = [text for text in texts(figure) if "no share: task_0" in text]
    assert said.endswith("(all:\nattribution.csv)") and said.count("\n") < 6 and "band c" not in said


def test_exploratory_readings_say_so():
    figure = waterfall(panels_of([replace(e, n_documents=12) for e in blocks()]))
    assert "80 items, 12 documents, exploratory" in texts(figure)


def test_a_panel_is_the_mean_over_tasks_and_no_difference():
    rows = blocks() + blocks(task="quiz") + blocks(task="all")
    rows.append(effect("difference", "ffn", 0.1, subset="general-knowledge", task="all"))
    panels = panels_of(rows)
    assert len(panels) == 1 and {e.task for e in panels[0].values()} == {"all"}


def test_other_designs_have_no_waterfall():
    assert waterfall(panels_of([effect("alone", "ffn", 0.2)])) is None
    assert shares(panels_of([effect("alone", "ffn", 0.2)])) is None
    assert layers(panels_of(blocks())) is None


def test_layers_alone_are_a_profile_and_with_roles_a_heat_map():
    profile = layers(panels_of([effect("shapley", f"layers.{n}", 0.01 * n) for n in range(12)]))
    assert len(profile.axes) == 1 and not profile.axes[0].images
    cells = [
        effect("shapley", f"{role}.layers.{group}", 0.1)
        for role, group in product(("attention.v", "ffn.down"), ("0-9", "10-19", "20-29"))
    ]
    cells[0] = replace(cells[0], lo=-0.01)
    figure = layers(panels_of(cells))
    assert figure.axes[0].images[0].get_array().shape == (2, 3)
    assert figure.axes[0].lines[0].get_xydata().tolist() == [[0, 0]]  # the one cell not told from zero is crossed


def test_a_heat_map_has_layers_in_order_and_gaps_where_a_role_is_not_in_all_of_them():
    groups = ("10-19", "0-9", "20-29")
    cells = [effect("alone", f"ffn.{role}.layers.{group}", 0.1) for role, group in product(("gate", "down"), groups)]
    figure = layers(panels_of(cells[:-1]))
    grid = figure.axes[0].images[0].get_array()
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["0-9", "10-19", "20-29"]
    assert grid.mask.tolist() == [[False] * 3, [False, False, True]]
