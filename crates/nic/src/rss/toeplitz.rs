//! The Toeplitz hash over addresses and ports.

use std::net::SocketAddr;

use super::{Flow, Symmetry};

/// The Toeplitz hash: for each bit of the input that is set, the 32 bits of the key from that place on, all combined by
/// exclusive or. Bits of the key behind its end are zero.
///
/// What NICs feed it with is source address, destination address, source port, destination port, in the order of the wire.
#[must_use]
pub fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
    let byte = |at: usize| u32::from(key.get(at).copied().unwrap_or(0));
    let mut window = byte(0) << 24 | byte(1) << 16 | byte(2) << 8 | byte(3);
    let mut hash = 0;
    for (at, value) in input.iter().enumerate() {
        let next = byte(at + 4);
        for bit in (0..8).rev() {
            if value >> bit & 1 == 1 {
                hash ^= window;
            }
            window = window << 1 | next >> bit & 1;
        }
    }
    hash
}

/// What is hashed of a packet: two addresses and two ports at the most.
#[derive(Debug, Default)]
pub(super) struct Input(Vec<u8>);

impl Input {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn addresses(&mut self, flow: &Flow, symmetry: Option<Symmetry>) -> Result<(), &'static str> {
        match (flow.src, flow.dst) {
            (SocketAddr::V4(src), SocketAddr::V4(dst)) => self.pair(src.ip().octets(), dst.ip().octets(), symmetry),
            (SocketAddr::V6(src), SocketAddr::V6(dst)) => self.pair(src.ip().octets(), dst.ip().octets(), symmetry),
            _ => Err("both addresses of a flow are of one family"),
        }
    }

    pub(super) fn ports(&mut self, flow: &Flow, symmetry: Option<Symmetry>) -> Result<(), &'static str> {
        self.pair(flow.src.port().to_be_bytes(), flow.dst.port().to_be_bytes(), symmetry)
    }

    fn pair<const N: usize>(
        &mut self,
        src: [u8; N],
        dst: [u8; N],
        symmetry: Option<Symmetry>,
    ) -> Result<(), &'static str> {
        let combined = |with: fn(u8, u8) -> u8| std::array::from_fn(|at| with(src[at], dst[at]));
        let xor: [u8; N] = combined(|a, b| a ^ b);
        let (first, second) = match symmetry {
            None => (src, dst),
            Some(Symmetry::Xor) => (xor, xor),
            Some(Symmetry::OrXor) => (combined(|a, b| a | b), xor),
            Some(Symmetry::Other) => return Err("it makes its hash symmetric in a way that is not known"),
        };
        self.0.extend(first.into_iter().chain(second));
        Ok(())
    }
}
