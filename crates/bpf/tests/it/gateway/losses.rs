//! What the kernel drops after the verdict: every packet that was sent on has come, or is counted as lost.

use std::fs;

use ringside_bpf::gateway::{GatewayProgram, Outcome};
use ringside_bpf::{Error, Generator, GeneratorOptions, Link, Neighbours, Sink, XdpMode};
use ringside_netlab::wait_until;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};

use crate::common::{LEAST, PATIENCE, Pair, privileged, settled, with_only};
use crate::gateway::bed::{Bed, LOOPBACK, Wanted, in_namespace};
use crate::gateway::fixtures::udp;
use crate::gateway::pinned::Bpffs;

/// A gateway's program at the right end, which knows all and is attached there, but for its worker, and its link. `second`: the index of its
/// second interface.
fn gateway(pair: &Pair, second: u32) -> (GatewayProgram, Link) {
    pair.right.enter(|right| {
        let Bed {
            program, mut config, ..
        } = Bed::new(LOOPBACK, Wanted::default());
        for (port, index) in config.ports.iter_mut().zip([right, second]) {
            port.as_mut().unwrap().ifindex = index;
        }
        config.sampling = None;
        program.configure(&config).unwrap();
        let link = program.attach(right, XdpMode::Native).unwrap();
        (program, link)
    })
}

/// Sends packets for this tenant from the left end. So many have left it.
fn send(left: u32, to: u8, count: u64) -> u64 {
    let frame = udp(to, b"data").bytes();
    let generator = Generator::new(left, &frame, GeneratorOptions::default());
    generator.unwrap().run(count).unwrap().transmitted
}

fn count(program: &GatewayProgram, outcome: Outcome) -> u64 {
    settled(|| program.count(outcome).unwrap()).packets
}

fn lost(program: &GatewayProgram) -> u64 {
    settled(|| program.lost().unwrap())
}

/// Back to where it came from, by XDP_TX: to a peer that takes none, to one whose ring nobody empties, and to one that takes all.
#[test]
fn what_is_sent_back_comes_or_is_lost() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    let (program, _link) = &gateway(&pair, LOOPBACK);
    let losses = program.count_losses(None).unwrap();
    let sink = Sink::load(Neighbours::Pass).unwrap();
    pair.left.enter(|left| {
        // Without a program or GRO a veth has no ring to put packets into.
        let mut sent = send(left, 2, 1000);
        assert_eq!(count(program, Outcome::Forwarded), sent);
        assert_eq!(lost(program), sent, "none has come");

        // With GRO alone it has some, of 256 each, and is not woken up for what is put there.
        pair.left.command("ethtool -K veth0 gro on");
        let before = lost(program);
        sent += send(left, 2, 10_000);
        assert_eq!(count(program, Outcome::Forwarded), sent);
        assert!(lost(program) > before, "the ring is full");

        let attached = sink.attach(left, XdpMode::Native).unwrap();
        sent += send(left, 2, 10_000);
        assert_eq!(count(program, Outcome::Forwarded), sent);
        let came = settled(|| sink.traffic().unwrap()).packets;
        let waited = sent - came - lost(program);
        // What was in the rings when the program came there went up the stack, or was seen by it.
        assert!(waited <= 2 * 256, "{waited} are neither here nor there");
        drop(attached);
    });
    drop(losses);
    // The kernel may detach what counts a moment after the close.
    let is_off = wait_until(PATIENCE, || {
        let before = lost(program);
        pair.left.enter(|left| send(left, 2, 100));
        lost(program) == before
    });
    assert!(is_off, "nobody counts any more");
}

