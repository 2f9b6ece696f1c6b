//! What a run changes on its interface is put back: at its end, and after a kill by the next run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{PATIENCE, Running, assert_clean, lab, ringside, run, start_receiver};
use ringside_netlab::testing::is_root;
use ringside_netlab::{End, Lab, VethConfig, wait_until};
use ringside_nic::NapiSettings;

fn napi(end: &End) -> NapiSettings {
    end.run(|| end.interface.napi().unwrap())
}

/// Returns the path of a state directory of a test's own.
fn folder(tag: &str) -> PathBuf {
    std::env::temp_dir().join(format!("ringside-napi-{tag}-{}", std::process::id()))
}

fn with_folder(folder: &Path, end: &End, arguments: &str) -> Running {
    let mut command = ringside(end, arguments);
    command.env("RINGSIDE_STATE_DIR", folder);
    Running::new(command)
}

#[test]
fn deferred_interrupts_are_for_the_run_alone() {
    if !is_root() {
        return;
    }
    let lab = lab("defer", 2);
    let before = napi(&lab.b);
    // Ended by Ctrl-C.
    let receiver = start_receiver(&lab.b, "rx {} --napi-defer 2:200");
    let during = napi(&lab.b);
    assert_eq!(
        (during.defer_hard_irqs, during.gro_flush_timeout),
        (2, Duration::from_micros(200))
    );
    run(
        &lab.a,
        &format!("tx {{}} --to {} --to-mac {} -t 1", lab.b.ipv4, mac(&lab.b)),
    )
    .good();
    let done = receiver.interrupt().good();
    assert!(
        done.err.contains("interrupts deferred for 2 empty polls, 200 µs each"),
        "{done:#?}"
    );
    assert_eq!(napi(&lab.b), before);
    // By kill -9: the next run, of whatever kind, puts it back and says so. With a folder of its own for what is written
    // down, because the runs of other tests are next runs, too.
    let folder = folder("defer");
    let receiver = with_folder(&folder, &lab.b, "rx {} --napi-defer 3:100");
    receiver.wait_for("interrupts deferred");
    assert_eq!(napi(&lab.b).defer_hard_irqs, 3);
    receiver.signal(libc::SIGKILL);
    drop(receiver);
    assert_eq!(napi(&lab.b).defer_hard_irqs, 3, "a kill leaves it");
    let next = with_folder(&folder, &lab.a, "rx {} -t 0.1").end();
    let told = next.err.contains("left changes behind") && next.err.contains("napi_defer_hard_irqs (0 → 3): restored");
    assert!(told, "{next:#?}");
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(napi(&lab.b), before);
    assert_clean(&lab.b);
}

#[test]
fn kernel_threads_poll_for_the_run_alone() {
    if !is_root() {
        return;
    }
    let lab = lab("kthreads", 2);
    let receiver = start_receiver(&lab.b, "rx {} --threaded-napi=0 --wait poll");
    assert!(napi(&lab.b).threaded);
    let done = receiver.interrupt();
    assert!(done.err.contains("NAPI in kernel threads: napi/veth-b-"), "{done:#?}");
    assert!(!napi(&lab.b).threaded);
    assert_clean(&lab.b);
}

/// A veth without GRO has NAPI instances only while an XDP program is attached.
#[test]
fn threaded_napi_of_a_killed_run_is_restored_once_xdp_is_attached() {
    if !is_root() {
        return;
    }
    let lab = Lab::veth(VethConfig::tagged("kthreads-killed")).expect("test bed");
    let folder = folder("kthreads");
    let receiver = with_folder(&folder, &lab.b, "rx {} --threaded-napi --wait poll");
    receiver.wait_for("NAPI in kernel threads");
    receiver.signal(libc::SIGKILL);
    drop(receiver);
    let is_detached = || lab.b.state().expect("it is there").xdp.is_none();
    assert!(wait_until(PATIENCE, is_detached), "the kernel detaches the program");
    assert!(napi(&lab.b).threaded, "a kill leaves it");
    // Nothing is attached: it cannot be restored yet, and says so.
    let undone = with_folder(&folder, &lab.b, "tune --undo").end();
    assert_eq!(undone.status.code(), Some(1), "{undone:#?}");
    assert!(undone.out.contains("threaded (0 → 1): not restored: "), "{undone:#?}");
    assert!(!undone.out.contains("nothing was left in place"), "{undone:#?}");
    let next = with_folder(&folder, &lab.b, "rx {} -t 0.1 --wait poll").end();
    assert!(next.err.contains("threaded (0 → 1): restored"), "{next:#?}");
    assert!(!napi(&lab.b).threaded);
    let undone = with_folder(&folder, &lab.b, "tune --undo").end().good();
    assert!(undone.out.contains("nothing was left in place"), "{undone:#?}");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Busy-polling that does nothing is told at the end of the run.
#[test]
fn busy_polling_without_effect_is_told() {
    if !is_root() {
        return;
    }
    let lab = lab("idlepoll", 2);
    let receiver = start_receiver(&lab.b, "rx {} --mode generic --wait busy-poll");
    run(
        &lab.a,
        &format!("tx {{}} --to {} --to-mac {} -t 1", lab.b.ipv4, mac(&lab.b)),
    )
    .good();
    let done = receiver.interrupt().good();
    assert!(done.err.contains("busy-polling does nothing"), "{done:#?}");
}

#[test]
fn nonsense_is_refused() {
    if !is_root() {
        return;
    }
    let lab = lab("defernot", 1);
    for value in ["2", "0:200", "2:0", "a:b", "2:200:1"] {
        let message = run(&lab.b, &format!("rx {{}} --napi-defer {value}")).bad();
        assert!(message.contains("POLLS:MICROS"), "{message}");
    }
    let message = run(&lab.b, "rx {} --threaded-napi=4000").bad();
    assert!(message.contains("4000"), "{message}");
    assert_clean(&lab.b);
}

fn mac(end: &End) -> String {
    end.mac.map(|byte| format!("{byte:02x}")).join(":")
}
