//! What the fast path has kept while no daemon ran may no longer be so: the next daemon goes by its store, from its first packet on.

use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ringside_gateway::object::{Change, Neighbor, Statement};
use ringside_gateway::store::Store;
use ringside_gateway_core::table::Host;
use ringside_gateway_core::{TenantAddress, Vni};
use ringside_netlab::wait_until;

use crate::bed::{Bed, Family, Kind, Place, Tunnel, outer};
use crate::common::{Folder, overwrite};
use crate::peers::{AtEnd, MOMENT};
use crate::process::PATIENCE;
use crate::ringside::Ringside;
use crate::tenants::on;

on! {
    fast = crate::tenants::FAST => who_moved_meanwhile, who_went_meanwhile, what_is_quarantined, whose_ports_are_lost;
    small = crate::tenants::SLOW => who_moved_meanwhile;
    // The next daemon has no fast path any more.
    without = crate::tenants::WORKERS => who_moved_meanwhile;
}

/// Three hosts, of which the last two say what came.
fn places() -> [Place; 3] {
    let told = Place::new(Family::V4, Tunnel::UserVxlan);
    [Place::vxlan(Family::V4), told, told]
}

/// A tenant sends to another all the time. When the fast path knows the way the daemon is killed, and its files are changed before
/// the next one starts. So many of the packets that are sent after that come to each of the last two hosts.
fn meanwhile(tag: &str, kind: Kind, change: impl FnOnce(&Folder, &Bed)) -> [usize; 2] {
    meanwhile_and(tag, kind, change, |_, _| ())
}

/// Runs `then` before counting. Its argument is the number of the first packet to count.
fn meanwhile_and(
    tag: &str,
    kind: Kind,
    change: impl FnOnce(&Folder, &Bed),
    then: impl FnOnce(&mut Bed, u64),
) -> [usize; 2] {
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let first = Ringside {
        pinned: true,
        fast: true,
        ..how
    };
    let mut bed = Bed::without_gateway(tag, kind, &places()).with(Kind::Ringside(first), &[]);
    // The one that it is about: alone, it is what a cache for one has.
    let card = bed.at(2).card;
    bed.ringside().learn(&[card]);
    let to = bed.at(2).address(Family::V4);
    let device = bed.at(1).device();
    device.add_neighbour(to, card.mac).expect("known");
    let socket = bed.at(1).ns.run(|| UdpSocket::bind("0.0.0.0:0")).expect("UDP socket");
    let over = AtomicBool::new(false);
    let numbers = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let _at_end = AtEnd(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let number = numbers.fetch_add(1, Ordering::SeqCst);
                _ = socket.send_to(&number.to_be_bytes(), (to, 9));
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        bed.ringside().wait_until(|gateway| gateway.forwarded("fast") > 10);
        let cards: Vec<_> = bed.tenants().map(|tenant| tenant.card).collect();
        bed.ringside().learn(&cards);
        let folder = bed.ringside().end(false);
        // It goes on.
        let alone = numbers.load(Ordering::SeqCst);
        let goes_on = || take(&bed, alone)[0] > 0;
        assert!(wait_until(PATIENCE, goes_on), "the fast path does not go on alone");
        change(&folder, &bed);
        bed.ringside().start_as(Ringside { pinned: true, ..how }, folder);
        // What was under way may still come. A host's MAC address may have to be found out.
        let since = numbers.load(Ordering::SeqCst);
        take(&bed, since);
        then(&mut bed, since);
        assert!(wait_until(PATIENCE, || numbers.load(Ordering::SeqCst) > since + 100));
        std::thread::sleep(2 * MOMENT);
        take(&bed, since)
    })
}

/// Returns how many datagrams reached each of the last two hosts since the last call.
///
/// Datagrams with numbers below `since` do not count.
fn take(bed: &Bed, since: u64) -> [usize; 2] {
    [1, 2].map(|host| {
        let received = bed.hosts[host].vtep().take_received();
        received
            .iter()
            .filter(|received| received.ethertype() == 0x0800 && received.is_since(since))
            .count()
    })
}

