//! `ringside rx --hints` and `--program`: what an XDP program tells about packets, found by itself.

use std::net::UdpSocket;
use std::path::Path;

use crate::common::{Done, MODES, assert_clean, assert_reconciles, lab, run, start, start_receiver};
use ringside_bpf::UserProgram;
use ringside_bpf::testing::{EXAMPLE_FILE, NIC_EXAMPLE_FILE, direct};
use ringside_measure::schema::{FieldHints, HintsResult, LayoutHints, Number};
use ringside_netlab::testing::{is_root, skip};
use ringside_xsk::{AttachMode, XdpLink};

fn hints(done: &Done) -> HintsResult {
    let result = done.result();
    assert_reconciles(&result);
    result.hints.unwrap_or_else(|| panic!("no hints: {done:#?}"))
}

fn layout<'h>(hints: &'h HintsResult, name: &str) -> &'h LayoutHints {
    let found = hints.layouts.iter().find(|layout| layout.name == name);
    found.unwrap_or_else(|| panic!("no {name}: {hints:#?}"))
}

fn field<'l>(layout: &'l LayoutHints, name: &str) -> &'l FieldHints {
    let found = layout.fields.iter().find(|field| field.name == name);
    found.unwrap_or_else(|| panic!("no {name}: {layout:#?}"))
}

fn unsigned(number: Option<Number>) -> u64 {
    match number {
        Some(Number::Unsigned(number)) => number,
        other => panic!("{other:?}"),
    }
}

#[test]
fn our_own_program_tells_about_each_packet() {
    if !is_root() {
        return;
    }
    for mode in MODES {
        let lab = lab("rxhints", 1);
        let receiver = start_receiver(&lab.b, &format!("rx {{}} -m {mode} --hints --json --count 500 -w poll"));
        let sent = run(&lab.a, &format!("tx {{}} --to {} --count 500 --rate 20000", lab.b.ipv4));
        sent.good();
        let told = hints(&receiver.end().good());
        assert_eq!(told.layouts.len(), 2);
        assert_eq!(
            (told.absent_packets, told.unknown_packets, told.stale_packets),
            (0, 0, 0)
        );
        let (name, other) = match mode {
            "native" => ("ringside_nic", "ringside_rx"),
            _ => ("ringside_rx", "ringside_nic"),
        };
        assert_eq!(layout(&told, other).packets, 0);
        let rx = layout(&told, name);
        assert!(rx.packets >= 450, "{rx:#?}");
        let time = field(rx, "rx_ktime");
        assert!(unsigned(time.min) > 0 && unsigned(time.max) > unsigned(time.min));
        assert_eq!(unsigned(field(rx, "rx_queue").max), 0);
        assert!(unsigned(field(rx, "packet").max) >= rx.packets / 4, "{rx:#?}");
        assert_clean(&lab.b);
    }
}

