from dataclasses import fields, replace

import numpy as np
import pytest

from harness.attribute import Effect, Game, Scores, arm_losses, attribute, read_effects, to_frame
from harness.config import AttributeConfig
from harness.errors import UserError

BLOCKS = Game(
    {
        "base": frozenset(),
        "attention": frozenset({"attention"}),
        "ffn": frozenset({"ffn"}),
        "both": frozenset({"ffn", "attention"}),
    },
    weights={"ffn": 3_000_000, "attention": 1_000_000},
    bytes_saved={"ffn": 2**20, "attention": 2**19},
)
OPTIONS = AttributeConfig(resamples=1000)
LOSS = {"base": 0.0, "attention": 0.1, "ffn": 0.2, "both": 0.33}


def scores(subset="general", loss=LOSS, documents=60, spread=0.05, seed=0, **changes):
    """One item a document; losses are `loss` plus noise, every arm its own."""
    rng = np.random.default_rng(seed)
    base_N = rng.normal(3, 1, documents)
    rows = [base_N + value + spread * rng.normal(size=documents) * (arm != "base") for arm, value in loss.items()]
    made = Scores(subset, "prose", "nll", list(loss), np.array(rows), np.arange(documents), False, worst=10.8)
    return replace(made, **changes)


def rows(*found, game=BLOCKS, options=OPTIONS, noise=()):
    return attribute(list(found), game, options, noise)


def one(effects, kind, player, **where):
    chosen = [e for e in effects if (e.kind, e.player) == (kind, player)]
    chosen = [e for e in chosen if all(getattr(e, name) == value for name, value in where.items())]
    assert len(chosen) == 1
    return chosen[0]


def test_columns_are_those_of_the_output_contract():
    assert " ".join(field.name for field in fields(Effect)) == (
        "subset task metric player kind loss lo hi share share_lo share_hi p_adjusted verdict below_noise weights "
        "loss_per_gweight bytes_saved loss_per_gib_saved n_items n_documents reason"
    )
    frame = to_frame(rows(scores()))
    assert frame["weights"].dtype == "Int64" and len(frame) == 10


def test_effects_of_two_blocks_by_hand():
    found = rows(scores(spread=1e-9))
    for kind, player, value in (
        ("total", "all", 0.33),
        ("alone", "ffn", 0.2),
        ("restored", "ffn", 0.23),
        ("restored", "attention", 0.13),
        ("interaction", "ffn+attention", 0.03),
        ("shapley", "ffn", 0.215),
        ("shapley", "attention", 0.115),
        ("contrast", "ffn", 0.215 - 0.7 * 0.33),
        ("difference", "ffn-attention", 0.1),
    ):
        assert one(found, kind, player).loss == pytest.approx(value, abs=1e-7)
    ffn = one(found, "shapley", "ffn")
    assert ffn.share == pytest.approx(0.215 / 0.33)
    assert ffn.loss_per_gweight == pytest.approx(0.215 / 0.003) and ffn.loss_per_gib_saved == pytest.approx(
        0.215 * 1024
    )
    assert one(found, "total", "all").weights == 4_000_000


def test_parts_and_their_shares_sum_to_the_total():
    found = rows(scores())
    parts = [e for e in found if e.kind == "shapley"]
    assert sum(e.loss for e in parts) == pytest.approx(one(found, "total", "all").loss, abs=1e-9)
    assert sum(e.share for e in parts) == pytest.approx(1, abs=1e-9)
    assert all(e.share_lo < e.share < e.share_hi for e in parts)


def test_same_seed_same_rows_and_order_of_arms_is_free():
    first = rows(scores())
    shuffled = scores()
    order = [2, 0, 3, 1]
    moved = replace(shuffled, arms=[shuffled.arms[n] for n in order], values_AN=shuffled.values_AN[order])
    assert rows(scores()) == first
    assert [e.lo for e in rows(moved)] == pytest.approx([e.lo for e in first])


