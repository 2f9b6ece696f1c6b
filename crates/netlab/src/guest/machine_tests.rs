use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::getpgid;

use super::*;

fn folder() -> Folder {
    Folder::create("machine").unwrap()
}

#[test]
fn a_machine_that_ends_is_noticed_and_one_that_does_not_is_killed() {
    let ends = Machine::start(Command::new("true"), Vec::new()).unwrap();
    assert!(ends.wait(Duration::from_secs(20)).unwrap().success());
    let mut sleeper = Command::new("sleep");
    sleeper.arg("1000");
    let stays = Machine::start(sleeper, Vec::new()).unwrap();
    assert_eq!(stays.wait(Duration::ZERO), None);
    // Ctrl-C goes to a group, and not to its.
    let pid = Pid::from_raw(i32::try_from(stays.pid().unwrap()).unwrap());
    assert_eq!(getpgid(pid).unwrap(), pid.unwrap());
    let ended = Arc::clone(&stays.ended);
    drop(stays);
    assert!(!ended.0.lock().unwrap().expect("it has ended").success());
    let missing = Machine::start(Command::new("no-such-program"), Vec::new());
    assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_descriptor_arrives_under_its_number() {
    use std::io::Read as _;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    let (mut ours, low) = UnixStream::pair().unwrap();
    // The number has two digits, as in a process with many open files.
    let theirs = fcntl_dupfd_cloexec(&low, 20).unwrap();
    drop(low);
    // Debian's sh is dash, which accepts only one digit.
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("echo hello >&{}", theirs.as_raw_fd())]);
    let machine = Machine::start(shell, vec![theirs]).unwrap();
    let mut text = String::new();
    // Comes to an end only if nobody else has the other end.
    ours.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello\n");
    assert!(machine.wait(Duration::from_secs(20)).unwrap().success());
}

#[test]
fn a_folder_goes_and_so_does_what_a_killed_process_left() {
    let left = std::env::temp_dir().join("rs-4194999-abc-0-machine");
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("guest"), "").unwrap();
    let folder = folder();
    assert!(!left.exists());
    let path = folder.path().to_owned();
    assert!(path.exists());
    drop(folder);
    assert!(!path.exists());
}

#[test]
fn the_last_lines_are_told_without_what_a_terminal_makes_of_them() {
    let folder = folder();
    let file = folder.path().join("console");
    assert_eq!(last_lines(&file), "");
    let text: String = (0..100).map(|line| format!("\u{1b}[0mline {line}\r\n\n")).collect();
    fs::write(&file, text).unwrap();
    let last = last_lines(&file);
    assert_eq!(last.lines().count(), LINES);
    assert!(last.ends_with("[0mline 99"), "{last:?}");
    let text: String = (0..100)
        .map(|line| format!("{}{line}\n", if line == 50 { "Kernel panic " } else { "" }))
        .collect();
    fs::write(&file, text).unwrap();
    assert!(last_lines(&file).starts_with("Kernel panic 50\n88\n"));
}
