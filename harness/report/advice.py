"""What to do, from the numbers only, and what they leave open.

A setting is recommended where the upper end of its interval, not its estimate, stays under what one is ready to lose.
Settings of different runs are set against each other item by item (`paired`), never by looking whether two intervals
overlap. What is chosen after seeing all losses looks a little better than it is; the page says so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from harness.attribute import Effect
from harness.attribute.verdict import CONFIRMATORY
from harness.report.attribution_plots import panels_of
from harness.report.numbers import THIN, decimals_for, interval, number, percent, percent_interval
from harness.report.paired import Difference, difference
from harness.report.points import Panel, front_of, sized
from harness.report.rows import Row
from harness.report.runs import DONE, FAILED, NoItemsError, Run
from harness.report.sweep_plots import group_lines

DEVIATION = "kl"  # how far predictions moved, for the better or the worse
STEPS = (1, 3, 10, 30, 100)  # tolerated losses, in margins
MOST_PAIRS = 60  # paired comparisons of a page
SAID = {
    "worse": ": worse, told from zero",
    "better": ": better, told from zero",
    "equivalent": ": within the margin of no loss",
    "undecided": ": not told from zero once all tests are corrected for",
    "exploratory": ": too few documents to conclude",
}
WHO = {
    "positive": "the FFN costs more than attention",
    "negative": "attention costs more than the FFN",
    "equivalent": "both cost the same within the margin",
    "undecided": "it is undecided which costs more",
    "exploratory": "there are too few documents to say which costs more",
}


@dataclass(frozen=True)
class Choice:
    """The setting with the fewest bits among those whose upper bound is low enough."""

    arm: str
    setting: str
    bits: float
    highest: float  # upper bound of its loss, the worst of all tasks and repeats


@dataclass(frozen=True)
class Tolerance:
    """What to choose if a loss of `loss` can be borne: in every task at once, and in each."""

    loss: float
    everywhere: Choice | None
    by_panel: list[Choice | None]


@dataclass(frozen=True)
class Step:
    """A point of the front, and how much less it loses than the point before it."""

    row: Row
    gain: Difference | None


def choices(panels: Sequence[Panel], margin: float) -> list[Tolerance]:
    """For growing tolerances the smallest safe setting. Panels in one metric; rows without an interval are not safe."""
    found = [Tolerance(k * margin, _everywhere(panels, k * margin), _each(panels, k * margin)) for k in STEPS]
    return [one for one in found if any(one.by_panel)]


def _each(panels: Sequence[Panel], tolerance: float) -> list[Choice | None]:
    return [_everywhere([panel], tolerance) for panel in panels]


def _everywhere(panels: Sequence[Panel], tolerance: float) -> Choice | None:
    """Smallest setting that is safe in every panel, and in every repeat with another seed."""
    settings: dict[tuple[str, str], list[tuple[Panel, Row]]] = {}
    for panel in panels:
        for row in sized(panel.rows):
            settings.setdefault((row["arm"], row["setting"]), []).append((panel, row))
    found = []
    for (arm, setting), own in settings.items():
        highest = max(_highest(row) for _, row in own)
        if highest <= tolerance and len({panel.title for panel, _ in own}) == len(panels):
            found.append(Choice(arm, setting, max(row["bits_per_weight"] for _, row in own), highest))
    return min(found, key=lambda choice: (choice.bits, choice.highest), default=None)


def _highest(row: Row) -> float:
    """The upper end of a loss; nothing bounds it where there is no interval or too few documents."""
    return math.inf if row["loss_hi"] is None or row["verdict"] == "exploratory" else row["loss_hi"]


def front_steps(panel: Panel, runs: Mapping[str, Run]) -> list[Step]:
    """The front from the fewest bits up, each point against the one before it."""
    rows = front_of(panel)
    gains = [_gain(before, row, runs) for before, row in pairwise(rows)]
    return [Step(row, gain) for row, gain in zip(rows, [None, *gains][: len(rows)], strict=True)]


def _gain(before: Row, row: Row, runs: Mapping[str, Run]) -> Difference | None:
    """How much more `before` loses than `row`; None where there are no items to pair."""
    try:
        return difference(runs[before["run_id"]], runs[row["run_id"]], before, row)
    except NoItemsError:
        return None


def loss_sentences(panels: Sequence[Panel]) -> Iterator[str]:
    """What quantizing all that the design quantizes costs, task by task."""
    for panel in panels:
        row = _whole(panel)
        decimals = decimals_for([row["loss_lo"]], [row["loss_hi"]])
        loss = f"{number(row['loss'], decimals, signed=True)} {panel.unit or panel.metric}"
        bounds = interval(row["loss_lo"], row["loss_hi"], decimals)
        said = SAID.get(row["verdict"] or "", "")
        yield f"{panel.title}: {loss} {bounds} with {names(row['arm'])} quantized{said}."


def _whole(panel: Panel) -> Row:
    """The row with most quantized."""
    return min(panel.rows, key=lambda row: row["bits_per_weight"] or math.inf)


def choice_sentences(panels: Sequence[Panel], tolerances: Sequence[Tolerance], margin: float) -> Iterator[str]:
    """What to choose on all tasks together."""
    unit, tried = panels[0].unit or panels[0].metric, len({(row["arm"], row["setting"]) for row in panels[0].rows})
    where = {1: f"on {panels[0].title}", 2: "on both tasks"}.get(len(panels), f"on all {len(panels)} tasks")
    within = next((t for t in tolerances if t.loss == margin), None)
    if within is None or within.everywhere is None:
        yield f"No setting is shown to stay within {short_loss(margin)} {unit} of the unquantized model {where}."
    best = next((t for t in tolerances if t.everywhere), None)
    if best is None or best.everywhere is None:
        return
    one = best.everywhere
    yield (
        f"The fewest bits that are shown to lose less than {short_loss(best.loss)} {unit} {where}: "
        f"{placed(one.setting, one.arm)}, {number(one.bits, 2)} bits a weight."
    )
    if tried > 1:
        yield f"Picked among {tried} settings after seeing their losses, it may lose a little more than shown."


def group_sentences(panels: Sequence[Panel], runs: Mapping[str, Run], swept: Sequence[str]) -> Iterator[str]:
    """Whether smaller groups help, by paired steps between neighbouring sizes of the arm with the fewest bits."""
    found = {panel.title: words for panel in panels if (words := _group_words(panel, runs, swept, len(panels)))}
    if found:
        parts = "; ".join(f"{title}: {words}" for title, words in found.items())
        yield f"Smaller groups, by steps to the next smaller size with everything quantized. {parts}."


def _group_words(panel: Panel, runs: Mapping[str, Run], swept: Sequence[str], panels: int) -> str:
    lines = group_lines([row for row in panel.rows if row["arm"] == _whole(panel)["arm"]], swept)
    pairs = [pair for line in lines for pair in pairwise(line.points)]
    pairs = pairs[:: max(1, math.ceil(len(pairs) * panels / MOST_PAIRS))]  # spread over all settings
    words = Counter(gain.word for gain in (_gain(large, small, runs) for small, large in pairs) if gain)
    said = {"more": "lower the loss", "less": "raise it", "undecided": "undecided"}
    parts = [f"{words[word]} of {words.total()} {text}" for word, text in said.items() if words[word]]
    return ", ".join(parts)


def block_sentences(runs: Sequence[Run], metric: str) -> Iterator[str]:
    """Which block costs more, by subset, counted over runs that have both; its share of the deviation beside it."""
    moved = _splits(runs, DEVIATION) if metric != DEVIATION else {}
    for subset, panels in _splits(runs, metric).items():
        verdicts = [effects["difference", "ffn-attention"].verdict or "undecided" for effects in panels]
        of_loss = _share_words(panels, "loss") or "shares are withheld"
        of_deviation = _share_words(moved.get(subset, []), DEVIATION)
        shares = "; ".join(filter(None, [of_loss, of_deviation]))
        yield f"{subset}: {_who(verdicts)} ({shares})."


def _splits(runs: Sequence[Run], metric: str) -> dict[str, list[dict[tuple[str, str], Effect]]]:
    """By subset, the effects of every run that splits the loss between the two blocks."""
    found: dict[str, list[dict[tuple[str, str], Effect]]] = {}
    for run in runs:
        for effects in panels_of([effect for effect in run.effects if effect.metric == metric]):
            if ("difference", "ffn-attention") in effects:
                found.setdefault(next(iter(effects.values())).subset, []).append(effects)
    return found


def _who(verdicts: Sequence[str]) -> str:
    words = Counter(verdict if verdict in WHO else "undecided" for verdict in verdicts)
    if len(verdicts) == 1:
        return WHO[words.most_common(1)[0][0]]
    return ", ".join(
        f"{text} in {words[word]} of {len(verdicts)} settings" for word, text in WHO.items() if words[word]
    )


def _share_words(panels: Sequence[Mapping[tuple[str, str], Effect]], of: str) -> str:
    """The FFN's share where it is known: with its interval, or from the least to the most of several settings."""
    parts = [effects["shapley", "ffn"] for effects in panels if ("shapley", "ffn") in effects]
    known = [part.share for part in parts if part.share is not None]
    if not known:
        return ""
    if len(parts) > 1:
        return f"the FFN's share of the {of}: {percent(min(known))} to {percent(max(known))}"
    bounds = percent_interval(parts[0].share_lo, parts[0].share_hi)
    return f"the FFN's share of the {of}: {percent(known[0])} {bounds}".rstrip()


