use super::*;

#[test]
fn what_a_kernel_lacks_is_named() {
    let kernel = Kernel::read("test").expect("the kernel's types: /sys/kernel/btf/vmlinux");
    let there = tracepoint("x", "sched", "sched_switch", "nothing");
    assert_eq!(kernel.lacks(&there), None);
    let gone = tracepoint("x", "sched", "sched_no_such_thing", "nothing");
    let reason = kernel.lacks(&gone).expect("a reason");
    assert_eq!(
        gone.missing(reason),
        MissingHook {
            hook: "tracepoint sched:sched_no_such_thing".into(),
            tells: "nothing",
            reason: "this kernel has no such tracepoint".into(),
        }
    );
    let gone = function("x", "no_such_function_at_all", "nothing");
    let reason = kernel.lacks(&gone).expect("a reason");
    assert_eq!(gone.missing(reason).hook, "fentry no_such_function_at_all");
}

#[test]
fn every_program_has_its_hook() {
    let names: Vec<&str> = HOOKS.iter().map(Hook::program).collect();
    for (index, name) in names.iter().enumerate() {
        assert!(!names[..index].contains(name), "{name} twice");
    }
    assert!(functions().count() >= 3 && functions().all(|hook| !hook.is_disturber()));
}
