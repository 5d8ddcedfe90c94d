"""The report says what the run folders say, works offline, and looks right on every screen."""

import importlib.util
import io
import json
import re
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from html.parser import HTMLParser
from pathlib import Path

import browser
import synthetic_runs as runs
from lrmoe.report.data import read_report
from lrmoe.report.text import to_text

HAS_PLOTLY = importlib.util.find_spec("plotly") is not None
NEEDS_PLOTLY = "plotly is not installed in this interpreter"


# Elements that reach beyond the page's width, but for what scrolls in its own box.
BEYOND_THE_EDGE = """
    [...document.body.querySelectorAll('*')]
      .filter((e) => !e.closest('.scroll > *, nav > *, svg *, [hidden]'))
      .filter((e) => e.getClientRects().length)
      .filter((e) => e.getBoundingClientRect().right > innerWidth + 0.5)
      .map((e) => e.outerHTML.slice(0, 80))"""


class Page(HTMLParser):
    """Texts, tables and figures of a report, read back."""

    def __init__(self, path):
        super().__init__()
        self.attributes, self.texts, self.scripts, self.tables = [], [], [], []
        self._open = []
        self.feed(path.read_text(encoding="utf-8"))
        self.text = re.sub(r"\s+", " ", " ".join(self.texts))
        self.figures = json.loads(next(s for a, s in self.scripts if a.get("id") == "charts"))

    def handle_starttag(self, tag, attributes):
        self.attributes += [(tag, *pair) for pair in attributes]
        if tag in ("script", "style", "table", "tr", "td", "th"):
            self._open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attributes), ""))
        elif tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data):
        inside = self._open[-1] if self._open else ""
        if inside == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif inside != "style":
            self.texts.append(data)
            if inside in ("td", "th"):
                self.tables[-1][-1][-1] += data

    def row(self, strategy):
        """The strategy's cells in the table at the top, by the column's first words."""
        header, *rows = self.tables[0]
        return dict(zip(header, next(row for row in rows if row[0] == strategy)))

    def traces(self, y_title, x_title="steps"):
        """{strategy: trace} of the first chart with these axes."""
        for figure in self.figures.values():
            axes = [figure["layout"][axis]["title"]["text"] for axis in ("xaxis", "yaxis")]
            if axes[0].startswith(x_title) and axes[1].startswith(y_title):
                return {trace.get("legendgroup"): trace for trace in figure["data"]}
        raise AssertionError(f"no chart of {y_title} against {x_title}")


class ReportCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "comparison"
        self.folder.mkdir()

    def run_main(self, *folders):
        """(exit status, standard error)"""
        from lrmoe.report.__main__ import main

        message = io.StringIO()
        with redirect_stderr(message), redirect_stdout(io.StringIO()):
            status = main([str(folder) for folder in folders or (self.folder,)])
        return status, message.getvalue()

    def report(self, folder=None):
        self.assertEqual(self.run_main(folder or self.folder), (0, ""))
        return Page((folder or self.folder) / "report.html")


