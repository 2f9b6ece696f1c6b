//! Named frames as a file that tcpdump and Wireshark open: pcapng, <https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcapng/>.

const SECTION: u32 = 0x0a0d_0d0a;
/// By which readers know the byte order.
const MAGIC: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const ETHERNET: u16 = 1;
const COMMENT: u16 = 1;

/// Adds bytes, and zeros up to the next four.
fn pad(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend(bytes);
    to.resize(to.len().next_multiple_of(4), 0);
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

fn block(file: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let total = (length(body) + 12).to_le_bytes();
    file.extend(kind.to_le_bytes());
    file.extend(total);
    file.extend(body);
    file.extend(total);
}

/// A file with these Ethernet frames, their names as comments, a microsecond apart.
///
/// # Panics
/// If a name is longer than 65,535 bytes.
#[must_use]
pub fn pcapng(frames: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    // Version 1.0, and as long as it is.
    let section = [&MAGIC.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    block(&mut file, SECTION, &section);
    // No limit to what is captured.
    block(&mut file, INTERFACE, &[&ETHERNET.to_le_bytes()[..], &[0; 6]].concat());
    for (microseconds, (name, frame)) in (0_u64..).zip(frames) {
        let [a, b, c, d, e, f, g, h] = microseconds.to_le_bytes();
        // Of the first interface; the time's upper half comes first.
        let mut packet = vec![0, 0, 0, 0, e, f, g, h, a, b, c, d];
        packet.extend([length(frame).to_le_bytes(); 2].as_flattened());
        pad(&mut packet, frame);
        packet.extend(COMMENT.to_le_bytes());
        packet.extend(u16::try_from(name.len()).expect("a short name").to_le_bytes());
        pad(&mut packet, name.as_bytes());
        // No more options.
        packet.extend([0; 4]);
        block(&mut file, PACKET, &packet);
    }
    file
}
