//! `ringside top`: running commands, foreign programs, nobody; as text, as JSON and on a terminal.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::live::Folder;
use crate::common::{Done, PATIENCE, Running, lab, lab_with, readable_copy, ringside, run, words};
use ringside_netlab::testing::is_root;
use ringside_netlab::{End, VethConfig, wait_until};
use serde_json::Value;

fn top(folder: &Folder, end: &End, arguments: &str) -> Done {
    folder.start(end, &format!("top {arguments}")).end()
}

fn json(folder: &Folder, end: &End, arguments: &str) -> Value {
    let done = top(folder, end, &format!("{arguments} --json")).good();
    done.json()
}

fn mac(end: &End) -> String {
    ringside_wire::MacAddr(end.mac).to_string()
}

fn number(json: &Value) -> f64 {
    json.as_f64().unwrap_or_else(|| panic!("{json} is no number"))
}

/// The sum of a reason's packets in a list of losses.
fn lost(drops: &Value, reason: &str) -> f64 {
    let drops = drops.as_array().expect("a list").iter();
    let its = drops.filter(|drops| drops["reason"].as_str().is_some_and(|known| known.contains(reason)));
    its.map(|drops| number(&drops["packets"])).sum()
}

/// Queue by queue what comes in, and where the frames are; beside it what the kernel says of the same.
#[test]
fn a_receiver_under_traffic() {
    if !is_root() {
        return;
    }
    let (lab, folder) = (lab("toprx", 2), Folder::new());
    let (receiver, _asker) = folder.start_asked(&lab.b, "rx {} --wait poll");
    let to = lab.b.ipv4;
    let (_sender, _) = folder.start_asked(&lab.a, &format!("tx {{}} --to {to} --rate 5000 -q 1"));
    let (mut seen, mut rate) = (Value::Null, 0.0);
    let moving = wait_until(PATIENCE, || {
        seen = json(&folder, &lab.b, "{} --once --interval 300ms");
        // None of a process that did not answer in time.
        let by_process = &seen["processes"][0]["queues"][1]["received_pps"];
        rate = by_process.as_f64().unwrap_or_default();
        // Until the driver's counters, which are read a moment apart, have seen some too.
        let by_driver = &seen["interfaces"][0]["queues"][1]["counters"]["xdp_packets"]["per_s"];
        rate > 0.0 && by_driver.as_f64().is_some_and(|rate| rate > 0.0)
    });
    assert!(moving, "{seen:#}");
    assert_eq!(seen["schema"], "ringside.top/1");
    assert_eq!(
        seen["processes"].as_array().unwrap().len(),
        1,
        "the sender is in another namespace: {seen:#}"
    );
    assert_eq!(seen["processes_elsewhere"], 1);
    let process = &seen["processes"][0];
    assert_eq!(
        (&process["command"], &process["pid"]),
        (&"rx".into(), &receiver.pid().into())
    );
    let queue = &process["queues"][1];
    assert!(number(&queue["received_bytes_per_s"]) >= rate * 60.0, "{queue:#}");
    let frames = queue["frames"].as_object().expect("told");
    assert_eq!(frames.values().map(number).sum::<f64>(), 4096.0, "{queue:#}");
    let interface = &seen["interfaces"][0];
    assert_eq!(
        (&interface["name"], &interface["driver"]),
        (&"veth-b".into(), &"veth".into())
    );
    assert_eq!(interface["xdp_program"]["name"], "ringside_xsk");
    assert!(interface["queues"][1]["af_xdp_socket"].as_bool().unwrap());
    assert!(number(&interface["received_pps"]) > 0.0, "{interface:#}");
    assert!(!seen["cpus"].as_array().unwrap().is_empty());
    assert!(
        seen["cpus"]
            .as_array()
            .unwrap()
            .iter()
            .any(|cpu| number(&cpu["net_rx_per_s"]) > 0.0),
        "{seen:#}"
    );

    // Without an interface it is found by itself; as text for who reads it.
    let text = top(&folder, &lab.b, "--once --interval 100ms").good();
    assert_eq!(text.err, "");
    for part in [
        &format!("rx {}", receiver.pid())[..],
        "veth-b:1",
        "native copy",
        "[F",
        "XDP program ringside_xsk",
        "NET_RX/s",
    ] {
        assert!(text.out.contains(part), "no {part:?} in {}", text.out);
    }
    receiver.interrupt().good();
    let gone = json(&folder, &lab.b, "{} --interval 50ms");
    assert_eq!(gone["processes"], Value::Array(Vec::new()));
}

