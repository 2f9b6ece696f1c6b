use super::*;

const HARD: &str = "           CPU0       CPU2       \n 41:      16534          0 PCI-MSIX-0000:00:04.0   1-edge      virtio3-rx\n\
 42:          0 4294967295 PCI-MSIX-0000:00:04.0   2-edge      virtio3-tx\nLOC:   26562448   25831122   Local timer interrupts\nERR:          0\n";

#[test]
fn counts_are_of_the_cpus_that_are_online() {
    let table = Interruptions::parse(HARD).unwrap();
    assert_eq!(table.cpus, [0, 2]);
    assert_eq!(table.of("41"), Some(&[16534, 0][..]));
    assert_eq!(table.of("LOC"), Some(&[26_562_448, 25_831_122][..]));
    assert_eq!((table.of("ERR"), table.of("4")), (None, None));
    assert_eq!(Interruptions::parse("nothing\n"), None);
    assert_eq!(Interruptions::parse(""), None);
}

#[test]
fn counts_wrap_and_cpus_come_and_go() {
    let before = Interruptions::parse(HARD).unwrap();
    let after = Interruptions::parse("  CPU0 CPU1 CPU2\n 42: 7 100 1 who\n").unwrap();
    // CPU 1 was not there before.
    assert_eq!(after.since(&before, "42"), [(0, 7), (2, 2)]);
    assert_eq!(after.since(&before, "41"), []);
}

#[test]
fn this_machine_has_both() {
    let (hard, soft) = (Interruptions::hard().unwrap(), Interruptions::soft().unwrap());
    assert!(!hard.cpus.is_empty() && !hard.kinds.is_empty());
    assert!(soft.of("NET_RX").is_some() && soft.of("NET_TX").is_some(), "{soft:?}");
    assert_eq!(soft.of("NET_RX").unwrap().len(), soft.cpus.len());
}
