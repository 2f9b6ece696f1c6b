use super::*;

#[test]
fn an_answer_is_known_by_its_swapped_addresses() {
    let mut packet = udp(64);
    set_sequence(&mut packet, 7_000_000_001);
    assert_eq!(sequence(&packet), None, "our own packet is no answer");
    swap_addresses(&mut packet);
    assert_eq!(sequence(&packet), Some(7_000_000_001));
    assert_eq!(sequence(&packet[..49]), None, "cut off");
}

#[test]
fn the_header_checksum_is_whole() {
    let packet = udp(1514);
    // Summed with its own checksum, a good header gives zero.
    assert_eq!(header_checksum(&packet[14..34]), 0);
    assert_eq!(packet.len(), 1514);
}

#[test]
fn swapping_a_runt_changes_nothing() {
    let mut runt = [1, 2, 3, 4, 5, 6, 7];
    swap_addresses(&mut runt);
    assert_eq!(runt, [1, 2, 3, 4, 5, 6, 7]);
}
