//! A bar on a terminal: a pseudo-terminal of the test's own.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::thread;

use ringside_netlab::testing::is_root;
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::*;

/// Both sides of one, 160 columns wide.
fn terminal() -> (File, OwnedFd) {
    let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a pseudo-terminal");
    grantpt(&screen).expect("granted");
    unlockpt(&screen).expect("unlocked");
    let name = ptsname(&screen, Vec::new()).expect("a name");
    let side = open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).expect("opened");
    let size = Winsize {
        ws_row: 40,
        ws_col: 160,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&side, size).expect("set");
    (screen.into(), side)
}

#[test]
fn a_terminal_has_a_bar_that_goes_when_the_table_comes() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    scratch.lab(&slow().replace("rounds = 6", "rounds = 3"));
    let (mut screen, side) = terminal();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
    command
        .args(["lab", "run", "my.toml", "--into", "run"])
        .current_dir(&scratch.0)
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(side.try_clone().expect("another one"))
        .stderr(side);
    let mut child = command.spawn().expect("starts");
    // The command has its copies of the other side.
    drop(command);
    let reading = thread::spawn(move || {
        let mut text = Vec::new();
        // The end of the last one who writes is an error of the one who reads.
        _ = screen.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let over = wait_until(PATIENCE, || child.try_wait().expect("waits").is_some());
    if !over {
        child.kill().expect("killed");
    }
    let status = child.wait().expect("is over");
    let shown = reading.join().expect("reads");
    assert!(over && status.success(), "{shown}");
    for words in [
        "1/3 turns",
        "2/3 turns",
        "round 1: p, round trip, idle",
        "round 3: p, round trip, idle",
    ] {
        assert!(shown.contains(words), "{words}: {shown:?}");
    }
    assert!(!shown.contains("turn 1 of 3"), "that is for logs: {shown:?}");
    // It is wiped from its line, and then the table comes, drawn for a terminal.
    let (bar, table) = shown.split_once('┌').expect("a table");
    let last = bar.rfind(" turns, about ").expect("a bar");
    assert!(bar[last..].contains("\u{1b}[2K"), "{shown:?}");
    assert!(!table.contains(" turns, about "), "{shown:?}");
}
