//! Chromium without a window, and a server of one page that writes down what it is asked for.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ringside_netlab::testing::{is_ubuntu, skip_unsupported};

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Browser {
    folder: PathBuf,
}

/// What became of a page.
pub(crate) struct Seen {
    /// Paths that the server was asked for.
    pub(crate) requests: Vec<String>,
    /// What the console said.
    pub(crate) errors: Vec<String>,
    width: usize,
    /// Red, green, blue.
    pixels: Vec<[u8; 3]>,
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "asked for {:?}; errors: {:#?}", self.requests, self.errors)
    }
}

impl Seen {
    pub(crate) fn colour_at(&self, x: usize, y: usize) -> [u8; 3] {
        self.pixels[y * self.width + x]
    }

    pub(crate) fn pixels_of(&self, colour: [u8; 3]) -> usize {
        self.pixels.iter().filter(|pixel| **pixel == colour).count()
    }
}

impl Browser {
    /// Returns `None` and skips the calling test where the distribution has no Chromium that runs
    /// without its own services.
    #[track_caller]
    pub(crate) fn new(folder: &Path) -> Option<Self> {
        if is_ubuntu() && Command::new("chromium").arg("--version").output().is_err() {
            skip_unsupported("a package of Chromium: Ubuntu has a snap");
            return None;
        }
        Some(Self {
            folder: folder.to_owned(),
        })
    }

    pub(crate) fn show(&self, page: &str, width: u32, dark: bool) -> Seen {
        let server = Server::start(page);
        let shot = self.folder.join("shot.png");
        let scheme = if dark {
            "--blink-settings=preferredColorScheme=0"
        } else {
            "--blink-settings=preferredColorScheme=1"
        };
        let output = self.run(&[
            &format!("--window-size={width},6000"),
            scheme,
            &format!("--screenshot={}", shot.display()),
            &server.address(),
        ]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let errors = said
            .lines()
            .filter(|line| line.contains(":CONSOLE"))
            .map(str::to_owned)
            .collect();
        let mut png = png::Decoder::new(BufReader::new(
            fs::File::open(&shot).unwrap_or_else(|error| panic!("{error}: {said}")),
        ))
        .read_info()
        .unwrap();
        let mut bytes = vec![0; png.output_buffer_size().unwrap()];
        let info = png.next_frame(&mut bytes).unwrap();
        let samples = info.color_type.samples();
        let pixels = bytes[..info.buffer_size()]
            .chunks_exact(samples)
            .map(|pixel| [pixel[0], pixel[1], pixel[2]])
            .collect();
        Seen {
            requests: server.requests(),
            errors,
            width: info.width as usize,
            pixels,
        }
    }

    /// Returns what cannot be read of pages at these widths, each with the page's name and the
    /// width.
    pub(crate) fn layout_faults(&self, pages: &[(String, String)], widths: &[u32]) -> Vec<String> {
        const AUDIT: &str = include_str!("audit.js");
        let frame = |(name, page): &(String, String), width: &u32| {
            let source = page.replace('&', "&amp;").replace('"', "&quot;");
            format!(
                "<iframe title=\"{name} at {width}\" width={width} height=800 srcdoc=\"{source}\">\
                 </iframe>"
            )
        };
        let frames: String = pages
            .iter()
            .flat_map(|page| widths.iter().map(move |width| frame(page, width)))
            .collect();
        // The pages themselves run no script: the document around them looks into them.
        let script = "onload = () => {
            const look = frame => [frame.title + ' seen',
                ...audit(frame.contentDocument).map(fault => frame.title + ': ' + fault)];
            const all = [...document.querySelectorAll('iframe')].flatMap(look);
            document.body.replaceChildren();
            document.title = 'faults ' + encodeURIComponent(all.join('\\n')) + ' end'; };";
        let around = format!(
            "<!doctype html><meta charset=utf-8><title>x</title><style>iframe{{border:0}}</style>\
             <script>{AUDIT}{script}</script><body>{frames}</body>"
        );
        let server = Server::start(&around);
        let output = self.run(&["--dump-dom", &server.address()]);
        let dom = String::from_utf8_lossy(&output.stdout).into_owned();
        let faults = dom
            .split_once("<title>faults ")
            .and_then(|(_, rest)| Some(rest.split_once(" end</title>")?.0))
            .unwrap_or_else(|| panic!("nothing was audited: {dom:.500}"));
        let faults = percent_decoded(faults);
        let lines = faults.lines();
        let (seen, faults): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.ends_with(" seen"));
        assert_eq!(seen.len(), pages.len() * widths.len(), "{seen:?}");
        faults.into_iter().map(str::to_owned).collect()
    }

    pub(crate) fn print(&self, page: &str) -> Vec<u8> {
        let server = Server::start(page);
        let pdf = self.folder.join("page.pdf");
        self.run(&[&format!("--print-to-pdf={}", pdf.display()), &server.address()]);
        fs::read(pdf).unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("chromium");
        // As root it has no sandbox; it is to show our own page only, and to find nobody else.
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--enable-logging=stderr",
            "--v=0",
        ]);
        command.args([
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--disable-dev-shm-usage",
        ]);
        command.args([
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--force-device-scale-factor=1",
        ]);
        command.arg(format!("--user-data-dir={}", self.folder.join("profile").display()));
        command
            .env("HOME", &self.folder)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("chromium: {error}; `make setup` installs it"));
        let (pid, begin) = (child.id(), Instant::now());
        let waiting = thread::spawn(move || child.wait_with_output().unwrap());
        while !waiting.is_finished() {
            if begin.elapsed() > PATIENCE {
                _ = Command::new("kill").arg(pid.to_string()).status();
                panic!("chromium: still running after {PATIENCE:?}");
            }
            thread::sleep(Duration::from_millis(20));
        }
        waiting.join().unwrap()
    }
}

/// Returns text that `encodeURIComponent` made ASCII.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let code = more.get(..2).filter(|_| *first == b'%');
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &more[2..] } else { more };
    }
    String::from_utf8(bytes).unwrap()
}

struct Server {
    address: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Serves until the test's process ends.
    fn start(page: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/report.html", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (page, seen) = (page.to_owned(), Arc::clone(&requests));
        thread::spawn(move || {
            listener
                .incoming()
                .flatten()
                .for_each(|stream| answer(stream, &page, &seen))
        });
        Self { address, requests }
    }

    fn address(&self) -> String {
        self.address.clone()
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn answer(stream: TcpStream, page: &str, seen: &Mutex<Vec<String>>) {
    _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    let mut lines = BufReader::new(&stream).lines();
    // A browser opens connections that it may need, and says nothing on them.
    let Some(Ok(request)) = lines.next() else { return };
    lines.map_while(Result::ok).find(String::is_empty);
    let path = request.split(' ').nth(1).unwrap_or_default();
    seen.lock().unwrap().push(path.to_owned());
    let (status, body) = if path == "/report.html" {
        ("200 OK", page)
    } else {
        ("404 Not Found", "")
    };
    let length = body.len();
    _ = write!(
        &stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
}
