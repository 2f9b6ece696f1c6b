//! Tenants that move to another host, or go, while others speak with them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ringside_netlab::wait_until;

use crate::bed::{Bed, FAMILIES, Family, Kind, Place, Tunnel};
use crate::peers::{AtEnd, MOMENT, answered, chat, connect, exchange_during, ping};
use crate::process::PATIENCE;
use crate::tenants::on;

on! {
    fast = crate::tenants::FAST => a_connection_follows_a_tenant, who_is_deleted_gets_nothing;
    two_ports = crate::tenants::TWO_PORTS => a_connection_follows_a_tenant;
    slow = crate::tenants::SLOW => a_connection_follows_a_tenant, who_is_deleted_gets_nothing;
}

fn a_connection_follows_a_tenant(kind: Kind) {
    // The third host is over another family, and has its own tenant in network 42 no more.
    let places = [
        Place::vxlan(Family::V4),
        Place::vxlan(Family::V4),
        Place::vxlan(Family::V6),
    ];
    let mut bed = Bed::new("moves", kind, &places);
    let streams = FAMILIES.map(|inner| connect(bed.at(1), (bed.at(2), bed.at(2).address(inner)), 7000));
    for both in &streams {
        chat(both).expect("goes");
    }
    let busy = connect(bed.at(1), (bed.at(2), bed.at(2).address(Family::V4)), 7001);
    exchange_during(&busy, || {
        bed.move_tenant(2, 3);
        let card = bed.at(2).card;
        bed.ringside().learn(&[card]);
    });
    let card = bed.at(2).card;
    for both in &streams {
        chat(both).expect("goes on");
    }
    answered(bed.at(1), card.v4.into());
}

fn who_is_deleted_gets_nothing(kind: Kind) {
    let places = [Place::vxlan(Family::V4), Place::new(Family::V4, Tunnel::UserVxlan)];
    let mut bed = Bed::new("deleted", kind, &places);
    let to = bed.at(2).address(Family::V4);
    answered(bed.at(1), to);
    let socket = bed
        .at(1)
        .ns
        .run(|| std::net::UdpSocket::bind("0.0.0.0:0"))
        .expect("UDP socket");
    let over = AtomicBool::new(false);
    let numbers = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let _at_end = AtEnd(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // It may be that the neighbour is not known any more.
                let number = numbers.fetch_add(1, Ordering::SeqCst);
                _ = socket.send_to(&number.to_be_bytes(), (to, 9));
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let comes = || (bed.hosts[1].vtep().take_received().iter()).any(|one| one.number().is_some());
        assert!(wait_until(PATIENCE, comes));
        bed.ringside()
            .daemon()
            .ok(&["delete", "neighbor", "42", &to.to_string()]);
        let gateway = bed.ringside();
        let at_answer = gateway.sent_on();
        let dropped = gateway.dropped("no-neighbor");
        gateway.wait_until(|gateway| gateway.dropped("no-neighbor") > dropped);
        // A worker may have been in the middle of a burst. From the next on there is not one more.
        let since = numbers.load(Ordering::SeqCst);
        let before = gateway.sent_on();
        assert!(before <= at_answer + 64, "{before} after {at_answer}");
        gateway.wait_until(|gateway| gateway.dropped("no-neighbor") > dropped + 100);
        assert_eq!(gateway.sent_on(), before);
        // What was sent before may still come.
        let came = bed.hosts[1].vtep().take_received();
        assert!(came.iter().all(|one| one.number() < Some(since)), "{came:02x?}");
        std::thread::sleep(MOMENT);
        let mut came = bed.hosts[1].vtep().take_received();
        came.retain(|one| one.is_since(since));
        assert_eq!(came, []);
    });
    let done = ping(bed.at(1), to, "-c 1 -W 1");
    assert!(done.out.contains(" 0 received"), "{done:#?}");
}
