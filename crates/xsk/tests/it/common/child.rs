//! Processes with fewer privileges: the test binary once more, in which the test `child` of the caller's module then plays
//! the part that the environment names.

use std::panic::Location;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use ringside_netlab::Lab;
use ringside_xsk::{Error, Interface};

const PART: &str = "RINGSIDE_TEST_PART";
const INTERFACE: &str = "RINGSIDE_TEST_PART_INTERFACE";

thread_local! {
    /// Nobody else's locked memory counts for it: the kernel counts by the real user, and leaves to the effective one, root,
    /// what it may do.
    /// <https://elixir.bootlin.com/linux/v6.18/C/ident/xdp_umem_account_pages>
    static USER: u32 = {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Numbers of processes have 22 bits at the most, and numbers from here on no user has.
        1 << 30 | std::process::id() << 8 | NEXT.fetch_add(1, Ordering::Relaxed) & 0xff
    };
}

/// This binary once more, in the namespace of an end, playing a part with no other capabilities than those named, and
/// with such a soft and hard limit of locked memory, in bytes, of a user of this thread's own.
#[track_caller]
pub fn play(lab: &Lab, part: &str, capabilities: &str, memlock: Option<(u64, u64)>) -> Command {
    let mut command = lab.b.ns.command("setpriv");
    // Root gets all that its bounding set has on exec: so the bounding set is what counts.
    command
        .arg(format!("--bounding-set={capabilities}"))
        .arg("--inh-caps=-all");
    if let Some((soft, hard)) = memlock {
        command.arg(format!("--ruid={}", USER.with(|user| *user)));
        command.args(["prlimit", &format!("--memlock={soft}:{hard}")]);
    }
    command.arg(std::env::current_exe().unwrap());
    as_child(command, lab, part)
}

/// This binary once more, in the namespace of an end, with everything that the test may do.
#[track_caller]
pub fn again(lab: &Lab, part: &str) -> Command {
    as_child(lab.b.ns.command(std::env::current_exe().unwrap()), lab, part)
}

#[track_caller]
fn as_child(mut command: Command, lab: &Lab, part: &str) -> Command {
    let child = format!("{}::child", module(Location::caller()));
    command
        .args(["--exact", &child, "--ignored", "--nocapture", "--test-threads=1"])
        .env(PART, part)
        .env(INTERFACE, lab.b.interface.name())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// Returns the module at the root of the test binary that a place in the sources belongs to.
fn module(place: &Location<'_>) -> String {
    let path = Path::new(place.file());
    let mut parts = path.components().skip_while(|part| part.as_os_str() != "it").skip(1);
    let first = parts.next().expect("the sources of tests are below tests/it");
    first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
}

/// Returns which part to play on which interface.
pub fn part() -> (String, Interface) {
    let part = std::env::var(PART).expect("a part");
    let interface = std::env::var(INTERFACE).expect("an interface");
    (part, Interface::by_name(&interface).expect("in the namespace"))
}

/// What a child said after "says: ".
pub fn said(command: &mut Command) -> String {
    let output = command.output().expect("runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said: Vec<&str> = text
        .lines()
        .filter_map(|line| Some(line.split_once("says: ")?.1))
        .collect();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && !said.is_empty(),
        "{}\n{text}\n{errors}",
        output.status
    );
    said.join("\n")
}

/// Says what became of opening something: "opened", or variant and text of the error.
pub fn say_outcome(outcome: Result<(), Error>) {
    match outcome {
        Ok(()) => println!("says: opened"),
        Err(error) => {
            let debug = format!("{error:?}");
            println!("says: {} / {error}", debug.split([' ', '(']).next().unwrap());
        }
    }
}

/// Ends a child in any case.
pub struct Guard(pub Child);

impl Drop for Guard {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
