//! How runs begin and end: time, count, signals, terminals.

use std::net::UdpSocket;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common;
use crate::common::{
    Running, assert_clean, assert_reconciles, lab, losses, ringside, run, settings, start, start_receiver,
};
use ringside_measure::schema::RunResult;
use ringside_netlab::testing::{expect, is_root, measured};
use ringside_netlab::{Lab, wait_until};
use ringside_xsk::QueueOptions;

/// The commands that receive, which need somebody to send.
const RECEIVERS: [&str; 3] = ["rx {}", "fwd {}", "echo {}"];

/// The five commands, as one would start them on end a.
fn five(lab: &Lab) -> [String; 5] {
    let to = lab.b.ipv4;
    [
        "rx {}".into(),
        format!("tx {{}} --to {to} --rate 1000"),
        "fwd {}".into(),
        "echo {}".into(),
        format!("ping {{}} --to {to}"),
    ]
}

/// Each command ends at its time, without leaving anything, and says so when there was nothing to measure.
#[test]
fn time_ends_each_command() {
    if !is_root() {
        return;
    }
    let lab = lab("time", 1);
    let before = settings(&lab.a);
    for command in five(&lab) {
        let done = run(&lab.a, &format!("{command} -t 1 --json"));
        let result = done.result();
        assert!(
            (990_000_000..5_000_000_000).contains(&result.duration_ns),
            "{}",
            result.duration_ns
        );
        assert_reconciles(&result);
        match command.starts_with("tx") {
            true => drop(done.good()),
            false => assert!(done.bad().contains("nothing was sampled"), "{done:#?}"),
        }
        assert_clean(&lab.a);
        assert_eq!(settings(&lab.a), before, "{command}");
    }
}

/// Each command ends at its count.
#[test]
fn count_ends_each_command() {
    if !is_root() {
        return;
    }
    let lab = lab("counts", 1);
    for command in RECEIVERS {
        let receiver = start_receiver(&lab.b, &format!("{command} --count 20 --json"));
        let ping = start(&lab.a, &format!("ping {{}} --to {} --timeout 0.01", lab.b.ipv4));
        let result = receiver.end().good().result();
        assert!(
            result.queues.iter().map(|queue| queue.received_packets).sum::<u64>() >= 20,
            "{command}: {result:#?}"
        );
        assert_reconciles(&result);
        // What the forwarder sends back is no answer; to whom is for the other tests.
        ping.interrupt();
    }
    let _echo = start_receiver(&lab.b, "echo {}");
    for command in ["tx", "ping"] {
        let result = run(&lab.a, &format!("{command} {{}} --to {} --count 7 --json", lab.b.ipv4))
            .good()
            .result();
        assert_eq!(result.packets.sent, 7, "{command}");
    }
}

/// Ctrl-C and `kill` end a run with its results, also of threads that sleep.
#[test]
fn signals_end_a_run_with_its_results() {
    if !is_root() {
        return;
    }
    let lab = lab("signals", 2);
    for (signal, wait) in [
        (libc::SIGINT, "spin"),
        (libc::SIGINT, "poll"),
        (libc::SIGTERM, "busy-poll"),
    ] {
        let echo = start_receiver(&lab.b, &format!("echo {{}} --wait {wait} --json"));
        let ping = start_receiver(&lab.a, &format!("ping {{}} --wait {wait} --to {}", lab.b.ipv4));
        let arrived = || lab.b.state().unwrap().stats.rx_packets;
        let then = arrived();
        assert!(wait_until(common::PATIENCE, || arrived() > then + 100));
        for running in [&ping, &echo] {
            running.signal(signal);
        }
        let (ping, echo) = (ping.end().good(), echo.end().good());
        assert!(ping.out.contains("\nround trip "), "{}", ping.out);
        assert!(ping.took < Duration::from_secs(5), "{ping:#?}");
        assert!(echo.result().received.is_some_and(|rates| rates.packets_pps > 0.0));
        assert_clean(&lab.a);
        assert_clean(&lab.b);
    }
}

