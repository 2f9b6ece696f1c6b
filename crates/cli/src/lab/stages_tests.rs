use super::super::file::Text;
use super::*;

const LAB: &str = "\
[[host]]
name = \"a\"
[[host]]
name = \"b\"
[[host]]
name = \"me\"
place = \"here\"
[[host]]
name = \"far\"
serve = \"192.0.2.7\"
[[link]]
ends = [\"a\", \"b\"]
";

fn plan(top: &str, more: &str) -> Result<Plan, String> {
    let text = Text {
        name: "t".into(),
        text: format!("{top}{LAB}{more}"),
    };
    Plan::read(&text).map_err(|faults| faults.to_string())
}

fn probe(name: &str, to: [&str; 2], keys: &str) -> String {
    let [from, to] = to;
    format!("[[probe]]\nname = {name:?}\nfrom = {from:?}\nto = {to:?}\nwith = \"udp\"\n{keys}\n")
}

fn parts(plan: &Plan) -> Vec<(&str, bool)> {
    let of = |part: Part| (plan.probes[part.probe].name.as_str(), part.is_loaded);
    all(plan).into_iter().map(of).collect()
}

#[test]
fn a_path_is_traced_if_it_says_so_or_all_are() {
    let (link, far) = (["a", "b"], ["me", "far"]);
    let paths = |keys: &str| probe("one", link, keys) + &probe("two", link, "") + &probe("far", far, "");
    assert_eq!(parts(&plan("", &paths("")).unwrap()), []);
    assert_eq!(parts(&plan("", &paths("trace = true")).unwrap()), [("one", false)]);
    assert_eq!(
        parts(&plan("trace = true\n", &paths("trace = false")).unwrap()),
        [("two", false), ("far", false)]
    );
    let load = "[[load]]\nname = \"l\"\nkind = \"stress-ng\"\n";
    let loaded = plan("trace = true\n", &(paths("") + load)).unwrap();
    assert_eq!(
        parts(&loaded),
        [
            ("one", false),
            ("one", true),
            ("two", false),
            ("two", true),
            ("far", false),
            ("far", true)
        ]
    );
}

#[test]
fn an_uncertainty_is_for_one_way_by_another_clock_alone() {
    let refused = plan("", &probe("one", ["a", "b"], "uncertainty = \"10us\"")).unwrap_err();
    assert!(
        refused.contains("only one way to a guest or another machine is by another clock"),
        "{refused}"
    );
    let guest = "[[link]]\nname = \"up\"\nends = [\"a\", \"b\"]\n\
                 [[guest]]\nname = \"vm\"\nhost = \"b\"\nattachment = \"tap-bridge\"\nuplink = \"up\"\n";
    let to_guest = |keys: &str| plan("", &(guest.to_owned() + &probe("g", ["a", "vm"], keys)));
    let usual = to_guest("").unwrap();
    assert_eq!((usual.probes[0].frame_bytes, usual.probes[0].measures.len()), (82, 1));
    let both = to_guest("measure = [\"rtt\", \"one-way\"]\nuncertainty = \"250us\"").unwrap();
    assert_eq!(both.probes[0].frame_bytes, 98);
    assert_eq!(both.probes[0].uncertainty, Duration::from_micros(250));
    let short = to_guest("measure = [\"one-way\"]\nsize = 90").unwrap_err();
    assert!(short.contains("frames of 98 bytes at least"), "{short}");
}

#[test]
fn what_no_hook_tells_of_the_way_into_a_guest_is_named_with_its_reason() {
    for attachment in [
        Join::TapBridge,
        Join::OvsUserspace,
        Join::Xdp,
        Join::Express,
        Join::AfXdp,
    ] {
        let told = crossing(Accelerator::Tcg, attachment);
        let [into, out] = &told[..] else { panic!("{told:?}") };
        assert!(into.tells.contains("'vCPU to guest interrupt'") && out.tells.contains("'out of the guest'"));
        assert!(told.iter().all(|hook| hook.reason.contains("emulated (tcg)")));
    }
    let by_kvm = crossing(Accelerator::Kvm, Join::TapBridge);
    assert!(
        by_kvm.iter().all(|hook| !hook.reason.contains("emulated")),
        "{by_kvm:?}"
    );
    // These have no TAP device, or none that tells.
    for attachment in [Join::VhostUser, Join::Vfio, Join::Macvtap] {
        let told = crossing(Accelerator::Tcg, attachment);
        let [ring, ..] = &told[..] else { panic!("{told:?}") };
        assert!(
            told.len() == 3 && ring.tells.contains("there is no 'TAP ring'"),
            "{ring:?}"
        );
    }
}

#[test]
fn disturbers_are_looked_for_where_something_is_traced() {
    let traced = plan("", &probe("one", ["a", "b"], "trace = true\ndisturbers = false")).unwrap();
    assert_eq!(traced.probes[0].disturbers, Some(false));
    for (keys, why) in [
        ("disturbers = true", "key probe.disturbers: only of what is traced"),
        (
            "trace = true\nstop-above = \"1ms\"\ndisturbers = false",
            "key probe.disturbers: stop-above shows what the CPUs did",
        ),
    ] {
        let refused = plan("", &probe("one", ["a", "b"], keys)).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn virtual_cpus_are_known_by_the_names_of_their_threads() {
    let found = [
        "CPU 0/TCG",
        "CPU 11/KVM",
        "CPU 1/other",
        "CPU x/KVM",
        "qemu-system-x86",
        "vhost-77",
    ]
    .map(vcpu);
    assert_eq!(found, [Some(0), Some(11), None, None, None, None]);
}
