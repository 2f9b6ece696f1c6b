use super::{longest, whole_kib};

#[test]
fn a_packet_of_the_usual_mtu_takes_a_frame_of_4096_bytes() {
    // As on an 82576: with 2048 bytes a packet of 1348 came as one of 1024 and one of 324.
    assert_eq!(whole_kib(2048 - 256), 1024);
    assert_eq!(whole_kib(3000 - 256), 2048);
    assert_eq!(whole_kib(4096 - 256), 3072);
    assert_eq!(longest(1500), 1538);
    assert_eq!(longest(u32::MAX), u32::MAX);
    assert!(longest(1500) > whole_kib(2048 - 256) && longest(1500) <= whole_kib(4096 - 256 - 128));
}