/// The second signal does not wait for late answers, results or anything.
#[test]
fn a_second_signal_ends_at_once() {
    if !is_root() {
        return;
    }
    let lab = lab("second", 1);
    // Nobody answers, so after the first signal it waits for a late answer: a second, not the ten of its time-out.
    let command = format!("ping {{}} --to {} --timeout 10", lab.b.ipv4);
    let far = lab.b.run(|| UdpSocket::bind((lab.b.ipv4, 29620))).unwrap();
    far.set_read_timeout(Some(common::PATIENCE)).unwrap();
    let start = || {
        let ping = start_receiver(&lab.a, &command);
        // Its first probe: the next would follow after 10 s.
        far.recv(&mut [0; 2048])
            .unwrap_or_else(|error| panic!("{error}: {}", ping.told()));
        ping
    };
    let done = start().interrupt();
    assert!(done.bad().contains("1 probe(s) sent, none answered"), "{done:#?}");
    assert!(done.took < Duration::from_secs(5), "{done:#?}");

    let ping = start();
    ping.signal(libc::SIGINT);
    let is_taken = || !ping.has_signal("ShdPnd:", libc::SIGINT);
    assert!(wait_until(common::PATIENCE, is_taken), "{}", ping.told());
    let done = ping.interrupt();
    assert_eq!(done.status.signal(), Some(libc::SIGINT), "{done:#?}");
    assert_eq!(done.out, "");
    assert_clean(&lab.a);
}

/// A kill that nobody can catch leaves no program on the interface and no queue taken.
#[test]
fn a_killed_run_leaves_nothing() {
    if !is_root() {
        return;
    }
    let lab = lab("killed", 2);
    let before = settings(&lab.b);
    for mode in common::MODES {
        for command in RECEIVERS {
            let receiver = start_receiver(&lab.b, &format!("{command} -m {mode}"));
            assert!(lab.b.state().unwrap().xdp.is_some());
            receiver.signal(libc::SIGKILL);
            assert_eq!(receiver.end().status.signal(), Some(libc::SIGKILL));
            assert!(
                wait_until(common::PATIENCE, || lab.b.state().unwrap().xdp.is_none()),
                "{command}"
            );
            assert_clean(&lab.b);
            assert_eq!(settings(&lab.b), before);
        }
    }
}

/// Piped output holds results and reports, and no line that is drawn over and over; intervals only where asked for.
#[test]
fn no_progress_where_nobody_looks() {
    if !is_root() {
        return;
    }
    let lab = lab("piped", 1);
    let tx = |more: &str| run(&lab.a, &format!("tx {{}} --to {} --rate 500 {more}", lab.b.ipv4)).good();
    let done = tx("-t 1.3");
    for stream in [&done.out, &done.err] {
        assert!(!stream.contains(['\r', '\x1b']), "{done:#?}");
    }
    assert!(!done.err.contains("packets/s"), "{}", done.err);

    let done = tx("-t 2 -i 0.4 --json");
    let lines = done.err.lines().filter(|line| line.contains("packets/s")).count();
    let intervals = done.result().intervals;
    assert_eq!(lines, intervals.len(), "{}", done.err);
    assert!((3..=6).contains(&lines), "{}", done.err);
    let (sum, total): (u64, _) = (
        intervals.iter().map(|part| part.sent_packets).sum(),
        done.result().packets.sent,
    );
    assert!(sum <= total && sum + 10 >= total, "{sum} of {total}");
}

/// On a terminal there is one line a second, which is gone in the end.
#[test]
fn a_line_a_second_on_a_terminal() {
    if !is_root() {
        return;
    }
    let lab = lab("terminal", 1);
    let inner = format!(
        "{} tx {} --to {} --rate 1000 -t 2.5",
        env!("CARGO_BIN_EXE_ringside"),
        lab.a.interface.name(),
        lab.b.ipv4
    );
    let look = || {
        let mut script = lab.a.ns.command("script");
        script
            .args(["--quiet", "--return", "--command", &inner, "/dev/null"])
            .env("TERM", "xterm");
        let done = Running::new(script).end().good();
        let lines = done.out.split(['\r', '\n']);
        let drawn = lines.filter_map(|line| line.split_once(" s   received "));
        let second = |(start, _): (&str, &str)| {
            let digits = |c: char| !c.is_ascii_digit() && c != '.';
            start.rsplit(digits).next().unwrap_or_default().to_owned()
        };
        let seconds: Vec<String> = drawn.map(second).collect();
        (done, seconds)
    };
    // Drawn once each. The last one is the rest of half a second. On a busy machine the one that draws may have slept through a second.
    let is_whole =
        |seconds: &[String]| seconds.len() == 3 && seconds[0].starts_with("1.") && seconds[1].starts_with("2.");
    let mut looked = look();
    for _ in 0..5 {
        let whole: Vec<&str> = (looked.1.iter().filter_map(|second| second.split('.').next())).collect();
        let mut once = whole.clone();
        once.dedup();
        assert!(looked.1.len() <= once.len() + 1, "{whole:?} {:?}", looked.0.out);
        if is_whole(&looked.1) {
            break;
        }
        looked = look();
    }
    let (done, seconds) = looked;
    assert!(is_whole(&seconds), "{seconds:?} {:?}", done.out);
    // The last line was wiped before the result was printed.
    assert!(done.out.contains("\u{1b}[2K"), "{:?}", done.out);
}

