"""Write docs/benchmarks.md, numbers of docs/paper.md and guide/papers.md, torch.md and trees.md, and the README's with
their picture, from the records that hold. ``bench/run.py`` does so after it has measured.

    python bench/report.py
"""

import re
import textwrap

import goldens
import numpy as np
import records
import studies
from methods import METHODS
from studies import trees

DOCS, README = records.ROOT / "docs" / "benchmarks.md", records.ROOT / "README.md"
TORCH, PAPER = records.ROOT / "docs" / "guide" / "torch.md", records.ROOT / "docs" / "paper.md"
TREES = records.ROOT / "docs" / "guide" / "trees.md"
GUIDE, PICTURE = records.ROOT / "docs" / "guide" / "papers.md", records.ROOT / "docs" / "_static" / "next_to_trees.png"
INTRODUCTION = """# Benchmarks

`python bench/report.py` writes this page from the records in `bench/results/` that are still valid. A record of \
accuracy expires when the outputs of some golden fits (`bench/goldens.py`) change, a record of times when the version \
of xgpc changes, and the numbers of another library when its version changes. Times are shown only if other processes \
took at most {load} cores, and only those of the newest record's processor. `python bench/run.py --all --data FOLDER` \
measures everything that has no valid record, in {minutes} minutes on two cores.
"""
MEASURES = "There is no valid record of {}; `python bench/run.py {} --data FOLDER` measures the missing numbers."
# Okabe and Ito's blue and orange for wins and losses; markers of the methods in the picture.
COLOURS = {"W": "#0072B2", "L": "#D55E00", "=": "0.45"}
TICKS = (0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0)
# Of the ratios in the picture; arrows stand for those beyond.
LOWEST, HIGHEST = 0.25, 2.2
MARKERS = {"lightgbm": "o", "catboost": "D", "xgboost": "s"}


def source(found):
    """When, at which commits and on which machines the records were measured."""
    dates = sorted({record["date"][:10] for record in found.values()})
    commits = sorted({record["commit"][:7] for record in found.values() if record["commit"]})
    machines = sorted({f"{record['processor']}, {record['cores']} cores" for record in found.values()})
    libraries = [(name, record["versions"]) for record in found.values() for name in record.get("of", ())]
    versions = sorted({f"{name} {versions[name]}" for name, versions in libraries})
    return (
        f"Measured {' to '.join(dict.fromkeys([dates[0], dates[-1]]))} at {', '.join(commits)}; "
        f"{'; '.join(machines)}; {', '.join(versions)}."
    )


def section(name, found):
    """A study's section: text, tables of the valid records of its parts, and which parts have none."""
    study = studies.study(name)
    title, text = studies.title_and_text(study)
    names = [part.name for part in study.parts(None, quick=False)]
    found = {part: record for part, record in found.items() if part in names}
    # A line for each paragraph: editors and browsers wrap them.
    pieces = [f"## {title}", re.sub(r"(?<=\S)\n(?=\S)", " ", text)]
    # The papers' tables have a page of their own.
    if found and name != "papers":
        pieces.append(study.report(found))
    origin, missing = [source(found)] if found else [], [part for part in names if part not in found]
    if missing:
        which = f'{len(missing)} parts, from "{missing[0]}" to "{missing[-1]}"' if found else "these tables"
        origin.append(MEASURES.format(which, name))
    # After a table a new paragraph begins; after sentences on the tables it need not.
    gap = " " if len(pieces) > 2 and not pieces[-1].endswith("|") else "\n\n"
    return re.sub(r"\n{3,}", "\n\n", "\n\n".join(pieces) + gap + " ".join(origin)) + "\n"


def document(stored):
    """docs/benchmarks.md from the records that hold, by study."""
    minutes = sum(studies.study(name).MINUTES for name in studies.NAMES)
    sections = [section(name, stored[name]) for name in studies.NAMES]
    return "\n".join([INTRODUCTION.format(minutes=minutes, load=records.MUCH_LOAD), *sections])


def filled(page, name, text):
    """A page's text with what is between the marks of a name made anew."""
    pattern = rf"(<!-- bench: {name} -->\n).*?(<!-- bench: end -->)"
    page, count = re.subn(pattern, lambda m: f"{m[1]}\n{text}\n\n{m[2]}", page, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"The page needs one <!-- bench: {name} --> with <!-- bench: end --> after it; has {count}")
    return page


def guide(page, found):
    """The text of the guide's page of the papers, with the tables of the study's records."""
    study = studies.study("papers")
    made = {"source": source(found) if found else MEASURES.format("these tables", "papers"), **study.tables(found)}
    for name, text in made.items():
        page = filled(page, name, text)
    return page