def size_sentence(runs: Sequence[Run]) -> Iterator[str]:
    """How much of what was quantized is the FFN's."""
    for run in runs:
        weights = {effect.player: effect.weights for effect in run.effects if effect.kind == "alone"}
        ffn, attention = weights.get("ffn"), weights.get("attention")
        if ffn and attention:
            yield f"The FFN holds {percent(ffn / (ffn + attention))} of the weights of both blocks."
            return


def open_questions(panels: Sequence[Panel], runs: Sequence[Run]) -> Iterator[str]:
    """What the runs leave undecided, and what is not in them."""
    rows = [row for panel in panels for row in panel.rows]
    undecided = sum(row["verdict"] == "undecided" for row in rows)
    if undecided:
        yield f"{undecided} of {len(rows)} losses can neither be told from zero nor called equivalent to it."
    few = dict.fromkeys(row["task"] for row in rows if (row["n_documents"] or 0) < CONFIRMATORY)
    if few:
        yield f"Fewer than {CONFIRMATORY} documents in {', '.join(few)}: exploratory, nothing is concluded there."
    noisy = sum(bool(row["below_noise"]) for row in rows)
    if noisy:
        yield f"{_count(noisy, 'loss', 'losses')} smaller than what rounding to bfloat16 does (hollow points)."
    for status, word in ((FAILED, "failed"), (None, "did not finish")):
        count = sum(run.status == status if status else run.status not in (DONE, FAILED) for run in runs)
        if count:
            yield f"{_count(count, 'run')} {word}: nothing is said of {'its' if count == 1 else 'their'} settings."
    lattices = {str(cell) for run in runs if len(run.report) for cell in run.report["base_lattice"].dropna()}
    if lattices:
        yield f"The base weights already sit on a lattice ({', '.join(sorted(lattices))}): losses on it say little."


def names(arm: str) -> str:
    """An arm in a sentence."""
    return {"both": "FFN and attention", "ffn": "the FFN", "attention": "attention", "all": "everything"}.get(arm, arm)


def placed(setting: str, arm: str) -> str:
    """`int4 g64 in FFN and attention`; a setting that names both blocks stands alone."""
    return setting if setting.startswith("ffn ") else f"{setting} in {names(arm)}"


def short_loss(value: float) -> str:
    """`0.01`, `0.3`."""
    return f"{value:.3g}"


def perplexity_factor(loss: float) -> str:
    """What a loss in nats does to perplexity."""
    return f"\N{MULTIPLICATION SIGN}{THIN}{math.exp(loss):.3g}"


def _count(count: int, singular: str, plural: str = "") -> str:
    return f"{count} {singular if count == 1 else plural or singular + 's'}"
