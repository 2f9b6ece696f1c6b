//! Knobs are turned and put back: at once, after a kill, and when it is asked for; checked against `ethtool` and sysfs.

use std::time::Duration;

use crate::common::{Bed, assert_restored, outcomes};
use ringside_netlab::{Namespace, testing};
use ringside_nic::changes::{Changes, Outcome};
use ringside_nic::{Coalescing, Error, Interface, Knob};

fn values(list: &[(Knob, &str)]) -> Vec<(Knob, String)> {
    list.iter()
        .map(|(knob, value)| (knob.clone(), (*value).to_owned()))
        .collect()
}

fn now(bed: &Bed, list: &[(Knob, &str)]) -> Vec<String> {
    bed.run(|interface| list.iter().map(|(knob, _)| interface.knob(knob).unwrap()).collect())
}

fn of_veth() -> [(Knob, &'static str); 5] {
    [
        (Knob::offload("gro"), "off"),
        (Knob::offload("tx-tcp-segmentation"), "off"),
        (Knob::RpsCpus { queue: 0 }, "0-1"),
        (Knob::RpsCpus { queue: 1 }, "1"),
        (Knob::XpsCpus { queue: 1 }, "0"),
    ]
}

#[test]
fn what_a_veth_has_is_set_and_put_back() {
    if !testing::is_root() {
        return;
    }
    let bed = Bed::new("knobs");
    let list = of_veth();
    let before = now(&bed, &list);
    assert_eq!(before, ["on", "on", "none", "none", "none"]);
    let undo = bed
        .run(|interface| bed.changes.set_knobs(interface, &values(&list)))
        .unwrap();
    assert_eq!(now(&bed, &list), list.each_ref().map(|(_, value)| *value));
    let shown = bed.end().ns.command("ethtool").args(["-k", "veth-a"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.contains("generic-receive-offload: off") && shown.contains("tx-tcp-segmentation: off"),
        "{shown}"
    );
    let restored = undo.restore();
    assert_restored(&restored);
    assert_eq!(restored[4].to_string(), "veth-a: offload rx-gro (on → off): restored");
    assert_eq!(now(&bed, &list), before);
    assert!(bed.files().is_empty());
}

#[test]
fn an_offload_that_another_one_keeps_off_is_an_error_and_leaves_nothing() {
    if !testing::is_root() {
        return;
    }
    let bed = Bed::new("knobdep");
    let all = || bed.run(|interface| interface.features().unwrap());
    let before = all();
    // Segmentation needs checksums.
    let list = values(&[
        (Knob::offload("tx-checksum-ip-generic"), "off"),
        (Knob::offload("tx-tcp-segmentation"), "on"),
    ]);
    let error = bed
        .run(|interface| bed.changes.set_knobs(interface, &list))
        .unwrap_err();
    assert!(
        matches!(&error, Error::FeatureUnchanged { feature, wanted: true, .. } if feature == "tx-tcp-segmentation"),
        "{error}"
    );
    assert_eq!(all(), before);
    // What was switched off by dependence is on again with what it depends on.
    let undo = bed
        .run(|interface| bed.changes.set_knobs(interface, &list[..1]))
        .unwrap();
    assert_ne!(all(), before);
    assert_restored(&undo.restore());
    assert_eq!(all(), before);
    for (knob, value) in [
        (Knob::offload("no-such"), "on"),
        (Knob::offload("rx-gro"), "perhaps"),
        (Knob::offload("tx-lockless"), "off"),
        (Knob::RpsCpus { queue: 9 }, "0"),
        (Knob::XpsCpus { queue: 9 }, "0"),
        (
            Knob::Coalescing {
                field: Coalescing::RxUsecs,
            },
            "5",
        ),
        (Knob::IrqCpus { irq: 999_999 }, "0"),
        (Knob::Governor { cpu: 99_999 }, "performance"),
    ] {
        let list = [(knob, value.to_owned())];
        let error = bed
            .run(|interface| bed.changes.set_knobs(interface, &list))
            .unwrap_err();
        assert!(!error.to_string().is_empty());
        assert_eq!(all(), before, "{error}");
        assert!(bed.files().is_empty(), "{error}");
    }
    assert!(
        bed.run(|interface| interface.irqs()).unwrap().is_empty(),
        "a veth has no interrupts"
    );
}

/// An interrupt is the host's: changes for two interfaces are of one thing. It is given the value that it has.
#[test]
fn knobs_of_the_host_are_one_for_all_interfaces() {
    if !testing::is_root() {
        return;
    }
    let bed = Bed::new("knobhost");
    let turnable = |entry: std::fs::DirEntry| {
        let file = entry.path().join("smp_affinity_list");
        let value = std::fs::read_to_string(&file).ok()?;
        std::fs::write(&file, value.trim()).ok()?;
        entry.file_name().to_str()?.parse::<u32>().ok()
    };
    let Some(irq) = std::fs::read_dir("/proc/irq").unwrap().flatten().find_map(turnable) else {
        // Interrupts of a container's host, or none that can be moved.
        return testing::skip_unsupported("an interrupt that can be moved to other CPUs");
    };
    let knob = Knob::IrqCpus { irq };
    let value = bed.run(|interface| interface.knob(&knob)).unwrap();
    let list = [(knob, value)];
    let first = bed.run(|interface| bed.changes.set_knobs(interface, &list)).unwrap();
    let other = &bed.lab.b;
    let second = other.run(|| bed.changes.set_knobs(&other.interface, &list)).unwrap();
    let restored = first.restore();
    assert!(
        matches!(restored[0].outcome, Outcome::HandedOver { .. }),
        "{restored:?}"
    );
    let restored = second.restore();
    assert_eq!(outcomes(&restored), [&Outcome::AsBefore]);
    assert!(
        restored[0]
            .to_string()
            .starts_with(&format!("veth-b: CPUs of IRQ {irq} (")),
        "{}",
        restored[0]
    );
}

/// A veth has no coalescing, but a tap device has: of one field.
#[test]
fn coalescing_is_set_and_put_back() {
    if !testing::is_root() {
        return;
    }
    let space = Namespace::create("knobtap").unwrap();
    let made = space
        .command("ip")
        .args(["tuntap", "add", "tap0", "mode", "tap"])
        .status()
        .unwrap();
    assert!(made.success());
    let directory = std::env::temp_dir().join(format!("ringside-knobtap-{}", std::process::id()));
    let frames = Knob::Coalescing {
        field: Coalescing::RxFrames,
    };
    space.run(|| {
        let tap = Interface::by_name("tap0").unwrap();
        let changes = Changes::in_directory(&directory);
        assert_eq!(tap.knob(&frames).unwrap(), "0");
        let undo = changes.set_knobs(&tap, &values(&[(frames.clone(), "17")])).unwrap();
        assert_eq!(tap.knob(&frames).unwrap(), "17");
        assert_restored(&undo.restore());
        assert_eq!(tap.knob(&frames).unwrap(), "0");
        // What the driver does not have is refused by the kernel.
        let adaptive = values(&[(
            Knob::Coalescing {
                field: Coalescing::AdaptiveRx,
            },
            "on",
        )]);
        let error = changes.set_knobs(&tap, &adaptive).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EOPNOTSUPP), "{error}");
    });
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn what_is_to_stay_stays_until_it_is_asked_for() {
    if !testing::is_root() {
        return;
    }
    let bed = Bed::new("knobkeep");
    let list = of_veth();
    let before = now(&bed, &list);
    let set = |values: &[(Knob, String)]| bed.run(|interface| bed.changes.set_knobs(interface, values)).unwrap();
    let kept = set(&values(&list)).keep().unwrap();
    assert_eq!(kept.len(), 5);
    assert_eq!(now(&bed, &list), list.each_ref().map(|(_, value)| *value), "it stays");
    assert_eq!(bed.recover(), [], "and is nothing that a process left");
    // Changes on top of it come and go.
    let rps = Knob::RpsCpus { queue: 1 };
    let over = set(&[(rps.clone(), "0".to_owned())]);
    assert_restored(&over.restore());
    assert_eq!(now(&bed, &[(rps.clone(), "")]), ["1"]);
    // However a list is written, it is the same CPUs.
    let over = set(&[(rps.clone(), "1,0".to_owned())]);
    assert_restored(&over.restore());
    // Kept twice: what was before the first comes back.
    drop(set(&[(rps.clone(), "none".to_owned())]).keep().unwrap());
    let over = set(&[(rps, "0".to_owned())]);
    let others = bed.changes.undo_kept(Some(&Interface::by_name("lo").unwrap())).unwrap();
    assert_eq!(others, [], "of another interface");
    let undone = bed.run(|interface| bed.changes.undo_kept(Some(interface))).unwrap();
    let changes: Vec<_> = undone.into_iter().flat_map(|one| one.changes).collect();
    let handed = |outcome: &&Outcome| matches!(outcome, Outcome::HandedOver { .. });
    assert_eq!(
        outcomes(&changes).iter().copied().filter(handed).count(),
        2,
        "{changes:#?}"
    );
    assert_restored(&over.restore());
    assert_eq!(now(&bed, &list), before);
    assert_eq!(bed.changes.undo_kept(None).unwrap(), []);
    assert!(bed.files().is_empty());
    // Where it cannot be written down it cannot stay.
    std::fs::remove_dir_all(&bed.directory).unwrap();
    std::fs::write(&bed.directory, "a file").unwrap();
    set(&values(&list)).keep().unwrap_err();
    assert_eq!(now(&bed, &list), before);
    std::fs::remove_file(&bed.directory).unwrap();
}

/// What a process had stay, which is then killed, is not taken for something that it left.
#[test]
fn what_is_to_stay_survives_its_process() {
    if !testing::is_root() {
        return;
    }
    let bed = Bed::new("knobkill");
    let list = of_veth();
    let before = now(&bed, &list);
    let mut command = bed.end().ns.command(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "knobs::keeper",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("RINGSIDE_TEST_KEEPER", &bed.directory);
    let mut keeper = command.spawn().unwrap();
    let set = || now(&bed, &list) == list.each_ref().map(|(_, value)| *value) && bed.directory.join("kept").exists();
    assert!(ringside_netlab::wait_until(Duration::from_secs(20), set));
    keeper.kill().unwrap();
    keeper.wait().unwrap();
    assert_eq!(bed.recover(), []);
    assert!(set());
    let undone = bed.changes.undo_kept(None).unwrap();
    assert_eq!(undone.len(), 1);
    assert_eq!(undone[0].pid, keeper.id());
    assert_restored(&undone[0].changes);
    assert_eq!(now(&bed, &list), before);
}

/// Not a test by itself: what the other process does.
#[test]
#[ignore = "what_is_to_stay_survives_its_process runs it in a process of its own"]
fn keeper() {
    let directory = std::env::var_os("RINGSIDE_TEST_KEEPER").expect("a directory");
    let interface = Interface::by_name("veth-a").expect("in the namespace");
    let undo = Changes::in_directory(&directory)
        .set_knobs(&interface, &values(&of_veth()))
        .unwrap();
    undo.keep().unwrap();
    std::fs::write(std::path::Path::new(&directory).join("kept"), "").unwrap();
    std::thread::sleep(Duration::from_secs(60));
}
