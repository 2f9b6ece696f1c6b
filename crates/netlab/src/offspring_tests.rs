use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::Duration;

use super::*;
use crate::testing::{is_root, wait_until};

#[test]
fn a_parent_is_found_behind_any_name() {
    let own = std::fs::read("/proc/self/stat").expect("read");
    assert_eq!(parse_parent(&own), getppid());
    assert_eq!(parse_parent(b"7 (a) R 9 (b c)) S 42 7 7"), Pid::from_raw(42));
    for wrong in ["", "7 (a", "7 (a)", "7 (a) S", "7 (a) S x", "7 (a) S 0 1"] {
        assert_eq!(parse_parent(wrong.as_bytes()), None, "{wrong}");
    }
}

#[test]
fn what_a_program_has_started_ends_with_it() {
    if !is_root() {
        return;
    }
    let mut command = Command::new("sh");
    // By a session of its own it is in no group of the program's.
    command.args(["-c", "setsid sleep 1000 & echo $$; wait"]);
    command.stdout(Stdio::piped());
    sys::die_with_thread(&mut command);
    let mut child = spawn_with_offspring(&mut command).expect("started");
    let mut first = String::new();
    let said = child.stdout.take().expect("piped");
    BufReader::new(said).read_line(&mut first).expect("said");
    assert_eq!(first, "1\n", "the first of its namespace");
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let mut sleeper = String::new();
    let is_there = wait_until(Duration::from_secs(10), || {
        sleeper = std::fs::read_to_string(&children).expect("read").trim().to_owned();
        !sleeper.is_empty()
    });
    assert!(is_there, "it has not started anything");

    // Who comes next is no part of it.
    let other = Command::new("sh").args(["-c", "echo $$"]).output().expect("ran");
    assert_ne!(other.stdout, b"1\n");
    child.kill().expect("killed");
    child.wait().expect("waited");
    let sleeper = format!("/proc/{sleeper}/stat");
    let is_gone =
        || std::fs::read_to_string(&sleeper).map_or(true, |stat| stat.contains(") Z ") || !stat.contains("(sleep)"));
    assert!(wait_until(Duration::from_secs(10), is_gone), "{sleeper}");
}

#[test]
fn a_program_that_is_not_there_leaves_the_thread_as_it_was() {
    if !is_root() {
        return;
    }
    let error = spawn_with_offspring(&mut Command::new("/nowhere/program")).expect_err("is not there");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    let other = Command::new("sh").args(["-c", "echo $$"]).output().expect("ran");
    assert_ne!(other.stdout, b"1\n");
}
