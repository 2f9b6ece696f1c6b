//! The list in a guest, on two NICs of its own that are wired to each other: zero-copy, and the NIC's driver with native and generic XDP.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringside_netlab::guest::{Agent, Guest, GuestConfig, Kernel, Model};
use ringside_netlab::testing::is_root;

/// For all rows on emulated CPUs, on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_mins(60);

/// What came of the rows goes to `RINGSIDE_CONFORMANCE`, from which `table::write_guest` makes a document.
#[test]
#[ignore = "make test-guests runs it"]
fn virtio_net() {
    run("virtio-net", Model::VirtioNet);
}

fn run(nic: &str, model: Model) {
    if !is_root() {
        return;
    }
    let agent = Agent::test_binary().expect("this binary");
    let own = agent.program.clone();
    let mut config = GuestConfig::new(nic, Kernel::usual().expect("a kernel for guests"), agent).back_to_back(model);
    config.modules = ["veth".to_owned()].to_vec();
    // Zero-copy drivers take unaligned frames on huge pages.
    config.memory_mib = 1024;
    config.kernel_arguments = ["hugepages=96".to_owned()].to_vec();
    config.programs = [own.clone(), "cat".into(), "ip".into(), "mkdir".into(), "sh".into()].to_vec();
    // The rows that are beside the rings: see `main.rs`.
    let others = std::env::var_os("RINGSIDE_TEST_BINARIES").unwrap_or_default();
    let others: Vec<PathBuf> = std::env::split_paths(&others)
        .filter(|path| path.is_absolute())
        .collect();
    config.programs.extend(others.iter().cloned());
    let guest = Guest::start(&config).expect("a guest");
    let (kernel, accelerator) = (guest.release(), guest.accelerator().name());
    eprintln!(
        "{nic}, Linux {kernel} on {accelerator}, ready after {:?}",
        guest.boot_time()
    );
    let up = "ip link set eth0 up && ip link set eth1 up && mkdir /tmp/records";
    assert!(
        guest
            .command("sh")
            .args(["-c", up])
            .output()
            .expect("runs")
            .status
            .success()
    );
    for (binary, filter) in [(&own, "")]
        .into_iter()
        .chain(others.iter().map(|other| (other, "queue::")))
    {
        let tests = guest.command(binary).args(["--test-threads=1", "--nocapture", filter]);
        let tests = tests
            .env("RINGSIDE_CONFORMANCE", "/tmp/records")
            .env("RINGSIDE_STRICT", "1");
        let tests = tests
            .env("RINGSIDE_TEST_IFACE", "eth1")
            .env("RINGSIDE_TEST_PEER", "eth0");
        let done = tests.limit(PATIENCE).output().expect("ends");
        // What failed is in the records, too: `table::write_guest` compares it with what is known.
        eprintln!("{}", String::from_utf8_lossy(&done.stdout));
    }
    let records = guest
        .command("sh")
        .args(["-c", "cat /tmp/records/*"])
        .output()
        .expect("runs")
        .stdout;
    let folder = std::env::var_os("RINGSIDE_CONFORMANCE").expect("RINGSIDE_CONFORMANCE names the directory of records");
    fs::write(Path::new(&folder).join(format!("{nic}.tsv")), &records).expect("written");
    fs::write(Path::new(&folder).join("kernel"), guest.release()).expect("written");
    let records = String::from_utf8(records).expect("text");
    let zero_copy: BTreeSet<&str> = records
        .lines()
        .filter(|line| line.contains("\tzero-copy\t0\t"))
        .collect();
    assert!(zero_copy.iter().any(|line| line.contains("\tpassed\t")), "{records}");
}