/// Whoever reads may leave: that is no reason to panic, to hang or to lose the rest.
#[test]
fn a_reader_may_leave() {
    if !is_root() {
        return;
    }
    let lab = lab("reader", 1);
    let to = lab.b.ipv4;
    let shell = |line: String| {
        let mut command = lab.a.ns.command("bash");
        command.args(["-c", &line]).env("TOOL", env!("CARGO_BIN_EXE_ringside"));
        Running::new(command).end()
    };
    let tx = format!("$TOOL tx {} --to {to} --rate 1000", lab.a.interface.name());
    // Both streams closed early, while it goes on writing lines to one of them.
    let done = shell(format!("set -o pipefail; {tx} -t 0.6 -i 0.05 2>&1 | head -n 1"));
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    let done = shell(format!("set -o pipefail; {tx} -t 1 --json | true"));
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    let done = shell(format!("{tx} -t 1 >&- 2>&-"));
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    // A full disk is something else: the result is lost, and that is told. The file is written all the same.
    let file = std::env::temp_dir().join(format!("ringside-{}.json", std::process::id()));
    let done = shell(format!("{tx} -t 1 --json-file {} > /dev/full", file.display()));
    let written = std::fs::read_to_string(&file).expect("written");
    std::fs::remove_file(&file).unwrap();
    assert!(done.bad().contains("standard output"), "{done:#?}");
    serde_json::from_str::<ringside_measure::schema::Document>(&written).expect("a result");
}

/// Packets that came for the sockets of a run and that they had no room for.
fn dropped_by_sockets(result: &RunResult) -> u64 {
    let sockets = result.queues.iter().filter_map(|queue| queue.xdp_statistics);
    sockets.map(|socket| socket.rx_dropped + socket.rx_ring_full).sum()
}

/// Numbers at the edge of what makes sense work, or are refused; they do not hang and do not panic.
#[test]
fn sizes_at_the_edge() {
    if !is_root() {
        return;
    }
    let lab = lab("edge", 2);
    let to = lab.b.ipv4;
    let dropped = || lab.ends().map(|end| end.state().unwrap().stats.tx_dropped);
    for more in [
        "--frames 1",
        "--frames 2",
        "--batch 1",
        "--batch 1000000",
        "--ring 1",
        "--ring 65536",
        "--count 18446744073709551615",
    ] {
        let before = dropped();
        // Also with a single frame, which is received into and sent from in turn.
        let echo = start_receiver(&lab.b, &format!("echo {{}} {more} --json"));
        // With one frame to receive into, the next packet may come before that is free again: it is lost.
        let is_short = more.starts_with("--frames");
        let timeout = if is_short { "--timeout 1" } else { "" };
        let mut pings = vec![
            run(
                &lab.a,
                &format!("ping {{}} --to {to} --count 30 -t 10 {timeout} --json"),
            )
            .good()
            .result(),
        ];
        let count = if more.contains("count") { "" } else { "--count 30" };
        let tx = run(&lab.a, &format!("tx {{}} --to {to} {count} {more} -t 1 --json"))
            .good()
            .result();
        assert!(tx.packets.sent >= 30, "{more}: {tx:#?}");
        assert_reconciles(&tx);
        echo.settle();
        let ping = run(&lab.a, &format!("ping {{}} --to {to} {count} {more} -t 2 --json"));
        match more {
            // Nothing could ever be sent: the one frame waits for packets.
            "--frames 1" => assert!(ping.refused().contains("all of them wait for packets"), "{ping:#?}"),
            _ => pings.push(ping.good().result()),
        }
        let echo = echo.interrupt().good().result();
        assert_reconciles(&echo);
        let after = dropped();
        for ping in &pings {
            assert_reconciles(ping);
            let counts = ping.sequence.unwrap();
            if !is_short {
                assert_eq!((counts.received, counts.lost), (counts.sent, 0), "{more}");
            }
        }
        // There and back each packet came, or is counted as lost by the link or by the socket that it was for.
        let sum = |count: fn(&RunResult) -> u64| pings.iter().map(count).sum::<u64>();
        assert_eq!(
            sum(|ping| ping.packets.sent) + tx.packets.sent,
            echo.packets.delivered() + losses(&echo) + (after[0] - before[0]),
            "{more}: {pings:#?} {tx:#?} {echo:#?}"
        );
        assert_eq!(
            echo.queues.iter().map(|queue| queue.sent_packets).sum::<u64>(),
            sum(|ping| ping.packets.delivered() + dropped_by_sockets(ping)) + (after[1] - before[1]),
            "{more}: {pings:#?} {echo:#?}"
        );
    }
    let sent = run(&lab.a, &format!("tx {{}} --to {to} --rate 1 -t 0.5 --json"))
        .good()
        .result();
    // The first at once, the second after a second, which is over only where the machine is busy with other things.
    let due = 1 + sent.duration_ns / 1_000_000_000;
    assert!((1..=due).contains(&sent.packets.sent), "{due} due: {sent:#?}");
}

