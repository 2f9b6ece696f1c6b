//! Two hosts that speak TCP as they should, over a network that loses, doubles and reorders, and somebody who forges.
//!
//! What must pass: every segment that tells its receiver something new. What must not: a forged one outside of what the
//! two have said.

use proptest::prelude::*;

use super::bench::{packet, turned};
use super::*;

const ACK: Flags = Flags::ACK;
const SYN: Flags = Flags::SYN;
const FIN_ACK: Flags = Flags(Flags::FIN.0 | Flags::ACK.0);
const SYN_ACK: Flags = Flags(Flags::SYN.0 | Flags::ACK.0);

/// A segment in numbers that do not wrap: a side's SYN is its number 0.
#[derive(Debug, Clone, Copy)]
struct Said {
    way: usize,
    flags: Flags,
    sequence: i64,
    payload: i64,
    acknowledgment: i64,
    window: u16,
    scale: Option<u8>,
}

impl Said {
    fn len(&self) -> i64 {
        self.payload + i64::from(self.flags.has(SYN)) + i64::from(self.flags.has(Flags::FIN))
    }
}

/// One of the two.
#[derive(Debug, Clone, Copy)]
struct Host {
    /// What it sends next, and what of that is acknowledged.
    next: i64,
    acked: i64,
    /// What it may send.
    limit: i64,
    fin: Option<i64>,
    /// What it expects next, and what it has offered to take; 0 before the other's SYN.
    expected: i64,
    offered: i64,
    /// Of its own windows; None: it offers none.
    scale: Option<u8>,
    largest_window: i64,
}

#[derive(Debug, Clone)]
enum Step {
    Send(usize, i64),
    Again(usize, i64),
    Acknowledge(usize, u16),
    Finish(usize),
    /// One of those that are under way: comes to the gateway, and then to its receiver, or is lost behind it.
    Arrive(prop::sample::Index, bool),
    Double(prop::sample::Index),
    LoseBefore(prop::sample::Index),
    Forge(usize, i64, i64, i64, u16),
}

struct Net {
    bench: Bench,
    isn: [u32; 2],
    hosts: [Host; 2],
    under_way: Vec<Said>,
    /// The farthest end of a forged segment that passed, for each end in whose name it was sent.
    reached: [i64; 2],
    /// What was forged in the name of one end was acknowledged in the name of the other: bounds are
    /// beyond what both have said, and nothing holds any more.
    is_walked: bool,
}

impl Net {
    fn new(isn: [u32; 2], scales: [Option<u8>; 2]) -> Self {
        let host = |scale| Host {
            next: 0,
            acked: 0,
            limit: 1,
            fin: None,
            expected: 0,
            offered: 0,
            scale,
            largest_window: 1,
        };
        let mut net = Self {
            bench: Bench::open(few()),
            isn,
            hosts: scales.map(host),
            under_way: Vec::new(),
            reached: [0; 2],
            is_walked: false,
        };
        net.say(0, SYN, 0, 0, 500);
        net.hosts[0].next = 1;
        net
    }

    /// The shift of a side's windows, once both have offered one.
    fn shift(&self, way: usize) -> u8 {
        let [Some(_), Some(_)] = self.hosts.map(|host| host.scale) else {
            return 0;
        };
        self.hosts[way].scale.unwrap_or(0)
    }

    /// Puts a segment on its way, with as large a window as it can say, but never one that takes back.
    fn say(&mut self, way: usize, flags: Flags, sequence: i64, payload: i64, window: u16) {
        let shift = if flags.has(SYN) { 0 } else { self.shift(way) };
        let host = &mut self.hosts[way];
        let least = host.offered - host.expected;
        let window = i64::from(window).max((least + (1 << shift) - 1) >> shift).min(65_535);
        let bytes = window << shift;
        host.offered = host.offered.max(host.expected + bytes);
        host.largest_window = host.largest_window.max(bytes);
        self.under_way.push(Said {
            way,
            flags,
            sequence,
            payload,
            acknowledgment: if flags.has(ACK) { host.expected } else { 0 },
            window: u16::try_from(window).unwrap(),
            scale: if flags.has(SYN) { host.scale } else { None },
        });
    }

