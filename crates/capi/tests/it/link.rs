//! What happens to a link, as the C API tells it.

use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Stdio};
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
    let mut command = lab.b.ns.command(&program);
    let mut child = command
        .arg(lab.b.interface.name())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let lines = Lines::of(child.stdout.take().expect("a pipe"));
    lines.expect("open");
    // RSD_EVENT_NO_CARRIER, _UP, _DOWN, _UP
    lab.a.set_up(false).expect("down");
    lines.expect("event 2");
    lab.a.set_up(true).expect("up");
    lines.expect("event 3");
    lab.b.set_up(false).expect("down");
    lines.expect("event 1");
    lab.b.set_up(true).expect("up");
    lines.expect("event 3");
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
