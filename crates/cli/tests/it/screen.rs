//! The text of a run: the answer on one screen, and all figures with `--verbose`.

use std::process;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use crate::common::live::Folder;
use crate::common::{Done, Running, lab, row_with, run, start, start_receiver, wire, words};
use ringside_netlab::End;
use ringside_netlab::testing::{expect, is_root, measured, skip_unsupported};

/// The most lines of a run in which nothing went wrong.
const MAX_LINES: usize = 8;

/// What a busy machine or one whose clock nobody synchronises adds.
const WRONG: [&str; 5] = ["not sent ", "asked for ", "sent late ", "order ", "clock "];

/// The lines of the result. A busy machine adds a sentence that the result is invalid.
fn screen(done: &Done) -> Vec<&str> {
    let text = done.out.split("INVALID:").next().unwrap_or_default();
    text.lines().collect()
}

/// Asserts that the text is short, begins with the mode, and has lines with these beginnings, in
/// this order.
fn check(done: &Done, header: &str, answers: &[&str]) {
    let lines = screen(done);
    let right = |line: &&&str| !WRONG.iter().any(|wrong| line.starts_with(wrong));
    let number = lines.iter().filter(right).count();
    assert!(number <= MAX_LINES, "{number} lines: {}", done.out);
    assert_eq!(lines.first(), Some(&header), "{}", done.out);
    let mut rest = lines[1..].iter();
    for answer in answers {
        assert!(
            rest.any(|line| line.starts_with(answer)),
            "{answer:?} is not in its place: {}",
            done.out
        );
    }
}

#[test]
fn ping_prints_mode_round_trip_and_loss() {
    if !is_root() {
        return;
    }
    let lab = lab("screen-ping", 2);
    let echo = start_receiver(&lab.b, "echo {} -m native");
    let line = format!("ping {{}} --to {} --count 1000", lab.b.ipv4);
    let done = run(&lab.a, &line).good();
    let header = "veth-a: native copy, 2 queues, 82-byte packets";
    check(
        &done,
        header,
        &["round trip     p50 ", "lost           0 of 1,000 packets"],
    );
    let lines = screen(&done);
    for words in ["  p99 ", "  max ", " (1,000 answers, from the real sending)"] {
        assert!(lines[1].contains(words), "{words:?} is not in {}", lines[1]);
    }
    let all = lines.len() + done.err.lines().count();
    assert!(all <= MAX_LINES, "{all} lines: {done:#?}");
    assert!(!done.err.contains("refused"), "{}", done.err);
    let opened = "veth-a: native copy, 2 queues; XDP program ringside_xsk id ";
    assert!(done.err.starts_with(opened), "{}", done.err);

    let done = run(&lab.a, &format!("{line} --rate 5000")).good();
    check(
        &done,
        header,
        &["round trip     p50 ", "lost           0 of 1,000 packets"],
    );
    assert!(
        done.out.contains("answers, from the scheduled sending)"),
        "{}",
        done.out
    );

    let done = run(&lab.a, &format!("{line} -v")).good();
    for words in ["ledger ", "RTT, ", "jitter, ", "veth-a queue 1 ", "CPU 0 ", "MTU 1500"] {
        assert!(done.out.contains(words), "{words:?} is not in {}", done.out);
    }
    assert!(done.err.contains("zero-copy refused"), "{}", done.err);
    let done = echo.interrupt().good();
    check(
        &done,
        "veth-b: native copy, 2 queues",
        &["received ", "sent ", "lost           0 of 3,000 packets"],
    );
}

