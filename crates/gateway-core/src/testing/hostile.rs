//! What nobody vouches for: the targets of the fuzzer (`make fuzz`) for the gateway's decisions, which the tests run without one.
//!
//! Each takes any bytes and panics if something does not hold. [`classify`] gets a frame as it is; the others make what they need
//! of the bytes, so that most of it has a sense: tables, rules and packets of a few networks.

mod answer;
mod decide;
mod fragments;
mod sent;
mod world;

use crate::packet::OUTER;
use crate::testing::corpus::{KNOWN_OPTION, Random, gateway};
use crate::{Class, Content, Packet, Underlay};

pub use answer::answer;
pub use decide::decide;
pub use fragments::fragments;
pub use world::frames;

/// A target: its name, the longest input that makes sense, and itself.
pub type Target = (&'static str, usize, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 4] = [
    ("classify", 1024, classify),
    ("decide", 1024, decide),
    ("answer", 1024, answer),
    ("fragments", 512, fragments),
];

/// One of these inputs with a few bytes changed, taken out or put in, perhaps followed by the end of another: always the same for a
/// seed.
///
/// # Panics
/// If there is no input.
#[must_use]
pub fn variation(seed: u64, inputs: &[Vec<u8>]) -> Vec<u8> {
    let mut random = Random(seed);
    let mut input = inputs[random.below(inputs.len())].clone();
    if random.below(3) == 0 {
        let other = &inputs[random.below(inputs.len())];
        input.truncate(random.below(input.len() + 1));
        input.extend_from_slice(&other[random.below(other.len() + 1)..]);
    }
    for _ in 0..=random.below(6) {
        let (at, byte) = (random.below(input.len() + 1), random.byte());
        match random.below(4) {
            0 | 1 if at < input.len() => input[at] = byte,
            2 if at < input.len() => _ = input.remove(at),
            _ => input.insert(at, byte),
        }
    }
    input
}

/// The gateway's side, as in [`super::corpus`].
fn underlay() -> Underlay {
    Underlay {
        known_options: vec![(7, 0x80), KNOWN_OPTION],
        ..Underlay::at(&[gateway(false), gateway(true)])
    }
}

/// One choice after the other, from bytes; when they are used up, each is the first.
pub(super) struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// One of so many, 256 at the most.
    fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    /// True once in so many.
    fn one_in(&mut self, many: usize) -> bool {
        // What is left when the bytes are used up is the usual case.
        self.below(many) == many - 1
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (some, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        some
    }
}

/// Tells what a frame is. Whatever it is: all places lie in the frame, what is told stands there, what lies behind the outer
/// packet does not matter, and nothing is a tenant's that is cut short.
///
/// # Panics
/// When one of these does not hold.
pub fn classify(frame: &[u8]) {
    let underlay = underlay();
    let class = Packet::classify(frame, &underlay);
    let mut longer = frame.to_vec();
    longer.extend([0xa5; 9]);
    let Class::Tenant(packet) = class else {
        return;
    };
    assert_eq!(Packet::classify(&longer, &underlay), class, "with padding");
    let [udp, tunnel, inner, network, end] =
        [packet.udp, packet.tunnel, packet.inner, packet.network, packet.end].map(usize::from);
    let order = [
        OUTER + 20,
        udp,
        udp + 8,
        tunnel + 8,
        inner + 14,
        network,
        end,
        frame.len(),
    ];
    assert!(order.is_sorted() && tunnel == udp + 8, "{packet:?}");
    assert_eq!(
        frame[tunnel + 4..tunnel + 7],
        packet.vni.number().to_be_bytes()[1..],
        "{packet:?}"
    );
    let udp_len = usize::from(u16::from_be_bytes([frame[udp + 4], frame[udp + 5]]));
    assert_eq!(udp + udp_len, end, "{packet:?}");
    let outer = if packet.to.is_ipv4() { OUTER + 12 } else { OUTER + 8 };
    assert_eq!(read_ips(frame, outer, packet.to.is_ipv4()), [packet.from, packet.to]);
    for short in [end - 1, network, inner, udp] {
        let class = Packet::classify(&frame[..short], &underlay);
        assert!(!matches!(class, Class::Tenant(_)), "{short} bytes of {packet:?}");
    }
    match packet.content {
        Content::Ip { src, dst } => {
            let at = if dst.is_ipv4() { 12 } else { 8 };
            assert_eq!(read_ips(frame, network + at, dst.is_ipv4()), [src, dst]);
            assert!(!packet.inner_destination(frame).is_multicast(), "{packet:?}");
        }
        Content::WhoHas { asker, target } => {
            let (asker_at, target_at) = if target.is_ipv4() { (14, 24) } else { (8, 48) };
            assert_eq!(read_ip(frame, network + asker_at, target.is_ipv4()), asker);
            assert_eq!(read_ip(frame, network + target_at, target.is_ipv4()), target);
        }
    }
    // Reading more of it never fails by more than an error.
    _ = crate::Flow::parse(&frame[network..end]);
}

fn read_ip(frame: &[u8], at: usize, v4: bool) -> std::net::IpAddr {
    match v4 {
        true => <[u8; 4]>::try_from(&frame[at..at + 4]).expect("four").into(),
        false => <[u8; 16]>::try_from(&frame[at..at + 16]).expect("sixteen").into(),
    }
}

fn read_ips(frame: &[u8], at: usize, v4: bool) -> [std::net::IpAddr; 2] {
    let len = if v4 { 4 } else { 16 };
    [read_ip(frame, at, v4), read_ip(frame, at + len, v4)]
}
