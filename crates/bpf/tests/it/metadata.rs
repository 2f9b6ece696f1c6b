//! `ringside/hints.h`: what lies in front of a packet is this program's, whatever came with the packet.

use crate::common::{LEAST, Pair, packets, privileged, with_only};
use libbpf_rs::{MapCore, ObjectBuilder, ProgramInput};
use ringside_bpf::testing::LAYOUTS;
use ringside_bpf::{Filter, NicHints, Verdict, XskHints, XskProgram, dry_run};

/// Bytes in front of the packet, and the packet, once the test program has seen a packet of this number that came with so
/// much metadata.
fn through(program: &libbpf_rs::ProgramMut<'_>, number: u64, came_with: usize) -> (Vec<u8>, Vec<u8>) {
    let mut packet = vec![2; 64];
    packet[12..14].copy_from_slice(&0x88b5_u16.to_be_bytes());
    packet[14..22].copy_from_slice(&number.to_be_bytes());
    let data = [vec![0xee; came_with], packet].concat();
    // struct xdp_md: data, data_end, data_meta, and three more
    let mut context = [0_u32, 0, 0, 0, 0, 0];
    (context[0], context[1]) = (u32::try_from(came_with).unwrap(), u32::try_from(data.len()).unwrap());
    let mut context: Vec<u8> = context.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let (mut told, mut out) = (vec![0; context.len()], vec![0; 1024]);
    let ran = program.test_run(ProgramInput {
        context_in: (came_with != 0).then_some(&mut context[..]),
        context_out: (came_with != 0).then_some(&mut told[..]),
        data_in: Some(&data),
        data_out: Some(&mut out),
        ..Default::default()
    });
    let out = ran.unwrap().data.unwrap().to_vec();
    let split = out.len() - 64;
    (out[..split].to_vec(), out[split..].to_vec())
}

#[test]
fn metadata_that_came_with_a_packet_is_taken_off() {
    if !privileged() {
        return;
    }
    let object = ObjectBuilder::default().open_memory(LAYOUTS).unwrap().load().unwrap();
    assert_eq!(object.maps().next().unwrap().name(), "layout_xsks");
    let program = object.progs_mut().next().unwrap();
    // The kernel's test run has room for so much; it must be there behind struct xdp_frame.
    for came_with in [0, 4, 16, 32, 200] {
        for (kind, bytes) in [(0, 16), (1, 8), (2, 32), (3, 0), (4, 8)] {
            let number = 1000 + kind;
            let (front, packet) = through(&program, number, came_with);
            assert_eq!(front.len(), bytes, "kind {kind}, {came_with} bytes came along");
            assert!(packet.starts_with(&[2; 12]));
            match kind {
                0 => assert_eq!(front[..8], number.to_ne_bytes()),
                1 => assert_eq!(front[..4], u32::try_from(number).unwrap().to_ne_bytes()),
                4 => assert_eq!(front[4..], 0xfeed_beef_u32.to_ne_bytes()),
                _ => {}
            }
        }
    }
}

/// Hints need no more capabilities than steering, and a packet that goes up the stack has none.
#[test]
fn our_own_hints_load_with_the_least_and_stay_off_the_stack() {
    if !privileged() {
        return;
    }
    let hints = XskHints { id: 7, mark: 1 };
    for multi_buffer in [false, true] {
        let load = || XskProgram::load_with_hints(2, Filter::All, multi_buffer, hints).unwrap();
        for program in [load(), with_only(LEAST, load)] {
            let packet = packets::udp(packets::PORT, b"payload!");
            let (verdict, out) = dry_run(program.program(), &packet).unwrap();
            assert_eq!((verdict, out), (Verdict::Pass, packet));
            assert_eq!(program.counters(0).unwrap().passed_unbound, 1);
        }
    }
    let none = XskHints { id: 0, mark: 1 };
    let refused = XskProgram::load_with_hints(2, Filter::All, false, none).unwrap_err();
    assert!(refused.to_string().contains("an id of 0"), "{refused}");
}

/// Asking the driver takes no more capabilities either. Both variants share their maps.
#[test]
fn the_variant_for_a_device_loads_with_the_least() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    let hints = XskHints { id: 7, mark: 1 };
    pair.left.enter(|device| {
        for multi_buffer in [false, true] {
            let nic = NicHints { device, id: 8 };
            let load = || XskProgram::load_for_device(2, Filter::UdpPort(9), multi_buffer, hints, nic).unwrap();
            for (bound, name) in [(load(), "ringside_xsk_n"), (with_only(LEAST, load), "ringside_xsk_nh")] {
                let name = if multi_buffer { "ringside_xsk_nh" } else { name };
                assert_eq!((bound.name(), bound.device()), (name, Some(device)));
                let plain = bound.for_any_device().unwrap();
                assert_eq!(
                    (plain.device(), plain.queues(), plain.filter()),
                    (None, 2, Filter::UdpPort(9))
                );
                let packet = packets::udp(packets::PORT, b"payload!");
                assert_eq!(dry_run(plain.program(), &packet).unwrap(), (Verdict::Pass, packet));
                assert_eq!(bound.counters(0).unwrap().packets(), 1, "one map of counters");
            }
        }
    });
    for (device, id) in [(1, 7), (1, 0), (u32::MAX, 8)] {
        let nic = NicHints { device, id };
        XskProgram::load_for_device(1, Filter::All, false, hints, nic).unwrap_err();
    }
}