#[test]
fn senders_and_receivers_print_rate_and_loss() {
    if !is_root() {
        return;
    }
    let lab = lab("screen-tx", 1);
    let receiver = start_receiver(&lab.b, "rx {} -m native --filter udp:29620");
    let line = format!("tx {{}} --to {} --count 100 --rate 1000", lab.b.ipv4);
    let done = run(&lab.a, &line).good();
    check(
        &done,
        "veth-a: copy, 1 queue, 64-byte packets",
        &["sent ", "lost           0 of 100 packets"],
    );
    assert!(done.out.contains(" (100 packets in "), "{}", done.out);
    assert!(done.err.starts_with("veth-a: copy, 1 queue\n"), "{}", done.err);
    let line = format!("tx {{}} --to {} --count 100 --cycle 1ms", lab.b.ipv4);
    check(
        &run(&lab.a, &line).good(),
        "veth-a: copy, 1 queue, 64-byte packets",
        &["sent ", "lost ", "deadlines ", "after deadline p50 "],
    );
    let done = receiver.interrupt().good();
    check(
        &done,
        "veth-b: native copy, 1 queue",
        &["received ", "lost           0 of 200 packets"],
    );
}

#[test]
fn receivers_name_packets_of_queues_without_a_socket() {
    if !is_root() {
        return;
    }
    let lab = lab("screen-unbound", 2);
    for more in ["", " -v"] {
        let line = format!("rx {{}} -q 0 -m native --filter udp:29620{more}");
        let receiver = start_receiver(&lab.b, &line);
        for (queue, count) in [(0, 20), (1, 30)] {
            let to = format!("--to {} -q {queue} --count {count}", lab.b.ipv4);
            run(&lab.a, &format!("tx {{}} {to}")).good();
        }
        let text = receiver.interrupt().good().out;
        let line = "up the stack   30 queue without a socket\n";
        // The detailed text also has what the filter leaves to the kernel.
        let is_named = match more {
            "" => text.contains(line),
            _ => text.contains("30 queue without a socket\n"),
        };
        assert!(is_named, "{text}");
        assert_eq!(
            text.contains("veth-b queue 1 without a socket: 30 went up the stack\n"),
            more == " -v",
            "{text}"
        );
    }
}

/// Runs a command that may lock so many bytes of memory. Its user is no other command's.
fn with_memlock(end: &End, bytes: u64, arguments: &str) -> Done {
    static USERS: AtomicU32 = AtomicU32::new(0);
    let user = 100_000 + process::id() % 1_000_000 * 100 + USERS.fetch_add(1, Relaxed);
    let mut command = end.ns.command("setpriv");
    command
        .args(["--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"])
        .arg(format!("--ruid={user}"))
        .args(["prlimit", &format!("--memlock={bytes}:{bytes}")])
        .arg(env!("CARGO_BIN_EXE_ringside"))
        .args(words(end, arguments))
        .env_remove("SSH_CONNECTION");
    Running::new(command).end()
}

#[test]
fn ports_of_one_process_share_a_small_memory_limit() {
    if !is_root() {
        return;
    }
    let row = row_with("screen-memlock", [2, 2], 1500);
    let to = ringside_wire::MacAddr(row.left.b.mac);
    let sender = start(&row.left.a, &format!("tx {{}} --to-mac {to} --rate 10000"));
    sender.wait_for("copy, 2 queues");
    let limit = "because RLIMIT_MEMLOCK is 8388608 bytes";
    let divided = format!("{limit}, shared by 2 ports, and CAP_IPC_LOCK is missing");
    let of_port = format!("\nin: 1024 frames instead of 4096, {divided}");
    let of_umem = format!("512 frames a queue instead of 4096, {limit}");
    for (line, note) in [
        ("fwd in --out out -m native -t 0.2 --wait poll", &of_umem),
        ("fwd in --out out -m native -t 0.2 --wait poll --copy-between", &of_port),
        ("impair in,out -m native -t 0.2", &of_umem),
    ] {
        let done = with_memlock(&row.left.b, 8 << 20, line).good();
        assert_eq!(done.err.matches(note).count(), 1, "{line}: {done:#?}");
    }
    let line = "compare --lab veth --operations ping --variants af-xdp-native --rounds 1 \
                --slot-ms 200";
    measured(|| {
        let done = with_memlock(&row.left.b, 8 << 20, line);
        expect(done.status.success(), &done.err)
    });
    // On a test bed, both ends of which it opens.
    let done = with_memlock(&row.left.b, 8 << 20, "doctor in");
    assert!(done.out.contains("native copy: queues 0-1 bound"), "{done:#?}");
}

