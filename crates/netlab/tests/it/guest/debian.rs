//! Debian 12's own kernel, Linux 6.1, takes all programs of `ringside-bpf` but those that say that they need a newer one.

use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use ringside_bpf::gateway::{
    Amendment, CachedConnection, CachedNeighbor, ConnectionKey, GatewayConfig, GatewayPort, GatewayProgram,
    NeighborKey, Sizes, TcpNumbers, TcpSide,
};
use ringside_bpf::{
    Filter, Generator, GeneratorOptions, IngressDrop, LandingClass, Landings, Neighbours, ProbeMarks, Redirected,
    Redirector, Reflect, Reflector, Sink, TapRings, TraceOptions, Tracer, Verdict, XdpEvents, XskHints, XskProgram,
    dry_run,
};
use ringside_netlab::guest::{Agent, Guest, GuestConfig, Kernel};
use ringside_netlab::testing::{is_ubuntu, skip_unsupported};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// The one of its images for clouds: the same, with fewer drivers.
const DEBIAN_12: &str = "linux-image-cloud-amd64/bookworm";

/// For all of them, by emulated CPUs on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_mins(15);

#[test]
fn debian_12s_kernel_takes_the_programs() {
    if is_ubuntu() {
        return skip_unsupported("Debian's kernel: Ubuntu's package servers do not have it");
    }
    let kernel = Kernel::named(DEBIAN_12).expect("a kernel for guests");
    assert!(kernel.release.starts_with("6.1."), "{}", kernel.release);
    let agent = Agent::test_binary().expect("this binary");
    let own = agent.program.clone();
    let mut config = GuestConfig::new("debian", kernel, agent);
    config.programs = vec![own.clone()];
    // Where the types are that the program for rings of TAP devices reads.
    config.modules = vec!["tun".into()];
    let guest = Guest::start(&config).expect("a guest");
    eprintln!("Linux {}, ready after {:?}", guest.release(), guest.boot_time());
    let run = guest.command(&own).args([
        "guest::debian::inside::",
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]);
    let done = run.limit(PATIENCE).output().expect("ends");
    let [out, err] = [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text));
    let passed = done.status.success() && out.contains("4 passed");
    assert!(passed, "{out}\n{err}\n{}", guest.console().expect("its console"));
    eprintln!("{err}");
}

mod inside {
    use super::*;

    /// The loopback interface, where dry runs say that packets come from.
    const LOOPBACK: u32 = 1;

    #[test]
    #[ignore = "debian_12s_kernel_takes_the_programs runs it in a guest"]
    fn the_gateways() {
        let program = GatewayProgram::load(Sizes {
            neighbors: 16,
            connections: 16,
            queues: 1,
            sample_bytes: 4096,
        })
        .expect("taken");
        let receiver = CachedNeighbor {
            host: Ipv4Addr::new(192, 0, 2, 2).into(),
            host_mac: [2, 0, 0, 0, 1, 2],
            mac: [2, 0, 0, 0, 2, 2],
            port: 0,
            tunnel: None,
            policed: false,
            guarded: false,
            mtu: None,
            mtu_until: None,
            foreign: false,
            used: false,
        };
        let key = NeighborKey {
            vni: 5,
            ip: Ipv4Addr::new(10, 0, 0, 2).into(),
        };
        assert_eq!(program.neighbors().put(&[(key, receiver)]), 1);
        let own = Ipv4Addr::new(192, 0, 2, 254);
        let mut config = GatewayConfig {
            vxlan_port: 4789,
            geneve_port: 6081,
            addresses: vec![own.into()],
            ttl: 64,
            ports: vec![Some(GatewayPort {
                ifindex: LOOPBACK,
                mac: [2, 0, 0, 0, 1, 0xfe],
                v4: Some(own),
                v6: None,
                mtu: 1500,
            })],
            ..GatewayConfig::default()
        };
        // First by the straight lane, then by the long way.
        for derive_source_port in [false, true] {
            config.derive_source_port = derive_source_port;
            program.configure(&config).expect("configured");
            let (verdict, sent) = dry_run(&program, &tunnelled(&udp())).expect("runs");
            assert_eq!(verdict, Verdict::Tx);
            assert_eq!(sent[..6], receiver.host_mac);
            assert_eq!(sent[26..34], [192, 0, 2, 254, 192, 0, 2, 2]);
            assert_eq!(sent[34..36] == [0xc3, 0x50], !derive_source_port, "its source port");
        }
        // It was this way that had too many ways for 6.1.
        let (verdict, sent) = dry_run(&program, &tunnelled(&question())).expect("runs");
        assert_eq!(verdict, Verdict::Tx);
        assert_eq!(sent[26..34], [192, 0, 2, 254, 192, 0, 2, 1], "back to the asker's host");
        assert_eq!(sent[70..72], [0, 2], "an answer");
        assert_eq!(sent[72..78], receiver.mac);
        amends_a_connection(&program);
    }

