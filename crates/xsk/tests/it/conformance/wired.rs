//! What happens to a NIC under a socket that has zero-copy: its process is killed, its link goes and comes, the driver lets go of the NIC, the
//! interface moves. The rows of these names are on veth pairs elsewhere.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringside_netlab::{End, Lab, Namespace, wait_until};
use ringside_nic::{Interface, OperState};
use ringside_xsk::{Error, LinkEvent, Mode, Path as Way, Port, Queue, QueueOptions, Wait};

use crate::common::child::{Guard, again};
use crate::common::conformance::{Case, row_wired};
use crate::common::traffic::only;
use crate::common::{packet, within};

/// For a driver that sets its NIC up anew, on emulated CPUs of a machine that has other things to do.
const PATIENCE: Duration = Duration::from_mins(1);

/// The part that another process plays.
pub(crate) fn play(part: &str, interface: Interface) {
    assert_eq!(part, "serve");
    let port = Port::builder(interface).queues([0]).mode(Mode::Require(Way::ZeroCopy));
    let mut port = port.open().expect("opens");
    println!("says: ready");
    let (mut got, end) = (0, Instant::now() + 5 * PATIENCE);
    while Instant::now() < end {
        // Its link comes and goes when the program comes.
        let mut burst = only(&mut port)
            .recv(Wait::Poll(Duration::from_millis(100)))
            .expect("recv");
        let more = (&mut burst).into_iter().count();
        if got == 0 && more > 0 {
            println!("says: receives");
        }
        got += more;
    }
    panic!("nobody killed me");
}

/// Packets to the interface under test until this is dropped, whatever becomes of each.
struct Traffic<'s> {
    stop: &'s AtomicBool,
}

impl Drop for Traffic<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Has packets come while `work` runs.
fn under_traffic<T>(lab: &Lab, case: Case, work: impl FnOnce() -> T) -> T {
    let mut sender = case.sender(&lab.a, QueueOptions::new());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _traffic = Traffic { stop: &stop };
        scope.spawn(|| {
            for n in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let data = packet(n, lab.a.mac, lab.b.mac);
                // The other side's NIC may take nothing while its driver sets it up.
                _ = sender.send_with(1, |slot| assert!(slot.write(&data)));
                _ = sender.flush();
                thread::sleep(Duration::from_millis(2));
            }
        });
        work()
    })
}

/// Waits until one of its packets is there.
fn receives(port: &mut Port) {
    let start = Instant::now();
    while only(port)
        .recv(Wait::Poll(Duration::from_millis(50)))
        .expect("recv")
        .is_empty()
    {
        assert!(start.elapsed() < PATIENCE, "nothing comes: {:?}", only(port).stats());
    }
}

/// A port of the next one.
fn next(end: &End, case: Case) -> Port {
    case.port(end, QueueOptions::new(), |port| port)
}

#[test]
#[ignore = "on a NIC, as in guest.rs"]
fn kill_under_traffic() {
    row_wired("K12, KILL_UNDER_TRAFFIC", |lab, case| {
        under_traffic(lab, case, || {
            let mut server = Guard(again(lab, "serve").spawn().expect("starts"));
            let mut lines = BufReader::new(server.0.stdout.take().expect("piped")).lines();
            let mut says = |what: &str| lines.by_ref().any(|line| line.expect("text").contains(what));
            assert!(says("says: ready") && says("says: receives"), "it serves");
            assert!(lab.b.state().expect("there").xdp.is_some(), "attached");
            server.0.kill().expect("killed");
            server.0.wait().expect("gone");
            let is_gone = || lab.b.state().expect("there").xdp.is_none();
            assert!(wait_until(PATIENCE, is_gone), "a program is still attached");
            let is_free = || {
                let queues = lab.b.run(|| lab.b.interface.queue_details()).expect("readable");
                queues.iter().all(|queue| queue.xsk != Some(true))
            };
            assert!(wait_until(PATIENCE, is_free), "a socket is still bound");
            // The next one has zero-copy on the same queue, and packets.
            let mut port = next(&lab.b, case);
            receives(&mut port);
        });
    });
}

/// What happens to the link next.
fn event(queue: &mut Queue) -> LinkEvent {
    let start = Instant::now();
    loop {
        let wait = Wait::Poll(Duration::from_secs(1));
        if let Some(event) = queue.recv(wait).expect("no error").event() {
            return event.clone();
        }
        assert!(start.elapsed() < PATIENCE, "nothing is told");
    }
}

#[test]
#[ignore = "on a NIC, as in guest.rs"]
fn down_and_up() {
    row_wired("K6, DOWN_AND_UP", |lab, case| {
        let mut port = next(&lab.b, case);
        under_traffic(lab, case, || {
            receives(&mut port);
            lab.b.set_up(false).expect("down");
            let queue = only(&mut port);
            while event(queue) != LinkEvent::Down {}
            let sent = queue.send_with(1, |slot| assert!(slot.resize(60)));
            assert!(matches!(sent, Err(Error::LinkDown { .. })), "{sent:?}");
            lab.b.set_up(true).expect("up");
            lab.b.wait_ready().expect("the link comes back");
            while event(queue) != LinkEvent::Up {}
            receives(&mut port);
        });
        // What was to be sent is sent now, and all frames are where they belong.
        let queue = only(&mut port);
        assert!(queue.drain(PATIENCE).expect("sound"));
        queue.ledger().expect("sound");
    });
}

