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
    let nothing_more = TraceOptions {
        session: None,
        one_of: 1,
        disturbers: false,
        tasks: false,
    };
    assert!(functions().count() >= 3 && functions().all(|hook| hook.is_wanted(nothing_more)));
    for (more, of) in [
        (
            "watch_",
            TraceOptions {
                tasks: true,
                ..nothing_more
            },
        ),
        (
            "disturb_",
            TraceOptions {
                disturbers: true,
                ..nothing_more
            },
        ),
    ] {
        let added = HOOKS
            .iter()
            .filter(|hook| hook.is_wanted(of) && !hook.is_wanted(nothing_more));
        let names: Vec<&str> = added.map(Hook::program).collect();
        assert!(
            names.len() >= 2 && names.iter().all(|name| name.starts_with(more)),
            "{names:?}"
        );
    }
}
