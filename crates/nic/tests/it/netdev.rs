//! What the netdev family tells of real interfaces, and what is set through it.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::Duration;

use ringside_netlab::{Lab, VethConfig, testing};
use ringside_nic::{
    Applied, Deferral, Error, Interface, Napi, NapiSetting, QueueKind, RxMetadata, Threaded, XdpFeatures,
};

fn lab(tag: &str, queues: u32, gro: bool) -> Lab {
    Lab::veth(VethConfig {
        queues,
        gro,
        ipv6: false,
        ..VethConfig::tagged(tag)
    })
    .unwrap()
}

#[test]
fn a_veth_tells_its_xdp_features_as_they_change() {
    if !testing::is_root() {
        return;
    }
    let lab = lab("caps", 2, false);
    lab.a.run(|| {
        let before = lab.a.interface.device_capabilities().unwrap();
        let xdp = before.xdp_features.unwrap();
        assert!(
            xdp.contains(XdpFeatures::BASIC | XdpFeatures::REDIRECT | XdpFeatures::RX_SG),
            "{before}"
        );
        assert!(!xdp.contains(XdpFeatures::NDO_XMIT), "{before}");
        assert!(!xdp.contains(XdpFeatures::XSK_ZEROCOPY), "{before}");
        let hints = RxMetadata::TIMESTAMP | RxMetadata::HASH | RxMetadata::VLAN_TAG;
        assert!(before.rx_metadata.unwrap().contains(hints), "{before}");
        assert!(before.xsk_features.unwrap().is_empty());
        assert_eq!(before.xdp_zc_max_segs, None);

        let lo = Interface::by_name("lo").unwrap().device_capabilities().unwrap();
        assert_eq!(lo.xdp_features, Some(XdpFeatures::default()), "nothing, and known");
    });
    // A veth takes redirected frames once its peer has NAPI.
    lab.b
        .run(|| lab.b.interface.set_feature("rx-gro", true))
        .expect("switches GRO on");
    let after = lab.a.run(|| lab.a.interface.device_capabilities()).unwrap();
    assert!(after.xdp_features.unwrap().contains(XdpFeatures::NDO_XMIT), "{after}");

    lab.delete_link().unwrap();
    let error = lab.a.run(|| lab.a.interface.device_capabilities()).unwrap_err();
    assert_eq!(error.errno(), Some(libc::ENODEV), "{error}");
}

/// Read-only, on whatever the machine has: a NIC whose driver tells which instance serves a queue tells one that exists.
#[test]
fn every_queue_of_this_machine_is_served_by_an_instance_of_its_interface() {
    for interface in Interface::all().unwrap() {
        let read = || Ok((interface.queue_details()?, interface.napis()?));
        let (queues, napis) = match read() {
            // Somebody else's test may have removed it since.
            Err(error) if Error::errno(&error) == Some(libc::ENODEV) => continue,
            other => other.unwrap(),
        };
        let napis: Vec<u32> = napis.iter().map(|napi| napi.id).collect();
        for queue in queues {
            assert!(
                queue.napi.is_none_or(|napi| napis.contains(&napi)),
                "{interface}: {queue:?} is not in {napis:?}"
            );
        }
    }
}