/// Who stamped the packets, by which clock, and what the driver of a veth tells: in JSON and in words.
#[test]
fn what_the_nic_tells_is_told() {
    if !is_root() {
        return;
    }
    for mode in MODES {
        let lab = lab("rxnic", 1);
        for json in ["--json", ""] {
            let receiver = start_receiver(&lab.b, &format!("rx {{}} -m {mode} --hints --count 60 -w poll {json}"));
            let from = lab.a.run(|| UdpSocket::bind((lab.a.ipv4, 0))).unwrap();
            let index = lab.a.interface.index();
            for tci in [0, 0x2005, 0] {
                let _directed = lab.a.run(|| direct(index, 0, tci)).unwrap();
                for _ in 0..20 {
                    from.send_to(&[7; 30], (lab.b.ipv4, 5000)).unwrap();
                }
            }
            let done = receiver.end().good();
            let native = mode == "native";
            if json.is_empty() {
                let lines = match native {
                    true => &[
                        "NIC: its driver was asked for timestamp, hash, vlan-tag",
                        "stamped by xdp                  60 packets 100.0 %  last ",
                        " ns of CLOCK_MONOTONIC",
                        "60 times the driver had a stamp, and it was 0: none",
                        "hash                            60 packets 100.0 %",
                        "VLAN tag                        20 packets  33.3 %",
                        "802.1Q id 5 priority 1        20 packets",
                        "hints ringside_nic (id ",
                    ][..],
                    false => &["NIC: not asked: generic XDP runs behind the driver", "stamped by xdp"],
                };
                for line in lines {
                    assert!(done.out.contains(line), "{line}: {}", done.out);
                }
                continue;
            }
            let nic = hints(&done).nic.expect("it is our program");
            assert_eq!((nic.device_bound, nic.why_not.is_none()), (native, native), "{nic:#?}");
            let stamps: Vec<_> = nic.stamps.iter().map(|stamp| (&*stamp.source, stamp.packets)).collect();
            assert_eq!(stamps, [("hardware", 0), ("xdp", 60), ("application", 0)]);
            assert_eq!(nic.stamps[1].clock, "CLOCK_MONOTONIC");
            assert!(nic.stamps[0].clock.starts_with("PHC") && nic.stamps[0].last_ns.is_none());
            assert!(nic.stamps[1].last_ns.is_some() && nic.stamps[1].percent > 99.9);
            let expected = if native { (60, 60, 20) } else { (0, 0, 0) };
            assert_eq!((nic.zero_hardware_stamps, nic.hash.packets, nic.vlan.packets), expected);
            let of_types: u64 = nic.hash.types.iter().map(|kind| kind.packets).sum();
            assert_eq!(of_types, nic.hash.packets);
            if native {
                let [tag] = &nic.vlan.tags[..] else { panic!("{nic:#?}") };
                assert_eq!((tag.protocol, tag.id, tag.priority, tag.packets), (0x8100, 5, 1, 20));
            }
        }
        assert_clean(&lab.b);
    }
}

#[test]
fn a_program_of_the_users_is_read_by_its_own_types() {
    if !is_root() {
        return;
    }
    for mode in MODES {
        let lab = lab("rxuser", 1);
        let options = format!("rx {{}} -m {mode} --program {} --hints -w poll", EXAMPLE_FILE);
        for json in ["--json", ""] {
            let receiver = start(&lab.b, &format!("{options} --count 400 {json}"));
            receiver.wait_for("XDP program hints id");
            for size in [64, 300] {
                let sent = format!("tx {{}} --to {} --count 200 --rate 20000 --size {size}", lab.b.ipv4);
                run(&lab.a, &sent).good();
            }
            let done = receiver.end().good();
            if json.is_empty() {
                assert!(done.out.contains("hints rx_mark (id "), "{done:#?}");
                assert!(done.out.contains("rx_ktime"), "{done:#?}");
                continue;
            }
            let told = hints(&done);
            let (mark, time) = (layout(&told, "rx_mark"), layout(&told, "rx_time"));
            assert!(mark.packets >= 150 && time.packets >= 150, "{told:#?}");
            let number = field(mark, "mark");
            assert_eq!((unsigned(number.min), unsigned(number.max)), (42, 42));
            assert!(unsigned(field(time, "rx_ktime").min) > 0);
            assert_eq!(
                (told.absent_packets, told.unknown_packets, told.stale_packets),
                (0, 0, 0)
            );
        }
        assert_clean(&lab.b);
    }
}

/// A program of the user's that asks the driver is loaded for the device; generic mode cannot have it.
#[test]
fn a_program_of_the_users_asks_the_driver() {
    if !is_root() {
        return;
    }
    let lab = lab("rxusernic", 1);
    let command = |mode| format!("rx {{}} -m {mode} --program {NIC_EXAMPLE_FILE} --hints -w poll --count 40 --json");
    let receiver = start(&lab.b, &command("native"));
    receiver.wait_for("XDP program nic id");
    let from = lab.a.run(|| UdpSocket::bind((lab.a.ipv4, 0))).unwrap();
    let _directed = lab.a.run(|| direct(lab.a.interface.index(), 0, 0x2005)).unwrap();
    for _ in 0..40 {
        from.send_to(&[7; 30], (lab.b.ipv4, 5000)).unwrap();
    }
    let done = receiver.end().good();
    assert!(done.err.contains("loaded for veth-b alone"), "{done:#?}");
    let told = hints(&done);
    let flow = layout(&told, "rx_flow");
    assert_eq!(flow.packets, 40);
    let both = |name| (unsigned(field(flow, name).min), unsigned(field(flow, name).max));
    assert_eq!((both("vlan"), both("hashed")), ((5, 5), (1, 1)));
    let refused = run(&lab.b, &command("generic")).bad();
    assert!(
        refused.contains("in generic mode") && refused.contains("loaded for one device"),
        "{refused}"
    );
    assert_clean(&lab.b);
}

