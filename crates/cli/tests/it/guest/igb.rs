//! What an igb (Intel 82576) has beyond packets: a clock with stamps, a hash, tags that it takes off.

use ringside_measure::schema::{Mode, Outcome};

use ringside_netlab::wait_until;

use super::{Done, Hosts, PATIENCE};

/// Asks for stamps of all received packets, as `hwstamp_ctl -r 1` does (SIOCSHWTSTAMP): perl has sockets without any module.
/// <https://docs.kernel.org/networking/timestamping.html#hardware-timestamping-configuration-siocshwtstamp-and-siocghwtstamp>
const STAMP_ALL: &str = r#"
    socket(my $socket, 2, 2, 0) or die "socket: $!";
    my $config = pack("iii", 0, 0, 1);
    my $request = pack("a16P", "eth1", $config) . "\0" x 16;
    ioctl($socket, 0x89b0, $request) or die "SIOCSHWTSTAMP: $!";
"#;

/// Its hash would send flows to both queues, and half of the tests here look at one.
pub(super) fn one_queue_for_all(hosts: &Hosts) {
    hosts.run("sh -c ethtool -X eth0 equal 1 && ip netns exec far ethtool -X eth1 equal 1");
}

/// An 82576 stamps PTP alone, and its driver refuses to stamp all packets (ERANGE, `igb_ptp_set_timestamp_mode`).
pub(super) fn no_stamps_for_all_packets(hosts: &Hosts) {
    let words = ["netns", "exec", "far", "perl", "-e", STAMP_ALL];
    let done = hosts.guest.command("ip").args(words).output().expect("runs");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(
        !done.status.success() && said.contains("Numerical result out of range"),
        "{done:?}"
    );
}

/// Frames of a UMEM for both are as large as the NIC needs where packets come in. Takes the namespace's NIC back.
pub(super) fn two_nics_share_frames(hosts: &Hosts) {
    hosts.run("sh -c ip -n far link set eth1 netns 1 && ip link set eth1 up");
    // Nobody sends, and what has sampled nothing is an error; what was obtained is told all the same.
    let done = hosts.ringside("fwd eth0 --out eth1 --mode zero-copy -t 1 --json");
    assert!(done.err.contains("nothing was sampled"), "{done:#?}");
    let interfaces = done.document().interfaces;
    let queues: Vec<_> = interfaces.iter().flat_map(|interface| &interface.queues).collect();
    assert!(interfaces.len() == 2 && queues.len() >= 2, "{interfaces:#?}");
    for queue in &queues {
        let told = (queue.mode, queue.frame_size_bytes, queue.umem);
        assert_eq!(told, (Mode::ZeroCopy, Some(4096), queues[0].umem), "{interfaces:#?}");
    }
    // Who asks for less gets no zero-copy, and is told why.
    let refused = hosts.ringside("rx eth0 --mode zero-copy --frame-size 2048 -t 1");
    assert!(
        !refused.status.success() && refused.err.contains("use frames of 4096 bytes"),
        "{refused:#?}"
    );
}

/// A lab whose link is two NICs with their own queues and interrupts, and zero-copy. They come back.
const LAB: &str = r#"
rounds = 1
[[host]]
name = "a"
[[host]]
name = "b"
[[link]]
ends = ["a", "b"]
interfaces = ["eth0", "eth1"]
[[steering]]
name = "second"
host = "b"
rss = [1]
irq = ["1=0"]
queue = 1
cpu = 0
[[probe]]
name = "udp"
with = "udp"
from = "a"
to = "b"
rate = 50
measure = ["one-way"]
steering = ["second"]
[[probe]]
name = "native"
with = "xsk"
from = "a"
to = "b"
rate = 50
measure = ["rtt"]
[[probe]]
name = "zero-copy"
with = "xsk"
mode = "zero-copy"
from = "a"
to = "b"
rate = 50
measure = ["rtt"]
"#;

