//! What libxdp's own tests ask of a library: a program that outlives neither its link nor its sockets, whoever comes and goes
//! in between. The one about sockets in processes without capabilities is in `tests/privileges.rs`.

use std::os::fd::AsFd as _;

use libbpf_rs::query::{MapInfoIter, ProgInfoIter, ProgInfoQueryOptions};
use ringside_bpf::{Filter, XskProgram};
use ringside_netlab::{Lab, wait_until};
use ringside_xsk::{AttachMode, Path, Program, QueueOptions, XdpLink};

use crate::common::PATIENCE;
use crate::common::conformance::{Case, row_on, usual};
use crate::common::traffic::{exchange, only, through};

fn mode(case: Case) -> AttachMode {
    match case.path {
        Path::Generic => AttachMode::Generic,
        _ => AttachMode::Native,
    }
}

fn attached(lab: &Lab) -> Option<u32> {
    lab.b.state().expect("readable").xdp.map(|xdp| xdp.prog_id)
}

fn program_lives(id: u32) -> bool {
    ProgInfoIter::default().any(|info| info.id == id)
}

/// Four threads, or as many as there are queues, open and close sockets on one program at the same time, each on its queue: it
/// stays attached as long as its owner wants it, works, and is gone with its owner.
#[test]
fn concurrent_create_and_delete() {
    row_on("CONCURRENT_CREATE_AND_DELETE", usual("refcount"), |lab, case| {
        let program = XskProgram::load(4, Filter::All).expect("loads");
        let id = program.id();
        let link = lab
            .b
            .run(|| XdpLink::attach(program.program(), &lab.b.interface, mode(case)))
            .expect("attached");
        let open = |queue: u32| {
            let xsks_map = program.xsks_map().try_clone_to_owned().expect("a descriptor");
            case.port(&lab.b, QueueOptions::new(), |port| {
                port.queues([queue]).program(Program::Attached { xsks_map })
            })
        };
        // A NIC in a guest has one or two.
        let queues = lab.b.run(|| lab.b.interface.rx_queues()).expect("readable").min(4);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..queues)
                .map(|queue| {
                    scope.spawn(move || {
                        for _ in 0..5 {
                            let port = open(queue);
                            assert_eq!(attached(lab), Some(id));
                            drop(port);
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
        let mut port = open(case.queue);
        let mut tx = case.sender(&lab.a, QueueOptions::new());
        exchange(lab, &mut tx, only(&mut port), case.wait(), (64, 64));
        drop((port, link, program));
        assert_eq!(attached(lab), None);
        assert!(
            wait_until(PATIENCE, || !program_lives(id)),
            "program {id} is still loaded"
        );
    });
}

/// A dropped link is detached at once, whoever else still holds its descriptor; and so is a port's.
#[test]
fn link_detach() {
    row_on("LINK_DETACH", usual("detach"), |lab, case| {
        let program = XskProgram::load(4, Filter::None).expect("loads");
        let attach = || XdpLink::attach(program.program(), &lab.b.interface, mode(case));
        let link = lab.b.run(attach).expect("attached");
        let held = link.as_fd().try_clone_to_owned().expect("a descriptor");
        assert_eq!(attached(lab), Some(program.id()));
        drop(link);
        assert_eq!(attached(lab), None);
        let port = case.port(&lab.b, QueueOptions::new(), |port| port);
        let id = port.report().program.as_ref().map(|program| program.id);
        assert_eq!(attached(lab), id);
        drop(port);
        assert_eq!(attached(lab), None);
        drop(held);
        // Nothing of it is in the way.
        through(lab, case, QueueOptions::new(), (64, 64));
    });
}

/// Program and maps of a port go with it, each time.
#[test]
fn map_leak() {
    row_on("MAP_LEAK", usual("mapleak"), |lab, case| {
        let mut programs = Vec::new();
        let mut maps = Vec::new();
        for _ in 0..5 {
            let port = case.port(&lab.b, QueueOptions::new(), |port| port);
            let id = port.report().program.as_ref().expect("its own").id;
            let info = ProgInfoIter::with_query_opts(ProgInfoQueryOptions::default().include_map_ids(true))
                .find(|info| info.id == id);
            let info = info.expect("loaded");
            assert!(!info.map_ids.is_empty());
            maps.extend(info.map_ids);
            programs.push(id);
            drop(port);
        }
        let gone = || {
            !ProgInfoIter::default().any(|info| programs.contains(&info.id))
                && !MapInfoIter::default().any(|info| maps.contains(&info.id))
        };
        assert!(wait_until(PATIENCE, gone), "programs {programs:?}, maps {maps:?}");
    });
}
