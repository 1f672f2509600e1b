"""Write docs/benchmarks.md, the tables of docs/guide/papers.md, and the README's numbers with their picture, from the
records of bench/results/.

    python bench/report.py [--allow-stale]

A record that is stale (the library has changed since, or its hash was not kept) or busy (other processes took more than
.05 cores from a measurement of time) is refused, with the command that renews it; nothing is written then. With
--allow-stale the tables are written all the same, and say so above each.
"""

import argparse
import re
import sys

import picture
import records
import studies

# Studies that stand first.
FIRST = ("boosted", "learning", "splits", "neighbours", "several_classes")
DOCS, README, PICTURE = records.ROOT / "docs" / "benchmarks.md", records.ROOT / "README.md", picture.PICTURE
GUIDE = records.ROOT / "docs" / "guide" / "papers.md"
INTRODUCTION = """# Benchmarks

Written by `python bench/report.py` from the records in `bench/results/`; do not edit. A record has its raw numbers,
command, commit, processor, library versions, the hash of its data and that of the library's files which it depends on.
When those files have changed since, its table says that it is stale; so are records from before hashes were kept, which
lack some of this. A data set that a study has and nobody measured is
listed as such. Where xgpc loses is in the tables and, next to other libraries, in the sentence below them.

On 2 cores of shared machines, OpenBLAS from the wheels; times vary by some percent from run to run, and by more with
GPyTorch's. Sets are public ones. Defaults were chosen with these sets, and the test rows of split 0, in view.
"""


def objections(name, found):
    """Objections to a study's records: dict of sentence -> names of the records, empty if all are good."""
    study = studies.study(name)
    current, sentences = records.hash_of(study.DEPENDS), {}
    for key, record in found.items():
        for sentence in records.objections(record, current, study.TIMED):
            sentences.setdefault(sentence, []).append(key)
    return sentences


def renewals(name, found):
    """Commands that measure these records again."""
    together = []
    for record in found.values():
        group = next((group for group in together if group[0] == record["options"]), None)
        if group is None:
            together.append(group := (record["options"], []))
        if record["set"] is not None and record["set"] not in group[1]:
            group[1].append(record["set"])
    every = list(getattr(studies.study(name), "SETS", ()))
    return [
        records.command(name, options, () if set(sets) == set(every) else sets, data=bool(sets))
        for options, sets in together
    ]


def refused(stored):
    """What keeps the report from being written, as lines of text."""
    lines = []
    for name, found in stored.items():
        sentences = objections(name, found)
        for sentence, keys in sentences.items():
            which = "all records" if len(keys) == len(found) else "; ".join(keys)
            lines.append(f"{name}: {which}: {sentence}")
        if sentences:
            bad = {key: found[key] for keys in sentences.values() for key in keys}
            lines += [f"    {command}" for command in renewals(name, bad)]
    return lines


def marks(name, found):
    """A paragraph that says which of the records are stale or busy, if any are."""
    lines = []
    for sentence, keys in objections(name, found).items():
        kind, _, reason = sentence.partition(": ")
        which = "All" if len(keys) == len(found) else "; ".join(keys)
        lines.append(f"> **{kind.capitalize()}.** {which}: {reason}.")
    return "\n>\n".join(lines)


def source(name, found):
    """Commands, commits and machines of the records."""
    commits = sorted({record["commit"][:9] + (" with changes" if record["changed"] else "")
                      for record in found.values() if record["commit"]})  # fmt: skip
    machines = sorted({f"{record['processor']}, {record['cores']} cores"
                       for record in found.values() if record["processor"]})  # fmt: skip
    said = [", ".join(f"`{command}`" for command in renewals(name, found))]
    said.append(f"at commit {', '.join(commits)}" if commits else "commit not kept")
    said += machines or ["processor not kept"]
    return "; ".join(said) + "."


def table(name, found):
    """Marks, table and source of a study."""
    return "\n\n".join(filter(None, [marks(name, found), studies.study(name).report(found), source(name, found)]))


def section(name, found):
    study = studies.study(name)
    title, text = studies.title_and_text(study)
    pieces = [f"## {title}", text, table(name, found)]
    # What a study makes itself has a name, and no set of data.
    measured = {*found, *(record["set"] for record in found.values())}
    if missing := [known for known in getattr(study, "SETS", ()) if known not in measured]:
        pieces.append(f"Not measured: {', '.join(missing)}.")
    pieces.append(f"Raw numbers: [{name}.json](../bench/results/{name}.json).")
    pictures = sorted(path.name for path in records.RESULTS.glob(f"{name}*.png"))
    pieces += [f"![{picture[:-4]}](../bench/results/{picture})" for picture in pictures]
    return "\n\n".join(pieces)


def contents(names):
    """Links to the sections of studies."""
    titles = [studies.title_and_text(studies.study(name))[0] for name in names]
    # Of a heading, GitHub's anchor keeps letters, digits and hyphens.
    anchors = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
    return "\n".join(f"* [{title}](#{anchor})" for title, anchor in zip(titles, anchors, strict=True))


def document(stored):
    names = [*(name for name in FIRST if name in stored), *(name for name in stored if name not in FIRST)]
    return "\n".join([INTRODUCTION, contents(names) + "\n", *(section(name, stored[name]) + "\n" for name in names)])


def filled(page, name, text):
    """A page's text with what is between the marks of a name made anew."""
    pattern = rf"(<!-- bench: {name} -->\n).*?(<!-- bench: end -->)"
    page, count = re.subn(pattern, lambda m: f"{m[1]}\n{text}\n\n{m[2]}", page, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"The page needs one <!-- bench: {name} --> with <!-- bench: end --> after it; has {count}")
    return page


def guide(page, found):
    """The text of the guide's page of the papers, with the tables of the study's records."""
    made = studies.study("papers").tables(found)
    made["source"] = "\n\n".join(filter(None, [marks("papers", found), found and source("papers", found)]))
    for name, text in made.items():
        page = filled(page, name, text)
    return page


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--allow-stale", action="store_true", help="write stale and busy records, too, marked as such")
    options = parser.parse_args(arguments)
    stored = {name: found for name in studies.names() if (found := records.read(name))}
    lines = refused(stored)
    if lines and not options.allow_stale:
        raise SystemExit("\n".join(["Not written. Renew these records, or mark them with --allow-stale:", *lines]))
    readme = filled(README.read_text(encoding="utf-8"), "summary", picture.summary(found := picture.comparison()))
    papers = guide(GUIDE.read_text(encoding="utf-8"), stored.get("papers", {}))
    if found:
        picture.draw(found, PICTURE)
    DOCS.write_text(document(stored), encoding="utf-8")
    GUIDE.write_text(papers, encoding="utf-8")
    README.write_text(readme, encoding="utf-8")
    said = f", {len(lines)} lines of objections" if lines else ""
    print(f"wrote docs/benchmarks.md, docs/guide/papers.md, README.md and its picture{said}")


if __name__ == "__main__":
    main(sys.argv[1:])