def paper(page, stored):
    """The text of the page that sums xgpc up, with its tables."""
    found = trees.found_of(stored["trees"])
    shown = {part: record for part, record in stored["trees"].items() if part.rpartition(": ")[2] in trees.NAMES}
    made = {
        "truth": studies.study("truth").report(stored["truth"]) if stored["truth"] else "",
        "trees": "\n\n".join([*trees.verdicts(found), source(shown)]) if found else "",
        "svgp": next_to_gaussian_processes(stored["svgp"]),
    }
    for name, text in made.items():
        page = filled(page, name, wrapped(text) or MEASURES.format("these numbers", name))
    return page


def wrapped(text):
    """Paragraphs and items of lists in lines of 120 characters; the lines of tables stay."""
    return "\n".join(
        line if line.startswith("|") else textwrap.fill(
            line, 120, subsequent_indent="  " * line.startswith("* "), break_long_words=False, break_on_hyphens=False
        ) for line in text.splitlines()
    )  # fmt: skip


def failures(found):
    """The table of Bayesian optimisation for the guide's page of BoTorch."""
    return (
        f"{studies.study('failures').summary(found)}\n\n{source(found)}"
        if found
        else MEASURES.format("this table", "failures")
    )


def trees_rows(found):
    """Wins, losses, ties, mean rank, calibrated sets, and median time, of each method, for the README."""
    ranks = trees.mean_ranks(found, trees.NAMES)
    lines = ["| | xgpc wins | loses | ties | mean rank | calibrated | median time of a fit |", f"|{'---|' * 7}"]
    for name in trees.NAMES:
        counts = [str(len(trees.sets_with(found, name, letter))) for letter in "WL="] if name != "xgpc" else [""] * 3
        fits = [numbers[name]["seconds"] for numbers in found.values() if "seconds" in numbers.get(name, {})]
        rank = f"{ranks[name]:.2f}" if ranks else ""
        cells = [rank, trees.calibrated(found, name), f"{np.median(fits):.2g} s" if len(fits) == len(found) else ""]
        lines.append(f"| {' | '.join([METHODS[name].title, *counts, *cells])} |")
    return "\n".join(lines)


def when_trees_win(found):
    """Sentences on losses and times for the guide's page on trees."""
    found = trees.found_of(found)
    sentences = [
        f"On the {len(half)} {title}, xgpc loses {trees.losses(half)}."
        for title, half in trees.halves(found).items() if half
    ]  # fmt: skip
    return wrapped(" ".join([*sentences, trees.ratios(found) or ""])) or MEASURES.format("xgpc and trees", "trees")


def next_to_gaussian_processes(found):
    """A sentence on the SVGP of other libraries, empty if there are no records."""
    ratios = studies.study("svgp").ratios(found)
    reached = [ratio for ratio in ratios.values() if ratio is not None]
    if not reached:
        return ""
    return (
        "GPyTorch and GPflow have sparse Gaussian processes, too. With 100 inducing points each, xgpc comes within "
        f".002 nats of the better library's best test likelihood on {len(reached)} of {len(ratios)} sets. To get "
        f"there, the faster of the two libraries needs {min(reached):.0f} to {max(reached):.0f} times as long as xgpc "
        f"(median {np.median(reached):.0f})."
    )


def summary(stored):
    """The README's picture, table and sentences."""
    found = trees.found_of(stored["trees"])
    if not found:
        return MEASURES.format("xgpc and boosted trees", "trees")
    unseen, chosen = trees.halves(found).values()
    shown = unseen or chosen
    whose = (
        f", on which no choice was made; the picture adds the {len(chosen)} that chose the defaults" if unseen else ""
    )
    protocol = (
        f"The table is about {len(shown)} public data sets{whose}. All methods have their default parameters and two "
        "threads; boosted trees use a tenth of the training rows to choose the number of trees. Sets with at most "
        f"{trees.FEW_ROWS} training rows are split {trees.SPLITS} times. xgpc wins on a set if its negative log "
        "likelihood of the test rows is lower by more than two standard errors of the paired difference. A method is "
        "calibrated on a set if chance can explain its calibration error. xgpc loses "
        f"{trees.losses(shown)}."
    )
    newer = trees.next_to_newer(shown)
    ranks = trees.mean_ranks(chosen, trees.NAMES)
    counts = ", ".join(trees.against(chosen, name) for name in trees.STRONGEST)
    others = ranks and (
        f"The defaults of xgpc were chosen on {len(chosen)} other sets. On those sets the mean rank of xgpc is "
        f"{ranks['xgpc']:.2f} (of {len(ranks)} methods), and its wins and losses are {counts}."
    )
    of_chosen = others if unseen and others else "The defaults of xgpc were chosen on these sets."
    tables = studies.study("unseen").sentence(stored["unseen"])
    sentences = tables, newer, of_chosen, trees.ratios(found), next_to_gaussian_processes(stored["svgp"])
    text = "\n\n".join([protocol, "\n".join(f"* {sentence}" for sentence in sentences if sentence)])
    alternative = f"Negative log likelihood of xgpc, divided by that of boosted trees, on {len(found)} data sets"
    picture = f"![{alternative}]({PICTURE.relative_to(records.ROOT)})"
    return f"{picture}\n\n{trees_rows(shown)}\n\n{wrapped(text)}"


