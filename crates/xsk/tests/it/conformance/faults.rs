//! What happens to an interface under a socket, where no other test here is about it.

use std::time::{Duration, Instant};

use ringside_netlab::{Namespace, wait_until};
use ringside_nic::Interface;
use ringside_xsk::{Error, LinkEvent, Mode, Port, QueueOptions, Wait};

use crate::common::PATIENCE;
use crate::common::conformance::row;
use crate::common::traffic::only;

/// The socket is told, its end leaves nothing behind, and in the new namespace the interface serves the next one.
#[test]
fn moved_to_another_namespace() {
    row("MOVED_TO_ANOTHER_NAMESPACE", |case| {
        let lab = case.lab("move");
        let mut port = case.port(&lab.b, QueueOptions::new(), |port| port);
        let elsewhere = Namespace::create("elsewhere").expect("made");
        let name = lab.b.interface.name();
        let moved = lab
            .b
            .ns
            .command("ip")
            .args(["link", "set", "dev", name, "netns", elsewhere.name()])
            .status();
        assert!(moved.expect("ip (iproute2) runs").success());
        let start = Instant::now();
        let error = loop {
            // It goes down first, which is told by an empty burst.
            match only(&mut port).recv(Wait::Poll(Duration::from_secs(3))) {
                Ok(burst) => assert!(burst.event().is_some(), "nothing is told"),
                Err(error) => break error,
            }
        };
        let moved = matches!(
            error,
            Error::LinkGone {
                event: LinkEvent::Moved { .. },
                ..
            }
        );
        assert!(moved, "{error}");
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
        drop(port);
        let state = || elsewhere.run(|| Interface::by_name(name).and_then(|interface| interface.state()));
        assert!(
            wait_until(PATIENCE, || state().is_ok_and(|state| state.xdp.is_none())),
            "{:?}",
            state()
        );
        elsewhere.run(|| {
            let interface = Interface::by_name(name).expect("there");
            interface.set_up(true).expect("up");
            let port = Port::builder(interface)
                .mode(Mode::Require(case.path))
                .open()
                .expect("opens");
            assert_eq!(port.queues().len(), 4);
        });
    });
}