@unittest.skipUnless(HAS_PLOTLY, NEEDS_PLOTLY)
class NumbersTest(ReportCase):
    def test_words_and_table_say_what_was_saved_and_what_it_cost(self):
        document = runs.write_comparison(self.folder, list(runs.STRATEGIES), target=1.78)
        rows = {row["strategy"]: row for row in document["results"]}
        page = self.report()
        symi = rows["symi"]
        reached = [r for r in rows.values() if r["reached"] and r is not symi]
        best = min(reached, key=lambda r: r["moe_seconds"])
        self.assertLess(best["moe_seconds"], symi["moe_seconds"])
        saved = 100 * (1 - best["moe_seconds"] / symi["moe_seconds"])
        self.assertIn(
            f"{best['strategy']} needed {best['moe_seconds']:#.3g} s of MoE time to a validation "
            f"loss of 1.78, symi {symi['moe_seconds']:.3g} s: {saved:.0f}% saved.",
            page.text,
        )
        self.assertIn(
            "noise in the expert gradients: added variance "
            f"{best['added_variance']:.3f} instead of 0",
            page.text,
        )
        self.assertIn(f"dropped pairs: 0 instead of {symi['dropped_pairs']:,}", page.text)
        words = " ".join(to_text(read_report(self.folder)).split())
        self.assertIn(f"to a validation loss of 1.78, symi {symi['moe_seconds']:.3g} s", words)
        self.assertIn(f"{saved:.0f}% saved", words)
        self.assertIn("cost: Noise in the expert gradients", words)
        self.assertIn("MoE memory (activations: recompute against keep): ", words)
        self.assertIn("MoE time is modelled (virtual clock, h200-nvlink)", page.text)
        self.assertIn("at the dimensions of qwen3-30b-a3b, each token standing for 16.", page.text)
        late = [r for r in rows.values() if not r["reached"]]
        self.assertTrue(late)
        self.assertIn(f"{late[0]['strategy']} did not reach 1.78 in 300 steps", page.text)
        for name, row in rows.items():
            cells = page.row(name)
            self.assertEqual(
                cells["Stepsto loss 1.78"], f"{'' if row['reached'] else '> '}{row['steps']}"
            )
            self.assertEqual(cells["MoE timevirtual clock"], f"{row['moe_seconds']:#.3g} s")
            self.assertEqual(
                cells["Ratioto symi’s MoE time"],
                f"{row['moe_seconds'] / symi['moe_seconds']:.2f}" if row["reached"] else "–",
            )
            self.assertEqual(cells["End to endvirtual clock"], f"{row['total_seconds']:#.3g} s")
            self.assertEqual(cells["Lossvalidation, last"], f"{row['validation_loss']:.4f}")
            self.assertEqual(cells["Droppedpairs, forward"], f"{row['dropped_pairs']:,}")
            self.assertEqual(
                cells["MemoryMoE, fullest rank"], f"{row['memory_subtotal'] / 2**20:.1f} MiB"
            )

    def test_charts_hold_the_metrics(self):
        runs.write_comparison(
            self.folder, ["fixed", "symi", "lrmoe:ratio=0.5"], count=100, audit_every=20
        )
        page = self.report()
        for name in ("fixed", "symi", "lrmoe:ratio=0.5"):
            records = runs.steps_of(name, 100, audit_every=20)
            expected = [r["validation_loss"] for r in records if "validation_loss" in r]
            trace = page.traces("cross-entropy")[name]
            self.assertEqual(trace["x"], [25, 50, 75, 100])
            for got, want in zip(trace["y"], expected, strict=True):
                self.assertAlmostEqual(got, want, delta=1e-3)
            timed = page.traces("cross-entropy", "MoE time, s (virtual clock)")[name]
            so_far = sum(r["moe_seconds"] for r in records[:25])
            self.assertAlmostEqual(timed["x"][0], so_far, delta=1e-3 * so_far)
        kept = page.traces("kept / routed")
        self.assertEqual(set(kept["lrmoe:ratio=0.5"]["y"]), {0.5})
        self.assertEqual(set(kept["fixed"]["y"]), {1.0})
        self.assertIn("lrmoe:ratio=0.5, in 10 of 100 steps: 2 replicas fewer", page.text)
        audit = next(t for t in page.tables if t[0][:3] == ["strategy", "part", "mean"])
        self.assertEqual(
            [row[:2] for row in audit[1:]],
            [["lrmoe:ratio=0.5", part] for part in ("experts", "router", "dense", "rest")],
        )
        audits = [
            [layer["experts"]["cosine"] for layer in r["audit"]["layers"]]
            for r in runs.steps_of("lrmoe:ratio=0.5", 100, audit_every=20)
            if "audit" in r
        ]
        for layer in range(4):
            mean = sum(values[layer] for values in audits) / len(audits)
            self.assertAlmostEqual(float(audit[1][3 + layer]), mean, delta=1e-3)
        memory = next(t for t in page.tables if "activations" in t[0])
        peak = max(r["memory_peak_bytes"] for r in runs.steps_of("fixed", 100)) / 2**20
        self.assertEqual(memory[1][:2], ["fixed", f"{peak / 4:.1f} MiB"])

    def test_without_target_times_are_of_the_same_steps(self):
        document = runs.write_comparison(
            self.folder, ["eplb", "fixed"], count=50, clock="measured", memory=False
        )
        eplb, fixed = (row["moe_seconds"] for row in document["results"])
        page = self.report()
        self.assertIn("No strategy needed less MoE time for the same steps than eplb", page.text)
        self.assertEqual(page.row("fixed")["Ratioto eplb’s MoE time"], f"{fixed / eplb:.2f}")
        self.assertIn("No time is modelled.", page.text)
        self.assertIn("backward pass worked on all routed pairs.", page.text)
        self.assertIn("the metrics do not split them by term", page.text)

    def test_baseline_that_misses_the_target_gives_no_ratio(self):
        runs.write_comparison(self.folder, ["symi", "fixed"], count=300, target=1.765)
        page = self.report()
        self.assertIn(
            "symi, the baseline, did not reach a validation loss of 1.765 in 300 steps; fixed did",
            page.text,
        )
        self.assertEqual(page.row("fixed")["Ratioto symi’s MoE time"], "–")

    def test_single_run(self):
        folder = self.folder / "run"
        records = runs.steps_of("lrmoe:ratio=0.25", 60, virtual=False)
        runs.write_run(folder, "lrmoe:ratio=0.25", records)
        page = self.report(folder)
        moe, whole = (sum(r[key] for r in records) for key in ("moe_seconds", "seconds"))
        self.assertIn(f"60 steps, training loss {records[-1]['loss']:.4f}", page.text)
        self.assertIn(
            f"took {moe:#.3g} s (measured clock), {100 * moe / whole:.2g}% of the {whole:.3g} s",
            page.text,
        )
        self.assertIn("worked on 25% of the routed pairs", page.text)

    def test_interrupted_comparison_with_a_cut_line(self):
        runs.write_comparison(self.folder, ["fixed", "symi"], count=40)
        (self.folder / "compare.json").unlink()
        metrics = self.folder / "2-symi" / "metrics.jsonl"
        metrics.write_text(metrics.read_text()[:-40])
        page = self.report()
        self.assertIn("the comparison has not ended", page.text)
        self.assertEqual(page.row("fixed")["Stepsdone"], "40")
        self.assertEqual(page.row("symi")["Stepsdone"], "39")
        self.assertIn("Stopped after 40 steps, symi after 39", page.text)

    def test_missing_fields_and_odd_values(self):
        folder = self.folder / "run"
        runs.write_run(
            folder,
            "fixed",
            [{"step": 1, "loss": 5.0}, {"step": 2, "loss": None, "layers": 3, "audit": "?"}],
        )
        self.assertIn("2 steps", self.report(folder).text)

    def test_run_that_is_gone_stays_in_the_table(self):
        runs.write_comparison(self.folder, ["fixed", "symi", "eplb"], count=25)
        (self.folder / "3-eplb" / "metrics.jsonl").unlink()
        page = self.report()
        self.assertIn("No metrics of eplb", page.text)
        self.assertNotEqual(page.row("eplb")["MoE timevirtual clock"], "–")
        self.assertNotIn("eplb", page.traces("fullest rank"))

    def test_names_are_text(self):
        document = runs.write_comparison(self.folder, ["fixed", "symi"], count=5, evaluate_every=5)
        document["results"][0]["strategy"] = name = "fixed</script><img src=http://x>&"
        (self.folder / "compare.json").write_text(json.dumps(document))
        page = self.report()
        self.assertIn(name, page.text)
        self.assertNotIn("img", {tag for tag, _, _ in page.attributes})

    def test_long_runs_are_thinned_to_means(self):
        runs.write_comparison(self.folder, ["fixed", "symi"], count=2000)
        trace = self.report().traces("fullest rank")["fixed"]
        self.assertLessEqual(len(trace["x"]), 600)
        records = runs.steps_of("fixed", 2000)
        mean = sum(r["imbalance_forward"] for r in records) / len(records)
        self.assertAlmostEqual(sum(trace["y"]) / len(trace["y"]), mean, delta=0.01)

    def test_page_needs_no_network(self):
        runs.write_comparison(self.folder, ["fixed", "symi"], count=10, evaluate_every=5)
        page = self.report()
        for tag, name, value in page.attributes:
            self.assertNotIn(
                name, ("src", "href", "srcset", "action", "data"), f"{tag} {name}={value}"
            )
        text = (self.folder / "report.html").read_text(encoding="utf-8")
        styles = "".join(re.findall(r"<style>(.*?)</style>", text, re.S))
        self.assertNotRegex(styles, r"url\(|@import")
        self.assertEqual(text.count("* plotly.js v"), 1)
        self.assertIn("default-src 'none'", text)


