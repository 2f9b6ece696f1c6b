//! A virtual function of a NIC for a guest (VFIO), all of it in a guest: its igb has virtual functions, and an IOMMU is in front of it.
//!
//! ```text
//!  guest:  eth1 10.9.0.2, in "far" ── wire ── eth0 (igb, the physical function)
//!                                              └ virtual function 0 ── vfio-pci ── eth0 10.9.0.1, of a guest in the guest
//! ```
#![cfg(target_arch = "x86_64")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ringside_netlab::attach::{PciAddress, Vfio};
use ringside_netlab::guest::{Acceleration, Accelerator, Agent, Guest, GuestConfig, Kernel, Model, Nic, Wire};
use ringside_netlab::testing::is_root;
use ringside_netlab::wait_until;

/// For an emulated CPU that emulates another one, or its virtualisation.
const PATIENCE: Duration = Duration::from_mins(12);
/// For each way in which the guest in the guest may come up.
const BOOT: Duration = Duration::from_secs(90);

/// The virtual function's, given by the physical one.
const MAC: [u8; 6] = [2, b'r', b's', b'g', 1, 1];
const MAC_TEXT: &str = "02:72:73:67:01:01";

/// What the kernel of the guest in the guest may need: the NIC's driver is found among these.
const MODULES: [&str; 2] = ["igbvf", "virtio_console"];

const QEMU: &str = "qemu-system-x86_64";

#[test]
#[ignore = "make test-guests runs it"]
fn a_virtual_function_changes_hands_and_comes_back() {
    in_a_guest("inside");
}

#[test]
#[ignore = "make test-guests runs it"]
fn a_guest_gets_a_virtual_function_and_its_driver() {
    in_a_guest("within");
}

/// By hand: see docs/guests.md.
#[test]
#[ignore = "the emulated igb does not answer its virtual function from there"]
fn packets_pass_a_guest_s_virtual_function() {
    in_a_guest("beyond");
}

/// Runs another test of this binary.
fn in_a_guest(test: &str) {
    if !is_root() {
        return;
    }
    let kernel = Kernel::usual().expect("a kernel for guests");
    let mut config = GuestConfig::new("vf", kernel.clone(), Agent::test_binary().expect("this binary"));
    config = config.back_to_back(Model::Igb);
    config.iommu = true;
    config.memory_mib = 3072;
    // An emulated CPU has AMD's virtualisation.
    config.modules = ["vfio-pci", "vfio_iommu_type1", "kvm-amd"].map(str::to_owned).to_vec();
    config.programs = ["sh", "ip", "ls", "ping", "sha256sum", QEMU].map(Into::into).to_vec();
    config.files = files(&kernel);
    let guest = Guest::start(&config).expect("a guest");
    eprintln!("{}, ready after {:?}", guest.accelerator().name(), guest.boot_time());
    let own = std::env::current_exe().expect("this binary");
    let inside = guest
        .command(own)
        .args([&format!("vfio::{test}"), "--exact", "--ignored", "--nocapture"]);
    let choice = std::env::var("RINGSIDE_GUEST_KERNEL").unwrap_or_default();
    let inside = inside.env("RINGSIDE_GUEST_KERNEL", choice).limit(PATIENCE);
    let done = inside.output().expect("ends");
    let [out, err] = [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text));
    eprintln!("{out}{err}");
    assert!(done.status.success(), "{}", guest.console().unwrap_or_default());
}

/// What QEMU reads, and the kernel that it boots, with its modules.
fn files(kernel: &Kernel) -> Vec<PathBuf> {
    let system = [
        // Which kernel is the usual one.
        "/etc/os-release",
        "/usr/share/seabios/bios-256k.bin",
        "/usr/share/qemu/kvmvapic.bin",
        "/usr/share/qemu/linuxboot_dma.bin",
    ];
    let mut files = system.map(PathBuf::from).to_vec();
    files.push(kernel.image.clone());
    // The cache's record of these files, if they are of the cache.
    let digests = kernel.image.ancestors().map(|folder| folder.join("SHA256SUMS"));
    files.extend(digests.filter(|path| path.exists()));
    // Debian's packages have none.
    files.extend(
        [kernel.modules.join("modules.builtin")]
            .into_iter()
            .filter(|path| path.exists()),
    );
    let mut folders = vec![kernel.modules.join("kernel")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            let wanted = MODULES.iter().any(|module| name.starts_with(&format!("{module}.ko")));
            if path.is_dir() {
                folders.push(path);
            } else if wanted || path.parent().is_some_and(|folder| folder.ends_with("drivers/virtio")) {
                files.push(path);
            }
        }
    }
    files
}

fn run(words: &str) {
    let (program, arguments) = words.split_once(' ').expect("arguments");
    let done = Command::new(program).args(arguments.split(' ')).output().expect("runs");
    assert!(done.status.success(), "{words}: {done:?}");
}

fn driver(device: &Path) -> Option<String> {
    let link = fs::read_link(device.join("driver")).ok()?;
    Some(link.file_name()?.to_str()?.to_owned())
}