/// Takes the VLANs off, for who has one of them needs its NIC.
pub(super) fn a_lab_takes_both_nics(hosts: &Hosts) {
    hosts.run(&format!(
        "sh -c ip link del eth0.5; ip -n far link del eth1.5; ip addr flush dev eth0; ip addr flush dev eth1; cat >/lab.toml <<'E'{LAB}E"
    ));
    let done = hosts.ringside("lab run /lab.toml --into /run/lab --json").good();
    let Outcome::Lab(result) = done.document().result else {
        panic!("no lab: {done:#?}");
    };
    assert_eq!(result.cells.len(), 3, "{result:#?}");
    for cell in &result.cells {
        assert_eq!((&cell.unavailable, cell.failed_turns), (&None, 0), "{cell:#?}");
        assert!(cell.probes.received > 20, "{cell:#?}");
    }
    let [steered] = &result.cells[0].steering[..] else {
        panic!("{result:#?}")
    };
    let landed = steered.seen.classes.iter().flat_map(|class| &class.landings);
    let on = |(queue, cpu): (u32, u32)| -> u64 {
        let there = landed.clone().filter(|one| (one.queue, one.cpu) == (queue, cpu));
        there.map(|one| one.packets).sum()
    };
    assert!(on((1, 0)) > 20, "{steered:#?}");
    hosts.run("sh -c ip link show eth0 && ip link show eth1");
}

/// Quick, and no clock is touched: both ends are one host. An emulated 82576 stamps no delay request, so stamps are the kernel's; and its clock jumps
/// by minutes when its rate is set, so it is this host's that follows.
const PTP: &str = "[global]\nfree_running 1\ntime_stamping software\nnetwork_transport L2\n\
                   logAnnounceInterval -2\nlogSyncInterval -3\nlogMinDelayReqInterval -3\n";

/// Schedules begin when the NIC's clock shows the time that ptp4l keeps, by phc2sys, and not before.
pub(super) fn schedules_wait_for_the_nics_clock(hosts: &Hosts) {
    hosts.run(&format!("sh -c mkdir -p /run /var/run; cat >/ptp.conf <<'E'\n{PTP}E"));
    hosts.run("phc_ctl eth0 adj 7200");
    let ptp4l = "ptp4l -m -f /ptp.conf";
    let leads = hosts.start(&format!(
        "sh -c exec ip netns exec far {ptp4l} -i eth1 --uds_address=/run/far >/far.log 2>&1"
    ));
    let follows = hosts.start(&format!(
        "sh -c exec {ptp4l} -s -i eth0 --uds_address=/run/near >/near.log 2>&1"
    ));
    let mut last = None;
    let mut until = |what: &str, is_it: fn(&Done) -> bool| {
        let listener =
            "listener eth0 --cycle 100ms --class 5:0ms:50ms:200 --ptp4l /run/near --max-clock-offset 1s -t 0.2 --json";
        let ask = || is_it(last.insert(hosts.ringside(listener)));
        let is_so = wait_until(PATIENCE, ask);
        assert!(is_so, "{what}: {last:#?} {}", hosts.run("sh -c cat /*.log").out);
        last.take().expect("asked")
    };
    let refused = until("an offset of two hours", |done| {
        done.err.contains("µs off, by ptp4l and the NIC's clock")
    });
    let said = refused.bad();
    let told = said
        .split("CLOCK_TAI may be ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let off: f64 = told.expect("by how much").parse().expect("a number");
    assert!((off / 7.2e9 - 1.0).abs() < 0.01, "{said}");
    let hands_on = hosts.start("sh -c exec phc2sys -m -s eth0 -c CLOCK_REALTIME -O 0 -R 8 >/phc2sys.log 2>&1");
    // Nobody talks: that is told behind what was found.
    let is_near = |done: &Done| !done.out.is_empty() && !done.err.contains("CLOCK_TAI may be");
    let result = until("an offset of next to nothing", is_near).result();
    let state = &result.schedule.as_ref().expect("a schedule").clock_state;
    assert_eq!(state.by.as_deref(), Some("ptp4l and the NIC's clock"), "{state:#?}");
    assert_eq!(state.ptp4l_steps_removed, Some(1), "{state:#?}");
    let [ptp, phc] = [state.ptp4l_offset_ns, state.phc_offset_ns].map(|offset| offset.expect("known").unsigned_abs());
    let sum = ptp + phc + state.phc_uncertainty_ns.expect("known");
    assert_eq!(state.offset_ns, Some(sum), "{state:#?}");
    eprintln!("{state:?}");
    for child in [leads, follows, hands_on] {
        child.signal(libc::SIGTERM).expect("signalled");
        _ = child.wait(PATIENCE);
    }
}
