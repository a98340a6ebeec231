#!/usr/bin/env python3
"""Write the pages and plots of docs/results, and the README's figures, from what was measured.

    python python/bench_peers.py --json docs/results/peers.json
    python python/bench_peers.py --winograd off --json docs/results/peers_direct.json
    python python/ablations.py --json docs/results/ablations.json
    python python/compare_policies.py --json docs/results/scaling.json
    python python/count_choices.py --json docs/results/choices.json
    python python/bench_kernels.py --json docs/results/kernels.json
    python python/bench_kernels.py --target TARGET --json docs/results/kernels_avx2.json
    python python/check_models.py
    python python/tune_models.py --results docs/results
    python python/make_results.py --readme README.md

Only the first file must be there. What long checks have shown is in proofs.json, what a GPU took
in gpu.json, and what many cores took in cores.json, all kept by hand; scaling_before.json and
scaling_after.json are compare_policies.py's of two checkouts.
"""

from __future__ import annotations

from pathlib import Path

import click
from bench.choices import CHOICES, choices_page
from bench.corpus_page import corpus_page
from bench.corpus_records import load_corpus, load_notes
from bench.gpu_page import gpu_page, load_gpu
from bench.kernel_page import kernels_page, load_kernels
from bench.many_cores import ManyCores
from bench.overview import overview
from bench.pages import (
    Results,
    ablations_page,
    contenders_of,
    peers_page,
    scaling_page,
)
from bench.proofs import load_proofs
from bench.readme_part import readme_part, replace_part
from bench.records import load_results
from bench.scaling import SCALINGS
from bench.study import STUDIES
from bench.tuning_study import TUNINGS
from bench.tuning_tables import gains_by_trials, tuning_page

from tvm_rammer.errors import RammerError


@click.command()
@click.option(
    "--folder",
    default="docs/results",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the measurements are, and where pages and plots go.",
)
@click.option(
    "--readme",
    type=click.Path(dir_okay=False, path_type=Path),
    help="README to put the figures into, between its markers.",
)
def main(folder: Path, readme: Path | None) -> None:
    """Write pages and plots from measurements."""
    try:
        results = read(folder)
        written = write(results, folder)
        if readme:
            text = readme.read_text()
            readme.write_text(replace_part(text, readme_part(results, folder.as_posix())))
            written.append(readme)
    except RammerError as error:
        raise click.ClickException(str(error)) from error
    except ModuleNotFoundError as error:
        raise click.ClickException(f'{error}; pip install "tvm-rammer[bench]"') from error
    for path in written:
        click.echo(f"wrote {path}")


def read(folder: Path) -> Results:
    """What lies in a folder."""
    names = ("peers_direct", "ablations", "scaling", "proofs", "models", "choices", "tuning")
    direct, ablations, scaling, proofs, models, choices, tuning = (
        folder / f"{name}.json" for name in names
    )
    before, after = folder / "scaling_before.json", folder / "scaling_after.json"
    return Results(
        load_results(folder / "peers.json"),
        load_results(direct) if direct.exists() else None,
        STUDIES.load(ablations) if ablations.exists() else None,
        SCALINGS.load(scaling) if scaling.exists() else None,
        load_proofs(proofs) if proofs.exists() else (),
        tuple(map(load_kernels, sorted(folder.glob("kernels*.json")))),
        load_corpus(models) if models.exists() else None,
        load_notes(folder / "models_notes.json"),
        CHOICES.load(choices) if choices.exists() else None,
        TUNINGS.load(tuning) if tuning.exists() else None,
        (SCALINGS.load(before), SCALINGS.load(after)) if before.exists() else None,
        load_gpu(folder / "gpu.json") if (folder / "gpu.json").exists() else None,
        ManyCores.load(folder / "cores.json") if (folder / "cores.json").exists() else None,
    )


def write(results: Results, folder: Path) -> list[Path]:
    """Write everything; the names of the files."""
    # Not needed to measure, and not installed with the package alone.
    from bench.plots import plot_peers, plot_policies, plot_scaling, plot_tuning

    pages = {"README.md": overview(results), "peers.md": peers_page(results)}
    if results.ablations:
        pages["ablations.md"] = ablations_page(results.ablations)
    if results.scaling:
        pages["scaling.md"] = scaling_page(results.scaling, results.beside, results.cores)
    if results.choices:
        pages["choices.md"] = choices_page(results.choices)
    if results.kernels:
        pages["kernels.md"] = kernels_page(results.kernels)
    if results.corpus:
        pages["models.md"] = corpus_page(results.corpus, results.notes)
    if results.tuning:
        pages["tuning.md"] = tuning_page(results.tuning)
    if results.gpu:
        pages["gpu.md"] = gpu_page(results.gpu)
    for name, text in pages.items():
        (folder / name).write_text(text)
    plot_peers(results.peers.models, contenders_of(results.peers), folder / "peers.svg")
    plots = ["peers.svg"]
    if results.ablations and results.ablations.found:
        plot_policies(results.ablations.found, folder / "policies.svg")
        plots.append("policies.svg")
    if results.scaling and results.scaling.found:
        plot_scaling(results.scaling.found, folder / "scaling.svg")
        plots.append("scaling.svg")
    if gains := gains_by_trials(results.tuning.found if results.tuning else {}):
        plot_tuning(gains, folder / "tuning.svg")
        plots.append("tuning.svg")
    return [folder / name for name in (*pages, *plots)]


if __name__ == "__main__":
    main()