    /// A program of its own does it.
    fn amends_a_connection(program: &GatewayProgram) {
        let side = TcpSide {
            end: 1,
            limit: 2,
            window: 3,
            scale: 0,
        };
        let numbers = |settled, end| TcpNumbers {
            since: 1,
            settled,
            sides: [TcpSide { end, ..side }, side],
        };
        let connection = CachedConnection {
            generation: 1,
            seen: 1,
            idle_ms: 1,
            from_higher: false,
            one_way: false,
            name: 1,
            numbers: Some(numbers(false, 1)),
        };
        let [first, second] = [1, 2].map(|last| (Ipv4Addr::new(10, 0, 0, last).into(), 7));
        let (key, _) = ConnectionKey::new(5, 6, first, second);
        let put = program.connections().put(&[(key, connection)]);
        assert_eq!(put.expect("taken"), 1);
        let [from, to] = [1, 10].map(|end| numbers(false, end).sides);
        for wanted in [Amendment::Merge { from, to }, Amendment::Settle] {
            assert!(program.amend(&key, 1, wanted).expect("runs"));
        }
        let found = program.connections().find(&key).expect("read").expect("there");
        assert_eq!(found.numbers, Some(numbers(true, 10)));
    }

    #[test]
    #[ignore = "debian_12s_kernel_takes_the_programs runs it in a guest"]
    fn those_that_steer() {
        let hints = XskHints { id: 1, mark: 0 };
        let sixteen = |term: fn(u8) -> String| (0..16).map(term).collect::<Vec<_>>().join(",");
        let full = [
            sixteen(|n| format!("dst:2001:db8::{n:x}")),
            sixteen(|n| format!("src:2001:db8::{n:x}00/120")),
            sixteen(|n| format!("tcp:{}", 80 + u32::from(n))),
        ];
        let full = format!("{},icmp,arp", full.join(","));
        let load = move || {
            for filter in ["all", "wire", "udp:7", "tcp:80", "dst:192.0.2.7,arp", &full] {
                let filter = filter.parse::<Filter>().expect("a filter");
                XskProgram::load(2, filter).expect("taken");
            }
            XskProgram::load_with_hints(2, Filter::All, false, hints).expect("taken");
        };
        load();
        // Without CAP_PERFMON the verifier looks at more, and older ones dislike more of it.
        let least = thread::spawn(move || {
            let mut sets = capabilities(None).expect("told");
            sets.effective = CapabilitySet::BPF | CapabilitySet::NET_ADMIN;
            set_capabilities(None, sets).expect("fewer");
            load();
        });
        least.join().expect("with the least capabilities, too");
    }

    #[test]
    #[ignore = "debian_12s_kernel_takes_the_programs runs it in a guest"]
    fn those_that_measure() {
        Sink::load(Neighbours::Pass).expect("taken");
        Sink::load(Neighbours::Drop).expect("taken");
        Sink::load_for_udp(7).expect("taken");
        let probes = ProbeMarks {
            magic: 0x5253_4450 << 32,
            magic_len: 4,
            kind_offset: 5,
            request: 1,
            reply: 2,
        };
        for reflect in [Reflect::Macs, Reflect::MacsOfUdp(7), Reflect::Probes(probes)] {
            Reflector::load(reflect).expect("taken");
        }
        for redirected in [Redirected::All, Redirected::Priority(5), Redirected::Udp(7)] {
            Redirector::load(redirected).expect("taken");
        }
        Generator::new(LOOPBACK, &tunnelled(&udp()), GeneratorOptions::default()).expect("taken");
        // Loaded; to attach them is for tcx, Linux 6.6.
        Landings::load(&[LandingClass::UdpPort(7)]).expect("taken");
        IngressDrop::load().expect("taken");
    }

    #[test]
    #[ignore = "debian_12s_kernel_takes_the_programs runs it in a guest"]
    fn those_that_trace() {
        XdpEvents::start().expect("taken");
        TapRings::start().expect("taken");
        let options = TraceOptions {
            session: None,
            one_of: 1,
            disturbers: true,
            tasks: true,
        };
        let mut tracer = Tracer::load(options).expect("taken");
        tracer.attach().expect("attached");
        thread::sleep(Duration::from_millis(10));
        for missing in tracer.missing() {
            eprintln!("missing: {} ({})", missing.hook, missing.reason);
        }
    }

    /// From a host, in VXLAN over IPv4.
    fn tunnelled(frame: &[u8]) -> Vec<u8> {
        let length = |headers: usize| u16::try_from(headers + frame.len()).expect("short").to_be_bytes();
        [
            &[2, 0, 0, 0, 1, 0xfe, 2, 0, 0, 0, 1, 1, 8, 0][..],
            &[0x45, 0],
            &length(20 + 8 + 8),
            &[0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 254],
            &[0xc3, 0x50, 0x12, 0xb5],
            &length(8 + 8),
            &[0, 0],
            &[8, 0, 0, 0, 0, 0, 5, 0],
            frame,
        ]
        .concat()
    }

    fn udp() -> Vec<u8> {
        [
            &[2, 0, 0, 0, 2, 2, 2, 0, 0, 0, 2, 1, 8, 0][..],
            &[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2],
            // The shortest of the lane has room for a header of TCP.
            &[0x03, 0xe8, 0, 7, 0, 20, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
        ]
        .concat()
    }

    /// ARP: who has the receiver's address?
    fn question() -> Vec<u8> {
        [
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 2, 1, 8, 6][..],
            &[0, 1, 8, 0, 6, 4, 0, 1],
            &[2, 0, 0, 0, 2, 1, 10, 0, 0, 1],
            &[0, 0, 0, 0, 0, 0, 10, 0, 0, 2],
        ]
        .concat()
    }
}