@unittest.skipUnless(HAS_PLOTLY, NEEDS_PLOTLY)
class MistakesTest(ReportCase):
    def test_mistakes_are_one_line_and_status_2(self):
        empty, broken, odd = (self.folder / name for name in ("empty", "broken", "odd"))
        empty.mkdir()
        runs.write_run(broken, "fixed", [{"step": 1, "loss": 5.0}])
        with (broken / "metrics.jsonl").open("a") as file:
            file.write("nonsense\n")
        odd.mkdir()
        (odd / "compare.json").write_text('{"results": 3}')
        unfinished = self.folder / "unfinished"
        runs.write_run(unfinished, "fixed", [])
        for folder, expected in (
            (empty, "holds no metrics"),
            (self.folder / "missing", "is no folder"),
            (broken, "metrics.jsonl:2: not a line of metrics"),
            (odd, "compare.json: not a comparison"),
            (unfinished, "holds no complete step yet"),
        ):
            status, message = self.run_main(folder)
            self.assertEqual(status, 2)
            self.assertIn(expected, message)
            self.assertEqual(message.count("\n"), 1)
            self.assertFalse((folder / "report.html").exists())


@unittest.skipUnless(HAS_PLOTLY, NEEDS_PLOTLY)
@unittest.skipUnless(browser.PROGRAM, "chromium is not installed, so the page is not looked at")
class ScreensTest(ReportCase):
    def setUp(self):
        super().setUp()
        runs.write_comparison(self.folder, list(runs.STRATEGIES), target=1.78, audit_every=50)
        self.assertEqual(self.run_main(), (0, ""))
        self.path = self.folder / "report.html"
        self.browser = browser.Browser()
        self.addCleanup(self.browser.close)

    def test_phone_and_desktop_light_and_dark(self):
        charts = len(Page(self.path).figures)
        self.assertGreater(charts, 10)
        for scheme in ("light", "dark"):
            self.browser.scheme(scheme)
            for width, height, phone in ((390, 844, True), (1280, 900, False)):
                with self.subTest(scheme=scheme, width=width):
                    self.browser.open(self.path, width, height, phone)
                    self.browser.evaluate(
                        "document.querySelectorAll('details').forEach((d) => { d.open = true; })"
                    )
                    self.assertEqual(
                        self.browser.evaluate("[innerWidth, document.documentElement.scrollWidth]"),
                        [width, width],
                    )
                    self.assertEqual(self.browser.evaluate(BEYOND_THE_EDGE), [])
                    self.assertEqual(
                        self.browser.evaluate(
                            "[...document.querySelectorAll('.plot')].filter((p) => Math.abs("
                            "p.querySelector('.main-svg').getBoundingClientRect().width"
                            " - p.clientWidth) < 2).length"
                        ),
                        charts,
                    )
                    columns = self.browser.evaluate(
                        "new Set([...document.querySelectorAll('figure')]"
                        ".map((f) => f.offsetLeft)).size"
                    )
                    self.assertEqual(columns, 1 if phone else 2)
                    seen = self.browser.measure(self.browser.picture())
                    self.assertEqual(seen["width"], width)
                    self.assertGreater(seen["colours"], 200)
                    if scheme == "dark":
                        self.assertLess(seen["luminance"], 70)
                    else:
                        self.assertGreater(seen["luminance"], 200)
        self.assertEqual(self.browser.errors, [])
        self.assertEqual(
            {r for r in self.browser.requests if not r.startswith("data:")},
            {self.path.resolve().as_uri()},
        )

    def test_charts_follow_the_scheme_the_width_and_the_buttons(self):
        colour = "document.querySelector('#chart-0 .xtick text').style.fill"
        width = "document.querySelector('#chart-0 .main-svg').getBoundingClientRect().width"
        self.browser.scheme("light")
        self.browser.open(self.path, 1280, 900, False)
        light, wide = self.browser.evaluate(colour), self.browser.evaluate(width)
        self.browser.scheme("dark")
        self.browser.wait(f"{colour} !== {json.dumps(light)}")
        self.browser.page(
            "Emulation.setDeviceMetricsOverride",
            width=500,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.browser.wait(f"{width} < {wide} - 20")
        self.browser.wait(f"({BEYOND_THE_EDGE}).length === 0")
        lines = "document.querySelectorAll('#chart-0 .scatterlayer .trace').length"
        before = self.browser.evaluate(lines)
        self.browser.evaluate("document.querySelector('nav button[data-strategy=symi]').click()")
        self.browser.wait(f"{lines} === {before - 1}")
        heat = next(
            i for i, f in Page(self.path).figures.items() if f["data"][0]["type"] == "heatmap"
        )
        self.browser.evaluate(f"""(() => {{
            const s = document.querySelector('select[data-chart={heat}]');
            s.value = 'symi'; s.dispatchEvent(new Event('change')); }})()""")
        self.browser.wait(
            f"document.getElementById('{heat}').data.findIndex((t) => t.visible) === 1"
        )
        self.assertEqual(self.browser.errors, [])


if __name__ == "__main__":
    unittest.main()
