//! A process that may lock hardly any memory.

use super::common::account::{Account, Balance};
use super::common::child::play;
use super::common::flow::{Flow, lanes};
use super::common::{assert_clean, lab, open, roomy};
use super::in_every_mode;
use super::server::Server;
use ringside_xsk::Path;

/// With 64 KiB of memory to lock and no CAP_IPC_LOCK, two queues of 16 frames each are exactly enough, and one frame more is
/// refused to the byte. Those sixteen frames answer under traffic, and what they have no room for is counted.
#[test]
fn sixty_four_kilobytes_of_locked_memory_are_enough() {
    const LIMIT: u64 = 64 * 1024;
    in_every_mode("memlock", |path, tag| {
        let lab = lab(tag, 3);
        let start = |frames| {
            let command = play(&lab, "serve", "-all,+net_raw,+net_admin,+bpf", Some((LIMIT, LIMIT)));
            Server::start(Server::with_frames(command, frames), path)
        };
        let (account, back) = (Account::open(&lab.a, &lab.b), Account::open(&lab.b, &lab.a));
        let client = open(&lab.a, Path::NativeCopy, |port| port.options(roomy()));
        let flow = Flow::on(client, &lab.a, &lab.b, &lanes(path, 2), 500);
        for (frames, needed) in [(512, 2 << 20), (17, LIMIT + 2 * 2048)] {
            let told = start(frames).says();
            let limit = "RLIMIT_MEMLOCK is 65536 bytes and CAP_IPC_LOCK is missing";
            let needed = format!("{needed} bytes of memory are needed for frames, but {limit}");
            assert!(told.starts_with("Memory / ") && told.contains(&needed), "{told}");
            assert_clean(&lab.b);
        }
        let mut server = start(16);
        server.ready();
        assert!(flow.answers.more(2000));
        let answers = std::sync::Arc::clone(&flow.answers);
        let sent = flow.stop();
        let counted = server.end();
        let balance = account.close(path, sent.taken(), counted.own.rx_packets, counted.kernel);
        assert_eq!(balance, Balance::EVEN);
        let kernel = sent.ports[0].kernel;
        let balance = back.close(Path::NativeCopy, counted.own.tx_completed, answers.packets(), kernel);
        assert_eq!(balance, Balance::EVEN);
        assert_clean(&lab.b);
        Ok(())
    });
}

/// Without a chosen number of frames a queue takes as many as the limit allows, and the report says
/// why.
#[test]
fn a_queue_takes_fewer_frames_by_default_where_less_memory_can_be_locked() {
    // 1024 frames of 2 KiB for each of two queues, and not 2048.
    const LIMIT: u64 = 5 << 20;
    in_every_mode("fewer", |path, tag| {
        let lab = lab(tag, 3);
        let start = || {
            let command = play(&lab, "serve", "-all,+net_raw,+net_admin,+bpf", Some((LIMIT, LIMIT)));
            Server::start(command, path)
        };
        let mut server = start();
        let report = server.ready();
        for part in [
            "1024 frames of 2048 B",
            "1024 frames instead of 4096, because RLIMIT_MEMLOCK is 5242880 bytes",
        ] {
            assert_eq!(report.matches(part).count(), 2, "{report}");
        }
        server.end();
        Ok(())
    });
}
