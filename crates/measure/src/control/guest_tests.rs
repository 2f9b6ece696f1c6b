//! What a server allows, and what is more.

use super::*;

fn allowed() -> GuestsAllowed {
    let uplink = |name: &str, needed: Option<&str>| GuestUplink {
        name: name.to_owned(),
        needed: needed.map(str::to_owned),
    };
    GuestsAllowed {
        uplinks: vec![uplink("eth1", None), uplink("eth0", Some("has the address 192.0.2.1"))],
        most: 1,
        cpus: 2,
        memory_mib: 1024,
        kernels: vec!["linux-image-amd64".to_owned(), "host".to_owned()],
        lacking: BTreeMap::new(),
    }
}

fn nic(attachment: &str, interface: Option<&str>) -> GuestNic {
    GuestNic {
        interface: interface.map(str::to_owned),
        attachment: attachment.to_owned(),
        address: Ipv4Addr::new(192, 0, 2, 9),
        prefix: 24,
        queues: 1,
        queue_len: None,
        is_generic: false,
        express: None,
    }
}

fn end() -> GuestEnd {
    GuestEnd {
        name: "vm".to_owned(),
        nics: vec![nic("tap-bridge", None), nic("macvtap", Some("eth0"))],
        kernel: None,
        cpus: 2,
        memory_mib: 1024,
        acceleration: "any".to_owned(),
        qdiscs: vec!["etf".to_owned()],
        iperf3: true,
        token: "0123456789abcdef".to_owned(),
    }
}

#[test]
fn what_is_allowed_is_taken() {
    let allowed = allowed();
    assert_eq!(end().check(&allowed), Ok(()));
    let kernel = Some("host".to_owned());
    assert_eq!(GuestEnd { kernel, ..end() }.check(&allowed), Ok(()));
    let [first, second] = &end().nics[..] else {
        panic!("two")
    };
    assert_eq!(allowed.uplink(first).map(|uplink| uplink.name.as_str()), Ok("eth1"));
    assert_eq!(allowed.uplink(second).map(|uplink| uplink.name.as_str()), Ok("eth0"));
}

#[test]
fn what_is_more_is_refused_with_the_option_that_would_help() {
    let nics = |nics: Vec<GuestNic>| GuestEnd { nics, ..end() };
    let with = |change: fn(&mut GuestNic)| {
        let mut one = nic("macvtap", None);
        change(&mut one);
        nics(vec![one])
    };
    for (asked, word) in [
        (GuestEnd { cpus: 3, ..end() }, "3 are asked for, this server allows 2"),
        (GuestEnd { cpus: 0, ..end() }, "virtual CPUs: 0"),
        (
            GuestEnd {
                memory_mib: 1025,
                ..end()
            },
            "--max-guest-memory",
        ),
        (
            GuestEnd {
                kernel: Some("linux-image-rt-amd64".to_owned()),
                ..end()
            },
            "this server allows linux-image-amd64, host (--guest-kernel)",
        ),
        (
            GuestEnd {
                acceleration: "xen".to_owned(),
                ..end()
            },
            "acceleration",
        ),
        (
            GuestEnd {
                qdiscs: vec!["../x".to_owned()],
                ..end()
            },
            "queueing discipline",
        ),
        (
            GuestEnd {
                token: "0123456789abcde;".to_owned(),
                ..end()
            },
            "letters and digits",
        ),
        (
            GuestEnd {
                token: "short".to_owned(),
                ..end()
            },
            "token",
        ),
        (nics(Vec::new()), "0 NICs"),
        (
            nics(vec![nic("macvtap", Some("eth9"))]),
            "this server allows eth1, eth0 (--lab-guests)",
        ),
        (
            nics(vec![nic("macvtap", None), nic("macvtap", Some("eth1"))]),
            "two NICs are to be joined to eth1",
        ),
        (
            nics(vec![nic("xdp", Some("eth0"))]),
            "it has the address 192.0.2.1: take macvtap",
        ),
        // A device, and a program of the client's choice.
        (nics(vec![nic("vfio", None)]), "the attachment vfio"),
        (nics(vec![nic("vhost-user", None)]), "the attachment vhost-user"),
        (with(|nic| nic.queues = 0), "out of range"),
        (with(|nic| nic.queues = 17), "out of range"),
        (with(|nic| nic.queue_len = Some(0)), "out of range"),
        (with(|nic| nic.prefix = 33), "out of range"),
        (with(|nic| nic.address = Ipv4Addr::BROADCAST), "no address of a machine"),
    ] {
        let why = asked.check(&allowed()).expect_err(word);
        assert!(why.contains(word), "{word}: {why}");
    }
}