/// Somebody else's program, with its hints: from the kernel alone.
#[test]
fn an_attached_program_is_read_by_what_the_kernel_knows_of_it() {
    if !is_root() {
        return;
    }
    let lab = lab("rxatt", 1);
    let none = run(&lab.b, "rx {} --attached -t 1").bad();
    assert!(none.contains("--attached") && none.contains("there is none"), "{none}");
    let program = UserProgram::load(Path::new(EXAMPLE_FILE), None, 1, false).unwrap();
    let attach = || XdpLink::attach(program.program(), &lab.b.interface, AttachMode::Native);
    let _link = lab.b.run(attach).unwrap();
    let receiver = start(&lab.b, "rx {} -m native --attached --hints -w poll --count 200 --json");
    receiver.wait_for("XDP program hints id");
    run(
        &lab.a,
        &format!("tx {{}} --to {} --count 200 --rate 20000 --size 64", lab.b.ipv4),
    )
    .good();
    let told = hints(&receiver.end().good());
    let packets: u64 = told.layouts.iter().map(|layout| layout.packets).sum();
    assert!(packets >= 190 && told.nic.is_none(), "{told:#?}");
    assert!(lab.b.state().unwrap().xdp.is_some(), "it stays attached");
    let both = run(&lab.b, "rx {} --attached --filter none -t 1").refused();
    assert!(both.contains("--filter"), "{both}");
}

#[test]
fn files_that_are_no_program_are_refused() {
    if !is_root() {
        return;
    }
    let lab = lab("rxbad", 1);
    let missing = run(&lab.b, "rx {} --program /nonexistent.o -t 1").refused();
    assert!(missing.contains("/nonexistent.o"), "{missing}");
    let other = run(
        &lab.b,
        &format!("rx {{}} --program {} -t 1", env!("CARGO_BIN_EXE_ringside")),
    )
    .bad();
    assert!(other.contains("ringside"), "{other}");
    let name = format!("rx {{}} --program {} --program-name nothing -t 1", EXAMPLE_FILE);
    let unknown = run(&lab.b, &name).refused();
    assert!(unknown.contains("no XDP program nothing, but hints"), "{unknown}");
    let both = run(
        &lab.b,
        &format!("rx {{}} --program {} --filter none -t 1", EXAMPLE_FILE),
    )
    .refused();
    assert!(both.contains("--filter"), "{both}");
    assert_clean(&lab.b);
}

/// The lines of a text that run clang, as one types them.
fn clang_commands(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.trim_start_matches(" *").trim());
    let joined = lines.collect::<Vec<_>>().join("\n").replace("\\\n", "");
    let commands = joined.lines().filter(|line| line.starts_with("clang -"));
    commands.map(str::to_owned).collect()
}

#[test]
fn documented_commands_compile_a_program() {
    if std::process::Command::new("clang").arg("--version").output().is_err() {
        return skip("clang (make setup installs it)");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let object = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("documented-{}.o", std::process::id()));
    for file in ["docs/hints.md", "examples/hints.bpf.c", "examples/nic.bpf.c"] {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        let commands = clang_commands(&text);
        assert_eq!(commands.len(), 1, "{file}: {commands:?}");
        let (command, output) = commands[0].split_once(" -o ").expect("an output");
        assert!(output.ends_with(".o"), "{file}: {output}");
        let command = command.replace("my.bpf.c", "examples/hints.bpf.c");
        let script = format!("{command} -o {}", object.display());
        let done = std::process::Command::new("sh")
            .args(["-c", &script])
            .current_dir(&root)
            .output();
        let done = done.expect("a shell");
        assert!(done.status.success(), "{file}: {script}: {done:?}");
        std::fs::remove_file(&object).expect("the object");
    }
}