def in_order(found):
    """Sets by the NLL of xgpc, first those on which no choice was made."""
    halves = trees.halves(found).values()
    return [dict(sorted(half.items(), key=lambda item: item[1]["xgpc"]["nll"])) for half in halves]


def draw(unseen, chosen, path):
    """Ratios of the NLLs, a line for each set and a mark for each method, with two standard errors; a line between both
    kinds of sets."""
    from matplotlib.figure import Figure

    found = {**unseen, **chosen}
    figure = Figure(figsize=(7.6, 1.6 + 0.2 * len(found)), layout="constrained")
    axes = figure.subplots()
    axes.axvline(1.0, color="0.35", linewidth=1.0)
    if unseen and chosen:
        axes.axhline(len(unseen) - 0.5, color="0.35", linewidth=1.0)
        for shift, words in ((-1.0, "no choice was made on these sets"), (0.1, "sets that chose the defaults")):
            axes.text(HIGHEST / 1.05, len(unseen) + shift, words, fontsize=7.5, ha="right")
    for place, numbers in enumerate(found.values()):
        for shift, (name, marker) in zip((-0.24, 0.0, 0.24), MARKERS.items(), strict=True):
            if name in numbers:
                theirs = numbers[name]["nll"]
                ratio = numbers["xgpc"]["nll"] / theirs
                spread = trees.CHANCE * trees.difference(numbers, name)[1] / theirs
                colour = COLOURS[trees.verdict(numbers, name)]
                if LOWEST < ratio < HIGHEST:
                    axes.errorbar(
                        ratio, place + shift, xerr=min(spread, 0.9 * ratio), fmt=marker, markersize=3.5, linewidth=1.0,
                        color=colour,
                    )  # fmt: skip
                else:
                    at = 1.02 * LOWEST if ratio <= LOWEST else HIGHEST / 1.02
                    axes.plot(at, place + shift, "<" if ratio <= LOWEST else ">", markersize=5, color=colour)
    axes.set(
        xscale="log", xlim=(LOWEST, HIGHEST), ylim=(len(found) - 0.4, -0.6), yticks=range(len(found)),
        xlabel="NLL of xgpc, divided by that of trees",
        title="Left of 1, xgpc is better. Wins blue, losses orange, ties grey",
    )  # fmt: skip
    axes.set_yticklabels(list(found), fontsize=7.5)
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.minorticks_off()
    axes.grid(axis="x", color="0.9", linewidth=0.7)
    for name, marker in MARKERS.items():
        axes.plot([], [], marker, color="0.3", label=METHODS[name].title)
    axes.legend(loc="lower left", fontsize=8)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def write():
    """Write the pages from the records that hold with the kept golden outputs."""
    outputs = goldens.kept()["numbers"]
    stored = {name: records.holding(studies.study(name), outputs) for name in studies.NAMES}
    pages = {
        DOCS: document(stored), GUIDE: guide(GUIDE.read_text(encoding="utf-8"), stored["papers"]),
        PAPER: paper(PAPER.read_text(encoding="utf-8"), stored),
        TORCH: filled(TORCH.read_text(encoding="utf-8"), "failures", failures(stored["failures"])),
        TREES: filled(TREES.read_text(encoding="utf-8"), "losses", when_trees_win(stored["trees"])),
        README: filled(README.read_text(encoding="utf-8"), "summary", summary(stored)),
    }  # fmt: skip
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
    if found := trees.found_of(stored["trees"]):
        draw(*in_order(found), PICTURE)
    print(f"wrote {', '.join(str(path.relative_to(records.ROOT)) for path in pages)}")


if __name__ == "__main__":
    write()