#[test]
fn frames_that_were_not_obtained_are_not_announced() {
    if !is_root() {
        return;
    }
    let row = row_with("screen-too-little", [2, 2], 1500);
    for line in [
        "fwd in --out out -m native -t 0.2 --wait poll",
        "impair in,out -m native -t 0.2",
    ] {
        let done = with_memlock(&row.left.b, 1 << 20, line);
        assert!(!done.status.success(), "{line}: {done:#?}");
        assert!(!done.err.contains("frames a queue instead"), "{line}: {done:#?}");
        assert!(
            done.err.contains("RLIMIT_MEMLOCK is 1048576 bytes"),
            "{line}: {done:#?}"
        );
    }
}

#[test]
fn options_that_were_not_obtained_are_named() {
    if !is_root() {
        return;
    }
    let lab = lab("screen-options", 2);
    let done = with_memlock(&lab.a, 5_242_880, "rx {} -t 0.2 --wait poll");
    let note = "\nveth-a: 1024 frames instead of 4096, because RLIMIT_MEMLOCK is 5242880 bytes and";
    assert_eq!(done.err.matches(note).count(), 1, "{done:#?}");

    let reserved = std::fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap();
    if reserved.trim() != "0" {
        return skip_unsupported("a kernel without reserved huge pages");
    }
    let done = run(&lab.a, "rx {} -t 0.2 --huge-pages");
    let note = "\nveth-a: huge pages were asked for and could not be had (";
    assert_eq!(done.err.matches(note).count(), 1, "{done:#?}");
    assert!(!done.err.contains("zero-copy refused"), "{done:#?}");
}

#[test]
fn forwarders_print_both_rates() {
    if !is_root() {
        return;
    }
    let row = wire("screen-fwd");
    let tx = |count: u32| {
        let to = ringside_wire::MacAddr(row.right.b.mac);
        format!("tx {{}} --to-mac {to} --count {count} --rate 1000 --json")
    };
    let impair = start(&row.left.b, "impair in,out -m native --loss there=every:10");
    impair.wait_for("this host itself is not reached");
    run(&row.left.a, &tx(100)).good();
    let done = impair.receiving().interrupt().good();
    check(
        &done,
        "in: native copy, 1 queue; out: native copy, 1 queue",
        &[
            "received ",
            "sent ",
            "lost           10 of 100 packets (10.0000 %): ",
            "in -> out ",
        ],
    );
    assert!(done.out.contains("100 came, 10 lost, 90 passed"), "{}", done.out);

    let fwd = start_receiver(&row.left.b, "fwd in -m native --filter udp:29620");
    run(&row.left.a, &tx(100)).good();
    check(
        &fwd.interrupt().good(),
        "in: native copy, 1 queue",
        &["received ", "sent ", "lost           0 of 100 packets"],
    );
}

#[test]
fn streams_print_a_line_for_each_class() {
    if !is_root() {
        return;
    }
    let lab = lab("screen-streams", 1);
    let schedule = "--cycle 20ms --class 5:0us:5ms,3:10ms:5ms --wait poll";
    let listener = start(&lab.b, &format!("listener {{}} {schedule}"));
    listener.wait_for("a packet socket listens");
    let to = ringside_wire::MacAddr(lab.b.mac);
    let done = run(&lab.a, &format!("talker {{}} --to-mac {to} {schedule} --count 20")).good();
    check(
        &done,
        "veth-a: packet socket",
        &["sent ", "lost ", "class 5        sent ", "class 3        sent "],
    );
    std::thread::sleep(Duration::from_millis(100));
    let done = listener.interrupt().good();
    check(
        &done,
        "veth-b: packet socket",
        &[
            "received ",
            "lost ",
            "class 5        received ",
            "class 3        received ",
        ],
    );
    assert!(done.out.contains("; latency "), "{}", done.out);
}