#[test]
fn queues_are_listed_and_a_bound_one_is_marked() {
    if !testing::is_root() {
        return;
    }
    let lab = lab("queues", 3, false);
    let bound = |kind| {
        let details = lab.a.run(|| lab.a.interface.queue_details()).unwrap();
        let of_kind: Vec<_> = details.iter().filter(|queue| queue.kind == kind).collect();
        assert_eq!(of_kind.iter().map(|queue| queue.id).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(of_kind.iter().all(|queue| queue.napi.is_none()), "veth never tells");
        of_kind.iter().map(|queue| queue.xsk).collect::<Vec<_>>()
    };
    assert_eq!(bound(QueueKind::Rx), [Some(false); 3]);
    let socket = lab.a.run(|| xsk(lab.a.interface.index(), 1));
    assert_eq!(bound(QueueKind::Rx), [Some(false), Some(true), Some(false)]);
    assert_eq!(bound(QueueKind::Tx), [Some(false), Some(true), Some(false)]);
    drop(socket);
    // The kernel frees the queue a moment after the close.
    assert!(ringside_netlab::wait_until(Duration::from_secs(30), || {
        bound(QueueKind::Rx) == [Some(false); 3]
    }));
}

/// An AF_XDP socket in copy mode on a queue, by the bare ABI: this crate has none.
fn xsk(interface: u32, queue: u32) -> (OwnedFd, Vec<u8>) {
    const SOL_XDP: i32 = 283;
    let umem = vec![0_u8; 4 * 4096 + 4096];
    // SAFETY: plain system calls; the memory registered is returned beside the socket and outlives it.
    unsafe {
        let fd = OwnedFd::from_raw_fd(libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0));
        let set = |option, value: *const u8, length: usize| {
            let length = libc::socklen_t::try_from(length).unwrap();
            assert_eq!(
                libc::setsockopt(fd.as_raw_fd(), SOL_XDP, option, value.cast(), length),
                0,
                "option {option}: {}",
                std::io::Error::last_os_error()
            );
        };
        // struct xdp_umem_reg: address, length, chunk size and headroom, flags and padding.
        let start = (umem.as_ptr().addr() as u64).next_multiple_of(4096);
        let registration = [start, 4 * 4096, 4096, 0];
        set(4, registration.as_ptr().cast(), 32);
        let entries = 4_u32;
        // Fill, completion and RX ring.
        for ring in [5, 6, 2] {
            set(ring, (&raw const entries).cast(), 4);
        }
        // struct sockaddr_xdp, with XDP_COPY.
        let address: [u16; 8] = [
            u16::try_from(libc::AF_XDP).unwrap(),
            2,
            u16::try_from(interface).unwrap(),
            0,
            u16::try_from(queue).unwrap(),
            0,
            0,
            0,
        ];
        let bound = libc::bind(fd.as_raw_fd(), address.as_ptr().cast(), 16);
        assert_eq!(bound, 0, "bind: {}", std::io::Error::last_os_error());
        (fd, umem)
    }
}

#[test]
fn one_instance_is_set_and_the_others_are_not() {
    if !testing::is_root() {
        return;
    }
    let lab = lab("napiset", 3, true);
    lab.a.run(|| {
        let interface = &lab.a.interface;
        let before = interface.napis().unwrap();
        assert_eq!(before.len(), 3);
        let chosen = before[1].id;
        let settings = [
            NapiSetting::DeferHardIrqs(3),
            NapiSetting::GroFlushTimeout(Duration::from_micros(200)),
            // More than 32 bits of nanoseconds.
            NapiSetting::IrqSuspendTimeout(Duration::from_secs(20)),
            NapiSetting::Threaded(true),
        ];
        interface.set_napi(chosen, &settings).unwrap();
        for (old, new) in before.iter().zip(interface.napis().unwrap()) {
            if new.id != chosen {
                assert_eq!(*old, new);
                continue;
            }
            assert_eq!(
                (new.defer_hard_irqs, new.gro_flush_timeout, new.irq_suspend_timeout),
                (Some(3), Some(Duration::from_micros(200)), Some(Duration::from_secs(20)))
            );
            assert_eq!(new.threaded, Threaded::On);
        }
        let wide = interface.napi().unwrap();
        assert_eq!((wide.defer_hard_irqs, wide.threaded), (0, false));

        // All or nothing, and the kernel's limit is not ours.
        let error = interface
            .set_napi(
                chosen,
                &[NapiSetting::Threaded(false), NapiSetting::DeferHardIrqs(u32::MAX)],
            )
            .unwrap_err();
        assert_eq!(error.errno(), Some(libc::ERANGE), "{error}");
        assert_eq!(interface.napis().unwrap()[1].threaded, Threaded::On);
    });
    // An id of another interface is refused, although the kernel would take it.
    let foreign = lab.b.run(|| lab.b.interface.napis()).unwrap()[0].id;
    let error = lab
        .a
        .run(|| lab.a.interface.set_napi(foreign, &[NapiSetting::DeferHardIrqs(1)]))
        .unwrap_err();
    assert!(
        matches!(error, Error::UnknownNapi { id, .. } if id == foreign),
        "{error}"
    );
    lab.a.set_up(false).unwrap();
    assert_eq!(lab.a.run(|| lab.a.interface.napis()).unwrap(), []);
}