/// A program that tells nothing by itself, and takes nothing of what it is given: the kernel says whose the sockets are, and what
/// becomes of packets that find no frame.
#[test]
fn a_foreign_program_that_does_not_keep_up() {
    if !is_root() {
        return;
    }
    let (lab, folder) = (lab("topforeign", 1), Folder::new());
    // It cannot make a directory below a file, so it is as silent as any other program; and stopped it takes nothing.
    let mut command = ringside(&lab.b, "rx {} --frames 64");
    command.env("RINGSIDE_STATE_DIR", "/dev/null/none");
    let stuck = Running::new(command);
    stuck.wait_for("XDP program ringside_xsk");
    stuck.signal(libc::SIGSTOP);
    // In the background: what happens before the first look is not counted.
    let to = lab.b.ipv4;
    let (_sender, _) = folder.start_asked(
        &lab.a,
        &format!("tx {{}} --to {to} --to-mac {} --rate 5000", mac(&lab.b)),
    );
    let mut seen = Value::Null;
    let counted = wait_until(PATIENCE, || {
        seen = json(&folder, &lab.b, "--interval 500ms");
        lost(&seen["interfaces"][0]["drops"], "redirect failed") > 0.0
    });
    assert!(counted, "{seen:#}");
    let own = stuck.pid();
    let users = seen["af_xdp_processes"].as_array().unwrap();
    assert_eq!(users.iter().map(|user| user["pid"].clone()).collect::<Vec<_>>(), [own]);
    assert_eq!(
        (&users[0]["command"], &users[0]["sockets"]),
        (&"ringside".into(), &1.into())
    );
    assert_eq!(seen["processes"], Value::Array(Vec::new()));
    let interface = &seen["interfaces"][0];
    assert_eq!(interface["name"], "veth-b");
    assert_eq!(interface["xdp_program"]["holders"][0]["pid"], own);
    assert!(
        number(&interface["queues"][0]["counters"]["xdp_packets"]["per_s"]) > 0.0,
        "{interface:#}"
    );
    let text = top(&folder, &lab.b, "--once --interval 200ms").good().out;
    assert!(
        text.contains("No ringside command runs here") && text.contains("in other network namespaces"),
        "{text}"
    );
    assert!(
        text.contains(&format!(
            "AF_XDP sockets in this namespace (process, name, number): {own} ("
        )),
        "{text}"
    );
}

#[test]
fn round_trips_of_a_prober() {
    if !is_root() {
        return;
    }
    let (lab, folder) = (lab("topping", 1), Folder::new());
    let (_echo, _) = folder.start_asked(&lab.b, "echo {} --wait poll");
    let ping = format!("ping {{}} --to {} --rate 1000 --wait poll", lab.b.ipv4);
    let (_ping, _) = folder.start_asked(&lab.a, &ping);
    let mut seen = Value::Null;
    let timed = wait_until(PATIENCE, || {
        seen = json(&folder, &lab.a, "--interval 300ms");
        let interval = &seen["processes"][0]["latency"]["interval"];
        interval["p50_ns"].is_u64() && seen["processes"][0]["latency"]["whole"]["samples"].as_u64() >= Some(100)
    });
    assert!(timed, "{seen:#}");
    let times = &seen["processes"][0]["latency"];
    assert!(
        number(&times["interval"]["samples"]) <= number(&times["whole"]["samples"]),
        "{times:#}"
    );
}

/// Nobody, nowhere, nonsense.
#[test]
fn what_is_said_where_there_is_nothing_to_see() {
    if !is_root() {
        return;
    }
    let folder = Folder::new();
    let lab = lab_with(VethConfig::tagged("topnone"));
    let done = top(&folder, &lab.a, "--once --interval 50ms").good();
    let told = format!(
        "No ringside command runs here that tells of itself in {}.",
        folder.0.display()
    );
    assert!(done.out.starts_with(&told), "{done:#?}");
    // All that are up, for none is used.
    assert!(
        done.out.contains("veth-a (veth) up, MTU 1500") && !done.out.contains("\nlo "),
        "{done:#?}"
    );
    for (arguments, expected) in [
        (
            "nothere --once",
            "no interface named 'nothere' in this network namespace; there are: lo, veth-a",
        ),
        ("--interval 0.01", "or 50ms to 60s"),
        ("--interval 1ms", "or 50ms to 60s"),
    ] {
        let message = top(&folder, &lab.a, arguments).refused();
        assert!(message.contains(expected), "{message}");
    }
    // One that goes while it is looked at is told, and the rest still seen.
    let gone = folder.start(&lab.a, "top {} --json --interval 2s");
    // It catches SIGINT once it has found the interface.
    let has_found = || gone.has_signal("SigCgt:", libc::SIGINT);
    assert!(wait_until(PATIENCE, has_found), "{}", gone.told());
    lab.delete_link().unwrap();
    let seen = gone.end().good().json();
    assert_eq!(seen["interfaces"], Value::Array(Vec::new()));
    let notes = seen["notes"].to_string();
    assert!(notes.contains("the interface was removed"), "{notes}");
}

/// A killed process's socket is cleaned; a stopped process does not answer, and that is said.
#[test]
fn processes_that_do_not_answer() {
    if !is_root() {
        return;
    }
    let (lab, folder) = (lab("topdead", 1), Folder::new());
    let (killed, _) = folder.start_asked(&lab.a, "rx {}");
    killed.signal(libc::SIGKILL);
    drop(killed);
    assert_eq!(folder.sockets().len(), 1);
    let seen = json(&folder, &lab.a, "--interval 50ms");
    assert_eq!(
        (&seen["processes"], folder.sockets().len()),
        (&Value::Array(Vec::new()), 0),
        "{seen:#}"
    );

    let (stopped, _) = folder.start_asked(&lab.a, "rx {} --wait poll");
    stopped.stop();
    let seen = json(&folder, &lab.a, "--interval 50ms");
    stopped.signal(libc::SIGCONT);
    let notes = seen["notes"].to_string();
    assert!(
        notes.contains(&format!("process {} does not answer", stopped.pid())),
        "{notes}"
    );
    stopped.interrupt();
}