/// To another interface: to a veth whose peer takes none, to one whose peer does, to one without a carrier, and to one that is down.
#[test]
fn what_is_redirected_comes_or_is_lost() {
    const COUNT: u64 = 1000;
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    for command in [
        "ip link add veth1 type veth peer name veth2",
        "ip link set veth1 up",
        "ip link set veth2 up",
    ] {
        pair.right.command(command);
    }
    let [first, second] = pair.right.enter(|_| {
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        ["veth1", "veth2"].map(|name| name_to_index(&socket, name).unwrap())
    });
    let (program, _link) = &gateway(&pair, first);
    let _losses = program.count_losses(None).unwrap();
    let send = || pair.left.enter(|left| send(left, 4, COUNT));
    let mut sent = send();
    assert_eq!(count(program, Outcome::Redirected), sent);
    assert_eq!(lost(program), sent);
    // With a program at its other end they come, as long as there is room.
    let sink = Sink::load(Neighbours::Pass).unwrap();
    let _there = pair.right.enter(|_| sink.attach(second, XdpMode::Native).unwrap());
    let before = lost(program);
    let more = send();
    assert_eq!(count(program, Outcome::Redirected), sent + more);
    let came = || settled(|| sink.traffic().unwrap()).packets;
    wait_until(PATIENCE, || came() + lost(program) - before == more);
    assert!(came() > 0);
    assert_eq!(came() + lost(program) - before, more);
    sent += more;
    for down in ["veth2", "veth1"] {
        pair.right.command(&format!("ip link set {down} down"));
        let before = lost(program);
        let more = send();
        sent += more;
        assert_eq!(count(program, Outcome::Redirected), sent, "{down}");
        assert_eq!(lost(program) - before, more, "{down}");
    }
}

/// Another gateway's, in another namespace, whose interface has the same index.
#[test]
fn what_others_lose_is_theirs() {
    if !privileged() {
        return;
    }
    let pairs = [Pair::new(), Pair::new()];
    let gateways = pairs.each_ref().map(|pair| gateway(pair, LOOPBACK));
    let indexes = pairs.each_ref().map(|pair| pair.right.enter(|index| index));
    assert_eq!(indexes[0], indexes[1], "or this would be no test");
    let _losses = gateways
        .each_ref()
        .map(|(program, _)| program.count_losses(None).unwrap());
    let sent = pairs[0].left.enter(|left| send(left, 2, 1000));
    assert_eq!(gateways.each_ref().map(|(program, _)| lost(program)), [sent, 0]);
}

/// They are counted while nobody runs, and by the next process once, not twice.
#[test]
fn what_is_lost_is_counted_without_a_process() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    let bpffs = Bpffs::new();
    let folder = bpffs.folder();
    let (program, link) = gateway(&pair, LOOPBACK);
    let links = || {
        let files = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name());
        files.filter(|name| name.to_string_lossy().starts_with("lost-")).count()
    };
    program.pin(&folder).unwrap();
    drop(program.count_losses(Some(&folder)).unwrap());
    // A part is left of who was killed.
    fs::remove_file(folder.join("lost-bulk")).unwrap();
    drop(program.count_losses(Some(&folder)).unwrap());
    assert_eq!(links(), 4);
    drop(link);
    let attach = |right| {
        program
            .attach_pinned(right, XdpMode::Native, &folder.join("link"))
            .unwrap()
    };
    drop(pair.right.enter(attach));
    drop(program);
    let send = || pair.left.enter(|left| send(left, 2, 1000));
    let mut sent = send();
    let next = GatewayProgram::adopt(&folder).unwrap().unwrap();
    assert_eq!(count(&next, Outcome::Forwarded), sent);
    assert_eq!(lost(&next), sent);
    let losses = next.count_losses(Some(&folder)).unwrap();
    sent += send();
    assert_eq!(lost(&next), sent);
    drop(losses);
    sent += send();
    assert_eq!(lost(&next), sent, "they have names");
    GatewayProgram::unpin(&folder).unwrap();
    assert!(!folder.exists());
}

/// The program itself does not need what these need.
#[test]
fn where_they_cannot_be_had() {
    if !privileged() {
        return;
    }
    in_namespace(|second| {
        let program = &Bed::new(second, Wanted::default()).program;
        let refused = with_only(LEAST, || program.count_losses(None).unwrap_err());
        assert!(matches!(refused, Error::Load { .. }), "{refused}");
        assert!(refused.to_string().contains("ringside_losses"), "{refused}");
    });
}
