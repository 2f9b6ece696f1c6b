//! `ringside report`: what is in the page, what a browser makes of it, and what is refused.

mod browser;
mod fail_if;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use browser::Browser;

fn fixture(name: &str) -> String {
    format!("{}/tests/it/report/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A folder of the test's own, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(tag: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{tag}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn report(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_ringside"))
            .arg("report")
            .args(arguments)
            .current_dir(&self.0)
            .output()
            .unwrap()
    }

    /// The file that the report was written to.
    fn page(&self, arguments: &[&str]) -> String {
        let output = self.report(arguments);
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        let file = said.lines().last().unwrap();
        fs::read_to_string(self.0.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.report(arguments);
        assert!(!output.status.success(), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            !said.contains("panicked") && said.trim_end().lines().count() < 8,
            "{said}"
        );
        said
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

fn all() -> Vec<String> {
    [
        "ping.json",
        "ping-by-schedule.json",
        "ping-under-load.json",
        "compare.json",
        "compare-aa.json",
        "sweep.json",
        "rx.json",
        "tx.json",
        "echo.json",
        "listener.json",
        "search.json",
        "delay.json",
        "trace.json",
        "steer.json",
        "iperf3.json",
        "sockperf.log",
    ]
    .map(fixture)
    .to_vec()
}

#[test]
fn a_page_holds_everything_and_asks_for_nothing() {
    let folder = Folder::new("page");
    let files = all();
    let page = folder.page(&files.iter().map(String::as_str).collect::<Vec<_>>());
    for part in [
        "Of 53,880 probes of 82 bytes", // the summary in words
        "Note",                         // by the style sheet
        "Probes left after their time", // a file that says nothing of its sender
        "Side by side",
        "Time over nines",
        "Share of samples by time",
        "Packets over time",
        "Where the packets went",          // the ledger
        "ringside ping va --to 192.0.2.2", // how to repeat it
        "boot parameters",                 // the system record
        "udp-blocking",
        "iperf 3.12, UDP",
        "half of the round trip", // whose times these are
        "Without load and with it",
        "Self-induced load: half of the round trips took at most",
        "ping-under-load, foreign load", // a line of its own over nines
        "Each variant against itself (A/A)",
        "means nothing here, of this operation",
        "batch: matters", // a plot for each knob
        "Left out: mode zero-copy",
        "batch = 64", // the file
        "INVALID: the kernel changed its clock source from tsc to hpet",
    ] {
        assert!(page.contains(part), "no {part:?}");
    }
    // The name of the SVG elements' language is not written in HTML, so there is no address at all.
    for address in ["http:", "https:", "src=", "url(", "@import", "<script"] {
        assert!(!page.contains(address), "{address} in the page");
    }
}

#[test]
fn figures_are_those_of_the_results() {
    let folder = Folder::new("figures");
    let csv = folder.page(&[&fixture("ping.json"), &fixture("iperf3.json"), "-o", "x.csv"]);
    let value = |name: &str, figure: &str| -> f64 {
        let line = csv.lines().find(|line| line.starts_with(&format!("{name},{figure},")));
        line.unwrap_or_else(|| panic!("{figure} in {csv}"))
            .split(',')
            .nth(2)
            .unwrap()
            .parse()
            .unwrap()
    };
    let read = |name| serde_json::from_str::<serde_json::Value>(&fs::read_to_string(fixture(name)).unwrap()).unwrap();
    let result = read("ping.json");
    let latency = &result["result"]["run"]["latency"]["raw"];
    assert_eq!(value("ping", "RTT p99"), latency["p99_ns"].as_f64().unwrap());
    assert_eq!(value("ping", "RTT max"), latency["max_ns"].as_f64().unwrap());
    assert_eq!(value("iperf3", "lost"), 0.0);

    let csv = folder.page(&[&fixture("ping-under-load.json"), "-o", "y.csv"]);
    let own = &read("ping-under-load.json")["result"]["run"]["under_load"]["conditions"][1];
    assert_eq!(own["kind"], "self_induced");
    for (figure, value) in [
        ("RTT p99", &own["latency"]["corrected"]["p99_ns"]),
        (
            "round trips per minute",
            &own["responsiveness"]["round_trips_per_minute"],
        ),
    ] {
        let line = format!(
            "ping-under-load,self-induced load: {figure},{},",
            value.as_f64().unwrap()
        );
        assert!(csv.contains(&line), "no {line} in {csv}");
    }

    let markdown = folder.page(&[
        &fixture("ping.json"),
        &fixture("ping-by-schedule.json"),
        "--format",
        "markdown",
    ]);
    assert!(
        markdown.contains("| RTT p50 | 17.0 µs | 21.4 µs (+26.1 %) |"),
        "{markdown}"
    );
    let markdown = folder.page(&[&fixture("compare.json"), "-o", "x.md"]);
    assert!(
        markdown.contains("### Receive, 64 bytes") && markdown.contains("| base |"),
        "{markdown}"
    );
}

#[test]
fn a_sweep_and_noise_without_plots() {
    let folder = Folder::new("plain");
    let (sweep, aa) = (fixture("sweep.json"), fixture("compare-aa.json"));
    let text = folder.page(&[&sweep, &aa, "-o", "x.md"]);
    for part in [
        "| batch | 4 | 0.36 [0.33–0.49] | matters |",
        "| frames | 1024 | 0.84 [0.59–1.15] | cannot tell |",
        "```toml",
        "**Note:** INVALID: the kernel changed",
        "| A/A | × itself [95 %] |",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let csv = folder.page(&[&sweep, "-o", "x.csv"]);
    let line = csv.lines().find(|line| line.contains("batch 4: tx-rate, ratio"));
    assert!(
        line.is_some_and(|line| line.contains(",0.36") && line.ends_with(",1")),
        "{csv}"
    );
}

#[test]
fn results_of_one_name_are_told_apart() {
    let folder = Folder::new("names");
    let csv = folder.page(&[
        &fixture("ping.json"),
        &fixture("ping.json"),
        &fixture("ping.json"),
        "-o",
        "x.csv",
    ]);
    for name in ["ping,", "ping (2),", "ping (3),"] {
        assert_eq!(
            csv.lines()
                .filter(|line| line.starts_with(&format!("{name}RTT max")))
                .count(),
            1,
            "{name} in {csv}"
        );
    }
}

#[test]
fn what_is_no_result_is_refused() {
    let folder = Folder::new("refused");
    let write = |name: &str, text: &str| fs::write(folder.0.join(name), text).unwrap();
    write("text.json", "hello");
    write("other.json", "{\"a\": 1}");
    write(
        "newer.json",
        &fs::read_to_string(fixture("ping.json"))
            .unwrap()
            .replace("ringside.result/1", "ringside.result/9"),
    );
    let ping = fs::read_to_string(fixture("ping.json")).unwrap();
    let at = ping.find("\"mean_ns\": ").expect("a mean") + "\"mean_ns\": ".len();
    write("unsound.json", &format!("{}999999999{}", &ping[..at], &ping[at..]));
    write("cut.json", &fs::read_to_string(fixture("ping.json")).unwrap()[..2_000]);
    write("failed.json", "{\"start\": {}, \"error\": \"unable to connect\"}");
    for (arguments, part) in [
        (vec!["nothing.json"], "nothing.json: No such file"),
        (vec!["text.json"], "neither JSON"),
        (vec!["other.json"], "no \"schema\""),
        (vec!["newer.json"], "ringside.result/9"),
        (vec!["cut.json"], "cut.json"),
        (vec!["unsound.json"], "max_ns is"),
        (vec!["failed.json"], "unable to connect"),
        (vec![], "required"),
        (vec!["text.json", "-o", "/nowhere/x.html"], "neither JSON"),
    ] {
        let said = folder.refused(&arguments);
        assert!(said.contains(part), "{arguments:?}: {said}");
    }
    let ping = fixture("ping.json");
    let output = folder.report(&[&ping, "-o", "x.pdf"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        folder
            .refused(&[&ping, "-o", "x.pdf"])
            .contains("x.pdf: a report cannot be written as .pdf")
    );
    assert!(
        folder
            .refused(&[&ping, "-o", "/nowhere/x.html"])
            .contains("writing the report to /nowhere/x.html")
    );
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 6, "nothing was left behind");
}

#[test]
fn a_browser_shows_it_without_an_error_or_a_request() {
    let folder = Folder::new("browser");
    let files = all();
    let page = folder.page(&files.iter().map(String::as_str).collect::<Vec<_>>());
    let Some(browser) = Browser::new(&folder.0) else {
        return;
    };
    let seen = browser.show(&page, 1_200, false);
    assert_eq!(seen.requests, ["/report.html"], "{seen:?}");
    assert_eq!(seen.errors, [""; 0], "{seen:?}");
    // Paper, and curves in the first colour.
    assert_eq!(seen.colour_at(2, 2), [0xff, 0xff, 0xff]);
    assert!(seen.pixels_of([0x0b, 0x62, 0xc4]) > 2_000, "no blue curves");

    let dark = browser.show(&page, 1_200, true);
    assert_eq!((dark.errors.len(), dark.colour_at(2, 2)), (0, [0x14, 0x18, 0x1d]));
    assert!(dark.pixels_of([0x6c, 0xb0, 0xff]) > 2_000, "no light blue curves");
}

#[test]
fn a_page_that_errs_or_asks_would_be_seen() {
    let folder = Folder::new("control");
    let Some(browser) = Browser::new(&folder.0) else {
        return;
    };
    let page = "<!doctype html><title>x</title><img src='/missing.png'><script>missing()</script>";
    let seen = browser.show(page, 400, false);
    assert!(seen.requests.contains(&"/missing.png".to_owned()), "{seen:?}");
    assert!(
        seen.errors.iter().any(|error| error.contains("missing is not defined")),
        "{seen:?}"
    );
}

/// A phone, a tablet and a desk.
const WIDTHS: [u32; 3] = [400, 800, 1_400];

fn published() -> Vec<PathBuf> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let folders = [docs.clone(), docs.join("lab")];
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let mut pages: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    pages.retain(|path| path.extension().is_some_and(|end| end == "html"));
    pages.sort();
    assert!(pages.len() >= 8, "{pages:?}");
    pages
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn pages_can_be_read_on_a_phone_a_tablet_and_a_desk() {
    let folder = Folder::new("layout");
    let Some(browser) = Browser::new(&folder.0) else {
        return;
    };
    let files = all();
    let together = folder.page(&files.iter().map(String::as_str).collect::<Vec<_>>());
    let mut pages = vec![("all fixtures".to_owned(), together)];
    for file in files.iter().map(PathBuf::from).chain(labs()) {
        pages.push((stem(&file), folder.page(&[file.to_str().unwrap()])));
    }
    let faults = browser.layout_faults(&pages, &WIDTHS);
    assert_eq!(faults, [""; 0]);
}

/// Results of labs that were published.
fn labs() -> Vec<PathBuf> {
    let json = published().into_iter().map(|page| page.with_extension("json"));
    json.filter(|path| path.exists()).collect()
}

#[test]
fn published_pages_can_be_read_and_have_the_style_of_today() {
    let folder = Folder::new("published");
    let page = folder.page(&[&fixture("ping.json")]);
    let style = |page: &str| -> String {
        let (_, rest) = page.split_once("<style>").unwrap();
        rest.split_once("</style>").unwrap().0.to_owned()
    };
    let pages: Vec<(String, String)> = published()
        .iter()
        .map(|path| (stem(path), fs::read_to_string(path).unwrap()))
        .collect();
    for (name, other) in &pages {
        assert!(
            style(other) == style(&page),
            "{name}: make it again: it has an older style"
        );
    }
    if let Some(browser) = Browser::new(&folder.0) {
        assert_eq!(browser.layout_faults(&pages, &WIDTHS), [""; 0]);
    }
}

#[test]
fn a_page_that_cannot_be_read_would_be_seen() {
    let folder = Folder::new("unreadable");
    let Some(browser) = Browser::new(&folder.0) else {
        return;
    };
    let lab = labs().into_iter().find(|path| stem(path) == "host-to-host").unwrap();
    let lab = folder.page(&[lab.to_str().unwrap()]);
    let with = |style: &str| lab.replace("</style>", &format!("{style}</style>"));
    for (style, fault) in [
        (
            "th,th:first-child{overflow-wrap:anywhere;white-space:normal;min-width:0}",
            "a name is broken: udp-wakeup",
        ),
        (".wide{overflow:visible}", "the page is "),
        ("svg{min-width:0;width:250px}", "letters of a plot of 5.4 px"),
        ("td{font-size:7px}", "letters of 7 px"),
        ("svg text{font-size:30px}", "labels overlap: "),
        (
            "svg{max-width:none;margin-left:1px}svg text.name{transform:translateX(-60px)}",
            "a label is cut: udp-wakeup",
        ),
    ] {
        let faults = browser.layout_faults(&[("lab".to_owned(), with(style))], &[800]);
        let fault = format!("lab at 800: {fault}");
        assert!(
            faults.iter().any(|text| text.starts_with(&fault)),
            "{style}: no {fault:?} in {faults:?}"
        );
    }
}

#[test]
fn it_prints() {
    let folder = Folder::new("paper");
    let files = all();
    let page = folder.page(&files.iter().map(String::as_str).collect::<Vec<_>>());
    let Some(browser) = Browser::new(&folder.0) else {
        return;
    };
    let pdf = browser.print(&page);
    assert!(pdf.starts_with(b"%PDF") && pdf.len() > 30_000, "{} bytes", pdf.len());
}