    fn judge(&mut self, said: &Said) -> Result<Passed, Refused> {
        let number = |base: u32, number: i64| base.wrapping_add(u32::try_from(number & 0xffff_ffff).unwrap());
        let upper = Upper::Tcp(Segment {
            ports: if said.way == 0 { [4000, 80] } else { [80, 4000] },
            sequence: number(self.isn[said.way], said.sequence),
            len: u32::try_from(said.len()).unwrap(),
            acknowledgment: number(self.isn[1 - said.way], said.acknowledgment),
            flags: said.flags,
            window: said.window,
            scale: said.scale,
        });
        let mut flow = packet(Protocol::TCP, upper);
        if said.way == 1 {
            flow = turned(flow);
            if let Upper::Tcp(segment) = &mut flow.upper {
                segment.ports.reverse();
            }
        }
        self.bench.judge(&flow)
    }

    fn is_open(&self, way: usize) -> bool {
        self.hosts[way].expected > 0 && self.hosts[way].acked > 0
    }

    /// True if its receiver learns something by it: of one that ends before what it expects, it believes nothing
    /// (RFC 9293 §3.10.7.4).
    fn is_news(&self, said: &Said) -> bool {
        let receiver = &self.hosts[1 - said.way];
        let end = said.sequence + said.len();
        let offers = said.acknowledgment + (i64::from(said.window) << self.shift(said.way));
        end > receiver.expected
            || end == receiver.expected && (said.acknowledgment > receiver.acked || offers > receiver.limit)
    }