def test_verdicts():
    options = replace(OPTIONS, margin=0.02)
    losses = {"base": 0.0, "attention": -0.2, "ffn": 0.2, "both": 0.001}
    found = rows(scores(loss=losses, spread=0.05), options=options)
    assert one(found, "alone", "ffn").verdict == "worse"
    assert one(found, "alone", "attention").verdict == "better"
    assert one(found, "total", "all").verdict == "equivalent"
    wide = rows(scores(loss=losses, spread=0.5), options=options)
    assert one(wide, "total", "all").verdict == "undecided"
    assert one(found, "contrast", "ffn").verdict == "positive"
    assert {e.verdict for e in rows(scores(documents=19))} == {"exploratory"}


def test_shares_are_withheld_with_the_reason():
    def reason(**changes):
        ffn = one(rows(scores(**changes)), "shapley", "ffn")
        assert (ffn.share, ffn.share_lo, ffn.share_hi) == (None, None, None) and ffn.loss is not None
        return ffn.reason

    assert reason(loss={**LOSS, "both": 0.0}) == "no share: total not told from zero"
    assert reason(loss={**LOSS, "both": -0.3}) == "no share: total is negative, quantizing helped"
    assert reason(worst=3.3).startswith("no share: arm ffn (nll 3.")


def test_accuracy_near_chance_has_no_shares():
    rng = np.random.default_rng(0)
    right = (rng.random((4, 400)) < np.array([0.33, 0.3, 0.3, 0.3])[:, None]).astype(float)
    near = Scores("knowledge", "quiz", "acc", list(LOSS), right, np.arange(400), True, worst=0.25)
    assert "too near chance, 0.25" in one(rows(near), "alone", "ffn").reason
    margin = replace(near, metric="margin", worst=float("nan"))
    assert "too near chance" in one(rows(near, margin), "alone", "ffn", metric="margin").reason
    right_length = replace(near, metric="acc_norm", worst=0.1)
    assert one(rows(near, right_length), "alone", "ffn", metric="acc").reason == "no share: total not told from zero"


def test_metrics_that_are_not_attributed_still_tell_of_chance():
    rng = np.random.default_rng(0)
    right = (rng.random((4, 400)) < np.array([0.33, 0.3, 0.3, 0.3])[:, None]).astype(float)
    near = Scores("general", "prose", "acc", list(LOSS), right, np.arange(400), True, worst=0.25)
    found = attribute([near, scores(documents=400)], BLOCKS, OPTIONS, metrics=["nll"])
    assert {e.metric for e in found} == {"nll"}
    assert (
        "acc 0.29 is too near chance" in one(found, "shapley", "ffn").reason
        and one(found, "shapley", "ffn").share is None
    )
    assert {e.metric for e in attribute([near, scores(documents=400)], BLOCKS, OPTIONS)} == {"acc", "nll"}


def test_a_task_that_base_hardly_masters_is_left_out_of_its_subsets_mean():
    def quiz(task, accuracy, loss):
        rng = np.random.default_rng(1)
        right = (rng.random((4, 400)) < np.array([accuracy, 0.3, 0.3, 0.3])[:, None]).astype(float)
        acc = Scores("knowledge", task, "acc", list(LOSS), right, np.arange(400), True, worst=0.25)
        return scores("knowledge", loss, task=task), acc

    large = {arm: 9 * loss for arm, loss in LOSS.items()}
    found = rows(*quiz("hard", 0.3, large), *quiz("known", 0.9, LOSS), *quiz("also", 0.9, LOSS))
    of = {task: one(found, "total", "all", task=task, metric="nll") for task in ("hard", "known", "also", "all")}
    assert (
        of["all"].loss == pytest.approx((of["known"].loss + of["also"].loss) / 2) and of["hard"].loss > of["all"].loss
    )
    assert "without hard: base is too near chance" in of["all"].reason and of["hard"].reason == ""


