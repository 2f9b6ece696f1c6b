//! Guests: what they are joined by, and of which machine they are.

use super::super::tests::{plan, probe};
use super::super::{Plan, Way};
use ringside_measure::schema::LatencyKind;

#[test]
fn guests_of_all_attachments_are_read() {
    for (attachment, more) in [
        ("tap-bridge", "queues = 2\nqueue-len = 100"),
        ("vhost-net", ""),
        ("macvtap", "kernel = \"host\"\nmodules = [\"sch_fq\", \"ifb\"]"),
        ("ovs-userspace", ""),
        ("ovs-kernel", ""),
        ("xdp", "cpus = 1\nxdp-mode = \"generic\""),
        ("xdp-express", "express = \"pcp:5\""),
        ("af-xdp", "memory-mib = 512"),
        ("vhost-user", "acceleration = \"tcg\"\nsocket = \"/run/x\""),
        ("vhost-user", "program = [\"switch\", \"{socket}\"]"),
        ("vhost-user", ""),
    ] {
        let guest =
            format!("[[guest]]\nname = \"vm\"\nhost = \"c\"\nattachment = {attachment:?}\nuplink = \"up\"\n{more}\n");
        let read = plan(&(guest + &probe("from = \"b\"\nto = \"vm\"")));
        assert_eq!(read.guests[0].attachment.name(), attachment);
        assert_eq!((read.guests[0].uplink, read.probes[0].way), (Some(1), Way::Guest(0)));
        assert_eq!(read.probes[0].measures, [LatencyKind::RoundTrip]);
        let modules: &[&str] = if attachment == "macvtap" {
            &["sch_fq", "ifb"]
        } else {
            &[]
        };
        assert_eq!(read.guests[0].modules, modules);
    }
}

/// What a guest of another machine is, and which keys it has not.
#[test]
fn a_guest_of_another_machine_is_reached_as_that_is() {
    let guest = |name: &str, keys: &str| format!("[[guest]]\nname = {name:?}\nhost = \"far\"\n{keys}\n");
    let bridged = "attachment = \"tap-bridge\"\ninterface = \"eth1\"\naddress = \"192.0.2.9/24\"\nqueues = 2\ncpus = 4";
    let second = "attachment = \"macvtap\"\nmachine = \"vm\"\naddress = \"198.51.100.9/24\"";
    let both = guest("vm", bridged) + &guest("more", second);
    let plan = plan(&format!("{both}{}", probe("from = \"me\"\nto = \"more\"")));
    assert!(plan.guests.is_empty(), "{plan:?}");
    let number = plan.hosts.len() - 1;
    assert_eq!(plan.probes[0].way, Way::Serve(number));
    assert_eq!(plan.probes[0].measures, [LatencyKind::RoundTrip]);
    let [vm, more] = [number - 1, number].map(|at| plan.hosts[at].lodger().expect("a guest"));
    assert_eq!((vm.guest.machine, more.guest.machine), (number - 1, number - 1));
    assert_eq!((vm.guest.cpus, more.guest.cpus), (4, 4));
    assert_eq!(plan.hosts[vm.guest.host].name, "far");
    assert_eq!(
        (vm.interface.as_deref(), vm.address.1, vm.guest.queues),
        (Some("eth1"), 24, 2)
    );
    let to = probe("from = \"me\"\nto = \"vm\"");
    let refused = |text: &str| {
        Plan::read(&crate::lab::plan::tests::text(text))
            .unwrap_err()
            .to_string()
    };
    for (text, why) in [
        (
            guest("vm", "attachment = \"vfio\"\npci = \"0000:01:10.0\"\naddress = \"192.0.2.9/24\"") + &to,
            "gives no device away",
        ),
        (guest("vm", "attachment = \"vhost-user\"") + &to, "vhost-user is had on this machine only"),
        (guest("vm", "attachment = \"tap-bridge\"") + &to, "has an address in a network that this machine is on"),
        (
            guest("vm", &format!("{bridged}\nuplink = \"up\"")) + &to,
            "key guest.uplink: a link is of this machine",
        ),
        (guest("vm", bridged) + &guest("more", &second.replace("198.51.100.9", "192.0.2.9")) + &to, "another guest has the address 192.0.2.9"),
        (guest("vm", bridged) + &guest("more", &second.replace("\"vm\"", "\"x\"")) + &to, "there is no guest x above"),
        (
            guest("vm", bridged) + &probe("from = \"a\"\nto = \"vm\""),
            "no other machine is reached from a namespace",
        ),
        (guest("vm", &format!("{bridged}\nmodules = [\"ifb\"]")) + &to, "loads no modules of a lab's choice"),
        (guest("vm", bridged) + &probe("from = \"vm\"\nto = \"me\""), "what a guest asks is not measured"),
        (
            guest("vm", bridged) + &to + "[[steering]]\nname = \"s\"\nguest = \"vm\"\nvcpus = [0]\n",
            "its threads are not pinned from here",
        ),
        (
            guest("vm", bridged) + &to + "[[load]]\nname = \"l\"\nkind = \"stress-ng\"\nguest = \"vm\"\n",
            "no program of a lab's choice is started there",
        ),
        (
            guest("vm", &bridged.replace("queues = 2", "queues = 1"))
                + "[[schedule]]\nname = \"s\"\nfrom = \"vm\"\nto = \"me\"\nqdisc = \"etf\"\nclass = [\"5:0us:500us\"]\n",
            "give the guest queues = 2",
        ),
        (
            "[[guest]]\nname = \"vm\"\nhost = \"c\"\nattachment = \"tap-bridge\"\nuplink = \"up\"\ninterface = \"eth1\"\n".to_owned()
                + &probe("from = \"b\"\nto = \"vm\""),
            "key guest.interface: only of a guest on another machine",
        ),
    ] {
        let told = refused(&text);
        assert!(told.contains(why), "{why}: {told}");
    }
}

#[test]
fn an_emulated_machine_with_traced_paths_has_one_cpu_unless_more_is_needed() {
    let cpus = |keys: &str, trace: bool, rest: &str| {
        let guest = format!(
            "[[guest]]\nname = \"vm\"\nhost = \"c\"\nattachment = \"tap-bridge\"\n\
                     uplink = \"up\"\n{keys}\n"
        );
        let probe = probe(&format!("from = \"b\"\nto = \"vm\"\ntrace = {trace}"));
        let plan = plan(&(guest + &probe + rest));
        (plan.guests[0].cpus, plan.emulated_cpus(0))
    };
    let load = |cpu: u32| {
        format!(
            "[[load]]\nname = \"l\"\nkind = \"program\"\ncommand = [\"x\"]\n\
                 guest = \"vm\"\ncpus = [{cpu}]\n"
        )
    };
    let pins = "[[steering]]\nname = \"s\"\nguest = \"vm\"\nvcpus = [0, 1]\n";
    assert_eq!(cpus("", true, ""), (2, 1));
    assert_eq!(cpus("", true, &load(0)), (2, 1));
    assert_eq!(cpus("", false, ""), (2, 2));
    assert_eq!(cpus("cpus = 2", true, ""), (2, 2));
    assert_eq!(cpus("queues = 2", true, ""), (2, 2));
    assert_eq!(cpus("", true, &load(1)), (2, 2));
    assert_eq!(cpus("", true, pins), (2, 2));
}