#[test]
fn all_figures_explain_missing_percentiles_once() {
    if !is_root() {
        return;
    }
    let lab = lab("screen-few", 1);
    let to = ringside_wire::MacAddr(lab.b.mac);
    let line = format!("tx {{}} --to-mac {to} --cycle 2ms --count 20 --tx-stamps");
    let explained = |more: &str| {
        let done = run(&lab.a, &format!("{line}{more}")).good();
        done.out.matches("too few samples for this percentile").count()
    };
    assert_eq!(explained(" -v"), 1);
    assert_eq!(explained(""), 0, "it explains, and answers nothing");
}

/// Runs a command that measures on a test bed of its own. Asserts that its text is one screen with
/// this answer, and that `-v` has the rest.
fn check_screen(end: &End, line: &str, answer: &str, detail: &str) {
    let done = run(end, line).good();
    let lines = screen(&done);
    assert!(lines.len() <= 24, "{line}: {} lines: {}", lines.len(), done.out);
    for text in &lines {
        assert!(text.chars().count() <= 80, "{line}: {text:?} is too wide: {}", done.out);
    }
    let details = "Details: -v; all figures: --json";
    assert_eq!(done.out.lines().last(), Some(details), "{line}: {}", done.out);
    assert!(done.out.contains(answer), "{line}: no {answer:?} in {}", done.out);
    assert!(!done.out.contains(detail), "{line}: {detail:?} in {}", done.out);
    let all = run(end, &format!("{line} -v")).out;
    assert!(all.contains(detail), "{line} -v: no {detail:?} in {all}");
    assert!(!all.contains(details), "{line} -v: {all}");
}

#[test]
fn delays_print_percentiles_of_each_cell() {
    if !is_root() {
        return;
    }
    let lab = lab("screen-delay", 1);
    let line = "delay --lab veth --samples 60 --rounds 1 --interval 400us";
    check_screen(&lab.a, line, "\n| busy-poll | same ", "Both stamps are CLOCK_MONOTONIC");
}

#[test]
fn traces_print_the_whole_way_and_its_longest_stages() {
    if !is_root() {
        return;
    }
    let lab = lab("screen-trace", 1);
    let line = "trace --lab veth --no-cost -t 0.6";
    check_screen(&lab.a, line, " longest: ", "Sum of the stages");
}

#[test]
fn sweeps_print_the_best_and_each_knob() {
    if !is_root() {
        return;
    }
    let lab = lab("screen-sweep", 1);
    let line = "sweep --for tx-rate --rounds 2 --confirm 1 --slot-ms 50 --knob batch=8,64 --lab veth";
    check_screen(&lab.a, line, "\nbatch          ", "A knob's ratio is its figure");
}

#[test]
fn steering_prints_where_each_class_landed() {
    if !is_root() {
        return;
    }
    let lab = lab("screen-steer", 1);
    let line = "steer run --lab --xps 2=0 --send-cpu 0 --class udp:7000=2 -t 0.3";
    check_screen(&lab.a, line, ": UDP port 7000: ", "Software interrupts to receive");
}

#[test]
fn searches_print_rates_and_times() {
    if !is_root() {
        return;
    }
    let lab = lab("screen-search", 1);
    let line = "search --lab veth --quick --trial 50ms --first-trial 20ms --sum 200ms \
                --to-rate 20000 --exceed 90 --even-if-unstable --loss 5";
    check_screen(&lab.a, line, "\nRound trips in µs, ", " p99.9 ");
}

