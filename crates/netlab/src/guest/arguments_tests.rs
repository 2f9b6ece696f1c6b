use super::*;
use crate::guest::{Agent, Kernel};

fn config() -> GuestConfig {
    GuestConfig::new("a", Kernel::for_tests("/k/vmlinuz,1"), Agent::program("/usr/bin/agent"))
}

fn of(config: &GuestConfig, accelerator: Accelerator) -> Vec<String> {
    let files = Files {
        initramfs: Path::new("/tmp/x/initramfs"),
        console: Path::new("/tmp/x/console"),
        agent: 17,
        taps: Vec::new(),
    };
    arguments(config, accelerator, &files)
}

fn values<'a>(words: &'a [String], option: &str) -> Vec<&'a str> {
    let pairs = words.windows(2).filter(|pair| pair[0] == option);
    pairs.map(|pair| pair[1].as_str()).collect()
}

#[test]
fn a_comma_in_a_path_does_not_end_it() {
    let words = of(&config(), Accelerator::Tcg);
    assert_eq!(values(&words, "-kernel"), ["/k/vmlinuz,,1"]);
    assert!(values(&words, "-chardev").contains(&"socket,id=agent,fd=17"));
}

#[test]
fn the_agent_is_the_first_process_and_gets_its_word_last() {
    let mut config = config();
    config.kernel_arguments = vec!["isolcpus=1".into()];
    for accelerator in [Accelerator::Kvm, Accelerator::Tcg] {
        let words = of(&config, accelerator);
        let line = values(&words, "-append")[0];
        assert!(
            line.ends_with(" rdinit=/usr/bin/agent isolcpus=1 -- guest-agent"),
            "{line}"
        );
        assert!(values(&words, "-accel")[0].starts_with(accelerator.name()));
    }
}

#[test]
fn emulated_cpus_have_a_number_of_their_own() {
    let mut config = config();
    let cpus = |config: &GuestConfig, on| values(&of(config, on), "-smp")[0].to_owned();
    assert_eq!(cpus(&config, Accelerator::Tcg), "2");
    config.emulated_cpus = Some(1);
    assert_eq!(
        (
            cpus(&config, Accelerator::Kvm).as_str(),
            cpus(&config, Accelerator::Tcg).as_str()
        ),
        ("2", "1")
    );
}

#[test]
fn each_nic_has_its_wire_and_igb_a_port_of_its_own() {
    let mut config = config();
    let nic = |name: &str, last, model| Nic {
        name: name.into(),
        mac: [2, 0, 0, 0, 0, last],
        model,
        wire: Wire::Hub(3),
    };
    config.nics = vec![nic("eth0", 1, Model::VirtioNet), nic("eth1", 2, Model::Igb)];
    let words = of(&config, Accelerator::Tcg);
    assert_eq!(
        values(&words, "-netdev"),
        ["hubport,id=net0,hubid=3", "hubport,id=net1,hubid=3"]
    );
    let devices = values(&words, "-device");
    assert!(
        devices
            .iter()
            .any(|device| device.starts_with("virtio-net-pci,netdev=net0,mac=02:00:00:00:00:01,"))
    );
    let port = devices
        .iter()
        .position(|device| device.starts_with("pcie-root-port,id=port1,"));
    let igb = devices
        .iter()
        .position(|device| device.starts_with("igb,netdev=net1,") && device.contains("bus=port1"));
    assert!(port < igb && port.is_some(), "{devices:?}");
}

#[test]
fn queues_that_another_program_serves_are_in_shared_memory() {
    let mut config = config();
    config.nics = vec![Nic {
        name: "eth0".into(),
        mac: [2, 0, 0, 0, 0, 1],
        model: Model::VirtioNet,
        wire: Wire::VhostUser {
            socket: "/run/a,b.sock".into(),
            queues: 2,
        },
    }];
    let words = of(&config, Accelerator::Tcg);
    assert_eq!(
        values(&words, "-object"),
        ["memory-backend-memfd,id=memory,size=768M,share=on"]
    );
    assert!(values(&words, "-machine").contains(&"memory-backend=memory"));
    assert!(values(&words, "-chardev").contains(&"socket,id=user0,path=/run/a,,b.sock"));
    assert_eq!(values(&words, "-netdev"), ["vhost-user,id=net0,chardev=user0,queues=2"]);
    let nic = values(&words, "-device")
        .into_iter()
        .find(|device| device.contains("netdev=net0"));
    let nic = nic.expect("its device");
    assert!(
        nic.contains(",mq=on,vectors=6") && !nic.contains("iommu_platform"),
        "{nic}"
    );
}

#[test]
fn an_iommu_stands_in_front_of_what_is_behind_it() {
    let mut config = config().back_to_back(Model::Igb);
    assert!(
        !values(&of(&config, Accelerator::Tcg), "-device")
            .iter()
            .any(|device| device.contains("iommu"))
    );
    config.iommu = true;
    let words = of(&config, Accelerator::Tcg);
    assert!(values(&words, "-device")[0].starts_with("intel-iommu"), "{words:?}");
    assert!(values(&words, "-append")[0].contains("intel_iommu=on"));
}
