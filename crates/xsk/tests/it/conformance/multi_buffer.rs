//! Jumbo frames.

use ringside_netlab::VethConfig;
use ringside_xsk::QueueOptions;

use crate::common::conformance::{passed_on, row_on, usual};
use crate::common::traffic::through;

fn jumbo(tag: &str) -> VethConfig {
    VethConfig {
        mtu: 9000,
        ..usual(tag)
    }
}

fn options() -> QueueOptions {
    QueueOptions::new().frames(2048).tx_ring(1024).multi_buffer(true)
}

#[test]
fn send_receive_9k_packets() {
    row_on("SEND_RECEIVE_9K_PACKETS", jumbo("9k"), |lab, case| {
        through(lab, case, options().frame_size(4096), (1024, 9000));
    });
}

/// Frames that lie across the borders of pages, too.
#[test]
fn send_receive_unaligned_9k_packets() {
    row_on("SEND_RECEIVE_UNALIGNED_9K_PACKETS", jumbo("unal9k"), |lab, case| {
        let options = options().frame_size(3000).huge_pages(true);
        let pages = through(lab, case, options, (1024, 9000));
        passed_on(pages)
    });
}
