use std::fs;

use super::*;

#[test]
fn states_and_siblings_are_read() {
    let root = std::env::temp_dir().join(format!("ringside-nic-cpu-{}", std::process::id()));
    let cpu = "sys/devices/system/cpu/cpu2";
    for (path, text) in [
        ("cpuidle/state0/name", "POLL\n"),
        ("cpuidle/state0/usage", "7\n"),
        ("cpuidle/state0/time", "90\n"),
        ("cpuidle/state1/name", "C6\n"),
        ("cpuidle/state1/usage", "4\n"),
        ("cpuidle/state1/time", "12000\n"),
        ("topology/thread_siblings_list", "2,6\n"),
    ] {
        let path = root.join(cpu).join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let (states, siblings) = (idle_use_below(&root, 2), siblings_below(&root, 2));
    let elsewhere = (idle_use_below(&root, 3), siblings_below(&root, 3));
    fs::remove_dir_all(&root).unwrap();
    let told: Vec<_> = states
        .iter()
        .map(|state| (state.name.as_str(), state.entries, state.time_us))
        .collect();
    assert_eq!(told, [("POLL", 7, 90), ("C6", 4, 12_000)]);
    assert_eq!(siblings, [2, 6]);
    assert_eq!(elsewhere, (Vec::new(), vec![3]));
}

#[test]
fn this_machine_tells_what_it_knows() {
    let online = crate::host::System::read().unwrap();
    for cpu in online.cpus_online {
        assert!(siblings(cpu).contains(&cpu));
        let names: Vec<String> = idle_use(cpu).into_iter().map(|state| state.name).collect();
        if cpu == 0 {
            let states: Vec<String> = online.idle.states.iter().map(|state| state.name.clone()).collect();
            assert_eq!(names, states);
        }
    }
}
