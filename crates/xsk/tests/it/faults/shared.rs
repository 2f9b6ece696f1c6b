//! Ports on one UMEM that come and go under traffic.

use std::time::{Duration, Instant};

use ringside_bpf::{Filter, XskProgram};
use ringside_netlab::{Lab, wait_until};
use ringside_xsk::{
    AttachMode, Direction, KernelStats, Path, Port, Queue, QueueOptions, SharedUmem, Stats, Wait, XdpLink, XskMap,
};

use super::common::PATIENCE;
use super::common::account::{Account, Balance};
use super::common::bystander::Bystander;
use super::common::flow::{Flow, Seen, lanes, receiving};
use super::common::{assert_clean, lab, open, roomy, send_numbers};
use super::jam::Jam;
use super::{RECOVERY, in_every_mode, successor};

const WAIT: Wait = Wait::Poll(Duration::from_millis(5));

fn umem(frames: u32) -> SharedUmem {
    SharedUmem::builder().frames(frames).build().unwrap()
}

/// A forwarder of two queues between two links, of which now one port and now the other is closed and opened again, forty
/// times: each packet arrives once or is counted, and in the end each frame is back.
#[test]
fn a_forwarder_changes_its_ports_under_traffic() {
    in_every_mode("forward", |path, tag| {
        let (left, right) = (lab(&format!("{tag}-l"), 3), lab(&format!("{tag}-r"), 3));
        let umem = umem(1024);
        let from_options = QueueOptions::new().frames(256);
        let to_options = from_options.clone().frames(128).direction(Direction::Transmit);
        let open_from = || {
            open(&left.b, path, |port| {
                port.umem(&umem).queues([0, 1]).options(from_options.clone())
            })
        };
        let open_to = || {
            open(&right.a, path, |port| {
                port.umem(&umem).queues([0, 1]).options(to_options.clone())
            })
        };
        let there = Account::open(&left.a, &left.b);
        let onward = Account::open(&right.a, &right.b);
        let mut receiver = open(&right.b, path, |port| port.options(roomy()));
        let flow = Flow::start(&left.a, &left.b, &lanes(path, 2), 500);
        let seen = Seen::default();
        let (taken_in, passed_on) = receiving(&mut receiver, &seen, WAIT, || {
            let (mut from, mut to) = (open_from(), open_to());
            let (mut taken_in, mut passed_on) = (Stats::default(), Stats::default());
            for change in 0..40 {
                forward(&mut from, &mut to, 200);
                settle(&mut to);
                if change % 2 == 0 {
                    taken_in += from.stats().unwrap();
                    drop(from);
                    assert_eq!(
                        umem.unclaimed(),
                        512 + 256,
                        "{path}: what a port had is there for others"
                    );
                    from = open_from();
                } else {
                    passed_on += to.stats().unwrap();
                    drop(to);
                    to = open_to();
                }
            }
            taken_in += from.stats().unwrap();
            passed_on += to.stats().unwrap();
            drop((from, to));
            (taken_in, passed_on)
        });
        assert_eq!(umem.unclaimed(), 1024, "{path}: a frame was lost");
        let sent = flow.stop();
        let balance = there.close(path, sent.taken(), taken_in.own.rx_packets, taken_in.kernel);
        assert_eq!(balance.purged, 0);
        assert!(balance.unread <= 21 * 2 * 128, "{balance:?}");
        let own = passed_on.own;
        assert_eq!(
            (own.tx_packets, own.tx_completed),
            (taken_in.own.rx_packets, own.tx_packets)
        );
        let kernel = receiver.stats().unwrap().kernel;
        let balance = onward.close(path, own.tx_completed, seen.packets(), kernel);
        assert_eq!(balance, Balance::EVEN);
        drop(receiver);
        for end in [&left.b, &right.a, &right.b] {
            assert_clean(end);
        }
        Ok(())
    });
}

/// Passes on at least so many packets.
fn forward(from: &mut Port, to: &mut Port, packets: u32) {
    let mut passed = 0;
    let done = wait_until(PATIENCE, || {
        for (from, to) in from.queues_mut().zip(to.queues_mut()) {
            passed += from.recv(WAIT).unwrap().send_on(to).unwrap();
        }
        passed >= packets
    });
    assert!(done, "{passed} of {packets}");
}

fn settle(to: &mut Port) {
    for queue in to.queues_mut() {
        assert!(queue.drain(PATIENCE).unwrap());
    }
}

