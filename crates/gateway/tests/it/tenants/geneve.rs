//! Tenants whose hosts have the kernel's own Geneve device. Few kernels have it, so this binary runs its tests in a guest with one
//! that has.
#![cfg(target_arch = "x86_64")]

use std::path::PathBuf;
use std::time::Duration;

use ringside_netlab::guest::{Agent, Guest, GuestConfig, Kernel};
use ringside_netlab::testing::is_root;

use crate::bed::{Bed, FAMILIES, Family, Kind, Place, Tunnel};
use crate::common::daemon::binary;
use crate::peers::{answered, connect, exchange};

/// For a test in there: emulated CPUs, on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_mins(4);

#[test]
#[ignore = "make test-guests runs it"]
fn kernels_with_geneve_understand_both_paths() {
    if is_root() {
        let kernel = Kernel::usual().expect("a kernel for guests");
        run_in_a_guest(kernel, &["geneve"], ("tenants::geneve::inside::", 6), PATIENCE * 6);
    }
}

/// Runs those tests of this binary whose names begin so, as many as there are to be, in a guest with this kernel, with these modules beside those that
/// every bed takes.
pub(crate) fn run_in_a_guest(kernel: Kernel, modules: &[&str], (tests, count): (&str, u8), patience: Duration) {
    let agent = Agent::test_binary().expect("this binary");
    let own = agent.program.clone();
    let mut config = GuestConfig::new("tenants", kernel, agent);
    let modules = ["veth", "bridge", "vxlan"].iter().chain(modules);
    config.modules = modules.map(|name| (*name).to_owned()).collect();
    config.programs = [own.clone(), binary().get_program().into()].to_vec();
    config.programs.extend(["kill", "ping", "sh"].map(PathBuf::from));
    let guest = Guest::start(&config).expect("a guest");
    let (kernel, accelerator) = (guest.release(), guest.accelerator().name());
    eprintln!("Linux {kernel} on {accelerator}, ready after {:?}", guest.boot_time());
    // Namespaces take these over. An emulated CPU is slow, and less fills small buffers.
    let script = "for name in tcp_rmem tcp_wmem; do echo 4096 32768 131072 >/proc/sys/net/ipv4/$name; done";
    let done = guest.command("sh").args(["-c", script]).output().expect("runs");
    assert!(done.status.success(), "{done:?}");
    let run = guest
        .command(&own)
        .args([tests, "--ignored", "--nocapture", "--test-threads=1"]);
    let done = run.env("RINGSIDE_STRICT", "1").limit(patience).output().expect("ends");
    let [out, err] = [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text));
    let passed = done.status.success() && out.contains(&format!(" {count} passed; 0 failed"));
    assert!(passed, "{out}\n{err}\n{}", guest.console().expect("its console"));
}

mod inside {
    use super::{Family, Place, Tunnel};

    const V4: Place = Place::new(Family::V4, Tunnel::KernelGeneve);
    const V6: Place = Place::new(Family::V6, Tunnel::KernelGeneve);

    #[test]
    #[ignore = "needs the kernel's Geneve device: kernels_with_geneve_understand_both_paths runs it in a guest"]
    fn fast_over_ipv4() {
        super::all_goes_by("fast", crate::tenants::FAST, &[V4; 2]);
    }

    #[test]
    #[ignore = "needs the kernel's Geneve device: kernels_with_geneve_understand_both_paths runs it in a guest"]
    fn fast_over_ipv6() {
        super::all_goes_by("fast", crate::tenants::FAST, &[V6; 2]);
    }

    #[test]
    #[ignore = "needs the kernel's Geneve device: kernels_with_geneve_understand_both_paths runs it in a guest"]
    fn workers_over_ipv4() {
        super::all_goes_by("slow", crate::tenants::WORKERS, &[V4; 2]);
    }

    #[test]
    #[ignore = "needs the kernel's Geneve device: kernels_with_geneve_understand_both_paths runs it in a guest"]
    fn workers_over_ipv6() {
        super::all_goes_by("slow", crate::tenants::WORKERS, &[V6; 2]);
    }

    /// Questions are answered by the fast path, and new headers are a worker's to make.
    #[test]
    #[ignore = "needs the kernel's Geneve device: kernels_with_geneve_understand_both_paths runs it in a guest"]
    fn workers_between_families() {
        super::all_goes_by("slow", crate::tenants::FAST, &[V4, V6]);
    }

    /// To and from VXLAN.
    #[test]
    #[ignore = "needs the kernel's Geneve device: kernels_with_geneve_understand_both_paths runs it in a guest"]
    fn workers_between_encapsulations() {
        super::all_goes_by("slow", crate::tenants::WORKERS, &[V4, Place::vxlan(Family::V6)]);
    }
}

/// As below, all data by one of the two ways.
fn all_goes_by(path: &str, kind: Kind, places: &[Place; 2]) {
    // Each way in both families, in segments of up to 1398 bytes.
    let segments = 4 * BYTES as u64 / 1398;
    let mut bed = tenants_understand_each_other(kind, places);
    bed.ringside().wait_until(|gateway| gateway.forwarded(path) >= segments);
    let other = bed.ringside().sent_on() - bed.ringside().forwarded(path);
    // The first echoes may have come before the cache knew of their hosts.
    assert!(other <= 12, "{other}: {}", bed.ringside().statistics());
}

/// Of a transfer, each way.
const BYTES: usize = 1 << 18;

/// In both families they answer each other, and exchange some data by TCP, every byte of which is compared.
pub(crate) fn tenants_understand_each_other(kind: Kind, places: &[Place; 2]) -> Bed {
    let bed = Bed::new("guest", kind, places);
    let (from, to) = (bed.at(1), bed.at(2));
    for inner in FAMILIES {
        answered(from, to.address(inner));
        assert_eq!(to.neighbour(from.address(inner)), Some(from.card.mac));
        exchange(&connect(from, (to, to.address(inner)), 7000), BYTES);
    }
    bed
}
