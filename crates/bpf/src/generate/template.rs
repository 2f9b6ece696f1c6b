//! What of a frame the program has to write, worked out once.

use super::GeneratorOptions;

/// `MAX_RESTORE` of generate.bpf.c, in 64-bit words.
const HEAD_WORDS: usize = 16;
/// `NO_OFFSET` of generate.bpf.c.
const NO_OFFSET: u32 = u32::MAX;

/// <https://elixir.bootlin.com/linux/v6.18/source/net/bpf/test_run.c#L1237>
const ETH_HLEN: usize = 14;
/// A page, less the headroom, the tail room and what the kernel keeps for each live frame.
const MAX_LEN: usize = 3400;

const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;
const VLAN: [u16; 2] = [0x8100, 0x88a8];
const IPPROTO_UDP: u8 = 17;
const UDP_HEADER: usize = 8;
const SEQUENCE: usize = 8;

/// The constants of generate.bpf.c.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) head: [u64; HEAD_WORDS],
    pub(super) head_words: u32,
    pub(super) sequence_offset: u32,
    pub(super) checksum_offset: u32,
    pub(super) base_sum: u32,
}

impl Plan {
    pub(super) fn new(frame: &[u8], options: &GeneratorOptions) -> Result<Self, String> {
        if !(ETH_HLEN..=MAX_LEN).contains(&frame.len()) {
            return Err(format!(
                "a template of {} bytes: it has to have {ETH_HLEN} to {MAX_LEN}",
                frame.len()
            ));
        }
        if options.rewrite > HEAD_WORDS * 8 {
            return Err(format!(
                "rewriting {} bytes of each frame: {} at the most",
                options.rewrite,
                HEAD_WORDS * 8
            ));
        }
        let mut plan = Self {
            head: [0; HEAD_WORDS],
            head_words: 0,
            sequence_offset: NO_OFFSET,
            checksum_offset: NO_OFFSET,
            base_sum: 0,
        };
        // Whole words only: what is behind the last of them is payload nobody writes to.
        let words = frame.as_chunks::<8>().0.iter().take(options.rewrite / 8);
        for (word, bytes) in plan.head.iter_mut().zip(words) {
            *word = u64::from_ne_bytes(*bytes);
            plan.head_words += 1;
        }
        if let Some(offset) = options.sequence_offset {
            plan.number(frame, offset)?;
            if let Some(check) = options.checksum_offset {
                plan.keep_right(frame, offset, check)?;
            }
        }
        Ok(plan)
    }

    fn number(&mut self, frame: &[u8], offset: usize) -> Result<(), String> {
        let udp = udp_offset(frame);
        let first = udp.map_or(ETH_HLEN, |udp| udp + UDP_HEADER);
        let room = frame
            .len()
            .checked_sub(SEQUENCE)
            .filter(|last| (first..=*last).contains(&offset));
        if room.is_none() {
            return Err(format!(
                "a sequence number of {SEQUENCE} bytes at offset {offset} of a frame of {} bytes, whose headers \
                 end at {first}",
                frame.len()
            ));
        }
        self.sequence_offset = index(offset);

        let Some(udp) = udp else { return Ok(()) };
        let check = word(frame, udp + 6);
        if check == 0 {
            // No checksum, which only IPv4 allows; nothing to keep right.
            return if is_ipv6(frame) {
                Err("a template of UDP over IPv6 without a checksum: every receiver drops it".into())
            } else {
                Ok(())
            };
        }
        if !(offset - udp).is_multiple_of(2) {
            return Err(format!(
                "a sequence number at offset {offset}: with a UDP checksum it has to begin at an even distance \
                 from the UDP header, which is at {udp}"
            ));
        }
        self.keep_right(frame, offset, udp + 6)
    }

    /// Has a checksum follow the number at an offset.
    fn keep_right(&mut self, frame: &[u8], offset: usize, at: usize) -> Result<(), String> {
        if frame.len() < at + 2 {
            return Err(format!("a checksum at offset {at} of a frame of {} bytes", frame.len()));
        }
        // RFC 1624: leaving a word out of a sum is adding its complement. What remains is the sum
        // of everything else, as long as the template's checksum is right.
        let old = (0..SEQUENCE / 2).map(|i| !word(frame, offset + 2 * i));
        self.base_sum = fold(u32::from(!word(frame, at)) + old.map(u32::from).sum::<u32>());
        self.checksum_offset = index(at);
        Ok(())
    }
}

/// Where the UDP header of an unfragmented IPv4 or plain IPv6 packet is, behind up to two tags.
fn udp_offset(frame: &[u8]) -> Option<usize> {
    let (kind, network) = network(frame)?;
    let ip = frame.get(network..)?;
    let header = match kind {
        ETH_P_IP if *ip.get(9)? == IPPROTO_UDP => usize::from(ip[0] & 0x0f) * 4,
        ETH_P_IPV6 if *ip.get(6)? == IPPROTO_UDP => 40,
        _ => return None,
    };
    (ip.len() >= header + UDP_HEADER).then_some(network + header)
}

fn network(frame: &[u8]) -> Option<(u16, usize)> {
    let mut offset = ETH_HLEN;
    for _ in 0..2 {
        if !VLAN.contains(&kind_before(frame, offset)?) {
            break;
        }
        offset += 4;
    }
    Some((kind_before(frame, offset)?, offset))
}

fn kind_before(frame: &[u8], offset: usize) -> Option<u16> {
    frame
        .get(offset - 2..offset)
        .map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn is_ipv6(frame: &[u8]) -> bool {
    network(frame).is_some_and(|(kind, _)| kind == ETH_P_IPV6)
}

/// A word in memory order, as the program sums it: the ones' complement sum does not mind
/// (RFC 1071, 2 B).
fn word(frame: &[u8], offset: usize) -> u16 {
    u16::from_ne_bytes([frame[offset], frame[offset + 1]])
}

fn fold(mut sum: u32) -> u32 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// A frame is shorter than a page.
fn index(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(NO_OFFSET)
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