/// Waits until datagrams come to one of the last two hosts, and none to the other.
fn wait_for_datagrams(bed: &Bed, since: u64, host: usize) {
    let comes = || {
        let came = take(bed, since);
        assert_eq!(came[1 - host], 0, "{came:?}");
        came[host] > 0
    };
    assert!(wait_until(PATIENCE, comes), "nothing comes");
}

fn store(folder: &Folder) -> Store {
    Store::open(&folder.join("store.db")).expect("the store")
}

fn key(ip: IpAddr) -> TenantAddress {
    TenantAddress::new(Vni::new(42).expect("24 bits"), ip)
}

/// What the store has of an address.
fn known(store: &Store, ip: IpAddr) -> Neighbor {
    let reader = store.reader().expect("a reader");
    match reader.find::<Neighbor>(key(ip)).expect("can be read") {
        Some(Statement::Put(neighbor)) => neighbor,
        other => panic!("{other:?}"),
    }
}

fn who_moved_meanwhile(kind: Kind) {
    let change = |folder: &Folder, bed: &Bed| {
        let mut store = store(folder);
        let before = known(&store, bed.at(2).address(Family::V4));
        let there = outer(&bed.hosts[2].wire.a, bed.hosts[2].place);
        let after = Neighbor {
            host: Host {
                ip: there,
                ..before.host
            },
            version: before.version + 1,
            ..before
        };
        store
            .commit([Change::Neighbor(Statement::Put(after))].iter(), 0)
            .expect("written");
    };
    let came = meanwhile_and("moved", kind, change, |bed, since| wait_for_datagrams(bed, since, 1));
    assert!(came[0] == 0 && came[1] > 0, "{came:?}");
}

fn who_went_meanwhile(kind: Kind) {
    let came = meanwhile("went", kind, |folder, bed| {
        let mut store = store(folder);
        let before = known(&store, bed.at(2).address(Family::V4));
        let gone = Statement::Delete(before.address, before.version);
        store.commit([Change::Neighbor(gone)].iter(), 0).expect("written");
    });
    assert_eq!(came, [0, 0]);
}

/// The row of the one that is spoken with is damaged; the others are not.
fn what_is_quarantined(kind: Kind) {
    let came = meanwhile("damaged", kind, |folder, bed| {
        let file = rusqlite::Connection::open(folder.join("store.db")).expect("the store");
        let damage = "UPDATE neighbors SET mac = x'020000000099' WHERE vni = 42 AND ip = ?1";
        let damaged = file.execute(damage, [bed.at(2).card.v4.octets()]).expect("written");
        assert_eq!(damaged, 1);
    });
    assert_eq!(came, [0, 0]);
}

/// Nobody has a port, as far as the file tells. What is lost is noted before anything is sent on, and said to be there again by somebody.
fn whose_ports_are_lost(kind: Kind) {
    let damage = |folder: &Folder, _: &Bed| overwrite(&folder.join("store.db"), "ports");
    let came = meanwhile_and("lost", kind, damage, |bed, since| {
        std::thread::sleep(2 * MOMENT);
        assert_eq!(take(bed, since), [0, 0]);
        let gateway = bed.ringside();
        gateway.wait_until(|gateway| gateway.dropped("egress-denied") > 0);
        let problems = gateway.problems();
        assert!(problems.concat().contains("addresses without one"), "{problems:?}");
        let said = gateway.daemon().ok(&["repaired"]);
        assert!(
            said.contains("addresses without a port, which may do anything from now on: "),
            "{said}"
        );
        assert!(gateway.problems().is_empty());
        wait_for_datagrams(bed, since, 0);
    });
    assert!(came[0] > 0 && came[1] == 0, "{came:?}");
}