#[test]
fn labs_print_medians_and_tails() {
    if !is_root() {
        return;
    }
    let (lab, folder) = (lab("screen-lab", 1), Folder::new());
    std::fs::create_dir_all(&folder.0).unwrap();
    let command = |more: &str| {
        let into = folder.0.join("run");
        format!(
            "lab run smoke --only udp --rounds 1 --turn 100ms --into {}{more}",
            into.display()
        )
    };
    let begun = run(&lab.a, &command("")).good();
    assert!(begun.out.contains("\nReport: "), "{}", begun.out);
    // The folder has the result; two runs have different ones.
    check_screen(
        &lab.a,
        &command(" --resume"),
        " x idle ",
        "Times in µs, from the time at",
    );
}

/// Runs a command that looks at an interface. Asserts that its text is one screen with this
/// beginning, and that `-v` has the rest.
fn check_look(end: &End, line: &str, answer: &str, detail: &str) {
    let brief = run(end, line).out;
    // A busy machine adds warnings, which are above what was tried.
    let (before, after) = brief.split_once("Warnings\n").unwrap_or(("", &brief));
    let after = after.find("Tried on").map_or(after, |at| &after[at..]);
    assert!(before.lines().count() + after.lines().count() <= 24, "{line}: {brief}");
    for text in brief.lines() {
        assert!(text.chars().count() <= 100, "{line}: {text:?} is too wide: {brief}");
    }
    let first = brief.lines().next().unwrap_or_default();
    assert!(first.contains(answer), "{line}: {answer:?} is not first: {brief}");
    assert!(brief.contains("-v\n"), "{line}: {brief}");
    assert!(!brief.contains(detail), "{line}: {brief}");
    let all = run(end, &format!("{line} -v")).out;
    assert!(all.contains(detail), "{line} -v: {detail:?} is not in {all}");
}

#[test]
fn caps_print_modes_and_settings_on_a_screen() {
    if !is_root() {
        return;
    }
    let lab = lab("screen-caps", 2);
    let detail = "native XDP: drop, pass, send back";
    let answer = "veth-a: driver veth, native XDP, no zero-copy";
    check_look(&lab.a, "caps {}", answer, detail);
    check_look(&lab.a, "caps lo", "lo: no driver, generic XDP only", detail);
    let receiver = start_receiver(&lab.a, "rx {} -q 1");
    let text = run(&lab.a, "caps {}").good().out;
    receiver.interrupt();
    for part in [
        "2 RX, 2 TX; an AF_XDP socket is bound to RX queue 1",
        "ringside_xsk (id ",
        "up, MTU 1500",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn doctor_prints_the_verdict_and_what_was_tried_on_a_screen() {
    if !is_root() {
        return;
    }
    let lab = lab("screen-doctor", 2);
    for line in ["doctor", "doctor {}"] {
        check_look(&lab.a, line, "AF_XDP works here", "This process\n");
        let text = run(&lab.a, line).out;
        assert!(text.contains("native copy: queues 0-1 bound"), "{text}");
    }
    lab.a.set_up(false).unwrap();
    let done = run(&lab.a, "doctor {} --no-veth");
    // An error has its command also without -v.
    let mend = "  error   veth-a is down\n            no socket can be bound to it\n            → ip";
    assert!(done.out.contains(mend), "{done:#?}");
}

#[test]
fn a_file_of_options_may_ask_for_all_figures() {
    if !is_root() {
        return;
    }
    let lab = lab("screen-file", 1);
    let file = std::env::temp_dir().join(format!("ringside-verbose-{}.toml", std::process::id()));
    std::fs::write(&file, "verbose = true\n").unwrap();
    let line = format!(
        "tx {{}} --to-mac 02:00:00:00:00:01 --count 10 --config {}",
        file.display()
    );
    let done = run(&lab.a, &line);
    std::fs::remove_file(&file).unwrap();
    assert!(done.good().out.contains("\nledger "), "all figures");
}
