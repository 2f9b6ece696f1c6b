//! What running commands tell of themselves, asked for in the test's own state directory.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ringside_measure::live::Snapshot;
use ringside_netlab::{End, wait_until};

use super::{PATIENCE, Running, keep, ringside};

/// A state directory of its own, removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Short: the name of a socket has 107 bytes at the most.
        Self(std::env::temp_dir().join(format!("rs-{}-{number}", std::process::id())))
    }

    /// Starts the program with it.
    pub fn start(&self, end: &End, arguments: &str) -> Running {
        let mut command = ringside(end, arguments);
        command.env("RINGSIDE_STATE_DIR", &self.0);
        Running::new(command)
    }

    /// Starts it, and waits until others can ask it.
    pub fn start_asked(&self, end: &End, arguments: &str) -> (Running, Asker) {
        let running = self.start(end, arguments);
        let pid = running.pid();
        let there = wait_until(PATIENCE, || {
            self.socket(pid).is_some_and(|path| UnixStream::connect(path).is_ok())
        });
        if !there {
            panic!("{arguments}: no socket: {:#?}", running.interrupt());
        }
        (running, Asker::connect(self.socket(pid).unwrap()))
    }

    pub fn sockets(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        paths
            .filter(|path| path.extension().is_some_and(|it| it == "sock"))
            .collect()
    }

    pub fn socket(&self, pid: u32) -> Option<PathBuf> {
        let begin = format!("live-{pid}-");
        let is_its = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&begin);
        self.sockets().into_iter().find(is_its)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

pub struct Asker {
    stream: BufReader<UnixStream>,
    /// One of the snapshots of each is validated.
    has_kept: bool,
}

impl Asker {
    pub fn connect(path: PathBuf) -> Self {
        let stream = UnixStream::connect(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream: BufReader::new(stream),
            has_kept: false,
        }
    }

    /// Returns a snapshot as it was written.
    pub fn ask_line(&mut self) -> String {
        self.stream.get_mut().write_all(b"\n").unwrap();
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line
    }

    pub fn ask(&mut self) -> Snapshot {
        let line = self.ask_line();
        if !std::mem::replace(&mut self.has_kept, true) {
            keep(&line);
        }
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Asks until it is as wanted.
    pub fn ask_until(&mut self, what: &str, is_so: impl Fn(&Snapshot) -> bool) -> Snapshot {
        let mut snapshot = self.ask();
        let so = wait_until(PATIENCE, || {
            snapshot = self.ask();
            is_so(&snapshot)
        });
        assert!(so, "never {what}: {snapshot:#?}");
        snapshot
    }
}

/// Sends a request to an address of the namespace of `end`, and returns the answer, head and body.
pub fn http(end: &End, to: SocketAddr, request: &str) -> (String, String) {
    let answer = end.run(|| {
        let mut stream = TcpStream::connect(to).expect("somebody listens");
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no head: {answer:?}"));
    (head.to_owned(), body.to_owned())
}

/// The metrics that are offered there.
pub fn scrape(end: &End, to: SocketAddr) -> Vec<Sample> {
    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\n\r\n";
    let (head, body) = http(end, to, request);
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0"),
        "{head}"
    );
    samples(&body)
}

/// Where a run said that its metrics are.
pub fn address(running: &Running) -> SocketAddr {
    running.wait_for("/metrics");
    let told = running.told();
    let (_, behind) = told.split_once("http://").expect("an address");
    behind.split('/').next().unwrap().parse().unwrap()
}

/// A line of the metrics: name, labels in order, value.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

/// The sum of all samples of a name that have these labels.
pub fn sum(samples: &[Sample], name: &str, labels: &[(&str, &str)]) -> f64 {
    let has = |sample: &Sample, (key, value): &(&str, &str)| {
        sample.labels.iter().any(|(name, is)| name == key && is == value)
    };
    let its = samples
        .iter()
        .filter(|sample| sample.name == name && labels.iter().all(|label| has(sample, label)));
    let its = Vec::from_iter(its.map(|sample| sample.value));
    assert!(!its.is_empty(), "no {name} {labels:?} in {samples:#?}");
    its.iter().sum()
}

/// Reads OpenMetrics text, and checks what the format asks for: each sample below the type and the help of its family, no
/// family and no sample twice, names and endings that go with the type and the unit, an end.
pub fn samples(text: &str) -> Vec<Sample> {
    let mut lines = text.lines();
    assert_eq!(lines.next_back(), Some("# EOF"), "{text}");
    let (mut families, mut samples) = (Vec::<(String, String)>::new(), Vec::<Sample>::new());
    for line in lines {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (what, name, rest) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            match what {
                "HELP" => {
                    assert!(rest.len() > 5, "{line}");
                    assert!(families.iter().all(|(known, _)| known != name), "twice: {name}");
                    assert!(name.starts_with("ringside_") && !name.ends_with("_total"), "{name}");
                    let right = |c: char| c.is_ascii_lowercase() || c == '_';
                    assert!(name.chars().all(right), "{name}");
                    families.push((name.to_owned(), String::new()));
                }
                "TYPE" => {
                    let family = families.last_mut().expect("help comes first");
                    assert_eq!(family.0, name);
                    rest.clone_into(&mut family.1);
                }
                "UNIT" => assert!(name.ends_with(&format!("_{rest}")), "{line}"),
                _ => panic!("{line}"),
            }
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = name.split_once('{').unwrap_or((name, "}"));
        let labels = labels.strip_suffix('}').unwrap();
        let labels = labels.split(',').filter(|label| !label.is_empty()).map(|label| {
            let (key, value) = label.split_once('=').unwrap();
            (key.to_owned(), value.trim_matches('"').to_owned())
        });
        let sample = Sample {
            name: name.to_owned(),
            labels: labels.collect(),
            value: value.parse().unwrap_or_else(|_| panic!("{line}")),
        };
        let (family, kind) = families.last().expect("below a family");
        let ending = name
            .strip_prefix(family.as_str())
            .unwrap_or_else(|| panic!("{name} below {family}"));
        let endings: &[&str] = match kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "info" => &["_info"],
            "histogram" => &["_sum", "_count", "_bucket"],
            _ => panic!("{family} is a {kind}"),
        };
        assert!(endings.contains(&ending), "{line} below a {kind}");
        let same = |other: &&Sample| other.name == sample.name && other.labels == sample.labels;
        assert_eq!(samples.iter().find(same), None, "twice");
        samples.push(sample);
    }
    samples
}
