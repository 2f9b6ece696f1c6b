//! The packet that is sent: Ethernet, IPv4, UDP, and a sequence number in the payload.

/// Where the sequence number begins: after 14 bytes of Ethernet, 20 of IPv4 and 8 of UDP.
const SEQUENCE: usize = 42;
const SOURCE: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
const DESTINATION: [u8; 6] = [0x02, 0, 0, 0, 0, 0x02];

/// A UDP packet of `size` bytes between two locally administered addresses.
pub(crate) fn udp(size: u16) -> Vec<u8> {
    let mut bytes = vec![0; usize::from(size)];
    bytes[..6].copy_from_slice(&DESTINATION);
    bytes[6..12].copy_from_slice(&SOURCE);
    bytes[12..14].copy_from_slice(&0x0800_u16.to_be_bytes());
    bytes[14] = 0x45;
    bytes[16..18].copy_from_slice(&(size - 14).to_be_bytes());
    bytes[22] = 64;
    bytes[23] = 17;
    bytes[26..30].copy_from_slice(&[10, 0, 0, 1]);
    bytes[30..34].copy_from_slice(&[10, 0, 0, 2]);
    let checksum = header_checksum(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
    bytes[34..36].copy_from_slice(&9_u16.to_be_bytes());
    bytes[36..38].copy_from_slice(&9_u16.to_be_bytes());
    bytes[38..40].copy_from_slice(&(size - 34).to_be_bytes());
    bytes
}

/// Writes the sequence number of a packet made by [`udp`].
pub(crate) fn set_sequence(packet: &mut [u8], sequence: u64) {
    packet[SEQUENCE..SEQUENCE + 8].copy_from_slice(&sequence.to_be_bytes());
}

/// The sequence number of an answer; `None` when the packet is something else.
pub(crate) fn sequence(packet: &[u8]) -> Option<u64> {
    // The answering side swaps the addresses, so our own source must have become the destination.
    let answer = packet.len() >= SEQUENCE + 8 && packet[..6] == SOURCE;
    answer.then(|| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&packet[SEQUENCE..SEQUENCE + 8]);
        u64::from_be_bytes(bytes)
    })
}

/// Swaps source and destination; leaves alone what is too short to have them.
pub(crate) fn swap_addresses(packet: &mut [u8]) {
    if let Some((destination, rest)) = packet.split_at_mut_checked(6)
        && let Some(source) = rest.get_mut(..6)
    {
        destination.swap_with_slice(source);
    }
}

/// RFC 1071 over an IPv4 header whose checksum field is zero.
fn header_checksum(header: &[u8]) -> u16 {
    let mut sum = header
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum::<u32>();
    sum = (sum >> 16) + (sum & 0xffff);
    sum = (sum >> 16) + (sum & 0xffff);
    !u16::try_from(sum & 0xffff).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests;