def banded(accuracy, documents=200, task="quiz"):
    """nll and acc of a task with two bands of equal size, `known` and `rare`, which loses nine times as much."""
    rng = np.random.default_rng(2)
    bands = ["known", "rare"] * (documents // 2)
    loss_N = np.where(np.array(bands) == "rare", 9.0, 1.0)
    values_AN = 3 + np.outer(list(LOSS.values()), loss_N) + 0.01 * rng.normal(size=(4, documents))
    nll = scores("knowledge", documents=documents, task=task, values_AN=values_AN, worst=np.nan, bands_N=bands)
    right_N = np.where(np.array(bands) == "rare", np.arange(documents) // 2 % 100 < 100 * accuracy, True).astype(float)
    acc = replace(nll, metric="acc", values_AN=np.tile(right_N, (4, 1)), higher_is_better=True, worst=0.25)
    return nll, acc


def test_a_band_that_base_hardly_masters_is_left_out_and_named():
    found = rows(*banded(accuracy=0.3))
    total = one(found, "total", "all", metric="nll")
    assert total.loss == pytest.approx(LOSS["both"], abs=0.01) and total.n_items == total.n_documents == 100
    assert {e.reason for e in found if e.metric == "nll" and e.kind == "shapley"} == {
        "without band rare: base is too near chance"
    }
    whole = one(rows(*banded(accuracy=0.35)), "total", "all", metric="nll")
    assert whole.loss == pytest.approx(5 * LOSS["both"], abs=0.01) and whole.n_items == 200 and whole.reason == ""


def test_a_band_of_few_documents_is_not_judged():
    total = one(rows(*banded(accuracy=0.0, documents=38)), "total", "all", metric="nll")
    assert total.n_items == 38 and total.reason == ""


def test_a_task_near_chance_stays_whole_and_a_subset_says_which_bands_are_left_out():
    nll, acc = banded(accuracy=0.3)
    hard = replace(acc, values_AN=np.zeros((4, 200)))
    assert one(rows(nll, hard), "total", "all", metric="nll").n_items == 200
    found = rows(nll, acc, *banded(accuracy=0.9, task="other"))
    mean = one(found, "total", "all", metric="nll", task="all")
    assert mean.n_items == 300 and mean.reason == "quiz: without band rare: base is too near chance"


def test_headroom_is_inherited_by_metrics_that_know_no_worst_value():
    margin = replace(scores(), metric="margin", worst=float("nan"))
    assert one(rows(margin), "alone", "ffn").reason == ""
    both = rows(margin, scores(worst=3.3))
    assert "passed half the way" in one(both, "alone", "ffn", metric="margin").reason


def test_one_document_has_losses_and_no_interval():
    found = rows(scores(documents_N=np.zeros(60)))
    assert all(e.lo is None and e.p_adjusted is None and e.verdict == "exploratory" for e in found)
    assert one(found, "alone", "ffn").reason == "one document: no interval; no share: the total has no interval"
    assert one(found, "alone", "ffn").loss == pytest.approx(0.2, abs=0.03)


def test_constant_scores_have_no_interval():
    same = scores(spread=0.0, loss=dict.fromkeys(LOSS, 0.0))
    for effect in rows(same):
        assert effect.loss == 0 and effect.lo is None and effect.verdict == "undecided"
        assert "documents do not differ" in effect.reason


def test_divergence_is_held_against_noise_and_never_against_zero():
    loss = {**LOSS, "noise.0": 0.004, "noise.1": 0.006}
    kl = scores(loss=loss, spread=0.001, metric="kl", divergence=True, worst=float("nan"))
    kl = replace(kl, values_AN=kl.values_AN - kl.values_AN[0])
    found = rows(kl, noise=["noise.0", "noise.1"])
    assert one(found, "alone", "ffn").p_adjusted is None and one(found, "alone", "ffn").verdict is None
    assert one(found, "interaction", "ffn+attention").p_adjusted is not None
    assert one(found, "alone", "ffn").below_noise is False and one(found, "alone", "ffn").share is not None
    tiny = replace(kl, values_AN=kl.values_AN * np.array([0.01, 0.01, 0.01, 0.01, 1, 1])[:, None])
    low = one(rows(tiny, noise=["noise.0", "noise.1"]), "shapley", "ffn")
    assert low.below_noise is True and low.reason == "no share: total not told from noise"
    assert one(rows(tiny), "shapley", "ffn").below_noise is None


def test_difference_between_subsets():
    general, knowledge = scores("general"), scores("knowledge", {**LOSS, "ffn": 0.4, "both": 0.5}, seed=1)
    found = rows(general, knowledge)
    parts = [one(found, "shapley", "ffn", subset=name).loss for name in ("general", "knowledge")]
    across = one(found, "difference", "ffn", subset="general-knowledge")
    assert across.loss == pytest.approx(parts[0] - parts[1]) and across.verdict == "negative"
    apart = one(found, "difference", "ffn-attention", subset="general-knowledge")
    assert apart.lo < 0.1 - 0.3 < apart.hi and apart.share is None and apart.weights is None


def test_subset_is_the_mean_of_its_tasks():
    found = rows(scores(), scores(loss={**LOSS, "ffn": 0.4}, seed=1, task="quiz"))
    losses = [one(found, "alone", "ffn", task=task).loss for task in ("prose", "quiz", "all")]
    assert losses[2] == pytest.approx(np.mean(losses[:2]))
    whole, prose = (one(found, "alone", "ffn", task=task) for task in ("all", "prose"))
    assert whole.hi - whole.lo < prose.hi - prose.lo


def test_families_are_corrected_by_themselves():
    """Other metrics take nothing from the primary family, nor from each other; other tasks do."""
    weak = {**LOSS, "ffn": 0.03, "attention": 0.03, "both": 0.06}
    alone = rows(scores(loss=weak, spread=0.1))
    metrics = [scores("knowledge", weak, spread=0.1, seed=n, metric=f"m{n}") for n in range(30)]
    tasks = [scores("knowledge", weak, spread=0.1, seed=n, task=f"t{n}") for n in range(30)]
    crowded, crowd = rows(scores(loss=weak, spread=0.1), *metrics), rows(scores(loss=weak, spread=0.1), *tasks)
    shapley = [one(effects, "shapley", "ffn", metric="nll").p_adjusted for effects in (alone, crowded)]
    assert shapley[0] == shapley[1]
    own, beside, among = (
        one(effects, "alone", "ffn", metric="nll", subset="general").p_adjusted for effects in (alone, crowded, crowd)
    )
    assert own == beside < among


def test_clear_words_for_arms_that_did_not_score_the_same_items():
    values = scores().values_AN.copy()
    values[2, 5:8] = np.nan
    with pytest.raises(UserError, match="general/prose/nll: arm ffn lacks 3 of 60 items"):
        replace(scores(), values_AN=values)
    with pytest.raises(UserError, match="4 arms, values of shape"):
        replace(scores(), values_AN=values[:3])
    with pytest.raises(UserError, match="no scores of arm base"):
        replace(scores(), arms=["a", "ffn", "attention", "both"])
    with pytest.raises(UserError, match="prose: no scores of arms both"):
        rows(replace(scores(), arms=["base", "attention", "ffn", "all"]))


def test_design_without_the_whole_has_losses_and_no_shares():
    single = Game({arm: players for arm, players in BLOCKS.coalitions.items() if arm != "both"})
    found = rows(scores(), game=single)
    assert {e.kind for e in found} == {"alone", "difference"}
    assert one(found, "alone", "ffn").reason == "no share: no arm quantizes everything"
    with pytest.raises(UserError, match="effect total: no arm quantizes exactly attention"):
        rows(scores(), game=single, options=replace(OPTIONS, effects=["total"]))


def test_arm_losses_agree_with_attribution():
    found = arm_losses([scores()], OPTIONS)[0]
    ffn, alone = found["ffn"], one(rows(scores()), "alone", "ffn")
    assert (ffn.loss, ffn.lo, ffn.hi) == pytest.approx((alone.loss, alone.lo, alone.hi))
    assert set(found) == {"ffn", "attention", "both"} and ffn.verdict == "worse"
    assert ffn.p_adjusted >= ffn.p_value


def test_rows_survive_csv(tmp_path):
    found = rows(scores(), scores(worst=3.3, metric="margin"), noise=["both"])
    to_frame(found).to_csv(tmp_path / "attribution.csv", index=False)
    assert read_effects(tmp_path / "attribution.csv") == found
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    for name in ("other.csv", "absent.csv"):
        with pytest.raises(UserError, match=f"{name}: not an attribution table"):
            read_effects(tmp_path / name)
