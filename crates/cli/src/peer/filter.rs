//! What a packet socket for probes is to get: a classic BPF program, which the kernel runs before the packet takes a place of the ring.

use libc::sock_filter;

const LOAD_U16: u16 = 0x28;
const LOAD_U8: u16 = 0x30;
const LOAD_U16_BEHIND_INDEX: u16 = 0x48;
/// Four times the low half of a byte into the index: the length of an IPv4 header.
const LENGTH_TO_INDEX: u16 = 0xb1;
const TO_INDEX: u16 = 0x01;
const IF_EQUAL: u16 = 0x15;
const JUMP: u16 = 0x05;
const RETURN: u16 = 0x06;

/// All of a packet.
const WHOLE: u32 = u32::MAX;

const TYPE: u32 = 12;
const VLAN: u32 = 0x8100;
const IPV4: u32 = 0x0800;
const IPV6: u32 = 0x86dd;
const UDP: u32 = 17;

/// Takes UDP over IPv4 or IPv6 to a port. Frames with a VLAN tag that the kernel has not taken out are taken without a look at more.
///
/// <https://docs.kernel.org/networking/filter.html>
pub(super) fn udp(port: u16) -> [sock_filter; 15] {
    let then = |code, k| sock_filter { code, jt: 0, jf: 0, k };
    // Jumps are told in instructions that are left out.
    let equal = |k, jt, jf| sock_filter {
        code: IF_EQUAL,
        jt,
        jf,
        k,
    };
    [
        then(LOAD_U16, TYPE),
        equal(VLAN, 12, 0),
        equal(IPV6, 0, 4),
        // Without other headers between the two.
        then(LOAD_U8, 20),
        equal(UDP, 0, 8),
        then(TO_INDEX, 40),
        then(JUMP, 4),
        equal(IPV4, 0, 5),
        then(LOAD_U8, 23),
        equal(UDP, 0, 3),
        then(LENGTH_TO_INDEX, 14),
        then(LOAD_U16_BEHIND_INDEX, 16),
        equal(u32::from(port), 1, 0),
        then(RETURN, 0),
        then(RETURN, WHOLE),
    ]
}
