//! What is listed and comes late, or not at all.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::Etcd;
use super::common::Folder;
use super::common::daemon::{Daemon, free_port, put_neighbor};
use super::common::etcd::{IMPATIENT, configure};
use super::migrate::{digest, migrate, said};

/// Stands before etcd, and passes everything on, but for some answers: in the middle of these it goes silent.
#[derive(Clone)]
struct Stalling {
    port: u16,
    /// After so many bytes of a connection's answers.
    after: Arc<AtomicUsize>,
    /// On each connection.
    always: Arc<AtomicBool>,
    has_stalled: Arc<AtomicBool>,
}

impl Stalling {
    fn before(etcd: &Etcd) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stalling = Self {
            port: listener.local_addr().unwrap().port(),
            after: Arc::new(AtomicUsize::new(usize::MAX)),
            always: Arc::default(),
            has_stalled: Arc::default(),
        };
        let to = etcd.endpoint().trim_start_matches("http://").to_owned();
        let same = stalling.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(&to)) else {
                    continue;
                };
                let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || {
                    _ = std::io::copy(&mut from_client, &mut to_server);
                    _ = to_server.shutdown(Shutdown::Write);
                });
                let same = same.clone();
                std::thread::spawn(move || same.answer(server, client));
            }
        });
        stalling
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// From now on a connection is silent from so many bytes of answers on: each one, or the first that comes so far.
    fn go_silent_after(&self, bytes: usize, always: bool) {
        self.has_stalled.store(false, Ordering::Relaxed);
        self.always.store(always, Ordering::Relaxed);
        self.after.store(bytes, Ordering::Relaxed);
    }

    fn answer(&self, mut server: TcpStream, mut client: TcpStream) {
        let (mut bytes, mut passed) = (vec![0; 4096], 0);
        while let Ok(count @ 1..) = server.read(&mut bytes) {
            passed += count;
            let is_over = passed > self.after.load(Ordering::Relaxed);
            if is_over && (!self.has_stalled.swap(true, Ordering::Relaxed) || self.always.load(Ordering::Relaxed)) {
                // Both ends are open, and nothing comes any more.
                std::thread::sleep(Duration::from_secs(120));
            }
            if client.write_all(&bytes[..count]).is_err() {
                return;
            }
        }
        _ = client.shutdown(Shutdown::Both);
    }
}

/// Has a gateway know so much that a list of it has some hundred thousand bytes.
fn many(gateway: &Daemon) {
    let mut text = "neighbors:\n".to_owned();
    for number in 0..6000 {
        let (c, d) = (number / 250, number % 250);
        text.push_str(&format!(
            "  - {{vni: {}, ip: 10.{d}.{c}.7, mac: \"02:00:00:00:{c:02x}:{d:02x}\", host: {{ip: 192.0.2.7}}}}\n",
            number % 7
        ));
    }
    let file = gateway.folder.join("objects.yaml");
    std::fs::write(&file, text).unwrap();
    gateway.ok(&["apply", "-f", file.to_str().unwrap()]);
}

/// The truth goes there and back past a member that is dead, and a page of the list that does not come.
#[test]
fn a_migration_goes_on_past_a_dead_member_and_a_page_that_is_late() {
    let etcd = Etcd::start();
    let stalling = Stalling::before(&etcd);
    let dead = format!("http://127.0.0.1:{}", free_port());
    let folder = Folder::new();
    let configured = |folder: &Folder, kind: &str| {
        let endpoints = [dead.clone(), stalling.endpoint()].join("\", \"");
        let path = configure(folder, &endpoints, IMPATIENT, "");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("kind = \"etcd\"", &format!("kind = \"{kind}\""))).unwrap();
    };
    configured(&folder, "sqlite");
    let gateway = Daemon::start_in(folder);
    many(&gateway);
    let folder = gateway.stop();
    // What is written is answered in few bytes.
    stalling.go_silent_after(150_000, false);
    let there = migrate(&folder, "etcd");
    assert!(there.status.success(), "{}", said(&there));
    assert!(stalling.has_stalled.load(Ordering::Relaxed), "the list was shorter");
    let other = Folder::new();
    configured(&other, "sqlite");
    stalling.go_silent_after(150_000, false);
    let back = migrate(&other, "sqlite");
    assert!(back.status.success(), "{}", said(&back));
    assert!(stalling.has_stalled.load(Ordering::Relaxed), "the list was shorter");
    assert_eq!(digest(&there), digest(&back));
    // Where nobody answers that is said, after some tries.
    let nowhere = Folder::new();
    configure(&nowhere, &dead, IMPATIENT, "");
    let failed = migrate(&nowhere, "sqlite");
    assert!(
        !failed.status.success() && said(&failed).contains("etcd: "),
        "{}",
        said(&failed)
    );
}

/// Who cannot list what was compacted meanwhile knows that it does not know all, and says so.
#[test]
fn a_gateway_that_stays_behind_says_so_and_takes_no_change() {
    let mut etcd = Etcd::start();
    let stalling = Stalling::before(&etcd);
    let folder = Folder::new();
    configure(&folder, &stalling.endpoint(), "request-ms = 500\nsilence-ms = 3000", "");
    let mut gateway = Daemon::start_in(folder);
    many(&gateway);
    let put = |version| put_neighbor(["42", "10.0.0.7", "02:00:00:00:00:07", "192.0.2.1"], Some(version));
    gateway.ok(&put("1"));
    gateway.signal("STOP");
    // What waits in its connections is lost with these, and what comes then is not told.
    etcd.kill();
    etcd.start_again(Command::new("setpriv"));
    for number in 0..3 {
        etcd.ctl(&["put", "/ringside/gateway/v1/other", &number.to_string()]);
    }
    etcd.compact();
    // The smallest page is longer.
    stalling.go_silent_after(10_000, true);
    gateway.signal("CONT");
    let health = |gateway: &Daemon| String::from_utf8_lossy(&gateway.ctl(&["health"]).stdout).into_owned();
    let behind = "has to be listed anew";
    gateway.wait("its complaint", |gateway| health(gateway).contains(behind));
    let began = Instant::now();
    let refused = gateway.fails(&put("2"));
    assert!(
        refused.contains("nothing can be changed") || refused.contains("etcd"),
        "{refused}"
    );
    assert!(began.elapsed() < Duration::from_secs(5), "it was waited for: {refused}");
    assert!(gateway.ok(&["get", "neighbor", "42", "10.0.0.7"]).contains("192.0.2.1"));
    stalling.go_silent_after(usize::MAX, false);
    gateway.wait("health", |gateway| gateway.ctl(&["health"]).status.success());
    gateway.ok(&put("2"));
}
