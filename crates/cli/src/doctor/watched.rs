//! The test on the interface as a process of its own, that leaves nothing whatever happens.
//!
//! ```text
//!  ringside doctor eth0 --live ──── starts, reads results ────▶ the test: sockets, XDP program on a bpf_link
//!    ends, or is killed          ▶ the kernel kills the test (PR_SET_PDEATHSIG)
//!    is stopped, hangs           ▶ the test kills itself at its deadline
//!    sees the deadline go by     ▶ kills the test, which may be stopped itself
//! ```
//!
//! All that the test changes hangs on its descriptors: with the process the kernel detaches the program and closes the
//! sockets.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use ringside_netlab::wait_until;
use ringside_nic::{Interface, LinkState};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::args::Args;
use super::live;
use super::tried::{Test, Try};
use crate::{output, session};

/// For the test to kill itself, before it is killed.
const GRACE: Duration = Duration::from_secs(1);
/// The kernel detaches programs and gives queues back behind a grace period of its own.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// What the test tells, a line each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Told {
    Tried(Try),
    Failed(String),
    Done,
}

/// What can be known to make no sense is refused before anything is touched.
pub(super) fn check(interface: &Interface, args: &Args) -> Result<()> {
    if !args.own_connection
        && let Some(own) = session::own_connection(interface)?
    {
        bail!(
            "{interface} carries the SSH connection of this login ({}), and loading an XDP program \
             may reset the NIC: choose another interface, or allow it with --own-connection (only \
             the test's own packets are taken, and it ends after {} s whatever happens)",
            own.server.ip(),
            args.deadline.as_secs_f64()
        );
    }
    if let Some(peer) = args.peer {
        live::flow(interface, peer, args.peer_port)?;
    }
    Ok(())
}

/// Has the interface tested, and sees that nothing of it is left.
pub(super) fn test(interface: &Interface, args: &Args) -> Result<Test> {
    let before = interface.state()?;
    let mut test = Test {
        bed: interface.name().to_owned(),
        ..Test::default()
    };
    let mut child = start(args)?;
    test.failure = watch(&mut child, args.deadline, &mut test.tries)
        .err()
        .map(|error| format!("{error:#}"));
    // Whatever it was: from here on it has ended.
    _ = child.kill();
    _ = child.wait();
    test.left_behind = left(interface, &before);
    Ok(test)
}

fn start(args: &Args) -> Result<Child> {
    let program = std::env::current_exe().context("finding this program")?;
    Command::new(program)
        .args(std::env::args_os().skip(1))
        .arg(format!("--watched-by={}", getpid().as_raw_nonzero()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // A terminal that stops this process (Ctrl-Z) does not stop that one.
        .process_group(0)
        .spawn()
        .with_context(|| format!("starting the test of {}", args.interface.as_deref().unwrap_or_default()))
}

/// Reads what the test tells until it is done, or its time is over.
fn watch(child: &mut Child, deadline: Duration, tries: &mut Vec<Try>) -> Result<()> {
    let end = Instant::now() + deadline + GRACE;
    let lines = BufReader::new(child.stdout.take().context("its standard output")?).lines();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
    loop {
        match told.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => match serde_json::from_str(&line).with_context(|| format!("the test told {line:?}"))? {
                Told::Tried(tried) => tries.push(tried),
                Told::Failed(error) => bail!(error),
                Told::Done => return Ok(()),
            },
            Err(mpsc::RecvTimeoutError::Timeout) => {
                bail!("it hung and was killed after {} s", deadline.as_secs_f64())
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child.wait().context("waiting for the test")?;
    if status.signal() == Some(libc::SIGKILL) && Instant::now() + GRACE * 2 > end {
        bail!(
            "it did not end within {} s and was stopped; for more time, use --deadline",
            deadline.as_secs_f64()
        );
    }
    bail!("it ended early: {status}")
}

/// What is there now and was not before.
fn left(interface: &Interface, before: &LinkState) -> Option<String> {
    let now = || interface.state().ok();
    let same = |now: Option<LinkState>| {
        now.is_some_and(|now| (now.xdp, now.mtu, now.admin_up) == (before.xdp, before.mtu, before.admin_up))
    };
    if wait_until(AFTERWARDS, || same(now())) {
        return None;
    }
    Some(match now() {
        None => "the interface is gone".to_owned(),
        Some(now) => format!(
            "before: XDP program {:?}, MTU {}, up {}; now: {:?}, {}, {}",
            before.xdp.map(|xdp| xdp.prog_id),
            before.mtu,
            before.admin_up,
            now.xdp.map(|xdp| xdp.prog_id),
            now.mtu,
            now.admin_up
        ),
    })
}

/// The other process: does the test, and tells.
pub(super) fn run(args: &Args, parent: u32) -> Result<()> {
    end_by(args.deadline, parent)?;
    let tell = |told: &Told| output::print(&(serde_json::to_string(told)? + "\n"));
    let name = args.interface.as_deref().unwrap_or_default();
    let done = Interface::by_name(name)
        .map_err(anyhow::Error::from)
        .and_then(|interface| live::run(&interface, args, |tried| tell(&Told::Tried(tried.clone()))));
    match done {
        Ok(()) => tell(&Told::Done),
        Err(error) => tell(&Told::Failed(format!("{error:#}"))),
    }
}

/// From here on this process ends at the deadline, and with its parent.
fn end_by(deadline: Duration, parent: u32) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("asking to end with the parent")?;
    // It may have died before.
    if getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs()) != Some(parent) {
        bail!("started by another process than {parent}");
    }
    let own: Pid = getpid();
    thread::Builder::new()
        .name("deadline".to_owned())
        .spawn(move || {
            thread::sleep(deadline);
            // No cleaning up that could hang: the kernel does it.
            _ = kill_process(own, Signal::KILL);
        })
        .context("starting the watchdog")?;
    Ok(())
}