    fn receive(&mut self, said: &Said) {
        let shift = if said.flags.has(SYN) { 0 } else { self.shift(said.way) };
        let way = 1 - said.way;
        let host = &mut self.hosts[way];
        if said.flags.has(ACK) && said.acknowledgment <= host.next {
            host.acked = host.acked.max(said.acknowledgment);
            host.limit = host.limit.max(said.acknowledgment + (i64::from(said.window) << shift));
        }
        let was = host.expected;
        if said.sequence <= host.expected {
            host.expected = host.expected.max(said.sequence + said.len());
        }
        if said.flags == SYN && way == 1 && host.acked == 0 {
            host.next = 1;
            self.say(1, SYN_ACK, 0, 0, 500);
        } else if host.expected > was || said.flags.has(SYN) {
            let next = host.next;
            self.say(way, ACK, next, 0, 500);
        }
        // No host keeps a SYN in the net for longer than it takes to open the connection.
        if self.is_open(0) {
            self.under_way.retain(|said| said.flags != SYN);
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let pick = |net: &Self, index: &prop::sample::Index| {
            (!net.under_way.is_empty()).then(|| index.index(net.under_way.len()))
        };
        match *step {
            Step::Send(way, most) => {
                let host = self.hosts[way];
                let payload = most.min(host.limit - host.next);
                if self.is_open(way) && host.fin.is_none() && payload > 0 {
                    self.hosts[way].next += payload;
                    self.say(way, ACK, host.next, payload, 300);
                }
            }
            Step::Again(way, most) => {
                let host = self.hosts[way];
                if host.next == 0 || host.acked == host.next {
                } else if host.acked == 0 {
                    self.say(way, if way == 0 { SYN } else { SYN_ACK }, 0, 0, 500);
                } else {
                    let data_end = host.fin.unwrap_or(host.next);
                    let payload = most.min(data_end - host.acked).max(0);
                    let flags = if host.fin == Some(host.acked + payload) {
                        FIN_ACK
                    } else {
                        ACK
                    };
                    self.say(way, flags, host.acked, payload, 300);
                }
            }
            Step::Acknowledge(way, window) => {
                if self.is_open(way) {
                    self.say(way, ACK, self.hosts[way].next, 0, window);
                }
            }
            Step::Finish(way) => {
                let host = self.hosts[way];
                if self.is_open(way) && host.fin.is_none() && host.next < host.limit {
                    self.hosts[way].fin = Some(host.next);
                    self.hosts[way].next += 1;
                    self.say(way, FIN_ACK, host.next, 0, 300);
                }
            }
            Step::Arrive(ref index, lost) => {
                if let Some(at) = pick(self, index) {
                    let said = self.under_way.remove(at);
                    self.arrive(&said, lost)?;
                }
            }
            Step::Double(ref index) => {
                if let Some(at) = pick(self, index) {
                    self.under_way.push(self.under_way[at]);
                }
            }
            Step::LoseBefore(ref index) => {
                if let Some(at) = pick(self, index) {
                    self.under_way.swap_remove(at);
                }
            }
            Step::Forge(way, sequence, payload, acknowledgment, window) => {
                if self.is_open(0) && self.is_open(1) {
                    let forged = Said {
                        way,
                        flags: ACK,
                        sequence,
                        payload,
                        acknowledgment,
                        window,
                        scale: None,
                    };
                    self.forge(&forged)?;
                }
            }
        }
        Ok(())
    }

    fn arrive(&mut self, said: &Said, lost: bool) -> Result<(), TestCaseError> {
        let news = self.is_news(said);
        let judged = self.judge(said);
        prop_assert!(judged.is_ok() || !news, "{:?} of {:?}, {:?}", judged, said, self.hosts);
        if judged.is_ok() && !lost {
            self.receive(said);
        }
        Ok(())
    }

    /// One that passes lies in what the two have said, as far as that ever went.
    fn forge(&mut self, forged: &Said) -> Result<(), TestCaseError> {
        let (own, other) = (self.hosts[forged.way], self.hosts[1 - forged.way]);
        if self.judge(forged).is_ok() {
            let lag = (2 * (own.largest_window + 1)).max(66_000);
            let beyond = if forged.len() == 0 { 0 } else { other.largest_window + 1 };
            let last = other.offered + 1 + beyond;
            prop_assert!(forged.sequence <= last, "{:?} {:?}", forged, other);
            // Another forged one before may have passed for what its side has sent.
            let sent = other.next.max(self.reached[1 - forged.way]);
            prop_assert!(forged.acknowledgment <= sent, "{:?} {:?}", forged, other);
            prop_assert!(forged.acknowledgment >= -lag, "{:?} {:?}", forged, other);
            self.is_walked |= forged.acknowledgment > other.next;
            let reached = &mut self.reached[forged.way];
            *reached = (*reached).max(forged.sequence + forged.len());
            prop_assert!(
                forged.sequence + forged.len() > -other.largest_window - 2,
                "{:?} {:?}",
                forged,
                own
            );
        }
        Ok(())
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let way = 0..2_usize;
    let index = any::<prop::sample::Index>;
    let near = || prop_oneof![-3..3000_i64, -70_000..70_000_i64, -3_000_000_000..3_000_000_000_i64];
    let step = prop_oneof![
        6 => (way.clone(), 1..400_i64).prop_map(|(way, most)| Step::Send(way, most)),
        3 => (way.clone(), 0..600_i64).prop_map(|(way, most)| Step::Again(way, most)),
        3 => (way.clone(), 0..800_u16).prop_map(|(way, window)| Step::Acknowledge(way, window)),
        1 => (Just(()), way.clone(), prop::bool::weighted(0.1)).prop_map(|((), way, end)| {
            if end { Step::Finish(way) } else { Step::Send(way, 10) }
        }),
        14 => (index(), prop::bool::weighted(0.1)).prop_map(|(index, lost)| Step::Arrive(index, lost)),
        2 => index().prop_map(Step::Double),
        1 => index().prop_map(Step::LoseBefore),
        4 => (way, near(), 0..1500_i64, near()).prop_map(|(way, sequence, payload, acknowledgment)| {
            // Without a window, which would be believed.
            Step::Forge(way, sequence, payload, acknowledgment, 0)
        }),
    ];
    prop::collection::vec(step, 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_news_passes_and_the_connection_comes_to_its_end(
        isn in prop::array::uniform2(prop_oneof![any::<u32>(), (0..3000_u32).prop_map(|n| n.wrapping_neg())]),
        scales in prop::array::uniform2(prop::option::of(0..=4_u8)),
        steps in steps(),
    ) {
        let mut net = Net::new(isn, scales);
        for step in &steps {
            net.step(step)?;
            if net.is_walked {
                return Ok(());
            }
        }
        // From here on nothing is lost: both finish, and say everything again until it is acknowledged.
        for round in 0..400 {
            for way in 0..2 {
                net.step(&Step::Again(way, 300))?;
                net.step(&Step::Finish(way))?;
                net.step(&Step::Acknowledge(way, 500))?;
            }
            while !net.under_way.is_empty() {
                let said = net.under_way.remove(0);
                net.arrive(&said, false)?;
            }
            let done = net.hosts.iter().all(|host| host.fin.is_some() && host.acked == host.next);
            if done {
                break;
            }
            prop_assert!(round < 399, "{:?}", net.hosts);
        }
        // A forged segment that fits can be taken for data that is never acknowledged.
        let forged = steps.iter().any(|step| matches!(step, Step::Forge(..)));
        let state = net.bench.state();
        prop_assert!(state == State::TimeWait || forged && state == State::LastAck, "{}", state);
    }
}
