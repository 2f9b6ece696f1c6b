//! A program that somebody else has attached: its XSKMAP and its types come from the kernel.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use crate::common::PATIENCE;
use crate::common::traffic::{only, send};
use crate::common::{MODES, lab, open_once, packet_of, roomy, sender};
use libbpf_rs::libbpf_sys as sys;
use ringside_bpf::testing::LAYOUTS_FILE;
use ringside_bpf::{Filter, Neighbours, Sink, UserProgram, XdpMode, XskProgram};
use ringside_netlab::testing::is_root;
use ringside_xsk::hints::{Btf, BtfError, Layouts, Value};
use ringside_xsk::{AttachMode, AttachedProgram, Error, Path, Wait, XdpLink};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

#[test]
fn its_hints_are_read_without_its_file() {
    if !is_root() {
        return;
    }
    for path in MODES {
        let lab = lab("attached", 1);
        let somebodys = UserProgram::load(std::path::Path::new(LAYOUTS_FILE), None, 1, false).unwrap();
        let mode = match path {
            Path::Generic => AttachMode::Generic,
            _ => AttachMode::Native,
        };
        let link = lab
            .b
            .run(|| XdpLink::attach(somebodys.program(), &lab.b.interface, mode))
            .unwrap();
        let file = Btf::from_file(LAYOUTS_FILE).unwrap();
        let file = Layouts::of(&file).unwrap();
        drop(somebodys);

        let attached = lab.b.run(|| AttachedProgram::of(&lab.b.interface)).unwrap();
        assert_eq!(attached.name(), "layouts");
        let layouts = Layouts::of(&attached.btf().unwrap()).unwrap();
        let same = |layouts: &Layouts| layouts.iter().cloned().collect::<Vec<_>>();
        assert_eq!(same(&layouts), same(&file), "the kernel has what the file has");
        let number = layouts.field("test_time", "number").unwrap();
        let mut port = open_once(&lab.b, path, |port| {
            port.options(roomy().hints(layouts).busy_timeout(PATIENCE))
                .program(attached.into_program())
        });
        let mut from = sender(&lab.a);
        let all: Vec<_> = (0..50).map(|n| packet_of(n, 64, lab.a.mac, lab.b.mac)).collect();
        send(from.queues_mut().next().unwrap(), &all);
        let (mut next, start) = (0, Instant::now());
        while next < 50 {
            assert!(start.elapsed() < Duration::from_secs(10), "{next} of 50");
            let mut burst = only(&mut port).recv(Wait::Poll(Duration::from_millis(100))).unwrap();
            for packet in &mut burst {
                let value = packet.raw_hints().and_then(|hints| hints.value(&number));
                assert_eq!(value, (next % 5 == 0).then_some(Value::Unsigned(next)));
                next += 1;
            }
        }
        drop(port);
        let still = lab.b.state().unwrap().xdp.expect("it stays attached");
        drop(link);
        assert_ne!(still.prog_id, 0);
    }
}

#[test]
fn what_is_no_such_program_is_refused() {
    if !is_root() {
        return;
    }
    let lab = lab("attnone", 1);
    let of = || lab.b.run(|| AttachedProgram::of(&lab.b.interface));
    let refused = |error: Error| match error {
        Error::Setting {
            setting: "program",
            reason,
            ..
        } => reason,
        other => panic!("{other}"),
    };
    assert!(refused(of().unwrap_err()).contains("there is none"));
    let sink = Sink::load(Neighbours::default()).unwrap();
    let link = lab
        .b
        .run(|| sink.attach(lab.b.interface.index(), XdpMode::Native))
        .unwrap();
    let reason = refused(of().unwrap_err());
    assert!(reason.contains("ringside_sink has no map of type XSKMAP"), "{reason}");
    drop(link);
    let ours = XskProgram::load(1, Filter::None).unwrap();
    let _link = lab
        .b
        .run(|| XdpLink::attach(ours.program(), &lab.b.interface, AttachMode::Native))
        .unwrap();
    of().unwrap();
    // Ids are for those who may administer the machine.
    let denied = lab
        .b
        .run(|| without_capabilities(|| AttachedProgram::of(&lab.b.interface).unwrap_err()));
    assert!(
        matches!(
            denied,
            Error::Permission {
                needs: "CAP_SYS_ADMIN",
                ..
            }
        ),
        "{denied}"
    );
    let denied = without_capabilities(|| Btf::of_program(ours.program()).unwrap_err());
    assert!(denied.to_string().contains("CAP_SYS_ADMIN"), "{denied}");
}

#[test]
fn a_program_without_types_is_told_from_one_without_a_program() {
    if !is_root() {
        return;
    }
    let reason = |fd: &dyn AsFd| match Btf::of_program(fd.as_fd()).unwrap_err() {
        BtfError::Program { reason } => reason,
        other => panic!("{other}"),
    };
    assert!(reason(&pass_without_btf()).contains("loaded without"));
    let file = File::open("/proc/self/status").unwrap();
    assert!(!reason(&file).contains("loaded without"), "{}", file.as_raw_fd());
}

/// On a thread of its own, in the calling thread's network namespace.
fn without_capabilities<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            let none = CapabilitySet::empty();
            let sets = CapabilitySets {
                effective: none,
                permitted: none,
                inheritable: none,
            };
            set_capabilities(None, sets).unwrap();
            work()
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn pass_without_btf() -> OwnedFd {
    let instruction = |code, value| sys::bpf_insn {
        code,
        imm: value,
        ..Default::default()
    };
    // r0 = XDP_PASS; exit
    let program = [instruction(0xb7, 2), instruction(0x95, 0)];
    // SAFETY: two instructions as told, names that end in NUL, and no options; the descriptor is nobody else's.
    unsafe {
        let fd = sys::bpf_prog_load(
            sys::BPF_PROG_TYPE_XDP,
            c"without".as_ptr(),
            c"MIT".as_ptr(),
            program.as_ptr(),
            program.len().try_into().unwrap(),
            std::ptr::null_mut(),
        );
        assert!(fd >= 0, "{fd}");
        OwnedFd::from_raw_fd(fd)
    }
}
