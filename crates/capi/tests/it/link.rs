//! What happens to a link, as the C API tells it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::common::{compile, scratch};
use ringside_netlab::testing::is_root;
use ringside_netlab::{Lab, Namespace, VethConfig, wait_until};

/// The lines of a program, each awaited for half a minute.
struct Lines(mpsc::Receiver<String>);

impl Lines {
    fn of(out: ChildStdout) -> Self {
        let (to, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            lines.take_while(|line| to.send(line.clone()).is_ok()).for_each(drop);
        });
        Self(lines)
    }

    /// Other events may come before it: an interface that is removed goes down first.
    #[track_caller]
    fn expect(&self, line: &str) {
        loop {
            match self.0.recv_timeout(Duration::from_secs(30)) {
                Ok(got) if got == line => return,
                Ok(got) => assert!(got.starts_with("event "), "{got:?} instead of {line:?}"),
                Err(error) => panic!("no {line:?}: {error}"),
            }
        }
    }
}

/// Starts a program on the second end of a new pair, and waits until its port is open.
fn start(program: &Path, lab: &Lab) -> (Child, Lines) {
    let mut command = lab.b.ns.command(program);
    command.arg(lab.b.interface.name()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let lines = Lines::of(child.stdout.take().expect("a pipe"));
    lines.expect("open");
    (child, lines)
}

/// RSD_EVENT_NO_CARRIER, _UP, _DOWN, _UP
fn flap(lab: &Lab, lines: &Lines) {
    for (end, up, line) in [
        (&lab.a, false, "event 2"),
        (&lab.a, true, "event 3"),
        (&lab.b, false, "event 1"),
        (&lab.b, true, "event 3"),
    ] {
        end.set_up(up).expect("set");
        lines.expect(line);
    }
}

#[test]
fn a_descriptor_shows_an_event_loop_what_happens_to_the_link() {
    if !is_root() {
        return;
    }
    let folder = scratch("loop");
    let program = compile("loop", &folder);
    let lab = Lab::veth(VethConfig {
        ipv6: false,
        ..VethConfig::tagged("capi-loop")
    })
    .expect("test bed");
    let (mut child, lines) = start(&program, &lab);
    flap(&lab, &lines);
    lab.delete_link().expect("removed");
    lines.expect("loop: ok");
    assert!(child.wait().expect("a child").success());
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn events_of_the_link_are_told_and_a_new_interface_is_opened() {
    if !is_root() {
        return;
    }
    let folder = scratch("link");
    let program = compile("link", &folder);
    let [here, there] = ["capi-link-a", "capi-link-b"].map(|tag| Namespace::create(tag).expect("a namespace"));
    let join = || {
        let config = VethConfig {
            ipv6: false,
            ..VethConfig::tagged("capi-link")
        };
        Lab::join(&here, &there, config).expect("test bed")
    };
    let lab = join();
    let (mut child, lines) = start(&program, &lab);
    flap(&lab, &lines);
    lab.delete_link().expect("removed");
    lines.expect("gone");
    lines.expect("tried");
    let lab = join();
    lines.expect("reopened");
    let mut ended = false;
    let packets = || {
        lab.a.run(|| {
            let socket = std::net::UdpSocket::bind(("0.0.0.0", 0)).expect("a socket");
            _ = socket.send_to(&[1; 60], (lab.b.ipv4, 9));
        });
        ended = child.try_wait().expect("a child").is_some();
        ended
    };
    assert!(wait_until(Duration::from_secs(30), packets), "it has received nothing");
    lines.expect("link: ok");
    assert!(child.wait().expect("a child").success());
    std::fs::remove_dir_all(folder).expect("removed");
}