/// A port is closed while another host holds its packets. The frames of these serve the other ports at once, and that the
/// kernel is done with them later disturbs nobody.
#[test]
fn frames_in_flight_of_a_closed_port_serve_the_others() {
    in_every_mode("reclaim", |path, tag| {
        let lab = lab(tag, 3);
        let umem = umem(512);
        let jam = Jam::at(&lab.b);
        let (there, back) = (Account::open(&lab.a, &lab.b), Account::open(&lab.b, &lab.a));
        let flow = Flow::start(&lab.b, &lab.a, &lanes(path, 1), 500);
        let all = QueueOptions::new().frames(512);
        let mut first = open(&lab.a, path, |port| port.umem(&umem).queues([1]).options(all.clone()));
        let queue = first.queues_mut().next().unwrap();
        send_numbers(queue, 0..100, &lab.a, &lab.b);
        let in_flight = queue.in_flight();
        assert!(in_flight > 50);
        drop(first);
        assert_eq!(umem.unclaimed(), 512, "{path}");

        let mut second = open(&lab.a, path, |port| port.umem(&umem).queues([0]).options(all.clone()));
        let seen = Seen::default();
        let sent = receiving(&mut second, &seen, WAIT, || {
            assert!(seen.more(2000));
            jam.dissolve();
            assert!(seen.more(2000));
            flow.stop()
        });
        let balance = there.close(Path::Generic, 100, 0, KernelStats::default());
        assert_eq!(balance, Balance::EVEN, "{path}: what the closed port sent arrives");
        let kernel = second.stats().unwrap().kernel;
        assert_eq!(back.close(path, sent.taken(), seen.packets(), kernel), Balance::EVEN);
        drop(second);
        assert_eq!(umem.unclaimed(), 512, "{path}");
        assert_clean(&lab.a);
        Ok(())
    });
}

/// Two ports on one UMEM that lose their interfaces at once. The first one to open again does not have to wait for the
/// other one.
#[test]
fn two_ports_on_one_umem_lose_their_interfaces() {
    in_every_mode("both", |path, tag| {
        let mut lab = lab(tag, 2);
        let bystander = Bystander::beside(&lab.b);
        let umem = umem(1024);
        let [near, mut far] = [&lab.a, &lab.b].map(|end| open(end, path, |port| port.umem(&umem).queues([0])));
        let flow = Flow::on(near, &lab.a, &lab.b, &[0], 500);
        let seen = Seen::default();
        let mut ports = Vec::new();
        for _ in 0..3 {
            receiving(&mut far, &seen, WAIT, || {
                assert!(seen.more(100));
                lab.delete_link().unwrap();
            });
            ports.push((seen.packets(), far.stats().unwrap()));
            lab = Lab::join(&lab.a.ns, &lab.b.ns, successor(2)).unwrap();
            let since = Instant::now();
            flow.more(100);
            bystander.within(RECOVERY, since);
            lab.b.run(|| far.reopen(PATIENCE)).unwrap();
        }
        let sent = receiving(&mut far, &seen, WAIT, || {
            assert!(seen.more(100));
            flow.stop()
        });
        let (before, _) = ports[2];
        let account = Account::of_new(&lab.a, &lab.b);
        let (taken, received) = (sent.ports[3].own.tx_completed, seen.packets() - before);
        let balance = account.close(path, taken, received, far.stats().unwrap().kernel);
        assert_eq!(balance, Balance::EVEN);
        drop(far);
        assert_eq!(umem.unclaimed(), 1024, "{path}: a frame was lost");
        assert_clean(&lab.b);
        bystander.in_time()
    });
}

/// A burst that was forgotten takes no frame along when its queue is closed.
#[test]
fn a_forgotten_burst_comes_home() {
    in_every_mode("forgotten", |path, tag| {
        let lab = lab(tag, 1);
        let umem = umem(512);
        let program = XskProgram::load(1, Filter::All).unwrap();
        let map = XskMap::from_fd(program.xsks_map().try_clone_to_owned().unwrap()).unwrap();
        let mode = if path == Path::Generic {
            AttachMode::Generic
        } else {
            AttachMode::Native
        };
        let (mut queue, link) = lab.b.run(|| {
            let queue = Queue::builder(&lab.b.interface, 0).umem(&umem).open().unwrap();
            let link = XdpLink::attach(program.program(), &lab.b.interface, mode).unwrap();
            (queue, link)
        });
        map.insert(&queue).unwrap();
        let flow = Flow::start(&lab.a, &lab.b, &[0], 500);
        let burst = queue.recv(Wait::Poll(PATIENCE)).unwrap();
        assert!(!burst.is_empty());
        std::mem::forget(burst);
        drop((queue, link));
        assert_eq!(umem.unclaimed(), 512, "{path}");
        flow.stop();
        assert_clean(&lab.b);
        Ok(())
    });
}