/// Anybody may look at what anybody may see.
#[test]
fn without_privilege() {
    if !is_root() {
        return;
    }
    let (lab, folder) = (lab("topuser", 1), Folder::new());
    let (receiver, _) = folder.start_asked(&lab.a, "rx {} --wait poll");
    let mut setpriv = lab.a.ns.command("setpriv");
    setpriv.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--bounding-set=-all",
        "--inh-caps=-all",
        "--",
    ]);
    setpriv
        .arg(readable_copy())
        .args(words(&lab.a, "top {} --json --interval 50ms"));
    setpriv.env("RINGSIDE_STATE_DIR", &folder.0);
    assert!(std::fs::metadata(&folder.0).unwrap().permissions().mode() & 0o005 == 0o005);
    let done = Running::new(setpriv).end().good();
    let seen = done.json();
    let notes = seen["notes"].to_string();
    assert!(
        notes.contains(&format!("process {} is not asked: Permission denied", receiver.pid())),
        "{notes}"
    );
    assert!(
        notes.contains("failed redirects and XDP exceptions are not counted"),
        "{notes}"
    );
    assert_eq!(seen["interfaces"][0]["name"], "veth-a");
    assert!(seen["interfaces"][0]["received_pps"].is_f64());
    receiver.interrupt();
}

/// On a terminal: it shows what there is, listens to keys, and leaves the terminal as it was, whichever way it ends.
#[test]
fn on_a_terminal() {
    if !is_root() {
        return;
    }
    let (lab, folder) = (lab("topterm", 1), Folder::new());
    let (_receiver, _) = folder.start_asked(&lab.a, "rx {} --wait poll");
    for by_key in [true, false] {
        // script(1) makes the terminal, and tells stty's settings before and after.
        let mut command = lab.a.ns.command("script");
        let inside = format!(
            "stty rows 24 cols 80; stty -a > {0}/before; {1} top veth-a; stty -a > {0}/after",
            folder.0.display(),
            env!("CARGO_BIN_EXE_ringside")
        );
        command.args(["-qefc", &inside, "/dev/null"]);
        command.env("RINGSIDE_STATE_DIR", &folder.0).env("TERM", "xterm");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script(1)");
        let mut out = child.stdout.take().unwrap();
        let shown = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let reader = std::thread::spawn({
            let shown = std::sync::Arc::clone(&shown);
            move || {
                let mut piece = [0; 4096];
                while let Ok(bytes @ 1..) = out.read(&mut piece) {
                    shown.lock().unwrap().extend_from_slice(&piece[..bytes]);
                }
            }
        });
        let has = |text: &str| String::from_utf8_lossy(&shown.lock().unwrap()).contains(text);
        let wait_for = |text: &str| {
            let all = || String::from_utf8_lossy(&shown.lock().unwrap()).into_owned();
            assert!(wait_until(PATIENCE, || has(text)), "no {text:?} in {:?}", all());
        };
        wait_for("\u{1b}[?1049h");
        wait_for("veth-a:0");
        let stdin = child.stdin.as_mut().unwrap();
        stdin.write_all(b"?").unwrap();
        wait_for("Ctrl-C");
        stdin.write_all(b"?\t").unwrap();
        wait_for("MTU 1500");
        if by_key {
            child.stdin.as_mut().unwrap().write_all(b"q").unwrap();
        } else {
            let pid = std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
                let text = std::fs::read(entry.path().join("cmdline")).ok()?;
                let is_it =
                    text.starts_with(env!("CARGO_BIN_EXE_ringside").as_bytes()) && text.ends_with(b"\0top\0veth-a\0");
                let environment = std::fs::read(entry.path().join("environ")).ok()?;
                let folder = folder.0.to_str().unwrap().as_bytes();
                let ours = environment.windows(folder.len()).any(|part| part == folder);
                (is_it && ours).then(|| entry.file_name().to_str().unwrap().parse().unwrap())
            });
            // SAFETY: no memory is involved, and the process was just found by its command line and environment.
            assert_eq!(unsafe { libc::kill(pid.expect("it runs"), libc::SIGTERM) }, 0);
        }
        let end = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > end {
                _ = child.kill();
                panic!("it does not end");
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(status.success(), "{status}");
        reader.join().unwrap();
        assert!(has("\u{1b}[?1049l"), "the screen is given back");
        let settings = |name: &str| std::fs::read_to_string(folder.0.join(name)).unwrap();
        assert_eq!(settings("before"), settings("after"));
    }
    // Where there is no terminal it looks once.
    let piped = run(&lab.a, "top veth-a --interval 50ms").good();
    assert!(
        piped.out.contains("veth-a (veth)") && !piped.out.contains('\u{1b}'),
        "{piped:#?}"
    );
}