#[test]
fn a_deferral_of_queues_falls_back_to_the_interface_and_says_why() {
    if !testing::is_root() {
        return;
    }
    let lab = lab("deferral", 2, true);
    let wanted = Deferral {
        defer_hard_irqs: 2,
        gro_flush_timeout: Duration::from_micros(100),
        irq_suspend_timeout: Some(Duration::from_millis(20)),
    };
    let set = |queues: &[u32], deferral| lab.a.run(|| lab.a.interface.set_deferral(queues, deferral));
    let applied = set(&[1], wanted).unwrap();
    let Applied::InterfaceWide { reason } = &applied else {
        panic!("{applied}")
    };
    assert!(reason.contains("queue 1"), "{applied}");
    lab.a.run(|| {
        let wide = lab.a.interface.napi().unwrap();
        assert_eq!(
            (wide.defer_hard_irqs, wide.gro_flush_timeout),
            (wanted.defer_hard_irqs, wanted.gro_flush_timeout)
        );
        let of = |napi: &Napi| (napi.defer_hard_irqs, napi.gro_flush_timeout, napi.irq_suspend_timeout);
        let napis = lab.a.interface.napis().unwrap();
        assert_eq!(napis.len(), 2);
        for napi in &napis {
            let expected = (Some(2), Some(wanted.gro_flush_timeout), wanted.irq_suspend_timeout);
            assert_eq!(of(napi), expected);
        }
    });
    let error = set(&[0, 2], wanted).unwrap_err();
    assert!(
        matches!(
            error,
            Error::UnknownQueue {
                queue: 2,
                active: 2,
                ..
            }
        ),
        "{error}"
    );
    // Without instances there is nothing that could have a suspend time-out; the rest waits for them in the interface.
    lab.a.set_up(false).unwrap();
    let error = set(&[0], wanted).unwrap_err();
    assert!(matches!(error, Error::NoNapi { .. }), "{error}");
    assert!(set(&[0], Deferral::default()).is_ok());
    let wide = lab.a.run(|| lab.a.interface.napi()).unwrap();
    assert_eq!((wide.defer_hard_irqs, wide.gro_flush_timeout), (0, Duration::ZERO));
}

#[test]
fn threads_of_instances_are_pinned_by_name() {
    if !testing::is_root() {
        return;
    }
    let lab = lab("threads", 2, true);
    lab.a.run(|| {
        let interface = &lab.a.interface;
        assert_eq!(interface.napi_threads().unwrap(), []);
        let error = interface.pin_napi_threads(&[0]).unwrap_err();
        assert!(matches!(error, Error::NoNapi { .. }), "{error}");

        interface.set_napi_threaded(true).unwrap();
        let mut pinned = interface.pin_napi_threads(&[0]).unwrap();
        pinned.sort_by_key(|thread| thread.napi);
        let mut ids: Vec<_> = interface.napis().unwrap().iter().map(|napi| napi.id).collect();
        ids.sort_unstable();
        assert_eq!(pinned.len(), 2);
        for (thread, id) in pinned.iter().zip(ids) {
            assert_eq!((thread.napi, &thread.cpus[..]), (Some(id), &[0][..]));
            assert_eq!(thread.name, format!("napi/veth-a-{id}"));
            let status = std::fs::read_to_string(format!("/proc/{}/status", thread.pid)).unwrap();
            assert!(status.contains("Cpus_allowed_list:\t0\n"), "{status}");
        }
        let error = interface.pin_napi_threads(&[1023]).unwrap_err();
        assert!(
            error.errno() == Some(libc::EINVAL) && error.to_string().contains("CPUs '1023'"),
            "{error}"
        );
    });
    assert_eq!(
        lab.b.run(|| lab.b.interface.napi_threads()).unwrap(),
        [],
        "the other end has none"
    );
}

/// The index and the name of two interfaces are the same, and `/sys` shows neither of them.
#[test]
fn settings_are_those_of_the_threads_namespace_whatever_is_mounted_at_sys() {
    if !testing::is_root() {
        return;
    }
    let labs = ["twin1", "twin2"].map(|tag| lab(tag, 1, true));
    let [one, two] = labs.each_ref().map(|lab| &lab.a);
    assert_eq!(
        (one.interface.index(), one.interface.name()),
        (two.interface.index(), two.interface.name())
    );
    one.run(|| one.interface.set_napi_defer_hard_irqs(1)).unwrap();
    // A thread that enters the network namespace alone still has the machine's sysfs.
    let enter = |end: &ringside_netlab::End| {
        use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
        move_into_link_name_space(end.ns.fd(), Some(LinkNameSpaceType::Network)).unwrap();
        assert!(!std::fs::exists("/sys/class/net/veth-a").unwrap());
    };
    std::thread::scope(|scope| {
        let both = scope.spawn(|| {
            enter(two);
            two.interface.set_napi_defer_hard_irqs(2).unwrap();
            let second = two.interface.napi().unwrap();
            enter(one);
            (one.interface.napi().unwrap(), second)
        });
        let (first, second) = both.join().unwrap();
        assert_eq!((first.defer_hard_irqs, second.defer_hard_irqs), (1, 2));
    });
    assert_eq!(two.run(|| two.interface.napi()).unwrap().defer_hard_irqs, 2);
}
