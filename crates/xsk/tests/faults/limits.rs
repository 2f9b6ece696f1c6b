//! Processes that may do less, or have less, than they need.

use super::common::account::{Account, Balance};
use super::common::child::{play, said};
use super::common::traffic::{Flow, lanes};
use super::common::{MODES, assert_clean, lab, open, roomy};
use super::in_every_mode;
use super::server::{PATH, Server};
use ringside_netlab::testing::is_root;
use ringside_xsk::{KernelStats, Path};

/// K14: without any capability, and with each one missing in turn, it is told which one and at which step. The packets that
/// come meanwhile notice nothing: all go up the kernel's stack, as before.
#[test]
fn without_capabilities_the_missing_ones_are_named() {
    in_every_mode("k14none", |path, tag| {
        let lab = lab(tag, 3);
        let account = Account::open(&lab.a, &lab.b);
        let flow = Flow::start(&lab.a, &lab.b, &lanes(path, 2), 500);
        for (held, missing, action) in [
            ("-all", "CAP_BPF and CAP_NET_ADMIN", "loading the XDP program"),
            ("-all,+bpf,+net_admin,+ipc_lock", "CAP_NET_RAW", "opening an XDP socket"),
            (
                "-all,+net_raw,+net_admin,+ipc_lock",
                "CAP_BPF in addition to CAP_NET_ADMIN",
                "loading the XDP program",
            ),
            (
                "-all,+net_raw,+bpf,+ipc_lock",
                "CAP_NET_ADMIN in addition to CAP_BPF",
                "loading the XDP program",
            ),
            // What takes the place of none of them.
            (
                "-all,+net_raw,+net_admin,+perfmon,+ipc_lock",
                "CAP_BPF in addition to CAP_NET_ADMIN",
                "loading the XDP program",
            ),
        ] {
            let told = said(play(&lab, "serve", held, None).env(PATH, path.name()));
            assert!(
                told.starts_with("Permission / ") && told.contains("setcap"),
                "{held}: {told}"
            );
            // It, and nothing but it.
            assert!(told.contains(&format!("it needs {missing};")), "{held}: {told}");
            assert!(told.contains(action) && told.contains("veth-b"), "{held}: {told}");
            assert_clean(&lab.b);
        }
        // A single queue needs no program.
        let told = said(&mut play(&lab, "open-small-queue", "-all", None));
        assert!(told.starts_with("Permission / "), "{told}");
        assert!(
            told.contains("opening an XDP socket on veth-b was refused") && told.contains("needs CAP_NET_RAW"),
            "{told}"
        );
        let sent = flow.stop();
        let balance = account.close(path, sent.taken(), 0, KernelStats::default());
        assert_eq!(balance, Balance::EVEN);
    });
}

/// With 64 KiB of memory to lock and no CAP_IPC_LOCK, two queues of 16 frames each are exactly enough, and one frame more is
/// refused to the byte. Those sixteen frames answer under traffic, and what they have no room for is counted.
#[test]
fn sixty_four_kilobytes_of_locked_memory_are_enough() {
    if !is_root() {
        return;
    }
    const LIMIT: u64 = 64 * 1024;
    // One after the other: the limit is the user's, for both together.
    for path in MODES {
        let lab = lab("memlock", 3);
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
    }
}