/// A host whose clocks are elsewhere measures the same: nothing is taken from the other's clock, or from the calendar.
#[test]
fn clocks_may_differ() {
    if !is_root() {
        return;
    }
    let lab = lab("clock", 1);
    let _echo = start_receiver(&lab.b, "echo {}");
    let mut command = lab.a.ns.command("unshare");
    command.args(["--time", "--monotonic", "700000000", "--boottime", "700000000", "--"]);
    command.arg(env!("CARGO_BIN_EXE_ringside"));
    command.args(common::words(
        &lab.a,
        &format!("ping {{}} --to {} --count 20 --rate 1000 --json", lab.b.ipv4),
    ));
    let result = Running::new(command).end().good().result();
    assert_eq!(result.sequence.unwrap().received, 20);
    let raw = result.latency.unwrap().raw.unwrap();
    assert!(raw.max_ns < 5_000_000_000, "{raw:?}");
}

/// Threads run where they are told to.
#[test]
fn threads_are_pinned_and_prioritised() {
    if !is_root() {
        return;
    }
    let lab = lab("pinned", 2);
    let receiver = start_receiver(&lab.b, "rx {} --cpus 0 --priority 7 --wait poll");
    // Settings of a thread as procfs shows them: allowed CPUs, and field 40 and 41 of stat, priority and policy.
    let threads = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", receiver.pid())).unwrap();
        let read =
            |task: &std::fs::DirEntry, file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let describe = |task: std::fs::DirEntry| {
            let status = read(&task, "status");
            let cpus = status
                .lines()
                .find_map(|line| line.strip_prefix("Cpus_allowed_list:\t"))
                .unwrap_or("")
                .to_owned();
            let stat = read(&task, "stat");
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
            (
                cpus,
                fields.get(37).map(|&field| field.to_owned()),
                fields.get(38).map(|&field| field.to_owned()),
            )
        };
        tasks.filter_map(Result::ok).map(describe).collect::<Vec<_>>()
    };
    let wanted = ("0".to_owned(), Some("7".to_owned()), Some("1".to_owned()));
    let pinned = || threads().iter().filter(|thread| **thread == wanted).count();
    assert!(
        wait_until(common::PATIENCE, || pinned() == 2),
        "one per queue: {:?}",
        threads()
    );
}

/// Every command names its options, and defaults as the library has them. Its examples are run by examples.rs.
#[test]
fn help_has_the_defaults_of_the_library() {
    for command in ["rx", "tx", "fwd", "echo", "ping"] {
        let output = Command::new(env!("CARGO_BIN_EXE_ringside"))
            .args([command, "--help"])
            .output()
            .unwrap();
        assert!(output.status.success());
        let help = String::from_utf8(output.stdout).unwrap();
        // What follows an option's name, up to the next option.
        let option = |name: &str| {
            let mut found = help
                .split("\n  ")
                .skip_while(|part| !part.contains(&format!("--{name} <")));
            let first = found.next()?.to_owned();
            Some(
                found
                    .take_while(|part| !part.trim_start().starts_with('-'))
                    .fold(first, |text, part| text + " " + part),
            )
        };
        let frames = option("frames").unwrap_or_else(|| panic!("{command}: no --frames in {help}"));
        let numbers: Vec<u32> = frames
            .split(|letter: char| !letter.is_ascii_digit())
            .filter_map(|number| number.parse().ok())
            .collect();
        for default in [QueueOptions::DEFAULT_FRAMES, QueueOptions::DEFAULT_TRANSMIT_FRAMES] {
            assert!(numbers.contains(&default), "{command}: no {default} in {frames}");
        }
        for name in ["queues", "mode", "json", "time", "count"] {
            assert!(help.contains(&format!("--{name}")), "{command}: no --{name} in {help}");
        }
    }
}

/// No run takes long to begin or to end.
#[test]
fn beginning_and_ending_are_quick() {
    if !is_root() {
        return;
    }
    let lab = lab("quick", 4);
    measured(|| {
        let begin = Instant::now();
        let mut command = ringside(&lab.a, &format!("tx {{}} --to {} --count 1", lab.b.ipv4));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        assert!(command.status().unwrap().success());
        let took = begin.elapsed();
        expect(took < Duration::from_secs(3), format_args!("{took:?}"))
    });
}