/// The two functions of the NIC, as devices, and the virtual one in the hands of `vfio-pci`.
fn taken() -> (PathBuf, PathBuf, Vfio) {
    run("ip link set eth0 up");
    let nic = fs::canonicalize("/sys/class/net/eth0/device").expect("a PCI device");
    fs::write(nic.join("sriov_numvfs"), "1").expect("virtual functions");
    run(&format!("ip link set eth0 vf 0 mac {MAC_TEXT}"));
    let function = fs::canonicalize(nic.join("virtfn0")).expect("a virtual function");
    let name = function.file_name().and_then(OsStr::to_str).expect("a name");
    let address: PciAddress = name.parse().expect("an address");
    assert_eq!(driver(&function), None);
    let vfio = Vfio::bind(address).expect("nobody uses it");
    assert_eq!(driver(&function).as_deref(), Some("vfio-pci"));
    // The physical one stays where it is, and the IOMMU parts them.
    assert_eq!(driver(&nic).as_deref(), Some("igb"));
    assert!(fs::exists("/sys/class/net/eth0").expect("looked"));
    let group = fs::read_dir(function.join("iommu_group/devices")).expect("a group");
    assert_eq!(group.count(), 1);
    check_driver(address, &nic);
    (nic, function, vfio)
}

/// The kernel of the guest to be has a driver for what is given away, and only for that.
fn check_driver(given: PciAddress, nic: &Path) {
    let kernel = Kernel::usual().expect("a kernel");
    assert_eq!(kernel.drivers_of(given, &[]).expect("a driver"), ["igbvf"]);
    let name = nic.file_name().and_then(OsStr::to_str).expect("a name");
    let physical: PciAddress = name.parse().expect("an address");
    // Its module is not among the files here.
    let error = kernel.drivers_of(physical, &[]).expect_err("none").to_string();
    let told = error.contains(name) && error.contains(&kernel.release) && error.contains("pci:v00008086d000010C9");
    assert!(told && error.contains("take another kernel"), "{error}");
}

fn given_back(nic: &Path, function: &Path) {
    assert_eq!(driver(function), None, "nobody had it before");
    fs::write(nic.join("sriov_numvfs"), "0").expect("no virtual functions");
    assert!(wait_until(BOOT, || !function.exists()));
}

#[test]
#[ignore = "runs in a guest"]
fn inside() {
    let (nic, function, vfio) = taken();
    assert_eq!(Vfio::recover(), [], "it lives");
    drop(vfio);
    given_back(&nic, &function);
}

#[test]
#[ignore = "runs in a guest"]
fn within() {
    let (nic, function, vfio) = taken();
    let vfio = Arc::new(vfio);
    let guest = boot(&vfio);
    // Whatever its hardware address: it has the name that it was to get.
    let asked = guest
        .command("sh")
        .args(["-c", "cd -P /sys/class/net/eth0/device/driver && pwd"]);
    let done = asked.output().expect("runs");
    let driver = String::from_utf8_lossy(&done.stdout).trim().to_owned();
    assert!(driver.ends_with("/drivers/igbvf"), "{driver}: {done:?}");
    drop(guest);
    drop(vfio);
    given_back(&nic, &function);
}

#[test]
#[ignore = "runs in a guest"]
fn beyond() {
    run("ip netns add far");
    run("ip link set eth1 netns far");
    run("ip -n far addr add 10.9.0.2/24 dev eth1");
    run("ip -n far link set eth1 up");
    let (nic, function, vfio) = taken();
    let vfio = Arc::new(vfio);
    let guest = boot(&vfio);
    let set_up = "ip addr add 10.9.0.1/24 dev eth0 && ip link set eth0 up";
    let done = guest.command("sh").args(["-c", set_up]).output().expect("runs");
    assert!(done.status.success(), "{done:?}");
    let ping = guest.command("ping").args(["-c3", "-w90", "10.9.0.2"]).limit(BOOT);
    let ping = ping.output().expect("runs");
    let said = String::from_utf8_lossy(&ping.stdout).into_owned();
    assert!(ping.status.success(), "{said}{}", guest.console().unwrap_or_default());
    eprintln!("{said}");
    drop(guest);
    drop(vfio);
    given_back(&nic, &function);
}

/// On the virtualisation that the emulated CPU has, or else emulated once more.
fn boot(vfio: &Arc<Vfio>) -> Guest {
    let mut config = GuestConfig::new(
        "within",
        Kernel::usual().expect("a kernel"),
        Agent::test_binary().expect("this binary"),
    );
    config.nics.push(Nic {
        name: "eth0".to_owned(),
        mac: MAC,
        model: Model::Igb,
        wire: Wire::Vfio(Arc::clone(vfio)),
    });
    config.programs = ["sh", "ip", "ls", "ping"].map(Into::into).to_vec();
    config.cpus = 1;
    config.memory_mib = 512;
    config.boot_limit = BOOT;
    for accelerator in [Accelerator::Kvm, Accelerator::Tcg] {
        config.acceleration = Acceleration::Require(accelerator);
        match Guest::start(&config) {
            Ok(guest) => {
                eprintln!("within: {}, ready after {:?}", accelerator.name(), guest.boot_time());
                return guest;
            }
            Err(error) => eprintln!("within: {}: {error}", accelerator.name()),
        }
    }
    panic!("no guest came up in the guest");
}