/// The driver gives up the device, and later takes it again, by sysfs.
struct Driver {
    path: std::path::PathBuf,
    device: String,
}

impl Driver {
    fn of(end: &End) -> Self {
        let device = fs::canonicalize(format!("/sys/class/net/{}/device", end.interface.name())).expect("a device");
        Self {
            path: fs::canonicalize(device.join("driver")).expect("a driver"),
            device: device.file_name().expect("a name").to_string_lossy().into_owned(),
        }
    }

    fn write(&self, file: &str) {
        let file = self.path.join(file);
        fs::write(&file, &self.device).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
}

/// As the guest has set it up, under the same name.
fn mend(end: &End) {
    let name = end.interface.name();
    assert!(
        wait_until(PATIENCE, || Interface::by_name(name).is_ok()),
        "{name} is back"
    );
    let quiet = Path::new("/proc/sys/net/ipv6/conf").join(name).join("disable_ipv6");
    fs::write(quiet, "1").expect("set");
    let interface = Interface::by_name(name).expect("there");
    interface.set_up(true).expect("up");
    // A NIC with one queue has none to choose from.
    _ = Command::new("ethtool").args(["-X", name, "equal", "1"]).output();
    let is_up = || interface.state().is_ok_and(|state| state.operstate == OperState::Up);
    assert!(wait_until(PATIENCE, is_up), "{name} comes up");
}

#[test]
#[ignore = "on a NIC, as in guest.rs"]
fn interface_removed() {
    row_wired("INTERFACE_REMOVED", |lab, case| {
        let driver = Driver::of(&lab.b);
        let mut port = next(&lab.b, case);
        under_traffic(lab, case, || receives(&mut port));
        let unbinding = thread::spawn(move || {
            driver.write("unbind");
            driver
        });
        let port = within(PATIENCE, move || {
            let queue = only(&mut port);
            let start = Instant::now();
            // It may go down first, which is told by an empty burst.
            let error = loop {
                match queue.recv(Wait::Poll(Duration::from_secs(1))) {
                    Err(error) => break error,
                    Ok(_) => assert!(start.elapsed() < PATIENCE, "nothing is told"),
                }
            };
            let event = LinkEvent::Removed;
            assert!(
                matches!(&error, Error::LinkGone { event: told, .. } if *told == event),
                "{error}"
            );
            let sent = queue.send_with(1, |slot| assert!(slot.resize(60)));
            assert!(matches!(sent, Err(Error::LinkGone { .. })), "{sent:?}");
            port
        });
        drop(port);
        let driver = unbinding.join().expect("the driver lets go");
        assert!(Interface::by_name(lab.b.interface.name()).is_err(), "it is gone");
        driver.write("bind");
        mend(&lab.b);
        // The same device, another interface: the next one has zero-copy and packets there.
        let again = Lab::wired(lab.a.interface.name(), lab.b.interface.name()).expect("both are there");
        assert_ne!(again.b.interface.index(), lab.b.interface.index());
        let mut port = next(&again.b, case);
        under_traffic(&again, case, || receives(&mut port));
    });
}

#[test]
#[ignore = "on a NIC, as in guest.rs"]
fn moved_to_another_namespace() {
    row_wired("MOVED_TO_ANOTHER_NAMESPACE", |lab, case| {
        let name = lab.b.interface.name();
        let mut port = next(&lab.b, case);
        under_traffic(lab, case, || receives(&mut port));
        let elsewhere = Namespace::create("elsewhere").expect("made");
        let ip = |words: &[&str]| {
            let done = Command::new("ip").args(words).output().expect("ip (iproute2) runs");
            assert!(done.status.success(), "ip {words:?}: {done:?}");
        };
        ip(&["link", "set", "dev", name, "netns", elsewhere.name()]);
        let start = Instant::now();
        let error = loop {
            match only(&mut port).recv(Wait::Poll(Duration::from_secs(1))) {
                Err(error) => break error,
                Ok(_) => assert!(start.elapsed() < PATIENCE, "nothing is told"),
            }
        };
        let is_moved = matches!(
            error,
            Error::LinkGone {
                event: LinkEvent::Moved { .. },
                ..
            }
        );
        assert!(is_moved, "{error}");
        drop(port);
        let there = || elsewhere.run(|| Interface::by_name(name).and_then(|interface| interface.state()));
        assert!(
            wait_until(PATIENCE, || there().is_ok_and(|state| state.xdp.is_none())),
            "{:?}",
            there()
        );
        // There it serves the next one, with zero-copy again.
        elsewhere.run(|| {
            let interface = Interface::by_name(name).expect("there");
            interface.set_up(true).expect("up");
            let options = QueueOptions::new().busy_timeout(PATIENCE);
            let port = Port::builder(interface).queues([0]).options(case.options(options));
            port.mode(Mode::Require(Way::ZeroCopy)).open().expect("opens");
        });
        ip(&["-n", elsewhere.name(), "link", "set", "dev", name, "netns", "1"]);
        mend(&lab.b);
        let again = Lab::wired(lab.a.interface.name(), name).expect("both are there");
        let mut port = next(&again.b, case);
        under_traffic(&again, case, || receives(&mut port));
        drop(port);
    });
}
