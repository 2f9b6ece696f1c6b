use super::*;

#[test]
fn this_host_is_read_and_told_as_json() {
    let system = System::read().unwrap();
    assert!(!system.kernel.is_empty() && !system.architecture.is_empty());
    assert!(!system.cpus_online.is_empty());
    assert!(system.memory_total > 64 << 20, "{}", system.memory_total);
    let json = serde_json::to_value(&system).unwrap();
    assert_eq!(json["kernel"], system.kernel.as_str());
    assert!(json["command_line"].is_object());
}

#[test]
fn another_machine_is_read_from_its_files() {
    let root = std::env::temp_dir().join(format!("ringside-nic-system-{}", std::process::id()));
    for (path, text) in [
        (
            "proc/cpuinfo",
            "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu hypervisor\n",
        ),
        (
            "proc/meminfo",
            "MemTotal:       1024 kB\nHugePages_Free:       3\nHugepagesize:       2048 kB\n",
        ),
        (
            "proc/cmdline",
            "quiet isolcpus=1 isolcpus=2-3 nohz-full=2 preempt=full -- idle=poll\n",
        ),
        ("sys/devices/system/cpu/online", "0-1,3\n"),
        ("sys/devices/system/cpu/smt/active", "0\n"),
        ("sys/devices/system/cpu/isolated", "1,3\n"),
        ("sys/devices/system/cpu/nohz_full", "3\n"),
        ("proc/sys/net/core/bpf_jit_enable", "0\n"),
        ("sys/devices/system/cpu/cpu3/cpufreq/scaling_governor", "performance\n"),
        ("sys/devices/system/cpu/cpuidle/current_driver", "none\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state0/name", "POLL\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state1/name", "C6\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "133\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "1\n"),
        ("sys/devices/system/cpu/vulnerabilities/meltdown", "Not affected\n"),
        ("sys/devices/system/cpu/vulnerabilities/mds", "Vulnerable\n"),
        ("sys/class/dmi/id/sys_vendor", "QEMU\n"),
    ] {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let system = System::read_below(&root).unwrap();
    fs::remove_dir_all(&root).unwrap();
    assert_eq!(system.cpu_model.as_deref(), Some("Some CPU @ 2 GHz"));
    assert_eq!(system.cpus_online, [0, 1, 3]);
    assert_eq!((system.smt_active, system.virtualised), (Some(false), Some(true)));
    assert_eq!((system.isolated, system.nohz_full), (vec![1, 3], vec![3]));
    assert_eq!(system.bpf_jit, Some(false));
    assert_eq!(system.governors, BTreeMap::from([(3, "performance".to_owned())]));
    assert_eq!(
        (system.memory_total, system.huge_pages_free, system.huge_page_size),
        (1 << 20, 3, 2 << 20)
    );
    assert_eq!(
        system.vulnerabilities,
        BTreeMap::from([("mds".to_owned(), "Vulnerable".to_owned())])
    );
    assert_eq!((system.clocksource, system.machine.as_deref()), (None, Some("QEMU")));
    let line = system.command_line;
    assert_eq!(
        (line.isolcpus.as_deref(), line.nohz_full.as_deref(), line.idle),
        (Some("2-3"), Some("2"), None)
    );
    assert_eq!(line.preempt.as_deref(), Some("full"));
    assert_eq!((system.idle.driver, system.idle.states.len()), (None, 2));
    assert_eq!(
        (system.idle.states[1].latency_us, system.idle.states[1].disabled),
        (Some(133), true)
    );
    assert!(System::read_below(&root).is_err(), "nothing is left to read");
}

#[test]
fn the_preemption_model_is_the_one_in_force() {
    let dynamic = "#1 SMP PREEMPT_DYNAMIC Debian 6.18";
    for (build, chosen, asked, expected) in [
        ("#1 SMP PREEMPT_RT Debian 6.18", None, None, Some("PREEMPT_RT")),
        ("#1 SMP PREEMPT RT 2018", None, None, Some("PREEMPT_RT")),
        ("#1 SMP PREEMPT_RT", Some("(full)"), Some("none"), Some("PREEMPT_RT")),
        ("#1 SMP PREEMPT Mon", None, None, Some("PREEMPT")),
        ("#1 SMP Debian 4.19", None, Some("full"), None),
        (dynamic, None, None, Some("PREEMPT_DYNAMIC")),
        (dynamic, None, Some("none"), Some("PREEMPT_DYNAMIC (none)")),
        (
            dynamic,
            Some("none (voluntary) full"),
            Some("none"),
            Some("PREEMPT_DYNAMIC (voluntary)"),
        ),
    ] {
        assert_eq!(preemption(build, chosen, asked).as_deref(), expected, "{build}");
    }
}
