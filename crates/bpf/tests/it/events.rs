//! What goes wrong with XDP is counted by interface, namespace and reason.

use std::io::ErrorKind;
use std::net::UdpSocket;

use crate::common::{LEAST, Pair, privileged, with_only};
use ringside_bpf::testing::at_fault;
use ringside_bpf::{Error, Verdict, XdpEvent, XdpEventKind, XdpEvents};

/// The inode of the calling thread's network namespace.
fn namespace() -> u32 {
    let inode = rustix::fs::stat("/proc/thread-self/ns/net").unwrap().st_ino;
    u32::try_from(inode).unwrap()
}

#[test]
fn mistakes_are_counted_where_they_are_made() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    let events = XdpEvents::start().unwrap();
    let (here, elsewhere) = (
        pair.right.enter(|index| (namespace(), index)),
        pair.left.enter(|_| namespace()),
    );
    let of = |events: &XdpEvents, namespace| {
        let counts = events.counts().unwrap();
        Vec::from_iter(counts.into_iter().filter(|event| event.namespace == namespace))
    };
    assert_eq!(of(&events, here.0), []);

    let sender = pair.left.enter(|_| UdpSocket::bind("10.77.0.1:0").unwrap());
    sender.connect("10.77.0.2:4242").unwrap();
    // ARP must be through before.
    pair.left.command("ping -c 1 -W 5 10.77.0.2");
    let mut expected = Vec::new();
    for (redirects, kind, packets) in [
        (false, XdpEventKind::Exception(Verdict::Aborted), 3),
        (true, XdpEventKind::Redirect(22), 5),
    ] {
        let link = pair.right.enter(|index| at_fault(index, redirects).unwrap());
        for _ in 0..packets {
            sender.send(b"x").unwrap();
        }
        let mut seen = of(&events, here.0);
        for _ in 0..100 {
            if seen.iter().any(|event| event.kind == kind && event.count >= packets) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            seen = of(&events, here.0);
        }
        drop(link);
        expected.push((here.1, kind));
        let told = Vec::from_iter(seen.iter().map(|event: &XdpEvent| (event.interface, event.kind)));
        assert!(expected.iter().all(|event| told.contains(event)), "{seen:?}");
        let found = seen.iter().find(|event| event.kind == kind).unwrap();
        // The neighbour may have been asked for again meanwhile.
        assert!((packets..packets + 3).contains(&found.count), "{seen:?}");
    }
    assert_eq!(of(&events, elsewhere), [], "the sender's end saw nothing");
}

#[test]
fn without_the_capabilities_it_says_so() {
    if !privileged() {
        return;
    }
    let error = with_only(LEAST, XdpEvents::start).unwrap_err();
    assert!(matches!(error, Error::Load { .. }), "{error}");
    assert!(error.to_string().contains("CAP_PERFMON"), "{error}");
    let code = std::io::Error::from_raw_os_error(error.errno().unwrap());
    assert_eq!(code.kind(), ErrorKind::PermissionDenied, "{error}");
}
